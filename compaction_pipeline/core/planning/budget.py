"""Cuts a plan to the tasks that its table may still have, and that its queue still has room for.

The table's quota limits their bytes, and their number. The nodes with the highest gain go first. Tasks of one conversion group are taken
together or not at all. Only tasks that are still to be merged count: a Prepared task needs no slot, because it only waits for its table's
commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import TypeVar

from compaction_pipeline.core.fragmentation.verdict import NodeVerdict, PlanReasonCode
from compaction_pipeline.core.planning.plan import Budget
from compaction_pipeline.core.queue.open_work import PlannedWork
from compaction_pipeline.core.queue.quota import entitled_slots
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.words import bytes_text, count_text
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.work import Work

W = TypeVar("W", bound=Work)

TASKS_PER_SLOT = 4
"""A table may have this many tasks of full size for each slot that it is entitled to, so that no slot waits for the next plan."""
LARGE_TASKS = 32
"""A table may have at least this many tasks of full size, however few slots it is entitled to."""
SMALL_TASKS = 16
"""A table may have so many times more tasks when they are small. Tasks that were planned long ago meet conflicts more often, and small
ones end sooner."""
_REFILL = 10
"""A plan may fill the quota again when one place in this many is free."""


def large_tasks(properties: TableProperties, slots: int) -> int:
    """Return how many tasks of full size a table may have that are still to be merged. `slots` are all slots of its group."""
    return max(LARGE_TASKS, ceil(TASKS_PER_SLOT * entitled_slots(properties.quota, slots)))


def most_tasks(properties: TableProperties, slots: int) -> int:
    """Return how many tasks a table may have that are still to be merged, however small they are."""
    return SMALL_TASKS * large_tasks(properties, slots)


def table_budget(properties: TableProperties, slots: int, planned: PlannedWork) -> Budget:
    """Return what a plan of a table may add to its tasks that are still to be merged, which are `planned`."""
    size = large_tasks(properties, slots) * max(properties.target_size_bytes, properties.max_task_size_bytes)
    return Budget(max(0, most_tasks(properties, slots) - planned.tasks), max(0, size - planned.input_bytes))


def may_refill(verdicts: Iterable[NodeVerdict], budget: Budget, most: int) -> bool:
    """Return whether nodes that a plan left out for the table's quota may be planned before `self-optimizing.min-plan-interval` ends.

    They may when the table may have a tenth of its `most` tasks more.
    """
    return (
        budget.task_slots >= max(1, most // _REFILL)
        and not budget.is_used_up
        and any(verdict.reason.code is PlanReasonCode.OVER_BUDGET for verdict in verdicts)
    )


def is_held_back(verdict: NodeVerdict) -> bool:
    """Return whether a node is due, but must wait because tasks hold its files."""
    return verdict.reason.code is PlanReasonCode.FILES_IN_USE and verdict.type is not None


def node_gains(tasks: Iterable[Work]) -> dict[TableNode, int]:
    """Return the sum of the gains of each node's tasks."""
    gains: dict[TableNode, int] = {}
    for work in tasks:
        gains[work.node] = gains.get(work.node, 0) + work.gain
    return gains


def limit_in_words(budget: Budget, planned: Sequence[Work], left_out: Sequence[Work]) -> tuple[PlanReasonCode, str]:
    """Return the limit that keeps the tasks of a node out of a plan. `planned` are the plan's tasks."""
    if budget.team_held is not None:
        return PlanReasonCode.OVER_TEAM_BUDGET, budget.team_held
    if budget.task_slots <= 0:
        return PlanReasonCode.OVER_BUDGET, "the table's tasks use up its quota"
    if budget.input_bytes <= 0:
        return PlanReasonCode.OVER_BUDGET, "the table's tasks already read as many bytes as they may read together"
    least = min((len(unit) for unit in units(left_out)), default=1)
    if budget.room is not None and budget.room.free < min(len(planned) + least, budget.task_slots + 1):
        return PlanReasonCode.QUEUE_FULL, budget.room.in_words + ("; nodes that gain more take the rest" if planned else "")
    room = budget.input_bytes - sum(work.input_bytes for work in planned)
    if len(planned) < budget.task_slots and (room <= 0 or any(work.input_bytes > room for work in left_out)):
        return (
            PlanReasonCode.OVER_BUDGET,
            f"the table's tasks may read {bytes_text(budget.input_bytes)} more, and nodes that gain more take that",
        )
    text = f"the table's quota leaves {count_text(budget.task_slots, 'task slot')}, and nodes that gain more take them"
    return PlanReasonCode.OVER_BUDGET, text


def within_budget(tasks: Sequence[W], budget: Budget, gains: Mapping[TableNode, int]) -> list[W]:
    """Return the tasks that fit into the budget; those of the nodes with the highest gain are taken first.

    A node that is not in `gains` has the gain 0. The first task or group is taken even when it alone exceeds the table's quota, because
    otherwise it would wait for ever. It must fit into the queue all the same, as `QueueRoom.admits` says. Nothing is taken when no slot, no
    byte or no place is left.
    """
    if budget.is_used_up:
        return []
    places = budget.room.free if budget.room is not None else len(tasks)
    if len(tasks) <= min(budget.task_slots, places) and sum(work.input_bytes for work in tasks) <= budget.input_bytes:
        return list(tasks)
    ordered = sorted(units(tasks), key=lambda unit: (-max(gains.get(work.node, 0) for work in unit), -sum(work.gain for work in unit)))
    taken: list[W] = []
    slots, size = budget.task_slots, budget.input_bytes
    for unit in ordered:
        unit_bytes = sum(work.input_bytes for work in unit)
        if taken and (len(unit) > min(slots, places) or unit_bytes > size):
            continue
        if budget.room is not None and not taken and not budget.room.admits(len(unit)):
            continue
        taken.extend(unit)
        slots -= len(unit)
        places -= len(unit)
        size -= unit_bytes
    return taken


def units(tasks: Sequence[W]) -> list[list[W]]:
    """Return the tasks that are taken together or not at all: those of a conversion group, and those of the FULL of a node.

    A FULL in two parts would count as done after the first one.
    """
    units: dict[object, list[W]] = {}
    for number, work in enumerate(tasks):
        alone: object = work.node if work.type is CompactionType.FULL else number
        units.setdefault(work.group or alone, []).append(work)
    return list(units.values())


def nodes_together(tasks: Iterable[Work]) -> Mapping[TableNode, TableNode]:
    """Return for the node of each task the one that stands for all nodes which are worked on together with it. A group joins its nodes."""
    stands: dict[TableNode, TableNode] = {}
    first: dict[str, TableNode] = {}

    def of(node: TableNode) -> TableNode:
        while (other := stands.setdefault(node, node)) != node:
            node = other
        return node

    for work in tasks:
        node = of(work.node)
        if work.group:
            stands[node] = of(first.setdefault(work.group, work.node))
    return {node: of(node) for node in list(stands)}
