"""The order in which Pending tasks are executed: higher priority first, then the older task, then the smaller id.

The id makes the order total.
"""

from __future__ import annotations

from datetime import datetime

from compaction_pipeline.core.queue.task import CompactionTask


def priority_order(task: CompactionTask) -> tuple[int, datetime, str]:
    """Return the sort key of a task. The task with the smallest key goes first."""
    return (-task.priority, task.created_at, task.task_id)
