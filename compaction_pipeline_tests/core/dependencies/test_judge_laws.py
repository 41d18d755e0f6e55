"""Laws of readiness, against evaluators that look at every hour and at every partition one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.dependencies.asked import Asked, calendar_of
from compaction_pipeline.core.dependencies.judge import KnownPartition, by_files, by_names, by_watermark, fills, longer_quiet
from compaction_pipeline.core.dependencies.ready_time import SpecField, TimeField, Window, instant_text
from compaction_pipeline.core.dependencies.ready_when import Exists, Quiet
from compaction_pipeline.core.dependencies.watermark import Watermark
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.node import PartitionValue

HOUR = timedelta(hours=1)
START = datetime(2026, 3, 27, tzinfo=timezone.utc)
"""Two days before the clocks of Berlin go forward."""
KEYS = ("watermark",)
REGION = SpecField("region", "identity", 2, "string")
SPECS = {
    0: (SpecField("ts_month", "month", 1, "timestamptz"),),
    1: (SpecField("ts_day", "day", 1, "timestamptz"), REGION),
    2: (SpecField("ts_hour", "hour", 1, "timestamptz"), REGION, SpecField("id_bucket", "bucket[4]", 3, "long")),
}
BERLIN = {0: (SpecField("dt", "identity", 1, "string"),)}
CALENDARS = [
    calendar_of({1: SPECS[1]}, 1, {}),
    calendar_of({1: SPECS[1], 2: SPECS[2]}, 2, {}),
    calendar_of(SPECS, 2, {}),
    calendar_of(BERLIN, 0, {"compaction.ready-time": "dt,yyyyMMdd,Europe/Berlin"}),
    calendar_of(BERLIN, 0, {"compaction.ready-time": "dt,yyyyMMddHH,Europe/Berlin"}),
]
EVOLVED = CALENDARS[1]

hours = st.integers(-30, 120).map(lambda number: START + number * HOUR)
moments = st.integers(-30 * 3600, 120 * 3600).map(lambda seconds: START + timedelta(seconds=seconds))
windows = st.tuples(st.integers(0, 72), st.integers(1, 60)).map(lambda pair: (START + pair[0] * HOUR, START + (pair[0] + pair[1]) * HOUR))


def _mark(at: datetime) -> Watermark:
    return Watermark(at, "watermark", 1)


def _units(time: TimeField, window: Window) -> Iterator[Window]:
    """Every partition of a spec that overlaps a window, found minute by quarter of an hour."""
    seen = set[Window]()
    at = window.start
    while at < window.end:
        unit = time.of_moment(at)
        assert unit is not None
        if unit not in seen:
            seen.add(unit)
            yield unit
        at += timedelta(minutes=15)


@given(calendar=st.sampled_from(CALENDARS), at=moments, mark=moments)
def test_a_partition_is_ready_by_watermark_exactly_when_the_watermark_has_reached_its_end(
    calendar: object, at: datetime, mark: datetime
) -> None:
    assert isinstance(calendar, type(EVOLVED))
    time = calendar.times[calendar.spec_id]
    window = time.of_moment(at)
    assert window is not None
    form = {"yyyyMMdd": "%Y%m%d", "yyyyMMddHH": "%Y%m%d%H", "yyyy-MM-dd": "%Y-%m-%d", "yyyy-MM-dd-HH": "%Y-%m-%d-%H"}[time.format]
    asked = calendar.partition(f"{time.name}={at.astimezone(time.zone).strftime(form)}")
    assert asked.window == window
    assert by_watermark(asked, _mark(mark), KEYS).ready == (mark >= window.end)
    assert by_watermark(asked, _mark(window.end), KEYS).ready
    assert not by_watermark(asked, _mark(window.end - timedelta(microseconds=1)), KEYS).ready
    assert not by_watermark(asked, None, KEYS).ready


@given(calendar=st.sampled_from(CALENDARS), times=windows, mark=hours)
def test_a_window_is_ready_when_every_partition_that_overlaps_it_is_of_every_spec(
    calendar: object, times: tuple[datetime, datetime], mark: datetime
) -> None:
    assert isinstance(calendar, type(EVOLVED))
    asked = calendar.window(*times)
    assert asked.window is not None
    overlapping = [unit for time in calendar.times.values() for unit in _units(time, asked.window)]
    assert by_watermark(asked, _mark(mark), KEYS).ready == all(mark >= unit.end for unit in overlapping)


@st.composite
def _partitions(draw: st.DrawFn) -> Sequence[KnownPartition]:
    found = {}
    for _ in range(draw(st.integers(0, 8))):
        at = draw(hours)
        region = PartitionValue("region", "string", draw(st.sampled_from(["eu", "us", None])))
        if draw(st.booleans()):
            key = (1, (PartitionValue("ts_day", "date", f"{at:%Y-%m-%d}"), region))
        else:
            number = int(at.timestamp()) // 3600
            key = (2, (PartitionValue("ts_hour", "int", number), region, PartitionValue("id_bucket", "int", draw(st.integers(0, 3)))))
        found[key] = KnownPartition(*key, draw(st.integers(0, 2)), START - draw(st.integers(0, 5)) * HOUR, draw(st.integers(1, 9)))
    return list(found.values())


def _of(asked: Asked, partitions: Sequence[KnownPartition]) -> list[tuple[KnownPartition, Window]]:
    """Partitions with files of which at least an hour is asked for, by looking at every hour."""
    assert asked.window is not None
    found = []
    for one in partitions:
        texts = {value.name: value.value for value in one.partition}
        if one.files == 0 or any(texts.get(name) != value for name, value in asked.values if name in texts):
            continue
        if one.spec_id == 1:
            start = datetime.fromisoformat(f"{texts['ts_day']}T00:00:00+00:00")
            window = Window(start, start + 24 * HOUR)
        else:
            start = datetime(1970, 1, 1, tzinfo=timezone.utc) + int(texts["ts_hour"] or 0) * HOUR
            window = Window(start, start + HOUR)
        if any(window.start <= asked.window.start + n * HOUR < window.end for n in range(_length(asked.window))):
            found.append((one, window))
    return found


def _length(window: Window) -> int:
    return (window.end - window.start) // HOUR


@given(partitions=_partitions(), times=windows, region=st.sampled_from([None, "eu"]), quiet=st.integers(1, 6))
def test_files_fill_a_window_hour_by_hour_and_an_empty_partition_is_never_ready(
    partitions: Sequence[KnownPartition], times: tuple[datetime, datetime], region: str | None, quiet: int
) -> None:
    window = EVOLVED.window(*times)
    asked = window if region is None else Asked(window.what, window.window, window.until, frozenset({("region", region)}))
    assert asked.window is not None
    found = _of(asked, partitions)
    filled = all(any(part.start <= asked.window.start + n * HOUR < part.end for _, part in found) for n in range(_length(asked.window)))
    assert by_files(asked, EVOLVED, partitions, Exists(), START).ready == filled
    silent = all(one.added_at is not None and START - one.added_at >= quiet * HOUR for one, _ in found)
    assert by_files(asked, EVOLVED, partitions, Quiet(quiet * HOUR), START).ready == (filled and silent)
    emptied = [KnownPartition(one.spec_id, one.partition, 0, one.added_at, one.added_by) for one in partitions]
    for rule in (Exists(), Quiet(quiet * HOUR)):
        assert not by_files(asked, EVOLVED, emptied, rule, START + 99 * HOUR).ready


@given(parts=st.lists(windows, max_size=8), times=windows)
def test_windows_fill_another_when_no_hour_of_it_is_left(parts: list[tuple[datetime, datetime]], times: tuple[datetime, datetime]) -> None:
    window = Window(*times)
    every = (window.start + n * HOUR for n in range(_length(window)))
    left = [at for at in every if not any(start <= at < end for start, end in parts)]
    assert fills(window, [Window(*part) for part in parts]) == (left[0] if left else None)


def test_an_hour_that_does_not_exist_is_never_filled_but_a_watermark_passes_it() -> None:
    asked = CALENDARS[4].partition("dt=2026032902")
    assert asked.window == Window(datetime(2026, 3, 29, 1, tzinfo=timezone.utc), datetime(2026, 3, 29, 1, tzinfo=timezone.utc))
    own = KnownPartition(0, (PartitionValue("dt", "string", "2026032902"),), 1, START, 1)
    assert not by_files(asked, CALENDARS[4], [own], Exists(), START).ready
    assert by_watermark(asked, _mark(datetime(2026, 3, 29, 1, tzinfo=timezone.utc)), KEYS).ready


@given(seconds=st.integers(0, 10**6))
def test_a_longer_quiet_is_longer_than_the_gap(seconds: int) -> None:
    gap = timedelta(seconds=seconds)
    assert gap < longer_quiet(gap) <= gap + HOUR


def test_files_of_a_spec_without_a_time_must_be_quiet_too() -> None:
    calendar = calendar_of({0: (), 1: SPECS[1]}, 1, {})
    day = KnownPartition(1, (PartitionValue("ts_day", "date", "2026-03-27"), PartitionValue("region", "string", "eu")), 1, START, 1)
    whole = KnownPartition(0, (), 1, START + 5 * HOUR, 2)
    asked = calendar.window(START, START + 24 * HOUR)
    assert by_files(asked, calendar, [day], Quiet(2 * HOUR), START + 6 * HOUR).ready
    verdict = by_files(asked, calendar, [day, whole], Quiet(2 * HOUR), START + 6 * HOUR)
    assert not verdict.ready
    assert "snapshot 2 added files to the table at 2026-03-27T05:00Z" in verdict.why
    assert not by_files(asked, calendar, [whole], Exists(), START).ready


def test_files_of_a_spec_without_a_named_field_must_be_quiet_too_and_fill_nothing() -> None:
    # A field that is dropped from a spec of format v1 stays there as a void one.
    for later in ((SPECS[1][0],), (SPECS[1][0], SpecField("region", "void", 2, "string"))):
        calendar = calendar_of({1: SPECS[1], 2: later}, 2, {})
        day, eu = PartitionValue("ts_day", "date", "2026-03-27"), PartitionValue("region", "string", "eu")
        own = KnownPartition(1, (day, eu), 1, START, 1)
        rest = KnownPartition(2, (day, *(PartitionValue("region", "string", None) for _ in later[1:])), 1, START + 5 * HOUR, 2)
        asked = calendar.partition("ts_day=2026-03-27/region=eu")
        assert by_files(asked, calendar, [own], Quiet(2 * HOUR), START + 6 * HOUR).ready
        assert not by_files(asked, calendar, [own, rest], Quiet(2 * HOUR), START + 6 * HOUR).ready
        assert by_files(asked, calendar, [own, rest], Quiet(2 * HOUR), START + 7 * HOUR).ready
        assert not by_files(asked, calendar, [rest], Exists(), START).ready
        assert by_files(calendar.partition("ts_day=2026-03-27"), calendar, [rest], Exists(), START).ready
        assert not by_files(calendar.partition("region=eu"), calendar, [rest], Exists(), START).ready


def test_one_bucket_or_one_truncated_value_calls_nothing_ready() -> None:
    calendar = calendar_of({0: (*SPECS[1], SpecField("name", "truncate[2]", 4, "string"), SpecField("old", "void", 5, "string"))}, 0, {})
    with pytest.raises(ConfigError, match="'name', a field by bucket or truncate"):
        calendar.called_ready("ts_day=2026-03-27/name=ab")
    with pytest.raises(ConfigError, match="'id_bucket', a field by bucket or truncate"):
        EVOLVED.called_ready("ts_day=2026-03-27/id_bucket=3")
    assert calendar.called_ready("ts_day=2026-03-27/old=null") == calendar.partition("ts_day=2026-03-27")


def test_specs_by_times_of_two_columns_need_the_name_of_the_one_that_counts() -> None:
    event, created = SpecField("event_day", "day", 1, "timestamp"), SpecField("created_day", "day", 2, "timestamp")
    old = KnownPartition(0, (PartitionValue("created_day", "date", "2026-03-27"),), 1, START, 1)
    calendar = calendar_of({0: (created,), 1: (event,)}, 1, {})
    with pytest.raises(ConfigError, match="created_day, event_day of several specs tell times of different columns"):
        calendar.window(START, START + HOUR)
    assert not by_files(calendar.partition("event_day=2026-03-27"), calendar, [old], Exists(), START).ready
    named = calendar_of({0: (created,), 1: (event,)}, 1, {"compaction.ready-time": "event_day"})
    assert not by_files(named.partition("event_day=2026-03-27"), named, [old], Exists(), START).ready


@pytest.mark.parametrize(
    ("named", "asked", "ready"),
    [
        (["ts_day=2026-03-27"], "ts_day=2026-03-27", True),
        (["ts_day=2026-03-27"], "ts_day=2026-03-27/region=eu", True),
        (["ts_day=2026-03-27/region=eu"], "ts_day=2026-03-27", False),
        (["ts_day=2026-03-27/region=us"], "ts_day=2026-03-27/region=eu", False),
        (["ts_day=2026-03-27"], "ts_hour=2026-03-27-03", True),
        (["ts_day=2026-03-27"], "ts_hour=2026-03-28-00", False),
        (["ts_hour=2026-03-27-03"], "ts_day=2026-03-27", False),
        ([f"ts_hour=2026-03-27-{hour:02d}" for hour in range(24)], "ts_day=2026-03-27", True),
        ([f"ts_hour=2026-03-27-{hour:02d}" for hour in range(24) if hour != 3], "ts_day=2026-03-27", False),
        (["ts_day=2026-03-27"], "region=eu", False),
        (["region=eu"], "region=eu", True),
        (["region=eu"], "ts_day=2026-03-27/region=eu", True),
        (["region=eu"], "ts_day=2026-03-27", False),
        ([], "ts_day=2026-03-27", False),
    ],
)
def test_a_name_stands_for_all_that_it_includes(named: list[str], asked: str, ready: bool) -> None:
    names = [EVOLVED.partition(name) for name in named]
    assert by_names(EVOLVED.partition(asked), names, "reported", "nobody").ready is ready


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2026-03-27", "is no partition: write it as in the paths of files, with ts_hour=… and region=… and id_bucket=… and ts_day=…"),
        ("ts_day=", "means no time: write the value as yyyy-MM-dd"),
        ("ts_day=27.3.2026", "means no time"),
        ("day=2026-03-27", "has no such partition field"),
        ("ts_day=2026-03-27/ts_day=2026-03-28", "is no partition"),
        ("id_bucket=3", "say nothing about when a partition is ready"),
        ("", "is no partition"),
        (f"region={'x' * 2000}", "has more than 1000 bytes"),
    ],
)
def test_a_name_that_no_partition_has_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        EVOLVED.partition(text)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("transform", "source", "value", "text", "window"),
    [
        ("identity", "string", None, "null", None),
        ("identity", "string", "a/b", "a%2Fb", None),
        ("identity", "boolean", True, "true", None),
        ("identity", "int", 490_899, "490899", None),
        ("year", "timestamptz", 54, "2024", "2024-01-01T00:00Z/2025-01-01T00:00Z"),
        ("month", "timestamptz", 671, "2025-12", "2025-12-01T00:00Z/2026-01-01T00:00Z"),
        ("month", "timestamptz", -1, "1969-12", "1969-12-01T00:00Z/1970-01-01T00:00Z"),
        ("day", "timestamptz", "2026-01-01", "2026-01-01", "2026-01-01T00:00Z/2026-01-02T00:00Z"),
        ("hour", "timestamptz", 490_899, "2026-01-01-03", "2026-01-01T03:00Z/2026-01-01T04:00Z"),
    ],
)
def test_a_partition_of_files_is_asked_for_by_the_text_that_its_path_has(
    transform: str, source: str, value: str | int | bool | None, text: str, window: str | None
) -> None:
    calendar = calendar_of({0: (SpecField("p", transform, 1, source),)}, 0, {})
    asked = calendar.of_files(0, (PartitionValue("p", "any", value),))
    assert (asked, asked.what) == (calendar.partition(f"p={text}"), f"p={text}")
    assert (None if asked.window is None else str(asked.window)) == window


@pytest.mark.parametrize("transform", ["year", "month", "day", "hour"])
def test_a_partition_of_files_without_a_time_is_nothing_that_can_be_asked_for(transform: str) -> None:
    calendar = calendar_of({0: (SpecField("p", transform, 1, "timestamptz"),)}, 0, {})
    with pytest.raises(ConfigError, match="'p=null' means no time"):
        calendar.of_files(0, (PartitionValue("p", "any", None),))


def test_names_are_written_in_one_way() -> None:
    one = EVOLVED.partition("region=e%20u/ts_day=2026-03-27/id_bucket=3/")
    assert one == EVOLVED.partition(" ts_day=2026-03-27/region=e u ")
    assert one.what == "ts_day=2026-03-27/region=e u"


def test_windows_need_zones_an_order_and_a_time() -> None:
    with pytest.raises(ConfigError, match="has no zone"):
        EVOLVED.window(datetime(2026, 1, 1), datetime(2026, 1, 2))
    with pytest.raises(ConfigError, match="is empty"):
        EVOLVED.window(START, START)
    with pytest.raises(ConfigError, match=r"compaction\.ready-time"):
        calendar_of({0: (REGION,)}, 0, {}).window(START, START + HOUR)
    with pytest.raises(ConfigError, match=r"compaction\.ready-time"):
        by_watermark(calendar_of({0: (REGION,)}, 0, {}).partition("region=eu"), _mark(START), KEYS)
    with pytest.raises(ConfigError, match="it is not partitioned"):
        calendar_of({0: ()}, 0, {}).partition("day=2026-01-01")


def test_reasons_name_the_numbers() -> None:
    asked = EVOLVED.window(START, START + HOUR)
    verdict = by_watermark(asked, _mark(START + HOUR), KEYS)
    assert verdict.why == (
        "the watermark is 2026-03-27T01:00Z (watermark of snapshot 1), but the last partition that overlaps it ends at 2026-03-28T00:00Z, "
        "23 h later"
    )
    assert instant_text(START + timedelta(seconds=1)) == "2026-03-27T00:00:01Z"
