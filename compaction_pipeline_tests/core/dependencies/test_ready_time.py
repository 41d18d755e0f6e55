"""The window of each partition, in literal instants that were written by hand from the calendar and the laws about clocks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.dependencies.ready_time import (
    DAY,
    ReadyTime,
    SpecField,
    TimeField,
    instant_of,
    ready_time,
    time_fields,
)
from compaction_pipeline.core.errors import ConfigError

KEY = "compaction.ready-time"
BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"


def _of(field: SpecField, said: str | None = None) -> TimeField:
    properties = {} if said is None else {KEY: said}
    return time_fields({0: (field,)}, ready_time(properties))[0]


def _by(transform: str, source: str = "timestamptz") -> TimeField:
    return _of(SpecField(f"ts_{transform}", transform, 1, source))


def _texts(form: str, zone: str, kind: str = "string") -> TimeField:
    return _of(SpecField("dt", "identity", 1, kind), f"dt,{form},{zone}")


@pytest.mark.parametrize(
    ("transform", "value", "path", "expected"),
    [
        # Numbers since 1970 as the specification defines them; a day is written as a date in single-value JSON.
        ("hour", 0, "1970-01-01-00", "1970-01-01T00:00Z/1970-01-01T01:00Z"),
        ("hour", -1, "1969-12-31-23", "1969-12-31T23:00Z/1970-01-01T00:00Z"),
        ("hour", 490_899, "2026-01-01-03", "2026-01-01T03:00Z/2026-01-01T04:00Z"),
        ("day", "2026-01-01", "2026-01-01", "2026-01-01T00:00Z/2026-01-02T00:00Z"),
        ("day", "2024-02-28", "2024-02-28", "2024-02-28T00:00Z/2024-02-29T00:00Z"),
        ("day", "2024-02-29", "2024-02-29", "2024-02-29T00:00Z/2024-03-01T00:00Z"),
        ("day", "2025-02-28", "2025-02-28", "2025-02-28T00:00Z/2025-03-01T00:00Z"),
        ("day", "2100-02-28", "2100-02-28", "2100-02-28T00:00Z/2100-03-01T00:00Z"),
        ("day", "2026-12-31", "2026-12-31", "2026-12-31T00:00Z/2027-01-01T00:00Z"),
        # In UTC clocks never change: Berlin's days of 23 and 25 hours have 24 here.
        ("day", "2026-03-29", "2026-03-29", "2026-03-29T00:00Z/2026-03-30T00:00Z"),
        ("day", "2026-10-25", "2026-10-25", "2026-10-25T00:00Z/2026-10-26T00:00Z"),
        ("month", 0, "1970-01", "1970-01-01T00:00Z/1970-02-01T00:00Z"),
        ("month", -1, "1969-12", "1969-12-01T00:00Z/1970-01-01T00:00Z"),
        ("month", 649, "2024-02", "2024-02-01T00:00Z/2024-03-01T00:00Z"),
        ("month", 661, "2025-02", "2025-02-01T00:00Z/2025-03-01T00:00Z"),
        ("month", 671, "2025-12", "2025-12-01T00:00Z/2026-01-01T00:00Z"),
        ("year", 0, "1970", "1970-01-01T00:00Z/1971-01-01T00:00Z"),
        ("year", -1, "1969", "1969-01-01T00:00Z/1970-01-01T00:00Z"),
        ("year", 54, "2024", "2024-01-01T00:00Z/2025-01-01T00:00Z"),
    ],
)
def test_transforms_have_their_windows_in_utc(transform: str, value: int | str, path: str, expected: str) -> None:
    field = _by(transform)
    assert (str(field.window(value)), str(field.named(path))) == (expected, expected)


@pytest.mark.parametrize(
    ("form", "zone", "value", "expected"),
    [
        ("yyyyMMdd", "UTC", "20260101", "2026-01-01T00:00Z/2026-01-02T00:00Z"),
        ("yyyyMM", "UTC", "202602", "2026-02-01T00:00Z/2026-03-01T00:00Z"),
        ("yyyy", BERLIN, "2026", "2025-12-31T23:00Z/2026-12-31T23:00Z"),
        # Berlin: clocks go forward at 01:00 UTC on 29 March 2026, and back at 01:00 UTC on 25 October.
        ("yyyyMMdd", BERLIN, "20260328", "2026-03-27T23:00Z/2026-03-28T23:00Z"),
        ("yyyyMMdd", BERLIN, "20260329", "2026-03-28T23:00Z/2026-03-29T22:00Z"),
        ("yyyyMMdd", BERLIN, "20260330", "2026-03-29T22:00Z/2026-03-30T22:00Z"),
        ("yyyyMMdd", BERLIN, "20261025", "2026-10-24T22:00Z/2026-10-25T23:00Z"),
        ("yyyyMM", BERLIN, "202603", "2026-02-28T23:00Z/2026-03-31T22:00Z"),
        ("yyyyMM", BERLIN, "202402", "2024-01-31T23:00Z/2024-02-29T23:00Z"),
        ("yyyyMMddHH", BERLIN, "2026032901", "2026-03-29T00:00Z/2026-03-29T01:00Z"),
        ("yyyyMMddHH", BERLIN, "2026032902", "2026-03-29T01:00Z/2026-03-29T01:00Z"),
        ("yyyyMMddHH", BERLIN, "2026032903", "2026-03-29T01:00Z/2026-03-29T02:00Z"),
        ("yyyyMMddHH", BERLIN, "2026102501", "2026-10-24T23:00Z/2026-10-25T00:00Z"),
        ("yyyyMMddHH", BERLIN, "2026102502", "2026-10-25T00:00Z/2026-10-25T02:00Z"),
        ("yyyyMMddHH", BERLIN, "2026102503", "2026-10-25T02:00Z/2026-10-25T03:00Z"),
        # New York: forward at 07:00 UTC on 8 March 2026, back at 06:00 UTC on 1 November.
        ("yyyy-MM-dd", NEW_YORK, "2026-03-08", "2026-03-08T05:00Z/2026-03-09T04:00Z"),
        ("yyyy-MM-dd", NEW_YORK, "2026-11-01", "2026-11-01T04:00Z/2026-11-02T05:00Z"),
        ("yyyy-MM-dd HH", NEW_YORK, "2026-03-08 02", "2026-03-08T07:00Z/2026-03-08T07:00Z"),
        ("yyyy-MM-dd HH", NEW_YORK, "2026-11-01 01", "2026-11-01T05:00Z/2026-11-01T07:00Z"),
        # Lord Howe changes by half an hour: back from 02:00 (+11:00) to 01:30 on 5 April 2026, forward to 02:30 on 4 October.
        ("yyyyMMdd", LORD_HOWE, "20260405", "2026-04-04T13:00Z/2026-04-05T13:30Z"),
        ("yyyyMMdd", LORD_HOWE, "20261004", "2026-10-03T13:30Z/2026-10-04T13:00Z"),
        ("yyyyMMddHH", LORD_HOWE, "2026040501", "2026-04-04T14:00Z/2026-04-04T15:30Z"),
        ("yyyyMMddHH", LORD_HOWE, "2026040502", "2026-04-04T15:30Z/2026-04-04T16:30Z"),
        ("yyyyMMddHH", LORD_HOWE, "2026100402", "2026-10-03T15:30Z/2026-10-03T16:00Z"),
        # Havana goes back from 01:00 to 00:00 on 1 November 2026: midnight comes twice, and the day before has 24 hours.
        ("yyyyMMdd", "America/Havana", "20261031", "2026-10-31T04:00Z/2026-11-01T04:00Z"),
        ("yyyyMMdd", "America/Havana", "20261101", "2026-11-01T04:00Z/2026-11-02T05:00Z"),
        # Havana goes forward at midnight of 8 March 2026: the day begins at 01:00.
        ("yyyyMMdd", "America/Havana", "20260308", "2026-03-08T05:00Z/2026-03-09T04:00Z"),
        # Apia skipped 30 December 2011: the day has no instant.
        ("yyyyMMdd", "Pacific/Apia", "20111229", "2011-12-29T10:00Z/2011-12-30T10:00Z"),
        ("yyyyMMdd", "Pacific/Apia", "20111230", "2011-12-30T10:00Z/2011-12-30T10:00Z"),
        ("yyyyMMdd", "Pacific/Apia", "20111231", "2011-12-30T10:00Z/2011-12-31T10:00Z"),
        # St. John's went back from 00:01 of 29 October 2006 to 23:01 of the day before, which ends when its last minute ends again.
        ("yyyyMMdd", "America/St_Johns", "20061028", "2006-10-28T02:30Z/2006-10-29T03:30Z"),
        ("yyyyMMdd", "America/St_Johns", "20061029", "2006-10-29T02:30Z/2006-10-30T03:30Z"),
    ],
)
def test_texts_have_their_windows_in_their_zone(form: str, zone: str, value: str, expected: str) -> None:
    assert str(_texts(form, zone).window(value)) == expected
    if value.isdigit():
        assert str(_texts(form, zone, "int").window(int(value))) == expected
        assert str(_texts(form, zone, "long").window(int(value))) == expected


def test_a_timestamp_without_a_zone_may_be_given_one() -> None:
    field = SpecField("ts_day", "day", 1, "timestamp")
    assert str(_of(field).window("2026-03-29")) == "2026-03-29T00:00Z/2026-03-30T00:00Z"
    assert str(_of(field, f"ts_day,,{BERLIN}").window("2026-03-29")) == "2026-03-28T23:00Z/2026-03-29T22:00Z"


def test_a_date_is_a_day() -> None:
    field = SpecField("d", "identity", 1, "date")
    assert str(_of(field).window("2024-02-29")) == "2024-02-29T00:00Z/2024-03-01T00:00Z"
    assert str(_of(field, f"d,,{NEW_YORK}").window("2026-11-01")) == "2026-11-01T04:00Z/2026-11-02T05:00Z"


@pytest.mark.parametrize("value", [None, True, 1.5, "", "2026-1-1", "20260230", "__HIVE_DEFAULT_PARTITION__", "2026010112", "٢٠٢٦٠١٠١"])
def test_other_values_mean_no_time(value: str | None) -> None:
    assert _texts("yyyyMMdd", "UTC").window(value) is None


def test_a_long_text_that_only_begins_like_a_time_means_none() -> None:
    assert _texts("yyyy-MM-dd HH':00:00'", "UTC").window("2026-01-01 03:00") is None
    assert str(_texts("yyyy-MM-dd HH':00:00'", "UTC").window("2026-01-01 03:00:00")) == "2026-01-01T03:00Z/2026-01-01T04:00Z"


@pytest.mark.parametrize(
    ("transform", "value"),
    [
        *(("year", value) for value in (8030, -1970, 10**12, -(10**12))),
        *((transform, value) for transform in ("month", "hour") for value in (10**12, -(10**12))),
        # The last year of Python has no end.
        ("year", 8029),
    ],
)
def test_years_that_python_does_not_have_mean_no_time(transform: str, value: int) -> None:
    assert _by(transform).window(value) is None


def test_specs_that_evolved_are_joined_by_their_column() -> None:
    specs = {
        0: (SpecField("ts_month", "month", 1, "timestamptz"),),
        1: (SpecField("ts_day", "day", 1, "timestamptz"), SpecField("id_bucket", "bucket[16]", 2, "long")),
        2: (SpecField("ts_hour", "hour", 1, "timestamptz"), SpecField("name_trunc", "truncate[4]", 3, "string")),
        3: (SpecField("id_bucket", "bucket[16]", 2, "long"),),
    }
    for said in (None, ReadyTime("ts_day"), ReadyTime("ts_hour")):
        found = time_fields(specs, said)
        assert {spec_id: field.name for spec_id, field in found.items()} == {0: "ts_month", 1: "ts_day", 2: "ts_hour"}


@pytest.mark.parametrize(
    ("fields", "said", "words"),
    [
        ((), None, "it is not partitioned"),
        ((SpecField("id_bucket", "bucket[16]", 1, "long"),), None, "its partition fields are id_bucket"),
        ((SpecField("v", "truncate[4]", 1, "string"),), "v,yyyy,UTC", "'v', but that is no partition field with a time"),
        ((SpecField("v", "void", 1, "timestamp"),), "v", "'v', but that is no partition field with a time"),
        ((SpecField("ts", "identity", 1, "timestamp"),), "ts", "'ts', but that is no partition field with a time"),
        ((SpecField("dt", "identity", 1, "string"),), None, "its partition fields are dt"),
        ((SpecField("dt", "identity", 1, "string"),), "dt", "dt is of type string"),
        ((SpecField("dt", "identity", 1, "int"),), "dt,,UTC", "dt is of type int"),
        ((SpecField("dt", "identity", 1, "string"),), "dt,yyyyMMdd", "but must be the name of a partition field"),
        ((SpecField("dt", "identity", 1, "string"),), "dt,yyyyMMddHHmm,UTC", "down to at most the hour"),
        ((SpecField("dt", "identity", 1, "string"),), "dt,ddMMyyyy,UTC", "but must be the name of a partition field"),
        ((SpecField("dt", "identity", 1, "string"),), "dt,yyyyMMdd,Mars/Base", "the zone 'Mars/Base', which this host does not know"),
        ((SpecField("dt", "identity", 1, "string"),), "dt,yyyyMMdd,../UTC", "which this host does not know"),
        ((SpecField("ts_day", "day", 1, "timestamptz"),), f"ts_day,,{BERLIN}", "is partitioned in UTC"),
        ((SpecField("ts_day", "day", 1, "timestamp"),), "ts_day,yyyyMMdd,UTC", "need none"),
        ((SpecField("ts_day", "day", 1, "timestamp"),), "day", "the partition fields are ts_day"),
        (
            (SpecField("a_day", "day", 1, "timestamp"), SpecField("b_day", "day", 2, "timestamp")),
            None,
            "the partition fields a_day, b_day all tell a time",
        ),
    ],
)
def test_without_a_time_the_refusal_names_the_property(fields: tuple[SpecField, ...], said: str | None, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        time_fields({0: fields}, ready_time({} if said is None else {KEY: said}))
    assert KEY in str(refused.value)
    assert words in str(refused.value)


_ZONES = ("UTC", BERLIN, NEW_YORK, LORD_HOWE, "America/Havana", "America/St_Johns", "Asia/Kathmandu", "Pacific/Apia")
_FORMS: Mapping[str, str] = {"yyyy": "%Y", "yyyyMM": "%Y%m", "yyyyMMdd": "%Y%m%d", "yyyyMMddHH": "%Y%m%d%H"}
_moments = st.integers(0, 2**31 - 1).map(lambda seconds: datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=seconds))


@given(moment=_moments, zone=st.sampled_from(_ZONES), form=st.sampled_from(sorted(_FORMS)))
def test_each_moment_lies_in_the_window_of_the_text_that_its_zone_gives_it_and_no_other_moment_has_the_text(
    moment: datetime, zone: str, form: str
) -> None:
    field = _texts(form, zone)

    def text_at(at: datetime) -> str:
        return at.astimezone(field.zone).strftime(_FORMS[form])

    window = field.of_moment(moment)
    assert window is not None
    assert window.start <= moment < window.end
    assert field.window(text_at(moment)) == window
    for outside in (window.start - timedelta(microseconds=1), window.end, window.end + timedelta(minutes=7)):
        assert text_at(outside) != text_at(moment)


@pytest.mark.parametrize("text", ["0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00"])
def test_a_time_whose_utc_python_does_not_have_is_refused_in_words(text: str) -> None:
    with pytest.raises(ConfigError, match="before the year 1 or behind the year 9999"):
        instant_of(text)


def test_a_moment_whose_local_year_python_does_not_have_lies_in_no_window() -> None:
    last = datetime(9999, 12, 31, 23, 30, tzinfo=timezone.utc)
    assert TimeField("dt", "identity", DAY, "yyyyMMdd", ZoneInfo("Europe/Berlin")).of_moment(last) is None
