"""Tells in which partitions of a keyed table tasks merge changes already, and which change files they hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.queue.known_task import KnownTask
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.node import Place


@dataclass(frozen=True, slots=True)
class InWork:
    """The partitions whose changes open tasks merge into the base store. This is done all or none, so a partition has one such plan at a
    time.

    A plan must not take the `busy` ones. It may take those of `replaceable` when it replaces these tasks: nobody has begun them.
    `change_files` are the paths of change files that open tasks read, for whatever purpose. A merge into the base store may read them too,
    because it removes none of them. A merge of change files with each other takes none: another one removes them, or readers will soon
    skip them. `base_files` are the paths of base files that open tasks hold.
    """

    busy: frozenset[Place] = frozenset()
    replaceable: Mapping[Place, tuple[TaskId, ...]] = field(default_factory=dict)
    change_files: frozenset[str] = frozenset()
    base_files: frozenset[str] = frozenset()


def in_work(tasks: Iterable[KnownTask], base_files: frozenset[str] = frozenset(), *, by_person: bool) -> InWork:
    """Return what the tasks of a table hold; `base_files` are the paths of base files among it.

    The plan of a person may also replace tasks that failed and wait to be tried again.
    """
    open_tasks: dict[Place, list[KnownTask]] = defaultdict(list)
    change_files: set[str] = set()
    for task in tasks:
        if task.is_final:
            continue
        change_files.update(file.path for file in task.work.changes_read)
        if task.work.merged_place is not None:
            open_tasks[task.work.merged_place].append(task)
    replaceable = {
        place: tuple(task.task_id for task in of_place)
        for place, of_place in open_tasks.items()
        if by_person and all(task.status is TaskStatus.PENDING or task.waits_for_retry for task in of_place)
    }
    return InWork(frozenset(open_tasks.keys() - replaceable.keys()), replaceable, frozenset(change_files), base_files)
