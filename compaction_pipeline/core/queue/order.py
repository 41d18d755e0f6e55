"""Decides which of the waiting tasks is next in a queue of the order PRIORITY.

`core.queue.quota` decides for QUOTA; FIFO takes the one that waited longest. A behaviour test checks that the queries of every store of
tasks follow this order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.queue.task import CompactionTask

AGEING = timedelta(hours=1)
"""A task that has waited this long is as urgent as a task with the next higher priority that begins to wait now.

So nothing starves: for each step of priority by which others are ahead of it, a task waits at most one `AGEING` longer.
"""
FOR_PEOPLE = 24
"""How many steps of priority a task is ahead because a person waits for it. So it goes before what has waited for less than a day."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def rank(priority: int, waiting_since: datetime) -> int:
    """Return the place of a task in line: a smaller number goes first. It never changes while the task waits, so stores can index it."""
    return (waiting_since - _EPOCH) // AGEING - priority


def priority_order(priority: int, small_files: int, waiting_since: datetime, task_id: TaskId) -> tuple[int, int, datetime, TaskId]:
    """Return the sort key of a waiting task. The task with the smallest key is next.

    The rank goes first. Among equal ranks the task with more small files comes first, then the one that has waited longer. The id makes
    the order total.
    """
    return (rank(priority, waiting_since), -small_files, waiting_since, task_id)


def in_place_of(replaced: Mapping[str, datetime], tasks: Sequence[CompactionTask]) -> tuple[CompactionTask, ...]:
    """Return new tasks with the place in line of those that they replace.

    `replaced` says for each data file of a replaced task since when that task has waited. A new task has waited since the earliest of the
    tasks of which it takes a file. Without this, a node that gets new files all the time would go to the end of the line each time.
    """
    return tuple(
        replace(task, waiting_since=min([began, *(replaced[file.path] for file in task.work.inputs if file.path in replaced)]))
        for task in tasks
        for began in [task.waiting_since or task.created_at]
    )
