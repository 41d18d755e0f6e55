"""Laws of offsets, and a count on a plain calendar beside them."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.dependencies.center.offsets import Form, Offsets, canonical, downstream_times, upstream_times
from compaction_pipeline.core.dependencies.center.periods import FIRST_YEAR, LAST_YEAR, Calendar, Period
from compaction_pipeline_tests.core.dependencies.center.calendars import offsets, pairs, times

Pair = tuple[Calendar, Calendar]


@given(offsets)
def test_the_text_reads_back(some: Offsets) -> None:
    assert Offsets.parse(some.text()) == some


@given(st.data(), pairs, offsets)
def test_every_upstream_time_has_its_downstream_among_its_own(data: st.DataObject, pair: Pair, some: Offsets) -> None:
    down, up = pair
    time = data.draw(times(down))
    found = upstream_times(some, down, up, time)
    assert list(found) == sorted(set(found))
    for upstream in (found[0], found[len(found) // 2], found[-1]) if found else ():
        assert time in downstream_times(some, down, up, upstream)


@given(st.data(), pairs, offsets)
def test_every_downstream_time_has_its_upstream_among_its_own(data: st.DataObject, pair: Pair, some: Offsets) -> None:
    down, up = pair
    time = data.draw(times(up))
    found = downstream_times(some, down, up, time)
    assert list(found) == sorted(set(found))
    for downstream in (found[0], found[len(found) // 2], found[-1]) if found else ():
        assert time in upstream_times(some, down, up, downstream)


@given(st.data(), pairs, offsets)
def test_the_canonical_form_means_the_same_and_stays(data: st.DataObject, pair: Pair, some: Offsets) -> None:
    down, up = pair
    time = data.draw(times(down))
    short = canonical(some, down, up)
    assert upstream_times(short, down, up, time) == upstream_times(some, down, up, time)
    assert canonical(short, down, up) == short


@given(st.data(), pairs, offsets)
def test_upstream_times_are_those_of_a_count_on_a_plain_calendar(data: st.DataObject, pair: Pair, some: Offsets) -> None:
    down, up = pair
    time = data.draw(times(down))
    if {down.zone, up.zone} & HALF_HOURS:
        return
    found = upstream_times(some, down, up, time)
    own = down.start(time) if down.period is Period.HOUR else _first_date(down.text(time))
    in_years = [at for at in _counted(some, down, up, own) if FIRST_YEAR <= at.year <= LAST_YEAR]
    counted = [at for at in in_years if up.period is not Period.DAY or _exists(at, up.zone)]
    assert [up.start(at) if up.period is Period.HOUR else _first_date(up.text(at)) for at in found] == counted


HALF_HOURS = {"Asia/Kolkata", "Australia/Lord_Howe", "America/St_Johns"}
HOUR = timedelta(hours=1)
NOMINAL = {("HOUR", "DAY"): 24, ("HOUR", "WEEK"): 168, ("HOUR", "MONTH"): 744, ("DAY", "WEEK"): 7, ("DAY", "MONTH"): 31}
Place = datetime | date
"""An hour by its instant, and any other time by its first date."""


def _counted(some: Offsets, down: Calendar, up: Calendar, own: Place) -> list[Place]:
    """The upstream times of the downstream time `own`, found by looking at dates and hours one by one."""
    nominal = NOMINAL.get((up.period.value, down.period.value))
    places = list(range(some.places[0], some.places[-1] + 1)) if some.form is Form.INTERVAL else list(some.places)
    if nominal is None:
        zero = own if up.period is down.period else _holder(own, up)
        return [_walk(up.period, zero, place) for place in places or [0]]
    inner = _hours(own, down) if up.period is Period.HOUR else _dates(own, down.period)
    if some.form is Form.WHOLE or places == list(range(nominal)):
        return inner
    if some.form is Form.LAST:
        return [_walk(up.period, inner[-1], places[0])]
    return [_walk(up.period, inner[0], place) for place in places if place < len(inner)]


def _holder(own: Place, up: Calendar) -> Place:
    its_date = own.astimezone(ZoneInfo(up.zone)).date() if isinstance(own, datetime) else own
    return next(day for back in range(31) if _is_first(day := its_date - timedelta(days=back), up.period))


def _is_first(day: date, period: Period) -> bool:
    return period is Period.DAY or (day.isoweekday() == 1 if period is Period.WEEK else day.day == 1)


def _dates(own: Place, period: Period) -> list[Place]:
    found: list[Place] = [own]
    while period is not Period.DAY and not _is_first(found[-1] + timedelta(days=1), period):
        found.append(found[-1] + timedelta(days=1))
    return found


def _hours(own: Place, down: Calendar) -> list[Place]:
    dates, zone = set(_dates(own, down.period)), ZoneInfo(down.zone)
    noon = datetime(own.year, own.month, own.day, 12, tzinfo=timezone.utc)
    hours = (noon + by * HOUR for by in range(-48, 24 * len(dates) + 48))
    return [hour for hour in hours if hour.astimezone(zone).date() in dates]


def _walk(period: Period, at: Place, by: int) -> Place:
    if period is Period.HOUR:
        return at + by * HOUR
    if period is not Period.MONTH:
        return at + timedelta(days=by if period is Period.DAY else 7 * by)
    for _ in range(abs(by)):
        at = at - timedelta(days=1) if by < 0 else at + timedelta(days=31)
        at = at.replace(day=1)
    return at


def _first_date(text: str) -> date:
    if "W" in text:
        return date.fromisocalendar(int(text[:4]), int(text[-2:]), 1)
    return date.fromisoformat(text if len(text) == 10 else f"{text}-01")


def _exists(day: Place, zone: str) -> bool:
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=timezone.utc)
    return any((noon + by * HOUR).astimezone(ZoneInfo(zone)).date() == day for by in range(-36, 36))
