"""What was decided for a node, and why; and what is remembered of a node from plan to plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from compaction_pipeline.core.queue.task import CompactionType
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """When work of each type was last committed on a node, and what the intervals count from before the first.

    `last_done` by (node, type). `first_seen` by node: an interval starts there when nothing was done yet.
    `last_planned_at` is the table's last plan that made tasks. `last_old_spec_delete_at` is the commit time of the newest live
    delete file of a spec that is not the current one.
    """

    last_done: Mapping[tuple[TableNode, CompactionType], datetime] = field(default_factory=dict)
    first_seen: Mapping[TableNode, datetime] = field(default_factory=dict)
    last_planned_at: datetime | None = None
    last_old_spec_delete_at: datetime | None = None


class PlanReasonCode(str, Enum):
    """Why a plan, or one node of it, is what it is."""

    PLANNED = "PLANNED"
    NOT_FRAGMENTED = "NOT_FRAGMENTED"
    NO_GAIN = "NO_GAIN"
    LIVE_TWICE = "LIVE_TWICE"
    MIN_PLAN_INTERVAL = "MIN_PLAN_INTERVAL"
    FILES_IN_USE = "FILES_IN_USE"
    OVER_BUDGET = "OVER_BUDGET"
    NOT_REQUESTED = "NOT_REQUESTED"
    EMPTY_TABLE = "EMPTY_TABLE"
    DISABLED = "DISABLED"
    PAUSED = "PAUSED"
    OBSERVED = "OBSERVED"
    REFUSED = "REFUSED"
    INVALID_PROPERTY = "INVALID_PROPERTY"
    NO_ACCESS = "NO_ACCESS"
    BEING_READ = "BEING_READ"
    FAILING = "FAILING"


@dataclass(frozen=True, slots=True)
class PlanReason:
    """A code for programs and one sentence with numbers for people."""

    code: PlanReasonCode
    text: str


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """What was decided for one node and why. `type` is the type that is due or planned, None when left alone."""

    node: TableNode
    type: CompactionType | None
    reason: PlanReason
    metrics: NodeMetrics


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node as last measured: figures, verdict and when each type was last done."""

    table: TableIdentifier
    node: TableNode
    key: str
    metrics: NodeMetrics
    verdict: NodeVerdict | None = None
    first_seen: datetime | None = None
    last_done: Mapping[CompactionType, datetime] = field(default_factory=dict)
    changed_snapshot_id: int | None = None
    failing: str | None = None
