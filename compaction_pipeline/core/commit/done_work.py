"""Tells which work is done once tasks are committed. The intervals of the triggers begin anew then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work


def done_work(
    committed: Sequence[MergedWork[Work]], unfinished: Iterable[MergedWork[Work]], nodes: Iterable[TableNode]
) -> list[tuple[TableNode, CompactionType]]:
    """Return the nodes, each with the type of work that is done on it.

    `unfinished` are the tasks of the table that are not committed: the FULL of a node is done when all tasks that its plan made for it are.
    `nodes` are all nodes of the table, when tasks merged changes into a base store. Such a merge works on all nodes of its partition.
    """
    full = {(task.plan_id, task.work.node) for task in committed if task.work.type is CompactionType.FULL}
    left = {(task.plan_id, task.work.node) for task in unfinished if task.work.type is CompactionType.FULL}
    merged = {place: task.work.type for task in committed if (place := task.work.merged_place) is not None}
    beside = ((node, merged[node.place]) for node in nodes if node.place in merged)
    return [*((task.work.node, task.work.type) for task in committed if (task.plan_id, task.work.node) not in full & left), *beside]
