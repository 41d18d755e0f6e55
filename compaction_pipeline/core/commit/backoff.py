"""Decides when a tick commits a table again after a failed commit.

Each further failure doubles the pause, up to a limit. A person may try again at any time.
"""

from __future__ import annotations

from datetime import datetime, timedelta

FIRST_PAUSE = timedelta(seconds=10)
LONGEST_PAUSE = timedelta(minutes=10)


def retry_at(failures: int, now: datetime) -> datetime:
    """Return when the table may be committed again.

    `failures` counts the commits of the table that failed one after the other, including the one that failed just now (≥ 1).
    """
    pause = FIRST_PAUSE * (1 << min(failures - 1, 10))
    return now + min(pause, LONGEST_PAUSE)


def is_waiting(commit_retry_at: datetime | None, now: datetime) -> bool:
    """Return whether the table's pause still lasts. `commit_retry_at` is None for a table without a pause."""
    return commit_retry_at is not None and now < commit_retry_at
