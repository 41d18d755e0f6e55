"""Business times for the oracle of the dependency center, found by going through every hour of the worlds' years.

It shares nothing with `core.dependencies`: a period is a group of hours with one local label, and offsets are places in lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from functools import cache
from zoneinfo import ZoneInfo

HOUR = timedelta(hours=1)
FIRST, BEHIND = datetime(2025, 3, 1, tzinfo=timezone.utc), datetime(2027, 5, 1, tzinfo=timezone.utc)
"""All worlds lie between these, with months to spare."""
_FINER = {("hour", "day"), ("hour", "week"), ("hour", "month"), ("day", "week"), ("day", "month")}
_NOMINAL = {("hour", "day"): 24, ("hour", "week"): 168, ("hour", "month"): 744, ("day", "week"): 7, ("day", "month"): 31}
_WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")


@dataclass(frozen=True, order=True)
class Span:
    """One business time."""

    start: datetime
    end: datetime
    label: str

    @property
    def hours(self) -> int:
        return int((self.end - self.start) / HOUR)


@dataclass(frozen=True)
class Kind:
    """A period in a zone."""

    period: str
    zone: str


@cache
def hours(zone: str) -> Sequence[tuple[datetime, datetime]]:
    """Every hour, as an instant and as a local time without zone."""
    instants = (FIRST + HOUR * number for number in range(int((BEHIND - FIRST) / HOUR)))
    return [(at, at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)) for at in instants]


@cache
def spans(kind: Kind) -> Sequence[Span]:
    """All business times, in order. The first and the last are cut off."""
    groups: dict[str, list[datetime]] = {}
    seen = datetime.min
    for at, local in hours(kind.zone):
        label = local.strftime("%Y-%m-%dT%H") if kind.period == "hour" else label_of(local.date(), kind.period)
        if kind.period == "hour" and local <= seen:
            label += at.astimezone(ZoneInfo(kind.zone)).strftime("%z")
        seen = local
        groups.setdefault(label, []).append(at)
    return [Span(group[0], group[-1] + HOUR, label) for label, group in groups.items()][1:-1]


def label_of(day: date, period: str) -> str:
    """The day, week or month of a date."""
    if period == "week":
        year, week, _ = day.isocalendar()
        return f"{year}-W{week:02}"
    return day.isoformat() if period == "day" else day.strftime("%Y-%m")


@cache
def places(kind: Kind) -> Mapping[str, int]:
    """Where each label is in `spans`."""
    return {span.label: number for number, span in enumerate(spans(kind))}


def span_of(kind: Kind, label: str) -> Span:
    return spans(kind)[places(kind)[label]]


def span_at(kind: Kind, at: datetime) -> Span:
    return next(span for span in spans(kind) if span.start <= at < span.end)


def is_special(span: Span, kind: Kind) -> bool:
    """Whether clocks change in this time, or just before it."""
    zone = ZoneInfo(kind.zone)
    return (span.start - HOUR).astimezone(zone).utcoffset() != span.end.astimezone(zone).utcoffset()


@cache
def trigger_at(kind: Kind, trigger: str, label: str) -> datetime:
    """When the instance of a time is made."""
    span = span_of(kind, label)
    if kind.period == "hour":
        return span.start + timedelta(minutes=int(trigger))
    day, _, clock = trigger.rpartition(" ")
    local = datetime.combine(_trigger_day(kind, label, day), datetime.strptime(clock, "%H:%M").time())
    step = span.start
    while step.astimezone(ZoneInfo(kind.zone)).replace(tzinfo=None) < local:
        at_minute = step + timedelta(minutes=local.minute)
        if at_minute.astimezone(ZoneInfo(kind.zone)).replace(tzinfo=None) >= local:
            return at_minute
        step += HOUR
    return step


def _trigger_day(kind: Kind, label: str, day: str) -> date:
    days = [one for one in _days() if label_of(one, kind.period) == label]
    if kind.period == "day":
        return days[0]
    if kind.period == "week":
        return days[_WEEKDAYS.index(day)]
    return days[-1] if day == "last" else days[int(day) - 1]


@cache
def _days() -> Sequence[date]:
    return [FIRST.date() + timedelta(days=number) for number in range((BEHIND - FIRST).days)]


@cache
def upstream_spans(times: str, down: Kind, up: Kind, label: str) -> Sequence[Span]:
    """The upstream's times that the downstream's time `label` needs."""
    candidates = _candidates(down, up, label)
    zero, last = candidates[0], candidates[-1]
    every = spans(up)
    is_finer = (up.period, down.period) in _FINER
    if found := re.fullmatch(r"last(-\d+)?", times):
        return [every[last + int(found[1] or 0)]]
    if times == "whole":
        return [every[number] for number in candidates]
    wanted = _listed(times)
    if is_finer and wanted == list(range(_NOMINAL[up.period, down.period])):
        return [every[number] for number in candidates]
    return [every[zero + place] for place in wanted if not is_finer or zero + place <= last]


def _listed(times: str) -> list[int]:
    numbers = [int(one) for one in re.findall(r"-?\d+", times)]
    return list(range(numbers[0], numbers[1] + 1)) if times.startswith("[") else sorted(set(numbers))


def _candidates(down: Kind, up: Kind, label: str) -> list[int]:
    """The places of the upstream's times that are, hold or lie in the downstream's."""
    span = span_of(down, label)
    if up.period == "hour":
        return [number for number, one in enumerate(spans(up)) if span.start <= one.start < span.end]
    if down.period == "hour":
        return [number for number, one in enumerate(spans(up)) if one.start <= span.start < one.end]
    days = [one for one in _days() if label_of(one, down.period) == label]
    found = sorted({places(up)[label_of(one, up.period)] for one in days})
    assert len(found) == 1 or (up.period, down.period) in _FINER
    return found
