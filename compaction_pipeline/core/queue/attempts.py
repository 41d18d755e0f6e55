"""Decides what becomes of a task when an attempt ends: it is merged, tried again at once, tried again later, or given up.

Failures and losses are counted apart, and two other kinds of ends count as neither. A failed attempt and one that took too long use up one
of the task's `self-optimizing.execute.num-retries`. An attempt whose process fell silent does not, because that is seldom the task's fault.
But a task that kills its worker each time must not be tried for ever, so a task that was lost `MOST_LOSSES` times in a row is given up. An
attempt that its process gave back, because the process was told to end, counts as nothing. Nor does one whose credentials ended while it
ran; `core.queue.credentials` says how often. The first report that cannot be true says nothing about the task, so it uses up no retry
either; `core.queue.reported_ends` says what becomes of more of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.words import duration_text
from compaction_pipeline.core.work.ends import EndReason

MOST_LOSSES = 5
"""A task that was lost this many times in a row is given up."""
STUCK_AFTER = timedelta(seconds=60)
"""A worker tells its engine to stop the merge of an attempt that lost its task. A merge that still runs after this time is stuck."""
_HOPELESS = (EndReason.REFUSED, EndReason.FILE_GONE)


@dataclass(frozen=True, slots=True)
class Tries:
    """How the attempts of a task have ended so far.

    `failures` counts the attempts that used up a retry. `losses` counts the attempts in a row whose process fell silent. A report of an
    attempt sets it back to 0; an attempt that was given back does not.
    """

    failures: int = 0
    losses: int = 0


@dataclass(frozen=True, slots=True)
class AfterAttempt:
    """What an attempt leaves of its task. `retry_at` is set when the task is FAILED but will be tried again at that time."""

    status: TaskStatus
    tries: Tries
    retry_at: datetime | None = None


def max_attempts(properties: TableProperties) -> int:
    """Return how many attempts of a task may fail or take too long: the first one and its retries."""
    return 1 + properties.num_retries


def after_attempt(tries: Tries, max_attempts: int, end_reason: EndReason, now: datetime, retry_after: timedelta) -> AfterAttempt:
    """Return what becomes of a task when an attempt ended for this reason. `tries` are those before this end.

    The task is PREPARED after a merge. It is PENDING after an attempt that was lost, was given back, whose credentials ended or
    whose report cannot be true, unless it was lost too often in a row. After a failure it is FAILED with the time at which it is tried
    again, `retry_after` from now; it is PENDING at once when `retry_after` is zero. When it is not tried again, it is FAILED without such a
    time.
    """
    if end_reason is EndReason.MERGED:
        return AfterAttempt(TaskStatus.PREPARED, Tries(tries.failures))
    after = _counted(tries, end_reason)
    if not _may_go_on(after, max_attempts, end_reason):
        return AfterAttempt(TaskStatus.FAILED, after)
    if after.failures == tries.failures or not retry_after:
        return AfterAttempt(TaskStatus.PENDING, after)
    return AfterAttempt(TaskStatus.FAILED, after, now + retry_after)


def is_tried_again(task: CompactionTask) -> bool:
    """Return whether a task runs again after the attempt that ended just now.

    `task` is as it was claimed, but with the result of the attempt and the status that the report got. A worker knows no more than that.
    """
    if task.status is not TaskStatus.FAILED or task.result is None:
        return task.status is TaskStatus.PENDING
    # Ended credentials leave a task PENDING, unless it was the case too often: then they count as a denied access.
    reason = EndReason.NO_ACCESS if task.result.end_reason is EndReason.CREDENTIALS_ENDED else task.result.end_reason
    return _may_go_on(_counted(Tries(task.failures, task.losses), reason), task.max_attempts, reason)


def is_stuck(lost_at: datetime, now: datetime) -> bool:
    """Return whether a merge that still runs is stuck. The worker learned at `lost_at` that the attempt has lost its task."""
    return now - lost_at >= STUCK_AFTER


def attempt_text(task: CompactionTask) -> str:
    """Return for example "3 (1 of 4 failed)": the number of the last attempt, from 1, and how many of those that may fail have failed.

    The numbers differ, because attempts that were lost or handed back did not fail. Before the first attempt it is "–".
    """
    return f"{task.attempt} ({task.failures} of {task.max_attempts} failed)" if task.attempt else "–"


def lost_text(attempt: int, owner: str | None, after: AfterAttempt) -> str:
    """Say why an attempt was taken from a process that fell silent, and why the task is given up when it is."""
    text = f"attempt {attempt} was lost: {owner} did not renew its lease"
    if after.status is TaskStatus.PENDING:
        return text
    return f"{text}; the task was lost {after.tries.losses} times in a row, so it is not tried again"


def timed_out_text(attempt: int, owner: str | None, timeout: timedelta) -> str:
    """Say why an attempt was taken from a process that still renewed its lease."""
    return (
        f"attempt {attempt} of {owner} took longer than {duration_text(timeout)}; "
        "give the task more time with COMPACTION_TASK_TIMEOUT_SECONDS, or find out why it is slow"
    )


def _counted(tries: Tries, end_reason: EndReason) -> Tries:
    if end_reason is EndReason.LOST:
        return Tries(tries.failures, tries.losses + 1)
    if end_reason in (EndReason.INTERRUPTED, EndReason.REPORT_REFUSED):
        return tries
    if end_reason is EndReason.CREDENTIALS_ENDED:
        return Tries(tries.failures)
    return Tries(tries.failures + 1)


def _may_go_on(after: Tries, max_attempts: int, end_reason: EndReason) -> bool:
    """Return whether another attempt may succeed. None can when the content of a file is refused, or when a file is gone."""
    return end_reason not in _HOPELESS and after.failures < max_attempts and after.losses < MOST_LOSSES
