"""Tells in which partitions of a keyed table tasks merge changes already."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.node import Place


@dataclass(frozen=True, slots=True)
class InWork:
    """The partitions with open tasks. The changes of a partition are merged all or none, so it has one plan at a time.

    A plan must not take the `busy` ones. It may take those of `replaceable` when it replaces these tasks: nobody has begun them.
    """

    busy: frozenset[Place] = frozenset()
    replaceable: Mapping[Place, tuple[TaskId, ...]] = field(default_factory=dict)


def in_work(tasks: Iterable[CompactionTask], *, by_person: bool) -> InWork:
    """Return what the tasks of a table hold. The plan of a person may also replace tasks that failed and wait to be tried again."""
    open_tasks: dict[Place, list[CompactionTask]] = defaultdict(list)
    for task in tasks:
        if not task.is_final:
            open_tasks[task.work.node.place].append(task)
    replaceable = {
        place: tuple(task.task_id for task in of_place)
        for place, of_place in open_tasks.items()
        if by_person and all(task.status is TaskStatus.PENDING or task.waits_for_retry for task in of_place)
    }
    return InWork(frozenset(open_tasks.keys() - replaceable.keys()), replaceable)
