"""When a table's Prepared tasks are committed: together, at most once per commit interval, earlier only where waiting costs more.

Commits stay rare: each is a snapshot more, and writers of the table may have to try again.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from compaction_pipeline.core.queue.open_work import PreparedWork

EARLIEST = timedelta(seconds=30)
"""Between two commits of a table of which the second comes before its interval."""
PREPARED_BYTES = 16 << 30
"""Input bytes of Prepared tasks that are committed before the interval ends: so much work is not left to a conflict, nor its files
kept twice for longer."""


def commit_due(
    prepared: PreparedWork, last_committed_at: datetime | None, interval: timedelta, now: datetime, *, holds_back: bool = False
) -> bool:
    """Whether to commit now. `last_committed_at` is the end of the last record that was *committed*; the first is due at once.

    `holds_back`: nodes are due whose files these tasks hold.
    """
    if not prepared.tasks:
        return False
    if last_committed_at is None or now - last_committed_at >= interval:
        return True
    return may_come_early(last_committed_at, now) and (holds_back or prepared.input_bytes >= PREPARED_BYTES)


def may_come_early(last_committed_at: datetime, now: datetime) -> bool:
    """Whether the last commit is long enough ago for one before the interval."""
    return now - last_committed_at >= EARLIEST
