"""The pause after failed commits."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from compaction_pipeline.core.commit.backoff import is_waiting, retry_at

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def test_the_pause_doubles_from_ten_seconds_to_ten_minutes() -> None:
    pauses = [(retry_at(failures, NOW) - NOW).total_seconds() for failures in range(1, 10)]
    assert pauses == [10, 20, 40, 80, 160, 320, 600, 600, 600]
    assert retry_at(100_000, NOW) == NOW + timedelta(minutes=10)


def test_a_table_waits_until_its_pause_is_over() -> None:
    assert not is_waiting(None, NOW)
    assert is_waiting(retry_at(1, NOW), NOW + timedelta(seconds=9))
    assert not is_waiting(retry_at(1, NOW), NOW + timedelta(seconds=10))
