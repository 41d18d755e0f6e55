"""What is wrong with the offsets of an edge, before it is saved. Rules for every period are tried on the 400 days before and after now.

- A week on a month, and a month on a week: weeks lie in two months.
- An edge with hours, when a zone of the two has an offset that is no whole hour (Lord Howe, Kolkata).
- Days of one zone in weeks or months of another: a day would lie in two of them. Equal periods of two zones are allowed, by label.
- A place more than 390 days, 55 weeks or 12 months ago, or 365 days before a month begins: what was there then is forgotten.
- A place that no downstream time has, and one whose data starts at the downstream's own end, or later.
- A place that some downstream time lacks (hour 23, day 28 of a month, a day that clocks leave out), when it stands alone. An interval is
  clipped, unless some time lacks all of it. `last` is always there.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from functools import lru_cache

from compaction_pipeline.core.dependencies.center.nesting import inside, is_finer
from compaction_pipeline.core.dependencies.center.offsets import Form, Offsets, canonical, upstream_runs
from compaction_pipeline.core.dependencies.center.periods import BusinessTime, Calendar, Period
from compaction_pipeline.core.dependencies.center.weights import offset_changes, window
from compaction_pipeline.core.errors import ConfigError

_HOUR = 3600
_FARTHEST_BACK = {Period.HOUR: 24 * 390, Period.DAY: 390, Period.WEEK: 55, Period.MONTH: 12}
"""What is there is remembered for 400 days, and an instance may be made days after its time has begun."""
_LONGER_IN_A_MONTH = {Period.HOUR: 24 * 25, Period.DAY: 25}
"""That of a month may be made on its last day."""


def check(offsets: Offsets, down: Calendar, up: Calendar, now: datetime) -> list[str]:
    """What is wrong with the offsets of an edge from `down` to `up`, in words with what to do; empty when nothing is."""
    return list(_checked(offsets, down, up, *window(_midnight(now))))


@lru_cache(maxsize=2**14)
def _checked(offsets: Offsets, down: Calendar, up: Calendar, first: int, last: int) -> tuple[str, ...]:
    found = tuple(_calendar_problems(down, up, first, last))
    if found:
        return found
    edge = f"the offsets {offsets.text()} ({down.period.value} on {up.period.value})"
    offsets = canonical(offsets, down, up)
    is_from_its_beginning = down.period is Period.MONTH and offsets.form is not Form.LAST
    farthest = _FARTHEST_BACK[up.period] - (_LONGER_IN_A_MONTH.get(up.period, 0) if is_from_its_beginning else 0)
    if offsets.places and offsets.places[0] < -farthest:
        return (
            f"{edge}: place {offsets.places[0]} is longer ago than the center remembers what was there, so nothing would ever start: write "
            f"-{farthest} or later",
        )
    if is_finer(up.period, down.period):
        problems = _inside_problems(offsets, _counts(down, up, first, last), down, up)
    else:
        problems = _behind_problems(offsets, down, up, first, last)
    return tuple(f"{edge}: {problem}" for problem in (*problems, *_left_out_problems(offsets, down, up, first, last)))


def _calendar_problems(down: Calendar, up: Calendar, first: int, last: int) -> Iterator[str]:
    try:
        nested = is_finer(up.period, down.period), is_finer(down.period, up.period)
    except ConfigError as error:
        yield str(error)
        return
    if Period.HOUR in (down.period, up.period):
        for zone in sorted({down.zone, up.zone}):
            if any(offset % _HOUR for _, offset in offset_changes(zone, first, last)):
                yield (
                    f"the offset of zone {zone} from UTC is not always whole hours, so its days share hours with each other: "
                    "depend on days, or choose a zone with whole hours"
                )
    elif any(nested):
        fine, coarse = (up, down) if nested[0] else (down, up)
        shared = _shared_day(fine, coarse, first, last)
        if shared is not None:
            yield (
                f"the {coarse.period.value} {shared} of zone {coarse.zone} begins within a {fine.period.value} of zone {fine.zone}, which "
                "so lies in two of them: give both jobs the same zone, or depend on hours"
            )


def _shared_day(fine: Calendar, coarse: Calendar, first: int, last: int) -> str | None:
    """A week or month that begins within a day of another zone."""
    for number in range(coarse.number_at(first), coarse.number_at(last) + 1):
        if coarse.opens(number) != fine.opens(inside(coarse, fine, number)[0]):
            return _text(coarse, number)
    return None


Counts = tuple[tuple[int, int], tuple[int, int]]
"""The least and the greatest number of finer times in a downstream one, each with the number of a downstream time that has so many."""


@lru_cache(maxsize=2**12)
def _counts(down: Calendar, up: Calendar, first: int, last: int) -> Counts:
    counted = []
    for number in _numbers(down, first, last):
        one, behind = inside(down, up, number)
        counted.append((behind - one + 1, number))
    return min(counted), max(counted)


def _inside_problems(offsets: Offsets, counts: Counts, down: Calendar, up: Calendar) -> Iterator[str]:
    (least, shortest), (most, _) = counts
    alone = offsets.form is Form.SET
    for place in offsets.places if alone else offsets.places[-1:]:
        if offsets.form is not Form.LAST and place >= most:
            yield f"place {place} is behind the end of every {down.period.value}, which has {most} at most: write {most - 1} or less"
    lacked = [place for place in (offsets.places if alone else offsets.places[:1]) if least <= place < most]
    if lacked and offsets.form is not Form.LAST:
        yield (
            f"place {lacked[0]} does not exist in {_text(down, shortest)}, which has only {least} of period {up.period.value}: write "
            f"`last`, or `last-1` and so on, or an interval that begins at {least - 1} or before and is cut where it ends"
        )


def _behind_problems(offsets: Offsets, down: Calendar, up: Calendar, first: int, last: int) -> Iterator[str]:
    place = offsets.places[-1]
    if up.period is not down.period or down.period is Period.HOUR:
        late = place > 0
    else:
        late = any(up.has(number + place) and up.opens(number + place) >= down.opens(number + 1) for number in _numbers(down, first, last))
    if late:
        yield f"the data of place {place} starts when the downstream's own {down.period.value} has ended, or later: write an earlier place"


def _left_out_problems(offsets: Offsets, down: Calendar, up: Calendar, first: int, last: int) -> Iterator[str]:
    if up.period is not Period.DAY or offsets.form not in (Form.SET, Form.LAST):
        return
    numbers = list(_numbers(down, first, last))
    reach = upstream_runs(offsets, down, up, numbers[0])[0][0], upstream_runs(offsets, down, up, numbers[-1])[-1][1]
    if all(up.has(day) for day in range(reach[0], reach[1] + 1)):
        return
    for number in numbers:
        for one, behind in upstream_runs(offsets, down, up, number):
            if one == behind and not up.has(one):
                yield (
                    f"{_text(down, number)} would wait for {_text(up, one)}, a day that the clocks of zone {up.zone} left out: write an "
                    "interval, in which it is passed over"
                )
                return


def _numbers(calendar: Calendar, first: int, last: int) -> Iterator[int]:
    return (number for number in range(calendar.number_at(first), calendar.number_at(last) + 1) if calendar.has(number))


def _text(calendar: Calendar, number: int) -> str:
    return calendar.text(BusinessTime(calendar.period, number))


def _midnight(now: datetime) -> datetime:
    """The start of the day of UTC, so that equal edges are checked once a day."""
    return now.astimezone(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)
