"""Says how long a team's optimizers were idle or of low use, and whether the team may ask for a loan in spite of it.

Optimizers of a group that names a team are the team's. The time of all others is shared by the teams whose tasks they merged, in proportion
to slot time, because nobody else could have used them better: idle time by that of its UTC day. A loan is refused only for optimizers that
are the team's own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.team_name import UNASSIGNED

LATELY = timedelta(hours=24)
"""The share is that of the last day."""
MOST_LOW_USE = 0.1
"""A team asks for a loan only while at most this part of its optimizers is of low use."""
LONGEST_GAP = timedelta(minutes=5)
"""Between two looks at most so much time counts. Nobody looked in the rest of a longer break."""


@dataclass(frozen=True, slots=True)
class UseHours:
    """How long somebody looked at the optimizers of a group, in optimizer-hours, and how much of that was of low use."""

    group: str
    hours: float
    low_hours: float


@dataclass(frozen=True, slots=True)
class LowUseShare:
    """The optimizer-hours of a team, and how many of them were of low use."""

    team: str
    hours: float
    low_hours: float

    @property
    def share(self) -> float:
        """The part that was of low use, from 0 to 1."""
        return self.low_hours / self.hours if self.hours > 0 else 0.0


@dataclass(frozen=True, slots=True)
class IdleDay:
    """How long slots of a group's optimizers held no attempt on one UTC day: they started, were idle, or ended. In slot-seconds.

    `gb_hours` are those of this time, None when no reserve is known. `spent` are the slot-seconds of attempts on that day, by team.
    """

    group: str
    seconds: float
    gb_hours: float | None
    spent: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class TeamIdle:
    """What a team's optimizers, and its part of the common ones, did beside its tasks.

    `idle_seconds` are slot-seconds in which slots held no attempt, and `idle_gb_hours` their GB-hours, None when no reserve is known.
    `low_use_hours` are optimizer-hours in which use was low. Slots of such an optimizer may hold attempts.
    """

    team: str
    idle_seconds: float
    idle_gb_hours: float | None
    low_use_hours: float


@dataclass(frozen=True, slots=True)
class OwnOptimizer:
    """An optimizer of a team's own groups. `why_low` says why its use is low; "" while it is not."""

    optimizer_id: str
    why_low: str = ""


def low_use_shares(
    found: Iterable[UseHours], team_of_group: Mapping[str, str], slot_seconds: Mapping[tuple[str, str], float]
) -> Sequence[LowUseShare]:
    """Return the share of each team, the highest first. `slot_seconds` are those of attempts, by (group, team)."""
    hours: dict[str, float] = defaultdict(float)
    low: dict[str, float] = defaultdict(float)
    for one in found:
        for team, part in _parts(one.group, team_of_group, slot_seconds).items():
            hours[team] += part * one.hours
            low[team] += part * one.low_hours
    shares = [LowUseShare(team, hours[team], low[team]) for team in hours if hours[team] > 0]
    return sorted(shares, key=lambda one: (-one.share, one.team))


def idle_of_teams(days: Iterable[IdleDay], team_of_group: Mapping[str, str], shares: Iterable[LowUseShare]) -> Sequence[TeamIdle]:
    """Return what each team's optimizers did beside its tasks, the longest idle time first."""
    idle: dict[str, float] = defaultdict(float)
    memory: dict[str, float] = {}
    low = {one.team: one.low_hours for one in shares if one.low_hours > 0}
    for one in days:
        for team, part in _parts(one.group, team_of_group, {(one.group, team): seconds for team, seconds in one.spent.items()}).items():
            idle[team] += part * one.seconds
            if one.gb_hours is not None:
                memory[team] = memory.get(team, 0.0) + part * one.gb_hours
    found = [TeamIdle(team, idle[team], memory.get(team), low.get(team, 0.0)) for team in idle.keys() | low.keys()]
    return sorted(found, key=lambda one: (-one.idle_seconds, one.team))


def _parts(group: str, team_of_group: Mapping[str, str], slot_seconds: Mapping[tuple[str, str], float]) -> Mapping[str, float]:
    if group in team_of_group:
        return {team_of_group[group]: 1.0}
    of_group = {team: seconds for (queue, team), seconds in slot_seconds.items() if queue == group and seconds > 0}
    whole = sum(of_group.values())
    return {team: seconds / whole for team, seconds in of_group.items()} or {UNASSIGNED: 1.0}


def check_excuses(borrower: str, own: Sequence[OwnOptimizer], excuses: Mapping[str, str]) -> None:
    """Raise ConfigError for words about something that is no optimizer of the team's own.

    One whose use is no longer low is none of them: it was, when the list of those that are was read.
    """
    strange = sorted(set(excuses) - {each.optimizer_id for each in own})
    if strange:
        low = [each.optimizer_id for each in own if each.why_low]
        listed = f"say it of {', '.join(low[:10])}" if low else "none of its optimizers is of low use, so say nothing"
        raise ConfigError(
            f"{strange[0][:100]!r} is no optimizer of a group of team {borrower} that has run long enough to be judged; "
            f"{listed}; `optimizer use` lists all"
        )


def check_low_use(borrower: str, own: Sequence[OwnOptimizer], excuses: Mapping[str, str]) -> None:
    """Raise ConfigError when too many of a team's own optimizers are of low use to ask for more.

    `excuses` say of such optimizers why they cannot be used better. With one for each of them, nothing is refused.
    """
    low = [each for each in own if each.why_low]
    if len(low) <= MOST_LOW_USE * len(own):
        return
    unsaid = [each for each in low if not excuses.get(each.optimizer_id, "").strip()]
    if unsaid:
        listed = "; ".join(f"{each.optimizer_id}: {each.why_low}" for each in unsaid[:10])
        more = f"; and {len(unsaid) - 10} more" if len(unsaid) > 10 else ""
        raise ConfigError(
            f"team {borrower} asks for a loan, but {len(low)} of its {len(own)} optimizers are of low use, and at most "
            f"{MOST_LOW_USE:.0%} may be: use them better, or say of each why that cannot be ({listed}{more})"
        )
