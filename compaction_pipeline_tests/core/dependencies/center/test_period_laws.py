"""Laws of calendars, over zones with every kind of change of clocks."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.dependencies.center.periods import Calendar, Period
from compaction_pipeline_tests.core.dependencies.center.calendars import calendars, instants, near_changes, times

SECOND = timedelta(seconds=1)


@given(st.data(), calendars)
def test_a_text_and_a_print_read_back(data: st.DataObject, calendar: Calendar) -> None:
    time = data.draw(times(calendar))
    assert calendar.parse(calendar.text(time)) == time
    assert calendar.parse(calendar.printed(time)) == time


@given(st.data(), calendars, st.integers(-60, 60))
def test_texts_sort_as_times_do(data: st.DataObject, calendar: Calendar, by: int) -> None:
    time = data.draw(times(calendar))
    other = calendar.shift(time, by)
    if other is not None and calendar.zone != "Antarctica/Troll":
        assert (calendar.text(time) < calendar.text(other)) == (time < other) == (calendar.start(time) < calendar.start(other))


@given(st.data(), calendars, st.integers(-900, 900), st.integers(-900, 900))
def test_shifts_add_up(data: st.DataObject, calendar: Calendar, one: int, two: int) -> None:
    time = data.draw(times(calendar))
    half = calendar.shift(time, one)
    if half is not None:
        assert calendar.shift(half, two) == calendar.shift(time, one + two)
    assert calendar.shift(time, 0) == time


@given(st.data(), calendars)
def test_times_follow_each_other_without_gap(data: st.DataObject, calendar: Calendar) -> None:
    time = data.draw(times(calendar))
    assert calendar.start(time) < calendar.end(time)
    following = calendar.shift(time, 1) or calendar.shift(time, 2)
    assert following is not None
    assert calendar.end(time) == calendar.start(following)


@given(calendars, instants)
def test_the_time_at_an_instant_holds_it(calendar: Calendar, instant: datetime) -> None:
    time = calendar.at(instant)
    assert calendar.start(time) <= instant < calendar.end(time)


@given(calendars, near_changes)
def test_a_day_starts_at_the_first_second_of_its_local_date(calendar: Calendar, instant: datetime) -> None:
    days, zone = Calendar(Period.DAY, calendar.zone), ZoneInfo(calendar.zone)
    start = days.start(days.at(instant))
    assert start.astimezone(zone).date().isoformat() == days.text(days.at(instant))
    assert (start - SECOND).astimezone(zone).date() < start.astimezone(zone).date()


@given(calendars, near_changes, st.integers(0, 400))
def test_between_is_every_time_that_starts_there(calendar: Calendar, start: datetime, hours: int) -> None:
    end = start + timedelta(hours=hours)
    found, time = [], calendar.at(start)
    while calendar.start(time) < end:
        if calendar.start(time) >= start:
            found.append(time)
        time = calendar.shift(time, 1) or calendar.shift(time, 2) or time
    assert list(calendar.between(start, end)) == found


@given(calendars, near_changes)
def test_an_instant_may_be_of_any_zone(calendar: Calendar, instant: datetime) -> None:
    assert calendar.at(instant.astimezone(ZoneInfo("Asia/Tokyo"))) == calendar.at(instant)
    assert calendar.start(calendar.at(instant)).tzinfo is timezone.utc
