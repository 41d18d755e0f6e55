"""When a table whose commit failed is committed again by itself: after a pause that doubles. A person may try at once."""

from __future__ import annotations

from datetime import datetime, timedelta

FIRST_PAUSE = timedelta(seconds=10)
LONGEST_PAUSE = timedelta(minutes=10)


def retry_at(failures: int, now: datetime) -> datetime:
    """`failures`: how many commits of the table failed one after the other, the one just now included (≥ 1)."""
    pause = FIRST_PAUSE * (1 << min(failures - 1, 10))
    return now + min(pause, LONGEST_PAUSE)


def is_waiting(commit_retry_at: datetime | None, now: datetime) -> bool:
    """Whether the table's pause is not over."""
    return commit_retry_at is not None and now < commit_retry_at
