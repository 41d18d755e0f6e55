"""Teams pay for compaction: this module says what a team may have as limits, and when it is freed from them for a while."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from math import isfinite

from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.tables.team_name import TEAM_NAME_RULE, UNASSIGNED, is_team_name

MOST_SLOTS, MOST_MEMORY, MOST_GB_HOURS = 100_000, 2**60, 1e9
MOST_OWNERS, LONGEST_TEXT = 50, 500
"""So many owners a team may have, and so long their addresses and the reasons of entries may be."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a team may use: slots at a time, bytes of memory at a time, and GB-hours in a day of UTC. None means without limit."""

    slots: int | None = None
    memory_bytes: int | None = None
    gb_hours: float | None = None

    @property
    def are_any(self) -> bool:
        """Whether there is a limit at all."""
        return self.slots is not None or self.memory_bytes is not None or self.gb_hours is not None


@dataclass(frozen=True, slots=True)
class Team:
    """Who is charged for the work on some tables. `owners` are the addresses or names of the people behind it."""

    name: str
    owners: tuple[str, ...] = ()
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True)
class Whitelisted:
    """Until when an administrator lets a team work without its limits, why, and who allowed it.

    `refused_loan` is the id of a loan that was refused before; "" when there was none.
    """

    team: str
    until: datetime
    reason: str
    allowed_by: str
    at: datetime
    refused_loan: str = ""


@dataclass(frozen=True, slots=True)
class TeamChange:
    """A change: who made it, when, of which team, and what was before and is after it, as JSON. None means that there was or is nothing."""

    at: datetime
    who: str
    team: str
    what: str
    before: str | None
    after: str | None


def checked(team: Team) -> Team:
    """Return the team. Raises ConfigError when a part of it breaks its rule."""
    if not is_team_name(team.name):
        raise ConfigError(f"the team name {team.name[:100]!r} must have {TEAM_NAME_RULE}")
    if len(team.owners) > MOST_OWNERS or any(not owner.strip() or len(owner) > LONGEST_TEXT for owner in team.owners):
        raise ConfigError(f"'owners' of team {team.name} must be at most {MOST_OWNERS} texts of 1 to {LONGEST_TEXT} characters")
    for key, value, most in (
        ("slots", team.limits.slots, MOST_SLOTS),
        ("memory_bytes", team.limits.memory_bytes, MOST_MEMORY),
        ("gb_hours", team.limits.gb_hours, MOST_GB_HOURS),
    ):
        if value is not None and not (isfinite(value) and 0 <= value <= most):
            raise ConfigError(f"'{key}' of team {team.name} is {value} but must be from 0 to {most:,.0f}, or absent for no limit")
    return team


def lifted(before: Team | None, after: Team) -> tuple[str, ...]:
    """Return in words the limits and owners that a team had, and no longer has, for example: slots (was 8)."""
    if before is None:
        return ()
    old, new = before.limits, after.limits
    words = []
    if old.slots is not None and new.slots is None:
        words.append(f"slots (was {old.slots:,})")
    if old.memory_bytes is not None and new.memory_bytes is None:
        words.append(f"memory (was {old.memory_bytes / 1e9:g} GB)")
    if old.gb_hours is not None and new.gb_hours is None:
        words.append(f"GB-hours a day (was {old.gb_hours:g})")
    gone = [owner for owner in before.owners if owner not in after.owners]
    return (*words, f"owners (were {', '.join(gone)})") if gone else tuple(words)


def whitelisted(entries: Iterable[Whitelisted], now: datetime) -> dict[str, Whitelisted]:
    """Return the entries that hold now, by team. The newest entry of a team wins, also when it ends earlier. An entry ends by itself."""
    newest: dict[str, Whitelisted] = {}
    for entry in entries:
        if entry.at <= now and (entry.team not in newest or entry.at >= newest[entry.team].at):
            newest[entry.team] = entry
    return {name: entry for name, entry in newest.items() if now < entry.until}


def unknown_team(name: str) -> NotFoundError:
    """The error for a team that does not exist."""
    return NotFoundError(f"team {name!r} does not exist; `compaction-pipeline team list` shows those that do, `team set` makes one")


def team_missing_text(name: str) -> str:
    """Say why a table is charged to `unassigned`, although it names a team."""
    return (
        f"'compaction.team' is {name!r}, and there is no such team, so the table is charged to {UNASSIGNED!r}: make it with "
        f"`compaction-pipeline team set {name}`, or name another one"
    )
