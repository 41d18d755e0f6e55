"""Which upstream times an instance needs: places counted in upstream periods from a zero that follows from the two periods.

    0   -1   {0,-1}   [-23,0]   whole   last   last-1

Zero is, for equal periods, the downstream's own time; for a finer upstream, its first time in the downstream's; for a coarser one, the
time that holds the downstream's. Hours are counted by instant; days, weeks and months by label, whatever their zones. A place behind the
last finer time of the downstream's (hour 23 of a day with 23 hours) is none, and so is a day that the upstream's zone left out. An
interval from zero to the last place of a nominal period (24 hours, 7 days, 168 hours; 31 days and 744 hours of a month) is `whole`, which
is each finer time, however many there are. For an upstream that is not finer, `whole` and `last` are zero.

`offset_rules.check` says what is wrong with offsets, before an edge is saved.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from compaction_pipeline.core.dependencies.center.nesting import holder, inside, is_finer
from compaction_pipeline.core.dependencies.center.periods import BusinessTime, Calendar, Period
from compaction_pipeline.core.errors import ConfigError

FARTHEST = 10_000
"""No place is farther from zero: 400 days of hours are 9,600."""
_NOMINAL = {
    (Period.HOUR, Period.DAY): 24,
    (Period.HOUR, Period.WEEK): 168,
    (Period.HOUR, Period.MONTH): 744,
    (Period.DAY, Period.WEEK): 7,
    (Period.DAY, Period.MONTH): 31,
}
_RULE = "write places like 0 or -1, a set like {0,-1}, an interval like [-23,0], or whole, last or last-1"
_SET = re.compile(r"\{([+-]?\d{1,9}(?:,[+-]?\d{1,9})*)\}|([+-]?\d{1,9})", re.ASCII)
_INTERVAL = re.compile(r"\[([+-]?\d{1,9}),([+-]?\d{1,9})\]", re.ASCII)
_LAST = re.compile(r"last(-\d{1,9})?", re.ASCII)


class Form(str, Enum):
    """How offsets name their places."""

    SET = "SET"
    INTERVAL = "INTERVAL"
    WHOLE = "WHOLE"
    LAST = "LAST"


@dataclass(frozen=True, slots=True)
class Offsets:
    """The places of one edge.

    `places` are, of a set, all in ascending order; of an interval its first and its last; of `last`, one of 0 or below; of `whole`, none.
    """

    form: Form
    places: tuple[int, ...] = ()

    @staticmethod
    @lru_cache(maxsize=2**12)
    def parse(text: str) -> Offsets:
        """The offsets that somebody writes. Raises ConfigError, which names the text and the rule."""
        plain = "".join(text.replace("−", "-").lower().split())
        offsets = _parsed(plain)
        if offsets is None:
            raise ConfigError(f"the offsets {text!r} have another form: {_RULE}")
        if any(abs(place) > FARTHEST for place in offsets.places):
            raise ConfigError(f"the offsets {text!r} reach farther than {FARTHEST} periods: write places from -{FARTHEST} to {FARTHEST}")
        if offsets.form is Form.INTERVAL and offsets.places[0] > offsets.places[1]:
            raise ConfigError(f"the interval {text!r} is empty: write its lower end first, like [-23,0]")
        return offsets

    def text(self) -> str:
        """The text that `parse` reads back; the nearest place of a set comes first."""
        if self.form is Form.WHOLE:
            return "whole"
        if self.form is Form.LAST:
            return f"last{self.places[0] or ''}"
        if self.form is Form.INTERVAL:
            return f"[{self.places[0]},{self.places[1]}]"
        listed = ",".join(str(place) for place in reversed(self.places))
        return listed if len(self.places) == 1 else f"{{{listed}}}"


ZERO = Offsets(Form.SET, (0,))
WHOLE = Offsets(Form.WHOLE)


def canonical(offsets: Offsets, down: Calendar, up: Calendar) -> Offsets:
    """The one way to write what these offsets mean between two periods. Raises ConfigError for a week and a month.

    A set of neighbours is an interval, an interval of one place is that place, and one that is the nominal whole is `whole`. For an
    upstream that is not finer, `whole` and `last` are places.
    """
    if _is_whole(offsets, down, up):
        return WHOLE if is_finer(up.period, down.period) else ZERO
    if offsets.form is Form.LAST:
        return offsets if is_finer(up.period, down.period) else Offsets(Form.SET, offsets.places)
    first, last = offsets.places[0], offsets.places[-1]
    if first == last:
        return Offsets(Form.SET, (first,))
    return Offsets(Form.INTERVAL, (first, last)) if _is_run(offsets) else offsets


def upstream_times(offsets: Offsets, down: Calendar, up: Calendar, time: BusinessTime) -> tuple[BusinessTime, ...]:
    """The upstream times that the instance `time` of the downstream needs, in order. Raises ConfigError for a week and a month."""
    if not down.has(time.number):
        return ()
    runs = upstream_runs(offsets, down, up, time.number)
    return tuple([at for first, last in runs for at in up.run(first, last)])


def downstream_times(offsets: Offsets, down: Calendar, up: Calendar, up_time: BusinessTime) -> tuple[BusinessTime, ...]:
    """The downstream times whose upstream times hold `up_time`, in order. Raises ConfigError for a week and a month."""
    if not up.has(up_time.number):
        return ()
    number = up_time.number
    return tuple([at for first, last in downstream_runs(offsets, down, up, number, number) for at in down.run(first, last)])


def downstream_runs(offsets: Offsets, down: Calendar, up: Calendar, first: int, last: int) -> list[tuple[int, int]]:
    """The downstream numbers that need any upstream number from `first` to `last`, as runs in order; days that are left out are still in
    them. Raises ConfigError for a week and a month."""
    if not is_finer(up.period, down.period):
        return _runs_around(offsets, down, up, first, last)
    low, high = (0, 0) if _is_whole(offsets, down, up) else (offsets.places[0], offsets.places[-1])
    runs: list[tuple[int, int]] = []
    for number in range(holder(up, down, first - high), holder(up, down, last - low) + 1):
        if any(one <= last and first <= behind for one, behind in _runs_inside(offsets, down, up, number)):
            if runs and runs[-1][1] == number - 1:
                runs[-1] = (runs[-1][0], number)
            else:
                runs.append((number, number))
    return runs


def upstream_runs(offsets: Offsets, down: Calendar, up: Calendar, number: int) -> list[tuple[int, int]]:
    """The upstream numbers of a downstream number as runs from a first to a last, in order; days that are left out are still in them."""
    if is_finer(up.period, down.period):
        return _runs_inside(offsets, down, up, number)
    zero = number if up.period is down.period else holder(down, up, number)
    return [(zero + first, zero + last) for first, last in _place_runs(offsets)]


def _runs_inside(offsets: Offsets, down: Calendar, up: Calendar, number: int) -> list[tuple[int, int]]:
    first, last = inside(down, up, number)
    if _is_whole(offsets, down, up):
        return [(first, last)]
    if offsets.form is Form.LAST:
        return [(last + offsets.places[0],) * 2]
    return [(first + low, min(first + high, last)) for low, high in _place_runs(offsets)]


def _runs_around(offsets: Offsets, down: Calendar, up: Calendar, first: int, last: int) -> list[tuple[int, int]]:
    """The downstream numbers that need an upstream number that is not finer, as runs in order."""
    runs: list[tuple[int, int]] = []
    for low, high in reversed(_place_runs(offsets)):
        if runs and runs[-1][1] >= first - high - 1:
            runs[-1] = (runs[-1][0], last - low)
        else:
            runs.append((first - high, last - low))
    if up.period is down.period:
        return runs
    return [(inside(up, down, one)[0], inside(up, down, behind)[1]) for one, behind in runs]


def _place_runs(offsets: Offsets) -> list[tuple[int, int]]:
    if offsets.form is Form.INTERVAL:
        return [(offsets.places[0], offsets.places[1])]
    return [(place, place) for place in offsets.places or (0,)]


def _is_run(offsets: Offsets) -> bool:
    first, last = offsets.places[0], offsets.places[-1]
    return offsets.form is Form.INTERVAL or (offsets.form is Form.SET and last - first == len(offsets.places) - 1)


def _is_whole(offsets: Offsets, down: Calendar, up: Calendar) -> bool:
    """Whether these are `whole`, or an interval that is the nominal whole, or a set of its members."""
    places = offsets.places
    if len(places) < 2:
        return offsets.form is Form.WHOLE
    return places[0] == 0 and places[-1] + 1 == _NOMINAL.get((up.period, down.period)) and _is_run(offsets)


def _parsed(plain: str) -> Offsets | None:
    if plain == "whole":
        return WHOLE
    if found := _LAST.fullmatch(plain):
        return Offsets(Form.LAST, (int(found[1] or 0),))
    if found := _INTERVAL.fullmatch(plain):
        return Offsets(Form.INTERVAL, (int(found[1]), int(found[2])))
    if found := _SET.fullmatch(plain):
        return Offsets(Form.SET, tuple(sorted({int(place) for place in (found[1] or found[2]).split(",")})))
    return None
