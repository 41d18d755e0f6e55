"""Windows of time that come again each day: `22:00-06:00 Europe/Berlin`, `20:00-04:00 UTC mon-fri`, `00:00-00:00 UTC sat,sun`.

A window belongs to the day on which it begins, and ends on the next one when its end is not after its beginning. A local time that clocks
leave out is the first instant behind the gap, and a repeated one the first of its two, so no window opens twice a day.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from functools import cache
from itertools import takewhile
from zoneinfo import ZoneInfo

from compaction_pipeline.core.local_time import first_instant

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIMES = re.compile(r"(\S*\d) ?[-–] ?(\d\S*)(?: (.*))?", re.ASCII)
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)", re.ASCII)
WINDOW_RULE = "HH:MM-HH:MM, a time zone, and days where not every day counts, e.g. 22:00-06:00 Europe/Berlin mon-fri"


class WindowError(ValueError):
    """Says which part of a window breaks its rule, and shows such a part that keeps it."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window of each of its days (0 is Monday), from `opens` to `closes` by the clocks of `zone`."""

    opens: time
    closes: time
    zone: str
    days: frozenset[int]

    @staticmethod
    def parse(text: str) -> Window:
        """The window that somebody writes. Raises WindowError."""
        found = _TIMES.fullmatch(" ".join(text.split()))
        if found is None:
            raise WindowError("it must begin with two times that have '-' between them, e.g. 22:00-06:00")
        opens, closes = _time(found[1]), _time(found[2])
        zone, *days = (found[3] or "").split()[:3] or [""]
        if not zone:
            raise WindowError("no time zone stands behind the times; write one, e.g. Europe/Berlin or UTC")
        _zone(zone)
        if len(days) > 1:
            raise WindowError(f"nothing may stand behind the days, but {days[1][:40]!r} does; write days without spaces, e.g. sat,sun")
        return Window(opens, closes, zone, _days(days[0]) if days else frozenset(range(7)))

    def is_open(self, at: datetime) -> bool:
        # Later days begin no earlier, so nothing behind the first one that begins after `at` needs to be looked at.
        return any(at < end for _, end in takewhile(lambda span: span[0] <= at, self._spans(at)))

    def next_opening(self, at: datetime) -> datetime:
        """The first instant after `at` at which the window opens, in UTC."""
        return next(start for start, end in self._spans(at) if start > at and end > start)

    def __str__(self) -> str:
        days = "" if len(self.days) == len(_DAYS) else " " + ",".join(_DAYS[day] for day in sorted(self.days))
        return f"{self.opens:%H:%M}-{self.closes:%H:%M} {self.zone}{days}"

    def _spans(self, at: datetime) -> Iterator[tuple[datetime, datetime]]:
        """The windows from the day before on, in UTC. A year has one of each weekday that clocks do not leave out."""
        zone = _zone(self.zone)
        first = at.astimezone(zone).date() - timedelta(days=1)
        for day in (first + timedelta(days=number) for number in range(366)):
            if day.weekday() in self.days:
                last = day if self.closes > self.opens else day + timedelta(days=1)
                yield _instant(day, self.opens, zone), _instant(last, self.closes, zone)


def _instant(day: date, at: time, zone: tzinfo) -> datetime:
    return first_instant(datetime.combine(day, at), zone).astimezone(timezone.utc)


def _time(text: str) -> time:
    found = _TIME.fullmatch(text)
    if found is None:
        raise WindowError(f"{text[:40]!r} is no time from 00:00 to 23:59 with two digits on both sides, e.g. 06:00")
    return time(int(found[1]), int(found[2]))


@cache
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:
        raise WindowError(f"{name[:40]!r} is no time zone; write its name, e.g. Europe/Berlin or UTC") from error


def _days(text: str) -> frozenset[int]:
    """The days of a list like mon-fri or sat,sun."""
    found: set[int] = set()
    for part in text.lower().replace("–", "-").split(","):
        first, dash, last = part.partition("-")
        wrong = next((each for each in ((first, last) if dash else (first,)) if each not in _DAYS), None)
        if wrong is not None:
            raise WindowError(f"{wrong[:40]!r} is none of {', '.join(_DAYS)}; write days e.g. as mon-fri or sat,sun")
        low, high = _DAYS.index(first), _DAYS.index(last if dash else first)
        found |= {number % 7 for number in range(low, high + 1 if high >= low else high + 8)}
    return frozenset(found)
