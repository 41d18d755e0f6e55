"""Estimates how many slots a group's load needs: what comes in, by the time that tasks take, and what waits already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from math import ceil

from compaction_pipeline.core.capacity.scaling.observation import AT_ONCE, EVERY, SOON, Observation

LOOKED_AT = 3
"""A load must be seen in so many observations, one behind the other."""
NEARLY = EVERY - timedelta(seconds=5)
"""A minute, less what rounds differ."""
STALE = 2 * EVERY
"""When the newest observation is older, nobody knows what the group does now."""
LOW, HIGH = 0.4, 0.75
"""A share of CPU or slots below the first is low, and above the second it is high. A change never leads beyond the other one."""
IDLE, BUSY = 0.7, 0.9
"""Below the first share of busy slots there are too many, and more come so that no more than the second share is busy. No change leads
from one of them to the other."""
_MEASURED = 1e-6
"""A sum of parts may be a little more than a whole number that it stands for."""
MEASURED_OVER = timedelta(minutes=10)
"""The time of an attempt is taken from those that ended so lately."""
CAME_IN = timedelta(minutes=5)
"""What comes in a minute is measured over this time."""
OVER = 0.5
"""When less than this share of it came in the last observations, what came before them was a burst, and the last observations count."""
CLEARED_WITHIN = timedelta(minutes=10)
"""What waits is to be worked off in this time, with the slots that the load needs anyway."""


@dataclass(frozen=True, slots=True)
class Demand:
    """How many slots a load needs.

    `least` slots carry the load, and `wanted` work off in time what waits too. More than `most` would be too many as soon as nothing
    waits. `least` and `most` are None when nobody knows how long tasks take; then `wanted` is a slot for each task.
    """

    wanted: float
    least: float | None = None
    most: float | None = None

    def units(self, slots: int) -> int:
        """How many units of so many slots are needed."""
        wanted = ceil(self.wanted / slots - _MEASURED)
        if self.least is None or self.most is None:
            return wanted
        return max(ceil(self.least / slots - _MEASURED), min(wanted, int(self.most / slots + _MEASURED)))


def newest(observations: Sequence[Observation], now: datetime) -> Sequence[Observation]:
    """The last observations, the newest last; none when they are stale, too few, or not one behind the other."""
    last = sorted((each for each in observations if each.at <= now), key=lambda each: each.at)[-LOOKED_AT:]
    if len(last) < LOOKED_AT or now - last[-1].at > STALE:
        return ()
    # A minute may be missed while leaders change.
    return last if last[-1].at - last[0].at <= LOOKED_AT * EVERY else ()


def looks_again_in(seen: Sequence[Observation], lag: timedelta) -> timedelta:
    """Return the time after the newest observation in which a group with a policy is to be observed again."""
    newest = seen[-1]
    if not newest.waiting:
        return EVERY
    known = len(seen) >= LOOKED_AT and all(each.waiting and each.oldest_wait > lag for each in seen[-LOOKED_AT:])
    return AT_ONCE if not known and newest.oldest_wait + SOON > lag else SOON


def of_span(observations: Sequence[Observation], span: timedelta, now: datetime) -> Sequence[Observation]:
    """The observations of the whole last span of time; none when they do not reach back so far, or leave more than a minute out."""
    found = sorted((each for each in observations if now - span - EVERY <= each.at <= now), key=lambda each: each.at)
    if not found or now - found[-1].at > STALE or found[0].at - EVERY > now - span:
        return ()
    # Two minutes between neighbours are one minute that nobody observed.
    return found if all(after.at - before.at <= STALE for before, after in pairwise(found)) else ()


def apart(observations: Sequence[Observation]) -> Sequence[Observation]:
    """Return those of sorted observations whose minutes do not overlap, the newest one among them."""
    found: list[Observation] = []
    for each in reversed(observations):
        if not found or found[-1].at - each.at >= NEARLY:
            found.append(each)
    return found[::-1]


def demand_of(last: Sequence[Observation], earlier: Sequence[Observation], slots: int) -> Demand:
    """Estimate it for a group that has so many slots, from the last observations; `earlier` are those, and some before them, from which
    the time of an attempt is taken.

    While the load itself keeps these slots busy, what waits brings no more slots than the load will keep busy later, because they would
    have to go again. What a burst left behind does.
    """
    in_hand = last[-1].running + last[-1].waiting
    known = apart([each for each in earlier if each.ended is not None])
    ended = sum(each.ended or 0 for each in known)
    if not ended or any(each.ended is None for each in last):
        return Demand(float(in_hand))
    # An attempt's minutes, and how many came in a minute: those that ended, and those by which the work in hand grew.
    takes = sum(each.busy_slots for each in known) / ended
    lately = [each for each in earlier if each.ended is not None and last[-1].at - each.at <= CAME_IN]
    now, usual = _came(last), _came(lately)
    # A burst that is over says nothing of what comes in each minute. A few tasks more or less in some seconds say nothing either.
    steady = (now if now < OVER * usual else usual) * takes
    # Nothing is started for more tasks than there are.
    wanted = min(steady + last[-1].waiting * takes / (CLEARED_WITHIN / EVERY), float(in_hand))
    least = min(steady / BUSY, float(in_hand))
    return Demand(wanted, least, steady / IDLE if steady >= IDLE * slots else wanted)


def _came(seen: Sequence[Observation]) -> float:
    """How many tasks came in a minute: those that ended, and those by which the work in hand grew."""
    ended = sum((each.ended or 0) * min((each.at - before.at) / EVERY, 1.0) for before, each in pairwise(seen))
    grew = seen[-1].running + seen[-1].waiting - seen[0].running - seen[0].waiting
    return max((ended + grew) / ((seen[-1].at - seen[0].at) / EVERY), 0.0)
