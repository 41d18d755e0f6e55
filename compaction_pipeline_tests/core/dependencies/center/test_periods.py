"""Texts, starts and ends of business times, and their triggers, as literals written by hand."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.dependencies.center.periods import BusinessTime, Calendar, Period
from compaction_pipeline.core.dependencies.center.triggers import LAST_DAY, Trigger
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline_tests.core.dependencies.center.calendars import calendars, times

BERLIN, NEW_YORK, SANTIAGO = "Europe/Berlin", "America/New_York", "America/Santiago"
ST_JOHNS, APIA, LORD_HOWE = "America/St_Johns", "Pacific/Apia", "Australia/Lord_Howe"


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("zone", "texts", "start", "canonical", "printed"),
    [
        (
            BERLIN,
            "2026-01-01T03 2026-01-01T03+0100 2026-01-01T03+01:00 2026-01-01T02Z",
            "2026-01-01T02:00",
            "2026-01-01T03",
            "2026-01-01T03+0100",
        ),
        (BERLIN, "2026-10-25T02 2026-10-25T02+0200 2026-10-25T00Z", "2026-10-25T00:00", "2026-10-25T02", "2026-10-25T02+0200"),
        (BERLIN, "2026-10-25T02+0100 2026-10-25T01Z", "2026-10-25T01:00", "2026-10-25T02+0100", "2026-10-25T02+0100"),
        (BERLIN, "2026-10-25T03", "2026-10-25T02:00", "2026-10-25T03", "2026-10-25T03+0100"),
        (BERLIN, "2026-03-29T03 2026-03-29T01:00Z", "2026-03-29T01:00", "2026-03-29T03", "2026-03-29T03+0200"),
        (NEW_YORK, "2026-11-01T01", "2026-11-01T05:00", "2026-11-01T01", "2026-11-01T01-0400"),
        (NEW_YORK, "2026-11-01T01-0500", "2026-11-01T06:00", "2026-11-01T01-0500", "2026-11-01T01-0500"),
        (SANTIAGO, "2026-04-04T23-0400", "2026-04-05T03:00", "2026-04-04T23-0400", "2026-04-04T23-0400"),
        ("Asia/Kolkata", "2026-01-01T08:30 2026-01-01T03Z", "2026-01-01T03:00", "2026-01-01T08:30", "2026-01-01T08:30+0530"),
        (LORD_HOWE, "2026-04-05T01:30+1030", "2026-04-04T15:00", "2026-04-05T01:30+1030", "2026-04-05T01:30+1030"),
        ("UTC", "2026-01-01T00 2026-01-01T00Z 2026-01-01T05:45+0545", "2026-01-01T00:00", "2026-01-01T00", "2026-01-01T00+0000"),
        ("Africa/Monrovia", "1960-01-01T01:15:30-0044:30", "1960-01-01T02:00", "1960-01-01T01:15:30", "1960-01-01T01:15:30-004430"),
    ],
)
def test_the_texts_of_an_hour(zone: str, texts: str, start: str, canonical: str, printed: str) -> None:
    hours = Calendar(Period.HOUR, zone)
    for text in (*texts.split(), canonical, printed):
        hour = hours.parse(f" {text} ")
        assert hours.start(hour) == _at(start)
        assert hours.end(hour) == _at(start) + timedelta(hours=1)
        assert hours.text(hour) == canonical
        assert hours.printed(hour) == printed


@pytest.mark.parametrize(
    ("period", "zone", "text", "start", "end"),
    [
        (Period.DAY, BERLIN, "2026-01-01", "2025-12-31T23:00", "2026-01-01T23:00"),
        (Period.DAY, BERLIN, "2026-03-29", "2026-03-28T23:00", "2026-03-29T22:00"),
        (Period.DAY, BERLIN, "2026-10-25", "2026-10-24T22:00", "2026-10-25T23:00"),
        (Period.DAY, SANTIAGO, "2026-09-06", "2026-09-06T04:00", "2026-09-07T03:00"),
        (Period.DAY, SANTIAGO, "2026-04-04", "2026-04-04T03:00", "2026-04-05T04:00"),
        # Clocks went back at 00:01 to 23:01, so the first minute of the day came an hour before the rest of it.
        (Period.DAY, ST_JOHNS, "2009-11-01", "2009-11-01T02:30", "2009-11-02T03:30"),
        (Period.DAY, ST_JOHNS, "2009-10-31", "2009-10-31T02:30", "2009-11-01T02:30"),
        (Period.DAY, APIA, "2011-12-29", "2011-12-29T10:00", "2011-12-30T10:00"),
        (Period.DAY, APIA, "2011-12-31", "2011-12-30T10:00", "2011-12-31T10:00"),
        # Toronto left out 23:30 to 00:30 in 1919, so the day began at 00:30 of its clocks.
        (Period.DAY, "America/Toronto", "1919-03-31", "1919-03-31T04:30", "1919-04-01T04:00"),
        (Period.DAY, "UTC", "2024-02-29", "2024-02-29T00:00", "2024-03-01T00:00"),
        (Period.WEEK, BERLIN, "2026-W01", "2025-12-28T23:00", "2026-01-04T23:00"),
        (Period.WEEK, BERLIN, "2026-W13", "2026-03-22T23:00", "2026-03-29T22:00"),
        (Period.WEEK, BERLIN, "2020-W53", "2020-12-27T23:00", "2021-01-03T23:00"),
        (Period.WEEK, NEW_YORK, "2026-W44", "2026-10-26T04:00", "2026-11-02T05:00"),
        (Period.MONTH, BERLIN, "2026-03", "2026-02-28T23:00", "2026-03-31T22:00"),
        (Period.MONTH, BERLIN, "2024-02", "2024-01-31T23:00", "2024-02-29T23:00"),
        (Period.MONTH, "UTC", "2999-12", "2999-12-01T00:00", "3000-01-01T00:00"),
        (Period.MONTH, "UTC", "1900-01", "1900-01-01T00:00", "1900-02-01T00:00"),
    ],
)
def test_the_start_and_the_end_of_a_label(period: Period, zone: str, text: str, start: str, end: str) -> None:
    calendar = Calendar(period, zone)
    time = calendar.parse(text)
    assert calendar.text(time) == calendar.printed(time) == text
    assert (calendar.start(time), calendar.end(time)) == (_at(start), _at(end))
    assert calendar.at(_at(start)) == calendar.at(_at(end) - timedelta(microseconds=1)) == time


@pytest.mark.parametrize(
    ("instant", "day"),
    [
        ("2009-11-01T02:29", "2009-10-31"),
        ("2009-11-01T02:30", "2009-11-01"),
        ("2009-11-01T02:45", "2009-11-01"),
        ("2009-11-01T03:31", "2009-11-01"),
    ],
)
def test_a_day_that_has_begun_goes_on_when_clocks_turn_back_over_midnight(instant: str, day: str) -> None:
    days = Calendar(Period.DAY, ST_JOHNS)
    assert days.text(days.at(_at(instant))) == day


def test_numbers_count_from_1970() -> None:
    for period, text in ((Period.HOUR, "1970-01-01T00"), (Period.DAY, "1970-01-01"), (Period.WEEK, "1970-W01"), (Period.MONTH, "1970-01")):
        assert Calendar(period, "UTC").parse(text) == BusinessTime(period, 0)


@pytest.mark.parametrize(
    ("period", "text", "words"),
    [
        (Period.HOUR, "2026-01-01", "it has another form; write it like 2026-01-01T03"),
        (Period.HOUR, "2026-01-01T24", "hour must be in 0..23"),
        (Period.HOUR, "2026-01-01T03:30", "it is no whole hour of UTC"),
        (Period.HOUR, "2026-03-29T02", "is no HOUR in zone Europe/Berlin: the clocks of that day leave it out"),
        (Period.HOUR, "2026-01-01T03+0175", "it has another form"),
        (Period.HOUR, "0001-01-01T00+0100", "write it like"),
        (Period.HOUR, "3000-01-02T00", "is not in the years 1900 to 2999"),
        (Period.DAY, "2026-02-29", "is no DAY in zone Europe/Berlin: day is out of range for month; write it like 2026-01-01"),
        (Period.DAY, "20260101", "it has another form"),
        (Period.DAY, "٢٠٢٦-٠١-٠١", "it has another form"),
        (Period.DAY, "1899-12-31", "'1899-12-31' is not in the years 1900 to 2999: write a time in them"),
        (Period.WEEK, "2025-W53", "is no WEEK in zone Europe/Berlin"),
        (Period.WEEK, "2026-W00", "write it like 2026-W01"),
        (Period.WEEK, "2026-W1", "it has another form"),
        (Period.MONTH, "2026-13", "month must be in 1..12; write it like 2026-01"),
        (Period.MONTH, "2026", "the business time '2026' is no MONTH"),
    ],
)
def test_a_text_that_is_no_time(period: Period, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Calendar(period, BERLIN).parse(text)
    assert words in str(refused.value)
    assert text in str(refused.value)


def test_a_day_that_clocks_left_out() -> None:
    days = Calendar(Period.DAY, APIA)
    with pytest.raises(ConfigError, match="the clocks of zone Pacific/Apia left out the day '2011-12-30', so it has no data"):
        days.parse("2011-12-30")
    before, behind = days.parse("2011-12-29"), days.parse("2011-12-31")
    assert days.shift(before, 1) is days.shift(behind, -1) is None
    assert days.shift(before, 2) == behind
    assert list(days.between(_at("2011-12-29T10:00"), _at("2011-12-30T10:01"))) == [before, behind]


def test_there_is_nothing_beyond_the_years() -> None:
    months = Calendar(Period.MONTH, "UTC")
    assert months.shift(months.parse("2999-12"), 1) is months.shift(months.parse("1900-01"), -1) is None
    with pytest.raises(ConfigError, match="lies beyond the years 1900 to 2999 of business times: name another time"):
        months.at(_at("1899-12-31T23:59"))
    assert [months.text(at) for at in months.between(_at("2999-10-02"), _at("9000-01-01"))] == ["2999-11", "2999-12"]


@pytest.mark.parametrize("zone", ["Europe/Berlim", "", "../etc/passwd", "Europe", "CET+1x"])
def test_a_zone_that_nobody_knows(zone: str) -> None:
    with pytest.raises(ConfigError, match=r"this host does not know the zone .*: write a zone like Europe/Berlin or UTC"):
        Calendar(Period.DAY, zone)


def test_a_time_without_zone_is_a_fault_of_the_caller() -> None:
    with pytest.raises(ValueError, match="has no zone"):
        Calendar(Period.DAY, BERLIN).at(datetime(2026, 1, 1))


@pytest.mark.parametrize(
    ("period", "zone", "trigger", "time", "instant"),
    [
        (Period.HOUR, BERLIN, "5", "2026-10-25T02+0100", "2026-10-25T01:05"),
        (Period.HOUR, BERLIN, "59", "2026-01-01T03", "2026-01-01T02:59"),
        (Period.DAY, BERLIN, "02:00", "2026-01-01", "2026-01-01T01:00"),
        (Period.DAY, BERLIN, "02:30", "2026-03-29", "2026-03-29T01:00"),  # 02:30 does not exist
        (Period.DAY, BERLIN, "03:00", "2026-03-29", "2026-03-29T01:00"),
        (Period.DAY, BERLIN, "02:30", "2026-10-25", "2026-10-25T00:30"),  # the first of two
        (Period.DAY, NEW_YORK, "01:30", "2026-11-01", "2026-11-01T05:30"),
        (Period.DAY, SANTIAGO, "00:00", "2026-09-06", "2026-09-06T04:00"),
        (Period.DAY, SANTIAGO, "00:59", "2026-09-06", "2026-09-06T04:00"),
        (Period.DAY, SANTIAGO, "23:30", "2026-04-04", "2026-04-05T02:30"),
        (Period.WEEK, BERLIN, "mon 02:00", "2026-W01", "2025-12-29T01:00"),
        (Period.WEEK, BERLIN, "SUN  02:30", "2026-W13", "2026-03-29T01:00"),
        (Period.WEEK, BERLIN, "FRI 00:00", "2020-W53", "2020-12-31T23:00"),
        (Period.MONTH, BERLIN, "1 02:00", "2026-01", "2026-01-01T01:00"),
        (Period.MONTH, BERLIN, "28 23:59", "2026-02", "2026-02-28T22:59"),
        (Period.MONTH, BERLIN, "last 02:00", "2024-02", "2024-02-29T01:00"),
        (Period.MONTH, BERLIN, "LAST 02:00", "2026-12", "2026-12-31T01:00"),
    ],
)
def test_the_instant_of_a_trigger(period: Period, zone: str, trigger: str, time: str, instant: str) -> None:
    calendar = Calendar(period, zone)
    assert Trigger.parse(period, trigger).instant(calendar, calendar.parse(time)) == _at(instant)


@pytest.mark.parametrize(
    ("period", "text", "rule"),
    [
        (Period.HOUR, "60", "a minute from 0 to 59"),
        (Period.HOUR, "02:00", "a minute from 0 to 59"),
        (Period.DAY, "24:00", "a time HH:MM"),
        (Period.DAY, "2:00", "a time HH:MM"),
        (Period.WEEK, "02:00", "a weekday and a time HH:MM"),
        (Period.WEEK, "MO 02:00", "a weekday and a time HH:MM"),
        (Period.MONTH, "29 02:00", "a day from 1 to 28, or last"),
        (Period.MONTH, "0 02:00", "a day from 1 to 28, or last"),
        (Period.MONTH, "1 02:60", "a day from 1 to 28, or last"),
    ],
)
def test_a_trigger_that_breaks_its_rule(period: Period, text: str, rule: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Trigger.parse(period, text)
    assert f"the trigger {text!r} of period {period.value} must be {rule}" in str(refused.value)


@st.composite
def triggers(draw: st.DrawFn, period: Period) -> Trigger:
    hour = 0 if period is Period.HOUR else draw(st.integers(0, 23))
    days = {Period.WEEK: st.integers(0, 6), Period.MONTH: st.integers(1, 28) | st.just(LAST_DAY)}
    return Trigger(period, draw(st.integers(0, 59)), hour, draw(days.get(period, st.just(0))))


@given(st.data(), calendars)
def test_a_trigger_reads_back_and_lies_in_its_period(data: st.DataObject, calendar: Calendar) -> None:
    trigger, time = data.draw(triggers(calendar.period)), data.draw(times(calendar))
    assert Trigger.parse(calendar.period, trigger.text()) == trigger
    instant = trigger.instant(calendar, time)
    assert instant.tzinfo is timezone.utc
    # The end only when clocks leave out the rest of the period from the trigger on.
    assert calendar.start(time) <= instant <= calendar.end(time)
