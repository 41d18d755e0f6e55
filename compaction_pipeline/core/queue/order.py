"""Decides which of the waiting tasks is next. A behaviour test checks that the queries of every store of tasks follow this order."""

from __future__ import annotations

from datetime import datetime

from compaction_pipeline.core.ids import TaskId


def priority_order(priority: int, created_at: datetime, task_id: TaskId) -> tuple[int, datetime, TaskId]:
    """Return the sort key of a waiting task. The task with the smallest key is next.

    A higher priority goes first, then the task that was created earlier. The id makes the order total.
    """
    return (-priority, created_at, task_id)
