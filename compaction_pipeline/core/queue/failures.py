"""Why work on tasks ended without a result, in words."""

from __future__ import annotations

from collections.abc import Mapping

from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.ids import TaskId

INTERRUPTED = "interrupted"
"""The reason of an attempt, or of a waiting task, when its process was told to end."""


def why_ended(error: BaseException) -> str:
    """Return the reason that a process gives for its open attempts and tasks when this error ends its work."""
    if isinstance(error, CompactionError):
        return str(error)
    return f"its process failed: {type(error).__name__}: {error}" if isinstance(error, Exception) else INTERRUPTED


def failures_in_words(failed: Mapping[TaskId, str], limit: int = 3) -> str:
    """Return one text with the reasons of failed tasks, by task id, for a run or a command that failed. It names at most `limit` tasks."""
    shown = "; ".join(f"{task_id}: {reason}" for task_id, reason in list(failed.items())[:limit])
    more = len(failed) - limit
    return f"{len(failed)} task(s) failed: {shown}" + (f"; and {more} more" if more > 0 else "")
