"""What a plan is made from and what it says. `plan()` itself lives in `core.planning`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from compaction_pipeline.core.model.data_file import LiveFile
from compaction_pipeline.core.model.ids import TaskId
from compaction_pipeline.core.model.node import TableNode
from compaction_pipeline.core.model.table import TableIdentifier
from compaction_pipeline.core.model.task import CompactionType, TaskWork


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The live files of exactly one snapshot, fully read: data and delete files of every node.

    `sort_order_id` is the order that a FULL sorts by; 0: none.
    """

    table: TableIdentifier
    table_uuid: str
    snapshot_id: int
    sequence_number: int
    format_version: int
    schema_id: int
    default_spec_id: int
    unpartitioned_spec_ids: frozenset[int]
    files: tuple[LiveFile, ...]
    sort_order_id: int = 0


@dataclass(frozen=True, slots=True)
class InUse:
    """Data files of Executing and Prepared tasks, and nodes with a running MAJOR or FULL.

    `pending` are the data files of Pending tasks, path → task id: a plan may take them by replacing those tasks. `pending_groups`
    are the groups of those Pending tasks that are in one, task id → group: a group is replaced with all its Pending tasks.
    """

    paths: frozenset[str] = frozenset()
    exclusive_nodes: frozenset[TableNode] = frozenset()
    pending: Mapping[str, TaskId] = field(default_factory=dict)
    pending_groups: Mapping[TaskId, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """`types` None: what the triggers say. `nodes` None: all. `force`: thresholds ignored, a gain still needed.

    `snapshot_properties`: key and value of what goes into the summary of the snapshots that this plan is committed with.
    """

    types: tuple[CompactionType, ...] | None = None
    nodes: frozenset[TableNode] | None = None
    force: bool = False
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)


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


@dataclass(frozen=True, slots=True)
class Budget:
    """Task slots and input bytes that the group's quota still allows this plan."""

    task_slots: int
    input_bytes: int


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
class NodeMetrics:
    """The figures of one node at one snapshot. "Small" is ≤ target size / fragment ratio. Sizes in bytes."""

    data_files: int = 0
    small_data_files: int = 0
    small_data_bytes: int = 0
    data_bytes: int = 0
    position_delete_files: int = 0
    equality_delete_files: int = 0
    small_delete_files: int = 0
    small_delete_bytes: int = 0
    delete_bytes: int = 0
    rows: int = 0
    deleted_rows_estimate: int = 0

    @property
    def files(self) -> int:
        """n: files that a reader of the node opens."""
        return self.data_files + self.delete_files

    @property
    def delete_files(self) -> int:
        return self.position_delete_files + self.equality_delete_files

    @property
    def small_files(self) -> int:
        return self.small_data_files + self.small_delete_files

    @property
    def fragmentation(self) -> float:
        """Small files / live files; 0 for a node without files."""
        return self.small_files / self.files if self.files else 0.0


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """Sums over the files of a node, made where they are stored. `metrics` has no estimate of deleted rows, which needs the files.

    Undersized is larger than small, and too small for a right file; the sequence number is the highest of all its files.
    """

    metrics: NodeMetrics
    undersized_files: int = 0
    max_sequence_number: int = 0


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """What was decided for one node and why. `type` is the type that is due or planned, None when left alone."""

    node: TableNode
    type: CompactionType | None
    reason: PlanReason
    metrics: NodeMetrics


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """Tasks, the reason (for an empty plan: why nothing), a verdict per node, and what is predicted after it.

    `replaces` are Pending tasks that must be canceled in the transaction that inserts these.
    """

    tasks: tuple[TaskWork, ...]
    reason: PlanReason
    verdicts: tuple[NodeVerdict, ...] = ()
    replaces: tuple[TaskId, ...] = ()
    predicted_files: int = 0
    predicted_delete_files: int = 0
    predicted_bytes: int = 0
