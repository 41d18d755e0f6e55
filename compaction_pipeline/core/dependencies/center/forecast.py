"""When instances will be ready and done, by how long their runs took before.

Each moment is told twice: as it usually is (half of the runs were no later) and when it is late (nine of ten were no later). A chain that
is late is one in which every run is late, so it is seldom exceeded. All that an edge names is waited for, whatever its strength.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from graphlib import TopologicalSorter

RUNS = 14
"""The forecast looks at so many runs."""
_FEWEST = 5
"""Fewer runs say nothing of when one is late."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How long something takes: usually, and when it is late."""

    usual: timedelta
    late: timedelta


AT_ONCE = Spread(timedelta(0), timedelta(0))


def spread(values: Sequence[timedelta]) -> Spread | None:
    """The spread of durations; None without any."""
    if not values:
        return None
    ordered = sorted(values)
    return Spread(*(ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.9)))


def kept(newest_first: Sequence[timedelta]) -> tuple[int, int]:
    """Of the last 14 runs, how many took no longer than the forecast made of the 14 before each said for late ones; and how many were
    judged. 85 to 95 % are right."""
    judged = [(one, newest_first[place + 1 : place + 1 + RUNS]) for place, one in enumerate(newest_first[:RUNS])]
    enough = [(one, spread(before)) for one, before in judged if len(before) >= _FEWEST]
    return sum(1 for one, before in enough if before is not None and one <= before.late), len(enough)


@dataclass(frozen=True, slots=True)
class Point:
    """Something that will be there: it begins when all that it `needs` is there, and not before `opens`, and `takes` so long from then on.

    `takes` is None when it was never seen. One that `is_there` has been since it opened, and one that `failed` never comes by itself.
    """

    opens: datetime
    takes: Spread | None
    needs: tuple[str, ...] = ()
    is_there: bool = False
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """A time as it usually is, and when it is late."""

    usual: datetime
    late: datetime


@dataclass(frozen=True, slots=True)
class Expected:
    """When a point begins (`ready`) and is there. `last_need` is what it waits for longest; None when it waits for its own time.

    Both are None when something on the way has failed, which is `blocked_by` then. With `is_at_least`, something was never seen, so it may
    be later.
    """

    ready: Moment | None
    there: Moment | None
    last_need: str | None
    blocked_by: str | None
    is_at_least: bool


def expected(points: Mapping[str, Point], now: datetime) -> Mapping[str, Expected]:
    """What is expected of each point. Every need of a point is a point, and no way leads round."""
    found: dict[str, Expected] = {}
    for key in TopologicalSorter({key: point.needs for key, point in points.items()}).static_order():
        found[key] = _expected(key, points[key], found, now)
    return found


def path(key: str, of: Mapping[str, Expected]) -> Iterator[str]:
    """The chain that decides when a point is there, the last link first."""
    link: str | None = key
    while link is not None:
        yield link
        link = of[link].last_need


def _expected(key: str, point: Point, found: Mapping[str, Expected], now: datetime) -> Expected:
    needs = [(need, found[need]) for need in point.needs]
    blocked = key if point.failed else next((one.blocked_by for _, one in needs if one.blocked_by is not None), None)
    is_at_least = point.takes is None or any(one.is_at_least for _, one in needs)
    if blocked is not None:
        return Expected(None, None, None, blocked, is_at_least)
    usual = late = point.opens
    last_need = None
    for need, one in needs:
        assert one.there is not None
        # What is late already comes now at the earliest, as does all that waits for it.
        if one.there.usual >= usual:
            usual, last_need = one.there.usual, need
        late = max(late, one.there.late)
    ready, takes = Moment(usual, late), point.takes or AT_ONCE
    there = ready if point.is_there else Moment(max(usual + takes.usual, now), max(late + takes.late, now))
    return Expected(ready, there, last_need, None, is_at_least)
