"""Every pair of periods with a set, an interval, `whole` and `last`, as literal instants written by hand.

A row has a downstream time, its zone, the offsets, the period of the upstream (with its zone, where that is another), and the starts of
its upstream times in UTC. `a .. b` is a run of hours, and `a … b` is one of days of 24 hours; the number of times stands behind each row
that has a run. In 2026 clocks change in Berlin on 29 March and 25 October at 01Z, in New York on 8 March at 07Z and 1 November at 06Z, in
Santiago on 6 September at 04Z (midnight, forward) and on 5 April at 03Z (midnight, back).
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from compaction_pipeline.core.dependencies.center.offsets import Offsets, canonical, downstream_times, upstream_times
from compaction_pipeline.core.dependencies.center.periods import Calendar, Period

ZONES = {"B": "Europe/Berlin", "N": "America/New_York", "S": "America/Santiago", "U": "UTC", "T": "Asia/Tokyo", "A": "Pacific/Apia"}
STEPS = {"..": timedelta(hours=1), "…": timedelta(hours=24)}

HOURS_ON_HOURS = """
B 2026-03-29T03        0        HOUR   2026-03-29T01
B 2026-03-29T03        -1       HOUR   2026-03-29T00
B 2026-03-29T12        {0,-24}  HOUR   2026-03-28T10 2026-03-29T10
B 2026-03-29T04        [-2,0]   HOUR   2026-03-29T00 .. 2026-03-29T02 =3
B 2026-10-25T02        -1       HOUR   2026-10-24T23
B 2026-10-25T02+0100   -1       HOUR   2026-10-25T00
B 2026-10-25T03        [-2,0]   HOUR   2026-10-25T00 .. 2026-10-25T02 =3
B 2026-10-25T03        {0,-3}   HOUR   2026-10-24T23 2026-10-25T02
B 2026-10-25T03        whole    HOUR   2026-10-25T02
B 2026-10-25T03        last     HOUR   2026-10-25T02
B 2026-10-25T03        last-1   HOUR   2026-10-25T01
N 2026-03-08T03        -1       HOUR   2026-03-08T06
N 2026-11-01T01        0        HOUR   2026-11-01T05
N 2026-11-01T01-0500   [-1,0]   HOUR   2026-11-01T05 .. 2026-11-01T06 =2
S 2026-09-06T01        -1       HOUR   2026-09-06T03
S 2026-04-04T23-0400   -1       HOUR   2026-04-05T02
B 2026-10-25T02+0100   0        HOUR/T 2026-10-25T01
U 2024-03-01T00        -1       HOUR   2024-02-29T23
"""
HOURS_ON_DAYS = """
B 2026-03-29T03        0        DAY    2026-03-28T23
B 2026-03-29T23        -1       DAY    2026-03-27T23
B 2026-03-30T00        [-1,0]   DAY    2026-03-28T23 2026-03-29T22
B 2026-10-25T02+0100   0        DAY    2026-10-24T22
B 2026-10-25T23        {0,-7}   DAY    2026-10-17T22 2026-10-24T22
B 2026-10-26T00        {0,-1}   DAY    2026-10-24T22 2026-10-25T23
B 2026-10-26T00        whole    DAY    2026-10-25T23
B 2026-10-26T00        last     DAY    2026-10-25T23
B 2026-10-26T00        last-1   DAY    2026-10-24T22
N 2026-11-01T01-0500   0        DAY    2026-11-01T04
N 2026-03-08T03        -1       DAY    2026-03-07T05
S 2026-09-06T01        0        DAY    2026-09-06T04
S 2026-09-06T01        -1       DAY    2026-09-05T04
S 2026-04-04T23-0400   0        DAY    2026-04-04T03
S 2026-04-05T00        [-1,0]   DAY    2026-04-04T03 2026-04-05T04
B 2026-01-01T00        0        DAY/T  2025-12-31T15
B 2026-01-01T16        0        DAY/T  2026-01-01T15
U 2024-03-01T05        -1       DAY    2024-02-29T00
"""
HOURS_ON_WEEKS = """
B 2026-03-29T23        0        WEEK   2026-03-22T23
B 2026-03-30T00        0        WEEK   2026-03-29T22
B 2026-03-30T00        {0,-1}   WEEK   2026-03-22T23 2026-03-29T22
B 2021-01-01T00        0        WEEK   2020-12-27T23
B 2021-01-04T00        [-1,0]   WEEK   2020-12-27T23 2021-01-03T23
B 2021-01-04T00        whole    WEEK   2021-01-03T23
B 2021-01-04T00        last-1   WEEK   2020-12-27T23
N 2026-11-01T23        0        WEEK   2026-10-26T04
"""
HOURS_ON_MONTHS = """
B 2026-10-31T23        0        MONTH  2026-09-30T22
B 2026-10-31T23        [-1,0]   MONTH  2026-08-31T22 2026-09-30T22
B 2026-10-31T23        {0,-7}   MONTH  2026-02-28T23 2026-09-30T22
B 2026-11-01T00        0        MONTH  2026-10-31T23
B 2026-11-01T00        whole    MONTH  2026-10-31T23
B 2026-11-01T00        last-1   MONTH  2026-09-30T22
N 2026-03-31T23        0        MONTH  2026-03-01T05
N 2026-04-01T00        -1       MONTH  2026-03-01T05
"""
DAYS_ON_HOURS = """
B 2026-03-29           0        HOUR   2026-03-28T23
B 2026-03-29           -1       HOUR   2026-03-28T22
B 2026-03-29           whole    HOUR   2026-03-28T23 .. 2026-03-29T21 =23
B 2026-03-29           [0,23]   HOUR   2026-03-28T23 .. 2026-03-29T21 =23
B 2026-03-29           last     HOUR   2026-03-29T21
B 2026-03-29           last-1   HOUR   2026-03-29T20
B 2026-03-29           [20,23]  HOUR   2026-03-29T19 .. 2026-03-29T21 =3
B 2026-03-29           [-23,0]  HOUR   2026-03-28T00 .. 2026-03-28T23 =24
B 2026-03-29           {2,-2}   HOUR   2026-03-28T21 2026-03-29T01
B 2026-03-29           {0,23}   HOUR   2026-03-28T23
B 2026-03-30           -1       HOUR   2026-03-29T21
B 2026-10-25           0        HOUR   2026-10-24T22
B 2026-10-25           whole    HOUR   2026-10-24T22 .. 2026-10-25T22 =25
B 2026-10-25           [0,23]   HOUR   2026-10-24T22 .. 2026-10-25T22 =25
B 2026-10-25           last     HOUR   2026-10-25T22
B 2026-10-25           23       HOUR   2026-10-25T21
B 2026-10-25           [22,24]  HOUR   2026-10-25T20 .. 2026-10-25T22 =3
B 2026-10-25           {3,2}    HOUR   2026-10-25T00 2026-10-25T01
B 2026-10-26           [-1,0]   HOUR   2026-10-25T22 .. 2026-10-25T23 =2
N 2026-03-08           whole    HOUR   2026-03-08T05 .. 2026-03-09T03 =23
N 2026-03-08           last     HOUR   2026-03-09T03
N 2026-11-01           whole    HOUR   2026-11-01T04 .. 2026-11-02T04 =25
N 2026-11-01           {1,2}    HOUR   2026-11-01T05 2026-11-01T06
S 2026-09-06           whole    HOUR   2026-09-06T04 .. 2026-09-07T02 =23
S 2026-09-06           0        HOUR   2026-09-06T04
S 2026-04-04           whole    HOUR   2026-04-04T03 .. 2026-04-05T03 =25
S 2026-04-04           last     HOUR   2026-04-05T03
S 2026-04-05           0        HOUR   2026-04-05T04
B 2026-07-01           whole    HOUR/T 2026-06-30T22 .. 2026-07-01T21 =24
U 2024-02-29           whole    HOUR   2024-02-29T00 .. 2024-02-29T23 =24
"""
DAYS_ON_DAYS = """
B 2026-03-29           0        DAY    2026-03-28T23
B 2026-03-29           -1       DAY    2026-03-27T23
B 2026-03-30           {0,-1}   DAY    2026-03-28T23 2026-03-29T22
B 2026-03-30           [-2,0]   DAY    2026-03-27T23 2026-03-28T23 2026-03-29T22
B 2026-10-26           [-1,0]   DAY    2026-10-24T22 2026-10-25T23
B 2026-10-26           whole    DAY    2026-10-25T23
B 2026-10-26           last     DAY    2026-10-25T23
B 2026-10-26           last-1   DAY    2026-10-24T22
B 2024-03-01           -1       DAY    2024-02-28T23
B 2026-03-01           -1       DAY    2026-02-27T23
B 2026-01-01           {0,-365} DAY    2024-12-31T23 2025-12-31T23
N 2026-03-09           [-1,0]   DAY    2026-03-08T05 2026-03-09T04
S 2026-09-06           {0,-1}   DAY    2026-09-05T04 2026-09-06T04
B 2026-03-29           0        DAY/N  2026-03-29T04
B 2026-03-29           0        DAY/T  2026-03-28T15
A 2011-12-31           -1       DAY
A 2011-12-31           [-1,0]   DAY    2011-12-30T10
A 2011-12-31           {0,-2}   DAY    2011-12-29T10 2011-12-30T10
"""
DAYS_ON_WEEKS = """
B 2026-01-01           0        WEEK   2025-12-28T23
B 2021-01-03           0        WEEK   2020-12-27T23
B 2021-01-04           -1       WEEK   2020-12-27T23
B 2021-01-04           {0,-1}   WEEK   2020-12-27T23 2021-01-03T23
B 2021-01-04           [-2,-1]  WEEK   2020-12-20T23 2020-12-27T23
B 2026-03-30           whole    WEEK   2026-03-29T22
B 2026-03-30           last-1   WEEK   2026-03-22T23
"""
DAYS_ON_MONTHS = """
B 2024-02-29           0        MONTH  2024-01-31T23
B 2026-03-31           -1       MONTH  2026-01-31T23
B 2026-04-01           [-1,0]   MONTH  2026-02-28T23 2026-03-31T22
B 2026-04-01           {0,-12}  MONTH  2025-03-31T22 2026-03-31T22
B 2026-04-01           whole    MONTH  2026-03-31T22
B 2026-04-01           last-1   MONTH  2026-02-28T23
"""
WEEKS_ON_HOURS = """
B 2026-W13             0        HOUR   2026-03-22T23
B 2026-W13             -1       HOUR   2026-03-22T22
B 2026-W13             whole    HOUR   2026-03-22T23 .. 2026-03-29T21 =167
B 2026-W13             [0,167]  HOUR   2026-03-22T23 .. 2026-03-29T21 =167
B 2026-W13             last     HOUR   2026-03-29T21
B 2026-W13             last-2   HOUR   2026-03-29T19
B 2026-W13             [165,167] HOUR  2026-03-29T20 .. 2026-03-29T21 =2
B 2026-W43             whole    HOUR   2026-10-18T22 .. 2026-10-25T22 =169
B 2026-W43             {0,24}   HOUR   2026-10-18T22 2026-10-19T22
N 2026-W10             whole    HOUR   2026-03-02T05 .. 2026-03-09T03 =167
N 2026-W44             whole    HOUR   2026-10-26T04 .. 2026-11-02T04 =169
B 2020-W53             whole    HOUR   2020-12-27T23 .. 2021-01-03T22 =168
"""
WEEKS_ON_DAYS = """
B 2020-W53             whole    DAY    2020-12-27T23 … 2021-01-02T23 =7
B 2020-W53             [0,6]    DAY    2020-12-27T23 … 2021-01-02T23 =7
B 2020-W53             last     DAY    2021-01-02T23
B 2020-W53             last-1   DAY    2021-01-01T23
B 2020-W53             4        DAY    2020-12-31T23
B 2020-W53             {0,6}    DAY    2020-12-27T23 2021-01-02T23
B 2026-W13             whole    DAY    2026-03-22T23 … 2026-03-28T23 =7
B 2026-W14             0        DAY    2026-03-29T22
B 2026-W14             [-1,0]   DAY    2026-03-28T23 2026-03-29T22
B 2026-W14             [5,9]    DAY    2026-04-03T22 2026-04-04T22
S 2026-W36             last     DAY    2026-09-06T04
A 2011-W52             whole    DAY    2011-12-26T10 … 2011-12-29T10 =4 2011-12-30T10 … 2011-12-31T10 =2
"""
WEEKS_ON_WEEKS = """
B 2021-W01             -1       WEEK   2020-12-27T23
B 2021-W01             {0,-1}   WEEK   2020-12-27T23 2021-01-03T23
B 2021-W01             [-2,0]   WEEK   2020-12-20T23 2020-12-27T23 2021-01-03T23
B 2026-W01             -1       WEEK   2025-12-21T23
B 2026-W14             whole    WEEK   2026-03-29T22
B 2026-W14             last-1   WEEK   2026-03-22T23
B 2026-W14             0        WEEK/N 2026-03-30T04
"""
MONTHS_ON_HOURS = """
U 2026-02              whole    HOUR   2026-02-01T00 .. 2026-02-28T23 =672
U 2024-02              last     HOUR   2024-02-29T23
U 2024-02              whole    HOUR   2024-02-01T00 .. 2024-02-29T23 =696
B 2026-03              whole    HOUR   2026-02-28T23 .. 2026-03-31T21 =743
B 2026-10              whole    HOUR   2026-09-30T22 .. 2026-10-31T22 =745
B 2026-10              [0,743]  HOUR   2026-09-30T22 .. 2026-10-31T22 =745
B 2026-10              last-1   HOUR   2026-10-31T21
B 2026-10              -1       HOUR   2026-09-30T21
U 2026-02              {0,672}  HOUR   2026-02-01T00
U 2026-02              [670,672] HOUR  2026-02-28T22 2026-02-28T23
S 2026-09              whole    HOUR   2026-09-01T04 .. 2026-10-01T02 =719
N 2026-11              whole    HOUR   2026-11-01T04 .. 2026-12-01T04 =721
"""
MONTHS_ON_DAYS = """
U 2024-02              whole    DAY    2024-02-01T00 … 2024-02-29T00 =29
U 2026-02              whole    DAY    2026-02-01T00 … 2026-02-28T00 =28
U 2026-02              [0,30]   DAY    2026-02-01T00 … 2026-02-28T00 =28
U 2026-02              last     DAY    2026-02-28T00
U 2024-02              last-1   DAY    2024-02-28T00
U 2026-02              last-30  DAY    2026-01-29T00
U 2026-02              [26,30]  DAY    2026-02-27T00 2026-02-28T00
U 2026-02              {0,27}   DAY    2026-02-01T00 2026-02-28T00
U 2026-02              -1       DAY    2026-01-31T00
B 2026-03              whole    DAY    2026-02-28T23 … 2026-03-28T23 =29 2026-03-29T22 … 2026-03-30T22 =2
B 2026-10              last     DAY    2026-10-30T23
S 2026-09              5        DAY    2026-09-06T04
"""
MONTHS_ON_MONTHS = """
B 2026-03              -1       MONTH  2026-01-31T23
B 2026-01              -1       MONTH  2025-11-30T23
B 2026-01              {0,-12}  MONTH  2024-12-31T23 2025-12-31T23
B 2026-04              [-2,0]   MONTH  2026-01-31T23 2026-02-28T23 2026-03-31T22
B 2026-04              whole    MONTH  2026-03-31T22
B 2026-04              last     MONTH  2026-03-31T22
B 2026-04              last-1   MONTH  2026-02-28T23
B 2026-04              0        MONTH/T 2026-03-31T15
"""
TABLES = {
    (Period.HOUR, Period.HOUR): HOURS_ON_HOURS,
    (Period.HOUR, Period.DAY): HOURS_ON_DAYS,
    (Period.HOUR, Period.WEEK): HOURS_ON_WEEKS,
    (Period.HOUR, Period.MONTH): HOURS_ON_MONTHS,
    (Period.DAY, Period.HOUR): DAYS_ON_HOURS,
    (Period.DAY, Period.DAY): DAYS_ON_DAYS,
    (Period.DAY, Period.WEEK): DAYS_ON_WEEKS,
    (Period.DAY, Period.MONTH): DAYS_ON_MONTHS,
    (Period.WEEK, Period.HOUR): WEEKS_ON_HOURS,
    (Period.WEEK, Period.DAY): WEEKS_ON_DAYS,
    (Period.WEEK, Period.WEEK): WEEKS_ON_WEEKS,
    (Period.MONTH, Period.HOUR): MONTHS_ON_HOURS,
    (Period.MONTH, Period.DAY): MONTHS_ON_DAYS,
    (Period.MONTH, Period.MONTH): MONTHS_ON_MONTHS,
}
ROWS = [
    pytest.param(period, row, id=f"{period.value}: {' '.join(row.split()[:4])}")
    for (period, _), table in TABLES.items()
    for row in table.strip().splitlines()
]


@pytest.mark.parametrize(("period", "row"), ROWS)
def test_the_upstream_times_of_a_row(period: Period, row: str) -> None:
    zone, text, offsets, upstream, *starts = row.split()
    up_period, _, up_zone = upstream.partition("/")
    down, up = Calendar(period, ZONES[zone]), Calendar(Period(up_period), ZONES[up_zone or zone])
    time, some = down.parse(text), Offsets.parse(offsets)
    found = upstream_times(some, down, up, time)
    assert [up.start(at) for at in found] == _instants(starts)
    assert upstream_times(canonical(some, down, up), down, up, time) == found
    assert all(time in downstream_times(some, down, up, at) for at in found)


@pytest.mark.parametrize("period", [*TABLES], ids=lambda pair: f"{pair[0].value} on {pair[1].value}")
def test_each_pair_has_a_set_an_interval_whole_and_last(period: tuple[Period, Period]) -> None:
    rows = [row.split() for row in TABLES[period].strip().splitlines()]
    assert {row[3].partition("/")[0] for row in rows} == {period[1].value}
    forms = {row[2][0] if row[2][0] in "{[w" else "last" if row[2].startswith("last") else "place" for row in rows}
    assert forms == {"{", "[", "w", "last", "place"}


def _instants(words: list[str]) -> list[datetime]:
    """The instants that a row lists, with its runs, whose lengths it says too."""
    found: list[datetime] = []
    step: timedelta | None = None
    since = 0
    for word in words:
        if word in STEPS:
            step, since = STEPS[word], len(found) - 1
        elif word.startswith("="):
            assert len(found) - since == int(word[1:]), "the row counts its run wrong"
        else:
            at = datetime.fromisoformat(f"{word}:00").replace(tzinfo=timezone.utc)
            while step is not None and found[-1] + step < at:
                found.append(found[-1] + step)
            found.append(at)
            step = None
    return found
