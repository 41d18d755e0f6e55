"""What of a plan the group's quota still allows: the nodes with the highest gain first, a group whole or not at all.

Only work that waits or runs counts: a Prepared task needs no slot any more, it waits for its table's commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from compaction_pipeline.core.fragmentation.verdict import NodeVerdict, PlanReasonCode
from compaction_pipeline.core.planning.plan import Budget
from compaction_pipeline.core.queue.open_work import PlannedWork
from compaction_pipeline.core.queue.task import TaskAction, TaskWork
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties

LARGE_TASKS = 32
"""Tasks of full size that may wait for one table: what was planned long ago meets conflicts, and small tasks are soon done."""
_REFILL = 10


def table_slots(properties: TableProperties, queue_slots: int) -> int:
    """How many tasks of a table may be Pending or Executing: its share of the group's, or the number that its quota says."""
    quota = properties.quota
    return max(1, int(quota * queue_slots)) if quota <= 1 else int(quota)


def table_budget(properties: TableProperties, queue_slots: int, planned: PlannedWork) -> Budget:
    """What a plan of a table may add to what is planned."""
    size = LARGE_TASKS * max(properties.target_size_bytes, properties.max_task_size_bytes)
    return Budget(max(0, table_slots(properties, queue_slots) - planned.tasks), max(0, size - planned.input_bytes))


def may_refill(verdicts: Iterable[NodeVerdict], budget: Budget, slots: int) -> bool:
    """Whether nodes that a plan left out for want of slots may be planned before 'min-plan-interval' ends: a tenth is free again."""
    return (
        budget.task_slots >= max(1, slots // _REFILL)
        and budget.input_bytes > 0
        and any(verdict.reason.code is PlanReasonCode.OVER_BUDGET for verdict in verdicts)
    )


def is_held_back(verdict: NodeVerdict) -> bool:
    """Whether a node is due and waits for tasks that hold its files."""
    return verdict.reason.code is PlanReasonCode.FILES_IN_USE and verdict.type is not None


def gain(work: TaskWork) -> int:
    """Files that a reader no longer opens, delete files counted once per data file that they reached at most."""
    if work.action is TaskAction.MERGE:
        return len(work.inputs) - work.predicted_files + len(work.deletes)
    return len(work.converts)


def node_gains(tasks: Iterable[TaskWork]) -> dict[TableNode, int]:
    """The gain of each node's tasks together."""
    gains: dict[TableNode, int] = {}
    for work in tasks:
        gains[work.node] = gains.get(work.node, 0) + gain(work)
    return gains


def within_budget(tasks: Sequence[TaskWork], budget: Budget, gains: Mapping[TableNode, int]) -> list[TaskWork]:
    """Tasks that fit, in the order of their node's gain (0 for one that has none).

    The first unit is taken even when its bytes, or a group's tasks, exceed what is left: it would wait for ever otherwise.
    """
    if budget.task_slots <= 0 or budget.input_bytes <= 0:
        return []
    if len(tasks) <= budget.task_slots and sum(work.input_bytes for work in tasks) <= budget.input_bytes:
        return list(tasks)
    units: dict[str, list[TaskWork]] = {}
    for number, work in enumerate(tasks):
        units.setdefault(work.group or f"#{number}", []).append(work)
    ordered = sorted(units.values(), key=lambda unit: (-max(gains.get(work.node, 0) for work in unit), -sum(gain(work) for work in unit)))
    taken: list[TaskWork] = []
    slots, size = budget.task_slots, budget.input_bytes
    for unit in ordered:
        unit_bytes = sum(work.input_bytes for work in unit)
        if taken and (len(unit) > slots or unit_bytes > size):
            continue
        taken.extend(unit)
        slots -= len(unit)
        size -= unit_bytes
    return taken
