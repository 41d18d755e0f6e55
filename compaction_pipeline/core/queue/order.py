"""Who goes next among Pending tasks: higher priority, then longer waiting, then the id (so that the order is total)."""

from __future__ import annotations

from datetime import datetime

from compaction_pipeline.core.queue.task import CompactionTask


def priority_order(task: CompactionTask) -> tuple[int, datetime, str]:
    """Sort key: the smallest goes first."""
    return (-task.priority, task.created_at, task.task_id)
