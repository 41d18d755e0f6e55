"""What an edge weighs: by how much its latest upstream start is behind the downstream's start, by some clock."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache

from compaction_pipeline.core.dependencies.center.nesting import inside
from compaction_pipeline.core.dependencies.center.offsets import FARTHEST, Offsets, upstream_runs
from compaction_pipeline.core.dependencies.center.periods import Calendar, Period, first_day, zone_of

DAYS_EITHER_WAY = 400
"""Rules that hold for every period are tried on those of so many days before and after now."""
SCALE = 10
"""A second is so much in the weights, which are whole numbers."""
_LOCAL = 9
_HOUR, _DAY = 3600, 86400
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
Kind = tuple[Offsets, Calendar, Calendar]


@dataclass(frozen=True, slots=True)
class Clock:
    """Gives each second a number: `SCALE` times the second, and what is added from some seconds on. `added` has one more for before."""

    seconds: tuple[int, ...] = ()
    added: tuple[int, ...] = (0,)

    def at(self, second: int) -> int:
        """The number of a second since 1970 in UTC."""
        return SCALE * second + self.added[bisect_right(self.seconds, second)]

    @property
    def is_rising(self) -> bool:
        """Whether each hour has a higher number than the hour before it."""
        return all(SCALE * _HOUR + after - before > 0 for before, after in zip(self.added, self.added[1:], strict=False))


class Weights:
    """The weights of edges over the days around `now`, each kind computed once."""

    utc = Clock()

    def __init__(self, now: datetime) -> None:
        self._first, self._last = window(now)
        self._seen: dict[Clock, dict[Kind, int]] = {}

    def local_clocks(self, zones: Sequence[str]) -> list[Clock]:
        """Other clocks that prove as much as UTC: that of each zone, and the same with each month stretched to 31 days.

        A local clock has only nine tenths of the offset, so that of two equal hours the second is later. A zone that turns its clocks back
        by more than one hour has no such clock.
        """
        clocks = dict.fromkeys(clock for zone in zones for clock in (self._local(zone), self._stretched(zone)) if clock.is_rising)
        return [clock for clock in clocks if clock != self.utc]

    def _local(self, zone: str) -> Clock:
        (_, offset), *changes = offset_changes(zone, self._first, self._last)
        return Clock(tuple(at for at, _ in changes), (0, *(_LOCAL * (later - offset) for _, later in changes)))

    def _stretched(self, zone: str) -> Clock:
        local, months = self._local(zone), Calendar(Period.MONTH, zone)
        starts = {months.opens(number): number for number in range(months.number_at(self._first), months.number_at(self._last) + 1)}
        seconds, added, stretched = sorted({*local.seconds, *starts}), [0], 0
        for second in seconds:
            if second in starts:
                days = first_day(Period.MONTH, starts[second]) - first_day(Period.MONTH, starts[second] - 1)
                stretched += SCALE * _DAY * (31 - days)
            added.append(stretched + local.at(second) - SCALE * second)
        return Clock(tuple(seconds), tuple(added))

    def of(self, kinds: Sequence[Kind], clock: Clock) -> list[int]:
        """The weights of edges, in seconds × `SCALE`. Each edge is given by its offsets and its calendars, downstream and upstream."""
        seen = self._seen.setdefault(clock, {})
        for kind in set(kinds).difference(seen):
            seen[kind] = self._worst(*kind, clock)
        return [seen[kind] for kind in kinds]

    def _worst(self, offsets: Offsets, down: Calendar, up: Calendar, clock: Clock) -> int:
        worst: int | None = None
        for number in self._tried(offsets, down, up, clock):
            latest = max((last for first, last in upstream_runs(offsets, down, up, number) if first <= last), default=None)
            if latest is not None:
                weight = clock.at(up.opens(latest)) - clock.at(down.opens(number))
                worst = weight if worst is None else max(worst, weight)
        # An edge that needs nothing in all these days leads nowhere.
        return -SCALE * FARTHEST * 31 * _DAY if worst is None else worst

    def _tried(self, offsets: Offsets, down: Calendar, up: Calendar, clock: Clock) -> Iterable[int]:
        """Downstream numbers of these days, with one that weighs most. The clock rises from hour to hour."""
        if down.period is not Period.HOUR:
            return range(down.number_at(self._first), down.number_at(self._last) + 1)
        if up.period is not Period.HOUR:
            # The first hour of each upstream time weighs most.
            return [inside(up, down, number)[0] for number in range(up.number_at(self._first), up.number_at(self._last) + 1)]
        changes = [second // _HOUR for second in clock.seconds]
        latest = offsets.places[-1] if offsets.places else 0
        return {self._first // _HOUR, *(change - by for change in changes for by in (0, 1, latest, latest + 1))}


def window(now: datetime) -> tuple[int, int]:
    """The first and the last second of the days around an instant in which rules are tried, since 1970 in UTC."""
    second = (now - _EPOCH) // timedelta(seconds=1)
    return second - DAYS_EITHER_WAY * _DAY, second + DAYS_EITHER_WAY * _DAY


@lru_cache(maxsize=1024)
def offset_changes(zone: str, first: int, last: int) -> tuple[tuple[int, int], ...]:
    """The offsets of a zone between two seconds since 1970, each with the second from which on it holds; the first holds before, too."""
    changes = [(first, _offset(zone, first))]
    for second in range(first + _DAY, last + _DAY, _DAY):
        if _offset(zone, second) != changes[-1][1]:
            changes.append(_change(zone, second - _DAY, second))
    return tuple(changes)


def _change(zone: str, before: int, after: int) -> tuple[int, int]:
    old = _offset(zone, before)
    while after - before > 1:
        middle = (before + after) // 2
        before, after = (middle, after) if _offset(zone, middle) == old else (before, middle)
    return after, _offset(zone, after)


def _offset(zone: str, second: int) -> int:
    offset = (_EPOCH + timedelta(seconds=second)).astimezone(zone_of(zone)).utcoffset()
    assert offset is not None
    return offset // timedelta(seconds=1)
