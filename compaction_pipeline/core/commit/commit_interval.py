"""Decides when a table's Prepared tasks are committed.

They are committed together, at most once per commit interval, and earlier only when waiting costs more. Commits should be rare:
each adds a snapshot to the table, and may force other writers of the table to try again.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from compaction_pipeline.core.queue.open_work import PreparedWork

EARLIEST = timedelta(seconds=30)
"""A commit that does not wait for the interval still waits this long after the last commit of the table."""
PREPARED_BYTES = 16 << 30
"""Prepared tasks that read at least this many bytes are committed before the interval ends.

The more bytes wait, the more work a conflict would waste. Until the commit the storage also holds the data of these tasks twice.
"""


def commit_due(
    prepared: PreparedWork, last_committed_at: datetime | None, interval: timedelta, now: datetime, *, holds_back: bool = False
) -> bool:
    """Return whether the Prepared tasks should be committed now.

    `last_committed_at` is the end of the table's last COMMITTED record; without one a commit is due at once. `holds_back` is True
    when nodes of the table are due but cannot be planned, because these tasks hold their files.
    """
    if not prepared.tasks:
        return False
    if last_committed_at is None or now - last_committed_at >= interval:
        return True
    return may_come_early(last_committed_at, now) and (holds_back or prepared.input_bytes >= PREPARED_BYTES)


def may_come_early(last_committed_at: datetime, now: datetime) -> bool:
    """Return whether `EARLIEST` has passed since the last commit, so that a commit may come before the interval ends."""
    return now - last_committed_at >= EARLIEST
