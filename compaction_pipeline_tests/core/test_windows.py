"""Windows of time, beside instants that were found by hand, and a walk through every quarter of an hour."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.windows import Window, WindowError

QUARTER = timedelta(minutes=15)


def utc(*at: int) -> datetime:
    return datetime(*at, tzinfo=timezone.utc)  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("text", "opens", "closes"),
    [
        ("22:00-06:00 Europe/Berlin", utc(2026, 1, 1, 21), utc(2026, 1, 2, 5)),
        ("22:00–06:00 Europe/Berlin", utc(2026, 7, 1, 20), utc(2026, 7, 2, 4)),
        ("01:00-05:00 UTC", utc(2026, 1, 1, 1), utc(2026, 1, 1, 5)),
        # It is an hour shorter, and an hour longer, when clocks change in it.
        ("22:00-06:00 Europe/Berlin", utc(2026, 3, 28, 21), utc(2026, 3, 29, 4)),
        ("22:00-06:00 Europe/Berlin", utc(2026, 10, 24, 20), utc(2026, 10, 25, 5)),
        # Its beginning is left out by clocks, and there twice.
        ("02:30-04:00 Europe/Berlin", utc(2026, 3, 29, 1), utc(2026, 3, 29, 2)),
        ("02:30-04:00 Europe/Berlin", utc(2026, 10, 25, 0, 30), utc(2026, 10, 25, 3)),
        # A whole day.
        ("00:00-00:00 America/New_York sat", utc(2026, 1, 3, 5), utc(2026, 1, 4, 5)),
    ],
)
def test_a_window_is_open_from_its_beginning_to_its_end(text: str, opens: datetime, closes: datetime) -> None:
    window, moment = Window.parse(text), timedelta(seconds=1)
    assert [window.is_open(at) for at in (opens - moment, opens, closes - moment, closes)] == [False, True, True, False]
    assert window.next_opening(opens - moment) == opens
    assert window.next_opening(opens) > closes


def test_days_belong_to_the_beginning_of_a_window() -> None:
    weekdays = Window.parse("22:00-06:00 UTC mon-fri")
    # 2026-01-02 is a Friday.
    assert weekdays.is_open(utc(2026, 1, 3, 5))
    assert not weekdays.is_open(utc(2026, 1, 3, 23))
    assert weekdays.next_opening(utc(2026, 1, 3, 7)) == utc(2026, 1, 5, 22)
    assert Window.parse("22:00-06:00 UTC fri-mon").days == {4, 5, 6, 0}
    assert Window.parse("22:00-06:00 UTC sun,wed").days == {6, 2}


@given(
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
    st.tuples(*[st.integers(0, 95)] * 2),
    st.sets(st.integers(0, 6), min_size=1),
    st.sampled_from([utc(2026, 3, 27), utc(2026, 10, 23), utc(2026, 3, 7), utc(2026, 4, 3)]),
)
def test_a_window_is_open_at_local_times_within_it(zone: str, quarters: tuple[int, int], days: set[int], first: datetime) -> None:
    opens, closes = (f"{one // 4:02}:{one % 4 * 15:02}" for one in quarters)
    window = Window.parse(f"{opens}-{closes} {zone} " + ",".join(("mon", "tue", "wed", "thu", "fri", "sat", "sun")[day] for day in days))
    assert Window.parse(str(window)) == window
    changes = {at for at in (first + number * QUARTER for number in range(4 * 96)) if _offset(at, zone) != _offset(at + QUARTER, zone)}
    was_open = None
    for at in (first + number * QUARTER for number in range(4 * 96)):
        if any(abs(at - change) <= timedelta(hours=4) for change in changes):
            was_open = None
            continue
        local = at.astimezone(ZoneInfo(zone))
        clock, day = f"{local:%H:%M}", local.weekday()
        began_today = day in days and clock >= opens and (clock < closes or closes <= opens)
        began_before = (day - 1) % 7 in days and closes <= opens and clock < closes
        assert window.is_open(at) == (began_today or began_before)
        if was_open is False and window.is_open(at):
            assert window.next_opening(at - QUARTER) == at
        was_open = window.is_open(at)


def _offset(at: datetime, zone: str) -> timedelta | None:
    return at.astimezone(ZoneInfo(zone)).utcoffset()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "two times that have '-' between them, e.g. 22:00-06:00"),
        ("22:00", "two times that have '-'"),
        ("22-06 UTC", "'22' is no time from 00:00 to 23:59"),
        ("25:00-06:00 UTC", "'25:00' is no time"),
        ("22:00-6:00 UTC", "'6:00' is no time"),
        ("22:00-06:00", "no time zone stands behind the times; write one, e.g. Europe/Berlin"),
        ("22:00-06:00 Mars/Base", "'Mars/Base' is no time zone"),
        ("22:00-06:00 UTC xyz", "'xyz' is none of mon, tue"),
        ("22:00-06:00 UTC mon-", "'' is none of mon, tue"),
        ("22:00-06:00 UTC sat, sun", "'' is none of mon|nothing may stand behind the days, but 'sun'"),
    ],
)
def test_another_form_is_refused_with_the_part_that_is_wrong(text: str, says: str) -> None:
    with pytest.raises(WindowError, match=says):
        Window.parse(text)
