from __future__ import annotations

from datetime import datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.commit.waited import wait_text

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_a_commit_within_a_second_did_not_wait() -> None:
    assert wait_text([NOON], after(0.9)) == "did not wait"


def test_a_commit_without_a_merge_says_nothing() -> None:
    assert wait_text([], NOON) == ""


def test_the_interval_holds_a_commit_back_whatever_is_merged_meanwhile() -> None:
    said = wait_text([NOON, after(8)], after(12), interval_ends_at=after(10))
    assert said == (
        "waited 12 s after its first merge: 10 s for 'self-optimizing.commit.interval' until 12:00:10 UTC, "
        "2 s for the next look at what is due"
    )


def test_tasks_that_are_merged_after_the_interval_are_told() -> None:
    said = wait_text([NOON, after(5), after(12)], after(12.4), interval_ends_at=after(-300))
    assert said == "waited 12.4 s after its first merge: 12 s while 2 more tasks of it were merged until 12:00:12 UTC"


def test_another_commit_and_a_pause_come_before_the_interval() -> None:
    said = wait_text([NOON], after(30), other_ended_at=after(3), pause_ends_at=after(13), interval_ends_at=after(30))
    assert said == (
        "waited 30 s after its first merge: 3 s for another commit of the table until 12:00:03 UTC, "
        "10 s for the pause after a failed commit until 12:00:13 UTC, 17 s for 'self-optimizing.commit.interval' until 12:00:30 UTC"
    )


def test_a_commit_that_comes_early_says_so() -> None:
    said = wait_text([NOON], after(40), interval_ends_at=after(300))
    assert said == (
        "waited 40 s after its first merge: 40 s for 'self-optimizing.commit.interval', which was cut short because waiting would cost more"
    )


def test_a_commit_that_somebody_asked_for_waits_for_merges_and_not_for_the_interval() -> None:
    said = wait_text([NOON, after(7)], after(7.2), interval_ends_at=after(5), at_once=True)
    assert said == "waited 7.2 s after its first merge: 7 s while 1 more task of it was merged until 12:00:07 UTC"


def test_merged_tasks_that_somebody_commits_before_the_interval_ends() -> None:
    said = wait_text([NOON], after(120), interval_ends_at=after(300), at_once=True)
    assert said == "waited 2 min after its first merge: 2 min for 'self-optimizing.commit.interval', until it was asked for at once"


def test_a_commit_that_was_asked_for_and_had_no_turn_says_so() -> None:
    assert wait_text([NOON], after(20), at_once=True) == "waited 20 s after its first merge: 20 s for its turn"


_TIMES = st.integers(-100, 300).map(after)


@given(
    merged=st.lists(_TIMES, min_size=1, max_size=4),
    begins=_TIMES,
    interval=st.none() | _TIMES,
    pause=st.none() | _TIMES,
    other=st.none() | _TIMES,
    at_once=st.booleans(),
)
def test_every_wait_of_a_second_has_a_cause(
    merged: list[datetime], begins: datetime, interval: datetime | None, pause: datetime | None, other: datetime | None, at_once: bool
) -> None:
    said = wait_text(merged, begins, interval_ends_at=interval, pause_ends_at=pause, other_ended_at=other, at_once=at_once)
    assert (said == "did not wait") is (begins - min(merged) < timedelta(seconds=1))
    assert not said.endswith(": ")
