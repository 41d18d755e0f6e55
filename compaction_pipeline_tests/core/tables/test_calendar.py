"""Dates and timestamps beyond Python's range, as Java writes them."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.tables.calendar import date_text, days_of, micros_of_moment, micros_of_time, moment_text, time_text

_EPOCH = datetime(1970, 1, 1)


@given(st.dates())
def test_dates_in_pythons_range_are_written_as_python_writes_them(day: date) -> None:
    days = (day - date(1970, 1, 1)).days
    assert (date_text(days), days_of(day.isoformat())) == (day.isoformat(), days)


@given(st.integers(-(2**31), 2**31 - 1))
def test_every_date_comes_back(days: int) -> None:
    assert days_of(date_text(days)) == days


@given(st.datetimes())
def test_timestamps_in_pythons_range_are_written_as_python_writes_them(moment: datetime) -> None:
    micros = (moment - _EPOCH) // timedelta(microseconds=1)
    assert moment_text(micros, utc=False) == moment.isoformat()
    assert moment_text(micros, utc=True) == moment.replace(tzinfo=timezone.utc).isoformat()


@given(st.integers(-(2**63), 2**63 - 1), st.booleans())
def test_every_moment_comes_back(micros: int, utc: bool) -> None:
    assert micros_of_moment(moment_text(micros, utc=utc), utc=utc) == micros


@given(st.times())
def test_times_are_written_as_python_writes_them(moment: time) -> None:
    micros = ((moment.hour * 60 + moment.minute) * 60 + moment.second) * 1_000_000 + moment.microsecond
    assert (time_text(micros), micros_of_time(moment.isoformat())) == (moment.isoformat(), micros)


@pytest.mark.parametrize(
    ("days", "text"),
    [
        # The texts are from Java: java.time.LocalDate.ofEpochDay(…).toString().
        (-(2**31), "-5877641-06-23"),
        (2**31 - 1, "+5881580-07-11"),
        (2932897, "+10000-01-01"),
        (-719162, "0001-01-01"),
        (-719163, "0000-12-31"),
        (-719529, "-0001-12-31"),
    ],
)
def test_years_beyond_pythons_are_written_as_java_writes_them(days: int, text: str) -> None:
    assert (date_text(days), days_of(text)) == (text, days)


@pytest.mark.parametrize("text", ["2023-02-29", "2023-13-01", "2023-00-10", "23-01-01", "2023-1-1", "", "2023-01-01T00:00:00"])
def test_a_text_that_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a date"):
        days_of(text)


@pytest.mark.parametrize(("text", "utc"), [("2023-01-01T00:00:00", True), ("2023-01-01T00:00:00+00:00", False), ("2023-01-01", False)])
def test_a_text_that_is_no_timestamp_is_refused(text: str, utc: bool) -> None:
    with pytest.raises(ValueError, match="is not a timestamp"):
        micros_of_moment(text, utc=utc)


@pytest.mark.parametrize("text", ["24:00:00", "1:00", "12:60:00", "12:00:00.1234567"])
def test_a_text_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        micros_of_time(text)
