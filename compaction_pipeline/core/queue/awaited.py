"""How a task stands for somebody who waits for it: whether it needs a worker, and how it ended."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from compaction_pipeline.core.queue.known_task import KnownTask
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.work.ends import EndReason


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
