"""How a task stands for somebody who waits for it: whether it needs a worker, and how it ended."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from compaction_pipeline.core.leases.holders import LeaseHolder, held_in_words, shown_owner
from compaction_pipeline.core.queue.known_task import KnownTask
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import count_text
from compaction_pipeline.core.work.ends import EndReason

_MOST_NAMED = 5
"""So many holders, and so many tasks, are named. Of more, the number is told."""


def waits_for_turn(task: KnownTask) -> bool:
    """Return whether the task is to be merged and no worker merges it now. While its table is paused it has no turn."""
    return task.is_to_be_merged and task.status is not TaskStatus.EXECUTING


def failed_for_good(task: KnownTask) -> bool:
    """Return whether the task was never merged and is not tried again, whichever worker took it."""
    return task.status is TaskStatus.FAILED and task.is_final and task.record_id is None


def is_rejected(task: KnownTask) -> bool:
    """Return whether the task was merged and a commit rejected it, whichever process made that commit. It is to be planned again."""
    return task.status is TaskStatus.FAILED and task.record_id is not None


def is_replaced(task: KnownTask) -> bool:
    """Return whether a newer plan took the files of the task before it began."""
    return task.end_reason is EndReason.REPLACED


def left_over(tasks: Iterable[KnownTask], nodes: Collection[TableNode] | None) -> list[KnownTask]:
    """Return those of the tasks that wait to be merged and belong to these nodes; None means all nodes.

    A task group is merged and committed whole. So the other tasks of a group are returned too.
    """
    waiting = [task for task in tasks if not task.is_final]
    asked = [task for task in waiting if nodes is None or task.work.node in nodes]
    groups = {task.work.group for task in asked if task.work.group}
    return [task for task in waiting if task in asked or task.work.group in groups]


def held_elsewhere(table: TableIdentifier, running: Iterable[CompactionTask]) -> str | None:
    """Return a text that says which processes merge these Executing tasks of a table, how many nodes they hold, and until when.

    Example: "process 4711 on lake-1 is merging 2 tasks of lake.shop.orders (its lease ends at 12:00:30 UTC unless renewed); 1 node is held
    by tasks 5e1f…, 77ab…; run again after that". None when there is no task.
    """
    tasks = sorted((task for task in running if task.lease_expires_at is not None), key=lambda task: task.task_id)
    if not tasks:
        return None
    holders: dict[str, list[CompactionTask]] = {}
    for task in tasks:
        holders.setdefault(shown_owner(task.owner or ""), []).append(task)
    said = []
    for holder, its in holders.items():
        last = max(task.lease_expires_at for task in its if task.lease_expires_at is not None)
        said.append(held_in_words(LeaseHolder(holder, last), f"merging {count_text(len(its), 'task')} of {table}"))
    nodes = len({task.work.node for task in tasks})
    held = f"{count_text(nodes, 'node')} {'is' if nodes == 1 else 'are'} held by {'task' if len(tasks) == 1 else 'tasks'}"
    return f"{_listed(said, '; ')}; {held} {_listed([task.task_id for task in tasks], ', ')}; run again after that"


def _listed(texts: Sequence[str], between: str) -> str:
    more = f"{between}and {len(texts) - _MOST_NAMED:,} more" if len(texts) > _MOST_NAMED else ""
    return between.join(texts[:_MOST_NAMED]) + more
