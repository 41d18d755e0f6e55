"""The calendar of the dependency center beside Dagster's own partition mappings, wherever these can say the same.

Dagster's mappings know one zone, contiguous windows, and offsets in downstream periods. The windows of partitions are compared, never keys.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone

import pytest
from dagster import (
    DailyPartitionsDefinition,
    HourlyPartitionsDefinition,
    MonthlyPartitionsDefinition,
    TimeWindowPartitionMapping,
    TimeWindowPartitionsDefinition,
    WeeklyPartitionsDefinition,
)

from compaction_pipeline.core.dependencies.center.offsets import Offsets, downstream_times, upstream_times
from compaction_pipeline.core.dependencies.center.periods import BusinessTime, Calendar, Period

DEFINITIONS: dict[Period, Callable[[str], TimeWindowPartitionsDefinition]] = {
    Period.HOUR: lambda zone: HourlyPartitionsDefinition("2020-01-06-00:00", timezone=zone),
    Period.DAY: lambda zone: DailyPartitionsDefinition("2020-01-06", timezone=zone),
    # Dagster's weeks start on Sunday, unless told otherwise.
    Period.WEEK: lambda zone: WeeklyPartitionsDefinition("2020-01-06", timezone=zone, day_offset=1),
    Period.MONTH: lambda zone: MonthlyPartitionsDefinition("2020-01-01", timezone=zone),
}
NOW = datetime(2025, 8, 1, tzinfo=timezone.utc)
BERLIN, NEW_YORK, SANTIAGO = "Europe/Berlin", "America/New_York", "America/Santiago"
NEAR = {
    BERLIN: ("2024-03-31T01:00", "2024-10-27T01:00", "2024-02-29T12:00", "2021-01-01T00:00"),
    NEW_YORK: ("2024-03-10T07:00", "2024-11-03T06:00", "2024-02-29T12:00"),
    SANTIAGO: ("2024-09-08T04:00", "2024-04-07T03:00"),
}
"""Instants long before today, because Dagster knows no partition of the future."""
SAME = (("0", 0, 0), ("-1", -1, -1), ("[-1,0]", -1, 0), ("{-2,-3}", -3, -2), ("whole", 0, 0), ("last-1", -1, -1))
PAIRS = [
    *[(period, period, *row) for period in Period for row in SAME],
    *[(down, up, "whole", 0, 0) for down, up in ((Period.DAY, Period.HOUR), (Period.WEEK, Period.HOUR), (Period.WEEK, Period.DAY))],
    (Period.MONTH, Period.DAY, "whole", 0, 0),
    (Period.MONTH, Period.HOUR, "whole", 0, 0),
    (Period.DAY, Period.HOUR, "[0,23]", 0, 0),
    *[(Period.HOUR, up, "0", 0, 0) for up in (Period.DAY, Period.WEEK, Period.MONTH)],
    *[(Period.DAY, up, "0", 0, 0) for up in (Period.WEEK, Period.MONTH)],
]
Window = tuple[datetime, datetime]


@pytest.mark.parametrize("zone", NEAR)
@pytest.mark.parametrize(("down", "up", "offsets", "first", "last"), PAIRS)
def test_upstream_times_are_the_partitions_that_dagster_maps_to(
    zone: str, down: Period, up: Period, offsets: str, first: int, last: int
) -> None:
    mapping, (downs, ups) = TimeWindowPartitionMapping(first, last), (DEFINITIONS[period](zone) for period in (down, up))
    calendars = Calendar(down, zone), Calendar(up, zone)
    for time in _times(calendars[0]):
        subset = downs.empty_subset().with_partition_keys([downs.get_partition_key_for_timestamp(calendars[0].start(time).timestamp())])
        found = mapping.get_upstream_mapped_partitions_result_for_partitions(subset, downs, ups, NOW)
        assert not found.required_but_nonexistent_subset.get_partition_keys()
        theirs = [_window(ups, key) for key in found.partitions_subset.get_partition_keys()]
        ours = upstream_times(Offsets.parse(offsets), *calendars, time)
        assert sorted(theirs) == [(calendars[1].start(at), calendars[1].end(at)) for at in ours], calendars[0].printed(time)


@pytest.mark.parametrize("zone", NEAR)
@pytest.mark.parametrize(("down", "up", "offsets", "first", "last"), PAIRS)
def test_downstream_times_are_the_partitions_that_dagster_maps_back_to(
    zone: str, down: Period, up: Period, offsets: str, first: int, last: int
) -> None:
    mapping, (downs, ups) = TimeWindowPartitionMapping(first, last), (DEFINITIONS[period](zone) for period in (down, up))
    calendars = Calendar(down, zone), Calendar(up, zone)
    for time in _times(calendars[1]):
        subset = ups.empty_subset().with_partition_keys([ups.get_partition_key_for_timestamp(calendars[1].start(time).timestamp())])
        theirs = mapping.get_downstream_partitions_for_partitions(subset, ups, downs, NOW).get_partition_keys()
        ours = downstream_times(Offsets.parse(offsets), *calendars, time)
        assert sorted(_window(downs, key) for key in theirs) == [(calendars[0].start(at), calendars[0].end(at)) for at in ours]


def _times(calendar: Calendar) -> list[BusinessTime]:
    """The times of a calendar near what is special in its zone."""
    found = []
    for text in NEAR[calendar.zone]:
        middle = calendar.at(datetime.fromisoformat(text).replace(tzinfo=timezone.utc))
        found += [time for by in (-1, 0, 1) if (time := calendar.shift(middle, by)) is not None]
    return found


def _window(definition: TimeWindowPartitionsDefinition, key: str) -> Window:
    window = definition.time_window_for_partition_key(key)
    return window.start.astimezone(timezone.utc), window.end.astimezone(timezone.utc)
