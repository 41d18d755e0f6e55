"""Estimates how many slots a group's load needs: what comes in, by the time that tasks take, and what waits already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from compaction_pipeline.core.capacity.scaling.observation import EVERY, Observation

LOOKED_AT = 3
"""A load must be seen in so many observations, one behind the other."""
STALE = 2 * EVERY
"""When the newest observation is older, nobody knows what the group does now."""
LOW, HIGH = 0.4, 0.75
"""A share of CPU or slots below the first is low, and above the second it is high. A change never leads beyond the other one."""
CLEARED_WITHIN = timedelta(minutes=5)
"""What waits is to be worked off in this time."""


@dataclass(frozen=True, slots=True)
class Demand:
    """How many slots a load keeps busy, `steady`, and how many are needed so that what waits is worked off in time, `wanted`.

    `steady` is None when nobody knows how long tasks take; then `wanted` is a slot for each task.
    """

    steady: float | None
    wanted: float


def newest(observations: Sequence[Observation], now: datetime) -> Sequence[Observation]:
    """The last observations, the newest last; none when they are stale, too few, or not one behind the other."""
    last = sorted((each for each in observations if each.at <= now), key=lambda each: each.at)[-LOOKED_AT:]
    if len(last) < LOOKED_AT or now - last[-1].at > STALE:
        return ()
    # A minute may be missed while leaders change.
    return last if last[-1].at - last[0].at <= LOOKED_AT * EVERY else ()


def of_span(observations: Sequence[Observation], span: timedelta, now: datetime) -> Sequence[Observation]:
    """The observations of the whole last span of time; none when they do not reach back so far, or leave more than a minute out."""
    found = sorted((each for each in observations if now - span - EVERY <= each.at <= now), key=lambda each: each.at)
    if not found or now - found[-1].at > STALE or found[0].at - EVERY > now - span:
        return ()
    # Two minutes between neighbours are one minute that nobody observed.
    return found if all(after.at - before.at <= STALE for before, after in pairwise(found)) else ()


def demand_of(last: Sequence[Observation]) -> Demand:
    """Estimate it from the last observations, of which there are at least two. Waiting tasks keep slots busy that are not there yet."""
    in_hand = last[-1].running + last[-1].waiting
    counted = [each.ended for each in last[1:]]
    ended = sum(each for each in counted if each is not None)
    if None in counted or ended == 0:
        return Demand(None, float(in_hand))
    minutes = (last[-1].at - last[0].at) / EVERY
    # An attempt's minutes, and how many came in a minute: those that ended, and those by which the work in hand grew.
    takes = sum(each.busy_slots for each in last[1:]) / len(counted) * minutes / ended
    came = max((ended + in_hand - last[0].running - last[0].waiting) / minutes, 0.0)
    steady = came * takes
    return Demand(steady, min(max(steady / HIGH, steady + last[-1].waiting * takes / (CLEARED_WITHIN / EVERY)), float(in_hand)))
