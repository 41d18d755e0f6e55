"""When a table's Prepared tasks are committed: together, at most once per commit interval."""

from __future__ import annotations

from datetime import datetime, timedelta


def commit_due(prepared_exists: bool, last_committed_at: datetime | None, interval: timedelta, now: datetime) -> bool:
    """Whether to commit now. `last_committed_at` is the end of the last record that was *committed*; the first is due at once."""
    return prepared_exists and (last_committed_at is None or now - last_committed_at >= interval)
