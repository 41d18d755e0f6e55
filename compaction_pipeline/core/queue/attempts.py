"""Decides what becomes of a task when an attempt ends: it is merged, tried again or given up.

A failed attempt and a lost one count alike against `self-optimizing.execute.num-retries`. Otherwise a task that kills its worker
each time would be tried for ever.
"""

from __future__ import annotations

from compaction_pipeline.core.queue.task import EndReason, TaskStatus
from compaction_pipeline.core.tables.properties import TableProperties

_HOPELESS = (EndReason.REFUSED, EndReason.FILE_GONE)


def max_attempts(properties: TableProperties) -> int:
    """Return how many attempts a task gets: the first one and its retries."""
    return 1 + properties.num_retries


def after_lost_attempt(attempt: int, max_attempts: int) -> TaskStatus:
    """Return PENDING while attempts are left, otherwise FAILED. `attempt` is the number of the lost or failed attempt, from 1."""
    return TaskStatus.PENDING if attempt < max_attempts else TaskStatus.FAILED


def after_attempt(attempt: int, max_attempts: int, end_reason: EndReason) -> TaskStatus:
    """Return the status of a task after an attempt sent its report.

    The status is PREPARED after a merge. It is FAILED at once when no other attempt can succeed: the content of a file is refused, or
    a file is gone. Otherwise it is the same as after a lost attempt.
    """
    if end_reason is EndReason.MERGED:
        return TaskStatus.PREPARED
    return TaskStatus.FAILED if end_reason in _HOPELESS else after_lost_attempt(attempt, max_attempts)
