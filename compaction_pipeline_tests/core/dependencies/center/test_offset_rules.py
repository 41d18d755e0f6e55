"""What is refused before an edge is saved, and that what passes is always there, and never later than its downstream."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.dependencies.center.offset_rules import check
from compaction_pipeline.core.dependencies.center.offsets import FARTHEST, Form, Offsets, upstream_times
from compaction_pipeline.core.dependencies.center.periods import Calendar, Period
from compaction_pipeline.services.dependencies.lead_center import KEPT
from compaction_pipeline_tests.core.dependencies.center.calendars import offsets, pairs, periods

NOW = datetime(2026, 1, 15, 3, tzinfo=timezone.utc)
BERLIN, TOKYO, APIA, LORD_HOWE = "Europe/Berlin", "Asia/Tokyo", "Pacific/Apia", "Australia/Lord_Howe"
NEAR_APIA = datetime(2012, 1, 15, tzinfo=timezone.utc)


def _check(down: str, places: str, up: str, now: datetime = NOW) -> list[str]:
    """The problems of an edge whose ends are written like `DAY Europe/Berlin`."""
    calendars = [Calendar(Period(period), zone) for period, zone in (text.split() for text in (down, up))]
    return check(Offsets.parse(places), *calendars, now)


@pytest.mark.parametrize(
    ("down", "places", "up"),
    [
        (f"DAY {BERLIN}", "whole", f"HOUR {BERLIN}"),
        (f"DAY {BERLIN}", "[0,23]", f"HOUR {TOKYO}"),
        (f"DAY {BERLIN}", "last-24", f"HOUR {BERLIN}"),
        (f"DAY {BERLIN}", "{22,-1,-700}", f"HOUR {BERLIN}"),
        (f"DAY {BERLIN}", "[22,24]", f"HOUR {BERLIN}"),
        ("DAY UTC", "23", "HOUR UTC"),
        ("MONTH UTC", "27", "DAY UTC"),
        ("MONTH UTC", "[27,30]", "DAY UTC"),
        ("MONTH UTC", "{28,29,27}", "DAY UTC"),
        ("MONTH UTC", "last-30", "DAY UTC"),
        (f"MONTH {BERLIN}", "[0,744]", f"HOUR {BERLIN}"),
        ("WEEK UTC", "6", "DAY UTC"),
        (f"WEEK {BERLIN}", "166", f"HOUR {BERLIN}"),
        ("HOUR UTC", "0", f"MONTH {TOKYO}"),
        ("HOUR UTC", "whole", "HOUR UTC"),
        (f"DAY {TOKYO}", "0", f"DAY {BERLIN}"),
        (f"DAY {BERLIN}", "0", f"DAY {LORD_HOWE}"),
        (f"MONTH {BERLIN}", "whole", "DAY Europe/Paris"),
        (f"DAY {APIA}", "[-1,0]", f"DAY {APIA}"),
        ("MONTH UTC", "-365", "DAY UTC"),
        ("MONTH UTC", "last-390", "DAY UTC"),
    ],
)
def test_allowed(down: str, places: str, up: str) -> None:
    assert _check(down, places, up) == _check(down, places, up, NEAR_APIA) == []


@pytest.mark.parametrize(
    ("down", "places", "up", "words"),
    [
        ("WEEK UTC", "whole", "MONTH UTC", "a WEEK cannot depend on a MONTH"),
        ("MONTH UTC", "0", "WEEK UTC", "nor a MONTH on a WEEK"),
        (f"HOUR {LORD_HOWE}", "-1", f"HOUR {LORD_HOWE}", f"the offset of zone {LORD_HOWE} from UTC is not always whole hours"),
        (f"DAY {BERLIN}", "whole", "HOUR Asia/Kolkata", "the offset of zone Asia/Kolkata from UTC is not always whole hours"),
        (f"HOUR {BERLIN}", "-1", "DAY Asia/Kathmandu", "the offset of zone Asia/Kathmandu"),
        (f"MONTH {TOKYO}", "whole", "DAY UTC", f"the MONTH 2024-12 of zone {TOKYO} begins within a DAY of zone UTC"),
        ("DAY UTC", "-1", f"WEEK {TOKYO}", f"the WEEK 2024-W50 of zone {TOKYO} begins within a DAY of zone UTC"),
        (f"DAY {BERLIN}", "23", f"HOUR {BERLIN}", "place 23 does not exist in 2025-03-30, which has only 23 of period HOUR"),
        (f"DAY {BERLIN}", "{0,23}", f"HOUR {BERLIN}", "place 23 does not exist in 2025-03-30"),
        (f"DAY {BERLIN}", "{23}", f"HOUR {BERLIN}", "the offsets 23 (DAY on HOUR): place 23 does not exist"),
        (f"DAY {BERLIN}", "[23,24]", f"HOUR {BERLIN}", "place 23 does not exist in 2025-03-30"),
        (f"DAY {BERLIN}", "[-3,25]", f"HOUR {BERLIN}", "place 25 is behind the end of every DAY, which has 25 at most: write 24 or less"),
        ("DAY UTC", "24", "HOUR UTC", "place 24 is behind the end of every DAY, which has 24 at most: write 23 or less"),
        ("MONTH UTC", "28", "DAY UTC", "place 28 does not exist in 2025-02, which has only 28 of period DAY: write `last`"),
        ("MONTH UTC", "{30,-1}", "DAY UTC", "place 30 does not exist in 2025-02"),
        ("MONTH UTC", "31", "DAY UTC", "place 31 is behind the end of every MONTH"),
        ("WEEK UTC", "[0,7]", "DAY UTC", "place 7 is behind the end of every WEEK"),
        (f"WEEK {BERLIN}", "167", f"HOUR {BERLIN}", "place 167 does not exist in 2025-W13, which has only 167 of period HOUR"),
        ("MONTH UTC", "-366", "DAY UTC", "so nothing would ever start: write -365 or later"),
        ("MONTH UTC", "{0,-8761}", "HOUR UTC", "so nothing would ever start: write -8760 or later"),
        ("MONTH UTC", "last-391", "DAY UTC", "so nothing would ever start: write -390 or later"),
        ("DAY UTC", "1", "DAY UTC", "the data of place 1 starts when the downstream's own DAY has ended, or later"),
        ("HOUR UTC", "[-1,1]", f"HOUR {TOKYO}", "the data of place 1 starts when the downstream's own HOUR has ended, or later"),
        ("HOUR UTC", "1", "DAY UTC", "the data of place 1 starts when the downstream's own HOUR has ended, or later"),
        (
            "DAY Pacific/Kiritimati",
            "0",
            "DAY Pacific/Honolulu",
            "the data of place 0 starts when the downstream's own DAY has ended, or later",
        ),
    ],
)
def test_refused(down: str, places: str, up: str, words: str) -> None:
    (problem,) = _check(down, places, up)
    assert words in problem


@pytest.mark.parametrize(
    ("places", "waits"), [("-1", "2011-12-31"), ("{-1,-3}", "2011-12-31"), ("last-1", "2011-12-31"), ("-7", "2012-01-06")]
)
def test_a_day_that_clocks_left_out_is_refused_alone(places: str, waits: str) -> None:
    (problem,) = _check(f"DAY {APIA}", places, f"DAY {APIA}", NEAR_APIA)
    assert f"{waits} would wait for 2011-12-30, a day that the clocks of zone Pacific/Apia left out: write an interval" in problem


def test_a_last_day_that_clocks_left_out_is_refused() -> None:
    (problem,) = _check("MONTH Pacific/Kiritimati", "last", "DAY Pacific/Kiritimati", datetime(1995, 2, 1, tzinfo=timezone.utc))
    assert "1994-12 would wait for 1994-12-31" in problem


@given(st.data(), pairs, offsets, st.integers(-390, 390))
def test_what_passes_is_there_and_never_behind_its_downstream(
    data: st.DataObject, pair: tuple[Calendar, Calendar], some: Offsets, days: int
) -> None:
    down, up = pair
    if check(some, down, up, NOW):
        return
    time = down.at(NOW + timedelta(days=days))
    found = upstream_times(some, down, up, time)
    assert found
    assert all(up.start(at) < down.end(time) for at in found)
    if some.form is Form.SET and len(some.places) == 1:
        assert len(found) == 1


@given(periods, st.integers(1, 50))
def test_data_of_the_future_is_refused(period: Period, place: int) -> None:
    calendar = Calendar(period, BERLIN)
    assert check(Offsets(Form.SET, (place,)), calendar, calendar, NOW)


def _edges() -> Iterator[tuple[Period, Period, str]]:
    """The kinds of edges that are not refused however near they reach: 4 of the 32 are."""
    for down, up, form in product(Period, Period, ("[-{},0]", "last-{}")):
        if not any(check(Offsets.parse(form.format(2)), Calendar(down, BERLIN), Calendar(up, BERLIN), NOW)):
            yield down, up, form


def test_four_kinds_of_edges_are_refused_however_near_they_reach() -> None:
    assert len(list(_edges())) == 28


@pytest.mark.parametrize(("down", "up", "form"), _edges())
def test_what_a_rule_may_still_reach_is_remembered(down: Period, up: Period, form: str) -> None:
    one, other = Calendar(down, BERLIN), Calendar(up, BERLIN)
    least, most = 1, FARTHEST
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if not check(Offsets.parse(form.format(middle)), one, other, NOW) else (least, middle - 1)
    farthest = Offsets.parse(form.format(least))
    # Of hours, those around the end of a month and a year.
    around = (NOW - timedelta(days=16), NOW - timedelta(days=14)) if down is Period.HOUR else (NOW - timedelta(days=366), NOW)
    for time in one.between(*around):
        # An instance is made at the end of its time at the latest.
        assert one.end(time) - other.start(upstream_times(farthest, one, other, time)[0]) <= KEPT
