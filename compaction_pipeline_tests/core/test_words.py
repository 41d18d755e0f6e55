"""Counts, sizes, durations and moments have one form each."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from compaction_pipeline.core.words import bytes_text, change_text, count_text, duration_text, moment_text, time_text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (99_940, "99.9 kB"),
        (134_217_728, "134 MB"),
        (999_600, "1.0 MB"),
        (5 * 10**18, "5000.0 PB"),
    ],
)
def test_bytes_keep_three_digits(size: int, text: str) -> None:
    assert bytes_text(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (1.5, "1.5 s"),
        (59.94, "59.9 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (5400, "1 h 30 min"),
        (86400, "1 d"),
        (90 * 3600, "3 d 18 h"),
    ],
)
def test_durations_name_their_units(seconds: float, text: str) -> None:
    assert duration_text(timedelta(seconds=seconds)) == text


def test_a_count_of_one_has_no_plural() -> None:
    assert [count_text(count, "small data file") for count in (0, 1, 2)] == [
        "0 small data files",
        "1 small data file",
        "2 small data files",
    ]


def test_a_moment_has_its_date_only_on_another_day() -> None:
    now = datetime(2024, 1, 2, 23, 59, 30, tzinfo=timezone.utc)
    assert moment_text(now, now) == "23:59:30 UTC"
    assert moment_text(now + timedelta(minutes=1), now) == "2024-01-03 00:00:30 UTC"


def test_times_and_changes() -> None:
    assert time_text(datetime(2024, 1, 2, 3, 4, 5, tzinfo=timezone.utc)) == "2024-01-02 03:04:05"
    assert time_text(None) == "-"
    assert (change_text(1200, 3), change_text(3, 3)) == ("1,200 → 3", "3")
