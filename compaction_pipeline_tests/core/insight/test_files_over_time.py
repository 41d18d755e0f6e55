"""The history of all tables' files stays short, and says what would be without this program."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.insight.files_over_time import KEPT, FilesPoint, continued, thinned

NOW = datetime(2026, 1, 8, 12, tzinfo=timezone.utc)


def points(*minutes_ago: int) -> list[FilesPoint]:
    return [FilesPoint(NOW - timedelta(minutes=minutes), minutes, 0) for minutes in minutes_ago]


def test_without_us_all_files_that_were_merged_away_would_still_be_there() -> None:
    assert FilesPoint(NOW, 10, 90).without_us == 100


def test_a_month_of_points_every_half_minute_becomes_a_few_hundred() -> None:
    month = [FilesPoint(NOW - timedelta(seconds=30 * i), i, 0) for i in range(30 * 2880)]
    kept = thinned(month, NOW)
    assert 250 < len(kept) < 290
    assert kept[-1] == month[0]
    assert NOW - kept[0].at < KEPT
    assert len([point for point in kept if NOW - point.at < timedelta(hours=1)]) >= 60


def test_the_newest_point_stays_however_old_it_is() -> None:
    assert thinned(points(60 * 24 * 90, 60 * 24 * 60), NOW) == tuple(points(60 * 24 * 60))


def test_of_two_points_in_one_minute_the_later_one_stays() -> None:
    earlier, later = FilesPoint(NOW - timedelta(seconds=40), 1, 0), FilesPoint(NOW - timedelta(seconds=20), 2, 0)
    assert thinned([earlier, later], NOW) == (later,)


@given(st.lists(st.integers(0, 60 * 24 * 40), unique=True), st.integers(0, 60 * 24))
def test_thinning_keeps_some_of_the_points_and_keeps_them_the_next_time(minutes: list[int], later: int) -> None:
    once = thinned(points(*minutes), NOW)
    assert set(once) <= set(points(*minutes))
    assert thinned(once, NOW) == once
    assert set(thinned(once, NOW + timedelta(minutes=later))) <= set(once)


def test_the_same_figures_add_no_point() -> None:
    first = FilesPoint(NOW, 5, 2)
    assert continued([], first) == (first,)
    assert continued([first], FilesPoint(NOW + timedelta(hours=1), 5, 2)) == (first,)
    changed = FilesPoint(NOW + timedelta(hours=1), 5, 3)
    assert continued([first], changed) == (first, changed)
