"""What becomes of a task whose attempt ended without a result: tried again, or given up.

A failed, a lost and an expired attempt count alike against `self-optimizing.execute.num-retries`: a task that kills its
worker each time must end too.
"""

from __future__ import annotations

from compaction_pipeline.core.queue.task import EndReason, TaskStatus
from compaction_pipeline.core.tables.properties import TableProperties

_HOPELESS = (EndReason.REFUSED, EndReason.FILE_GONE)


def max_attempts(properties: TableProperties) -> int:
    """Attempts that a task gets in all: the first one and its retries."""
    return 1 + properties.num_retries


def after_lost_attempt(attempt: int, max_attempts: int) -> TaskStatus:
    """PENDING while attempts are left, else FAILED. `attempt` counts from 1 and is the one that was lost or failed."""
    return TaskStatus.PENDING if attempt < max_attempts else TaskStatus.FAILED


def after_attempt(attempt: int, max_attempts: int, end_reason: EndReason) -> TaskStatus:
    """What a report makes of its task: PREPARED when merged, else what a lost attempt becomes.

    A task is given up at once where no other attempt can do better: what its files hold is refused, or one of them is gone.
    """
    if end_reason is EndReason.MERGED:
        return TaskStatus.PREPARED
    return TaskStatus.FAILED if end_reason in _HOPELESS else after_lost_attempt(attempt, max_attempts)
