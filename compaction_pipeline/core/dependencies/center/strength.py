"""How much of an edge must be there: all of its times, any of them, or the newest one; and until when the rest is waited for.

    strength: all        # each of its times (where nothing is said)
    strength: any        # one of them
    strength: newest     # the last one whose trigger has passed, or whose period is over for tables and assets
    until: "06:00"       # or 2h; from then on the instance starts without what is missing of this edge
    if-failed: ignore    # also without runs that failed (else `wait`: until they have succeeded)

An edge that says none of this is strong: each of its requirements counts. Of a weak one, an instance has a `Group`, which counts as one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta, timezone
from enum import Enum

from compaction_pipeline.core.dependencies.center.periods import Period, zone_of
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.local_time import first_instant
from compaction_pipeline.core.tables.property_rules import duration
from compaction_pipeline.core.words import duration_text, time_text

RULE_KEYS = ("strength", "until", "if-failed")
_CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)", re.ASCII)
_DURATION = re.compile(r"\d{1,9} ?[a-z]+", re.ASCII)
_SHORTEST, _LONGEST = timedelta(minutes=1), timedelta(days=31)
_NAMED = 3


class Strength(str, Enum):
    """How much of an edge must be there."""

    ALL = "ALL"
    ANY = "ANY"
    NEWEST = "NEWEST"


@dataclass(frozen=True, slots=True)
class Until:
    """When an edge is not waited for any more: so long `after` the trigger, or at the first time of day (`clock`) after it."""

    after: timedelta | None = None
    clock: time | None = None

    @staticmethod
    def parse(period: Period, text: str, key: str = "until") -> Until:
        """What somebody writes for a job of a period, in a `key`. Raises ConfigError, which names the text and the rule."""
        if (found := _CLOCK.fullmatch(text)) and period is not Period.HOUR:
            return Until(clock=time(int(found[1]), int(found[2])))
        try:
            after = duration(text) if _DURATION.fullmatch(text) else timedelta(0)
        except ValueError:
            after = timedelta(0)
        if not _SHORTEST <= after <= _LONGEST:
            clock = "" if period is Period.HOUR else ', or a time of day like "06:00"'
            raise ConfigError(f"'{key}' is {text!r} but must be a duration from 1min to 31d after the trigger, like 2h{clock}")
        return Until(after)

    def instant(self, trigger: datetime, zone: str) -> datetime:
        """The instant, in UTC, of an instance with this trigger. A time of day is one of the zone, and always behind the trigger."""
        if self.after is not None:
            return trigger + self.after
        assert self.clock is not None
        day, found = trigger.astimezone(zone_of(zone)).date(), trigger
        while found <= trigger:
            found = first_instant(datetime.combine(day, self.clock), zone_of(zone)).astimezone(timezone.utc)
            day += timedelta(days=1)
        return found

    def __str__(self) -> str:
        return duration_text(self.after) if self.after is not None else f"{self.clock:%H:%M}"


@dataclass(frozen=True, slots=True)
class EdgeRule:
    """How much of an edge must be there, and until when. With `waits_for_failed`, `until` does not pass over runs that failed."""

    strength: Strength = Strength.ALL
    until: Until | None = None
    waits_for_failed: bool = True

    @property
    def is_strong(self) -> bool:
        return self.strength is Strength.ALL and self.until is None

    def __str__(self) -> str:
        until = "" if self.until is None else f" until {self.until}" + ("" if self.waits_for_failed else ", also without failed ones")
        return f"{self.strength.value.lower()}{until}"


STRONG = EdgeRule()
_RULES = {Strength.ALL: "all of these", Strength.ANY: "one of these is enough", Strength.NEWEST: "only the newest that has come"}


@dataclass(frozen=True, slots=True)
class Group:
    """What one instance needs of a weak edge, by the number of the edge in `DataJob.needs`. `until_at` is None when it waits for ever."""

    edge: int
    strength: Strength
    until_at: datetime | None
    waits_for_failed: bool

    def __str__(self) -> str:
        until = "" if self.until_at is None else f", until {time_text(self.until_at)} UTC"
        return _RULES[self.strength] + until


@dataclass(frozen=True, slots=True)
class Standing:
    """How one requirement of a group stands. `opens_at` is when the trigger of its business time is, or its period is over; equal ones are
    of one business time. One that `failed` is not there."""

    opens_at: datetime
    is_there: bool
    failed: bool = False


def lacking(group: Group, rows: Sequence[Standing], at: datetime) -> Sequence[Standing] | None:
    """Those of a group that are missing at a time, by its strength alone; None when the strength is met."""
    if group.strength is Strength.ANY:
        lacks = {row.opens_at for row in rows if not row.is_there}
        return None if any(row.opens_at not in lacks for row in rows) else [row for row in rows if not row.is_there]
    if group.strength is Strength.NEWEST:
        newest = max((row.opens_at for row in rows if row.opens_at <= at), default=None)
        if newest is None:
            return rows
        rows = [row for row in rows if row.opens_at == newest]
    missing = [row for row in rows if not row.is_there]
    return missing or None


def is_met(group: Group, rows: Sequence[Standing], at: datetime) -> bool:
    """Whether an instance need not wait for a group at a time."""
    if lacking(group, rows, at) is None:
        return True
    if group.until_at is None or at < group.until_at:
        return False
    return not (group.waits_for_failed and _is_stopped(group, rows, at))


def _is_stopped(group: Group, rows: Sequence[Standing], at: datetime) -> bool:
    """Whether the strength cannot be met without a run that failed."""
    has_come = group.strength is not Strength.NEWEST or any(row.opens_at <= at for row in rows)
    return has_come and lacking(group, [Standing(row.opens_at, not row.failed) for row in rows], at) is not None


def next_look(group: Group, rows: Sequence[Standing], at: datetime) -> datetime | None:
    """When, after `at`, a group may change without any news; None for never."""
    moments = [group.until_at] if group.until_at is not None else []
    if group.strength is Strength.NEWEST:
        moments += [row.opens_at for row in rows]
    return min((one for one in moments if one > at), default=None)


def note_of(passed: Sequence[tuple[datetime, Sequence[str], bool]]) -> str | None:
    """What an instance was started without; None for nothing. `passed` has for each edge its until, the subjects that were missing, and
    whether all of these had failed."""
    parts = []
    for until_at, subjects, have_failed in passed:
        shown = ", ".join(subjects[:_NAMED]) + (f" and {len(subjects) - _NAMED} more" if len(subjects) > _NAMED else "")
        it, was = ("it", "was") if len(subjects) == 1 else ("they", "were")
        reason = "had failed" if have_failed else f"{was} not there"
        parts.append(f"{shown}, because {it} {reason} at {time_text(until_at)} UTC")
    return f"started without {'; and without '.join(parts)}" if parts else None


def rule_of(period: Period, given: Mapping[str, object]) -> EdgeRule:
    """The rule that a need of a file has, in a job of a period. Raises ConfigError."""
    text, until, if_failed = (given.get(key) for key in RULE_KEYS)
    strengths = {strength.value.lower(): strength for strength in Strength}
    if text is not None and (not isinstance(text, str) or text not in strengths):
        raise ConfigError(f"'strength' is {text!r} but must be one of {', '.join(strengths)}")
    if until is not None and not isinstance(until, str):
        raise ConfigError(f'\'until\' is {until!r} but must be a text: write it in quotes, like "06:00" or "2h"')
    if if_failed not in (None, "wait", "ignore"):
        raise ConfigError(f"'if-failed' is {if_failed!r} but must be wait or ignore")
    if if_failed is not None and until is None:
        raise ConfigError("'if-failed' says whether 'until' passes over runs that failed: give 'until', too, or leave it out")
    strength = Strength.ALL if text is None else strengths[str(text)]
    return EdgeRule(strength, None if until is None else Until.parse(period, until.strip()), if_failed != "ignore")
