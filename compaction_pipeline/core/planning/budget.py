"""What of a plan the group's quota still allows: the nodes with the highest gain first, a group whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from compaction_pipeline.core.model.node import TableNode
from compaction_pipeline.core.model.plan import Budget
from compaction_pipeline.core.model.task import TaskAction, TaskWork


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
