"""Weak edges for the oracle of the dependency center, judged anew each time. It shares nothing with `core.dependencies`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

UNITS = {"min": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}


class Need(NamedTuple):
    """One thing that a run needs, by the number of the edge: `key` has reached `bound`."""

    edge: int
    key: str
    bound: int


class Weak(NamedTuple):
    """A weak edge of a run: its business times in order, each with when it opens and what it needs."""

    strength: str
    until: datetime | None
    ignores_failed: bool
    times: Sequence[tuple[datetime, Sequence[Need]]]


def is_weak(need: Mapping[str, Any]) -> bool:
    return need.get("strength", "all") != "all" or "until" in need


def weak_of(need: Mapping[str, Any], zone: str, trigger: datetime, times: Sequence[tuple[datetime, Sequence[Need]]]) -> Weak:
    """The edge of a run with this trigger."""
    until = None if "until" not in need else until_at(need["until"], zone, trigger)
    return Weak(need.get("strength", "all"), until, need.get("if-failed") == "ignore", times)


@cache
def until_at(text: str, zone: str, trigger: datetime) -> datetime:
    """Go through the minutes behind the trigger to the first that is this time of day, or before which clocks left it out."""
    if ":" not in text:
        unit = next(unit for unit in UNITS if text.endswith(unit))
        return trigger + int(text.removesuffix(unit)) * UNITS[unit]
    minute = timedelta(minutes=1)
    at = trigger.replace(second=0, microsecond=0)
    while True:
        before, at = at.astimezone(ZoneInfo(zone)), at + minute
        here = at.astimezone(ZoneInfo(zone))
        is_first = here.fold == 0 and here.strftime("%H:%M") == text
        is_left_out = before.date() == here.date() and before.strftime("%H:%M") < text < here.strftime("%H:%M")
        if at > trigger and (is_first or is_left_out):
            return at


def is_held(weak: Weak, at: datetime, is_there: Callable[[Need], bool]) -> bool:
    """Whether enough of an edge is there, whatever its until."""
    times = weak.times
    if weak.strength == "newest":
        times = [one for one in times if one[0] <= at][-1:]
        if not times:
            return False
    if weak.strength == "any":
        return any(all(is_there(need) for need in needs) for _, needs in times)
    return all(is_there(need) for _, needs in times for need in needs)


def is_satisfied(weak: Weak, at: datetime, is_there: Callable[[Need], bool], has_failed: Callable[[Need], bool]) -> bool:
    """Whether a run need not wait for an edge."""
    if is_held(weak, at, is_there):
        return True
    if weak.until is None or at < weak.until:
        return False
    if weak.ignores_failed or (weak.strength == "newest" and all(opens > at for opens, _ in weak.times)):
        return True
    return is_held(weak, at, lambda need: not has_failed(need))
