"""What a plan is made from and what it says. `plan()` itself lives in `core.planning`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compaction_pipeline.core.fragmentation.verdict import NodeVerdict, PlanReason
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.queue.task import CompactionType, TaskWork
from compaction_pipeline.core.tables.node import TableNode


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
class Budget:
    """Task slots and input bytes that the group's quota still allows this plan."""

    task_slots: int
    input_bytes: int


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
