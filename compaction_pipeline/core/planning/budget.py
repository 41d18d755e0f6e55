"""Cuts a plan to the tasks that its table may still have: the table's quota limits their number, and their bytes have a limit too.

The nodes with the highest gain go first. Tasks of one conversion group are taken together or not at all. Only Pending and Executing
tasks count against the quota: a Prepared task needs no slot, because it only waits for its table's commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from compaction_pipeline.core.fragmentation.verdict import NodeVerdict, PlanReasonCode
from compaction_pipeline.core.planning.plan import Budget
from compaction_pipeline.core.queue.open_work import PlannedWork
from compaction_pipeline.core.queue.task import TaskAction, TaskWork
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.words import bytes_text, count_text

LARGE_TASKS = 32
"""The bytes that the Pending and Executing tasks of a table may read, given as a number of tasks of full size.

Tasks that were planned long ago meet conflicts more often. More tasks may be planned when they are small, because they end sooner.
"""
_REFILL = 10
"""A plan may fill the quota again when one slot in this many is free."""


def table_slots(properties: TableProperties, queue_slots: int) -> int:
    """Return how many tasks of a table may be Pending or Executing. `queue_slots` are all slots of its group."""
    quota = properties.quota
    return max(1, int(quota * queue_slots)) if quota <= 1 else int(quota)


def table_budget(properties: TableProperties, queue_slots: int, planned: PlannedWork) -> Budget:
    """Return what a plan of a table may add to its Pending and Executing tasks, which are `planned`."""
    size = LARGE_TASKS * max(properties.target_size_bytes, properties.max_task_size_bytes)
    return Budget(max(0, table_slots(properties, queue_slots) - planned.tasks), max(0, size - planned.input_bytes))


def may_refill(verdicts: Iterable[NodeVerdict], budget: Budget, slots: int) -> bool:
    """Return whether nodes that a plan left out for lack of slots may be planned before `self-optimizing.min-plan-interval` ends.

    They may when a tenth of the table's `slots` is free again.
    """
    return (
        budget.task_slots >= max(1, slots // _REFILL)
        and budget.input_bytes > 0
        and any(verdict.reason.code is PlanReasonCode.OVER_BUDGET for verdict in verdicts)
    )


def is_held_back(verdict: NodeVerdict) -> bool:
    """Return whether a node is due, but must wait because tasks hold its files."""
    return verdict.reason.code is PlanReasonCode.FILES_IN_USE and verdict.type is not None


def gain(work: TaskWork) -> int:
    """Return an estimate: how many fewer files a reader opens after the task. A delete file counts in every task that applies it."""
    if work.action is TaskAction.MERGE:
        return len(work.inputs) - work.predicted_files + len(work.deletes)
    return len(work.converts)


def node_gains(tasks: Iterable[TaskWork]) -> dict[TableNode, int]:
    """Return the sum of the gains of each node's tasks."""
    gains: dict[TableNode, int] = {}
    for work in tasks:
        gains[work.node] = gains.get(work.node, 0) + gain(work)
    return gains


def limit_in_words(budget: Budget, planned: Sequence[TaskWork], left_out: Sequence[TaskWork]) -> str:
    """Return the limit that keeps the tasks of a node out of a plan: the quota, or the limit on bytes. `planned` are the plan's tasks."""
    if budget.task_slots <= 0:
        return "the table's tasks use up its quota"
    if budget.input_bytes <= 0:
        return "the table's tasks already read as many bytes as they may read together"
    room = budget.input_bytes - sum(work.input_bytes for work in planned)
    if len(planned) < budget.task_slots and (room <= 0 or any(work.input_bytes > room for work in left_out)):
        return f"the table's tasks may read {bytes_text(budget.input_bytes)} more, and nodes that gain more take that"
    return f"the table's quota leaves {count_text(budget.task_slots, 'task slot')}, and nodes that gain more take them"


def within_budget(tasks: Sequence[TaskWork], budget: Budget, gains: Mapping[TableNode, int]) -> list[TaskWork]:
    """Return the tasks that fit into the budget; those of the nodes with the highest gain are taken first.

    A node that is not in `gains` has the gain 0. The first task or group is taken even when it alone exceeds what is left, because
    otherwise it would wait for ever. Nothing is taken when no slot or no byte is left.
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
