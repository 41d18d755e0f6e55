"""Decides what each team may use now, and whether it may begin more: its own limits, what it lent and borrowed, and what still runs.

The law: while no limit is lowered, all teams together never run more attempts than the sum of their own limits, at no moment, apart from
teams that are whitelisted. A loan moves slots from one team to another, and its end moves them back. The team that gives slots may still
use them just then. So the one that gets them may use only what the other no longer uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from compaction_pipeline.core.capacity.loan import Loan
from compaction_pipeline.core.capacity.team import Limits, Team, Whitelisted, whitelisted
from compaction_pipeline.core.words import bytes_text, part_text, time_text


@dataclass(frozen=True, slots=True)
class TeamBook:
    """What is stored of all teams: they themselves, and every loan and entry of the whitelist that may matter now."""

    teams: Mapping[str, Team]
    loans: tuple[Loan, ...] = ()
    whitelist: tuple[Whitelisted, ...] = ()


@dataclass(frozen=True, slots=True)
class Reserve:
    """Slots, and the bytes of memory that are reserved for them; 0 bytes when nobody knows how many."""

    slots: int = 0
    memory_bytes: int = 0

    def __add__(self, other: Reserve) -> Reserve:
        return Reserve(self.slots + other.slots, self.memory_bytes + other.memory_bytes)


NOTHING = Reserve()


@dataclass(frozen=True, slots=True)
class Use:
    """What a team uses now. `started` has the begin of each attempt that runs, and `gb_hours` are those of today (UTC).

    `by_owner` is what its attempts use of each worker, by the worker's id.
    """

    started: tuple[datetime, ...] = ()
    memory_bytes: int = 0
    gb_hours: float = 0.0
    by_owner: Mapping[str, Reserve] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Standing:
    """A team beside its limits. `allowed` counts loans in. While it is whitelisted, nothing is limited, and `exempt` says until when.

    `held_since` is since when it may begin nothing more, as far as a keeper has seen it. `least_slot` is the smallest memory in bytes that
    an attempt of it may need; 0 when nobody knows it.
    """

    team: Team
    allowed: Limits
    use: Use
    exempt: Whitelisted | None = None
    held_since: datetime | None = None
    least_slot: int = 0

    def places(self, slot_memory: int = 0) -> int | None:
        """How many more attempts may begin, each with so many bytes of memory. None means without limit."""
        if self.allowed.gb_hours is not None and self.use.gb_hours >= self.allowed.gb_hours:
            return 0
        free: list[int] = []
        if self.allowed.slots is not None:
            free.append(max(0, self.allowed.slots - len(self.use.started)))
        if self.allowed.memory_bytes is not None:
            rest = max(0, self.allowed.memory_bytes - self.use.memory_bytes)
            # A worker whose memory nobody knows takes no more when nothing is left.
            free.append(rest // slot_memory if slot_memory else rest)
        return min(free, default=None)

    @property
    def is_held(self) -> bool:
        """Whether nothing more of the team may begin."""
        return self.places(self.least_slot) == 0

    @property
    def waits_for_own_work(self) -> bool:
        """Whether the end of an attempt that runs lets the team begin another one."""
        memory = self.allowed.memory_bytes
        out_of_hours = self.allowed.gb_hours is not None and self.use.gb_hours >= self.allowed.gb_hours
        too_small = self.allowed.slots == 0 or (memory is not None and memory < max(1, self.least_slot))
        return self.is_held and bool(self.use.started) and not out_of_hours and not too_small

    @property
    def why_held(self) -> str | None:
        """For example: team shop uses 4 of 4 slots since 2026-11-27 10:15:00 UTC. None while it may begin more."""
        if not self.is_held:
            return None
        parts, memory = [], self.allowed.memory_bytes
        if self.allowed.gb_hours is not None and self.use.gb_hours >= self.allowed.gb_hours:
            parts.append(f"has used {part_text(self.use.gb_hours, self.allowed.gb_hours)} GB-hours today (UTC)")
        if self.allowed.slots is not None and len(self.use.started) >= self.allowed.slots:
            parts.append(f"uses {len(self.use.started)} of {self.allowed.slots} slots")
        if memory is not None and self.use.memory_bytes + max(1, self.least_slot) > memory:
            needs = f", and another task needs {bytes_text(self.least_slot)}" if self.use.memory_bytes < memory else ""
            parts.append(f"uses {bytes_text(self.use.memory_bytes)} of {bytes_text(memory)} of memory{needs}")
        since = f", since {time_text(self.held_since)}" if self.held_since is not None else ""
        return f"team {self.team.name} {' and '.join(parts)}{since}"


@dataclass(slots=True)
class _Transfer:
    """Slots that went from one team to another. `held` are those that the giver still used, so that the other may not use them yet."""

    at: datetime
    giver: str
    taker: str
    slots: int
    held: int = field(default=0)


def standings(
    book: TeamBook, uses: Mapping[str, Use], now: datetime, held_since: Mapping[str, datetime] | None = None
) -> dict[str, Standing]:
    """Return how every team of the book stands now. Teams without an entry in `uses` use nothing."""
    exempt = whitelisted(book.whitelist, now)
    slots = slot_limits(book, {name: use.started for name, use in uses.items()}, now)
    found = {}
    for name, team in book.teams.items():
        allowed = Limits(slots[name], team.limits.memory_bytes, _gb_hours(team, book.loans, now))
        allowed = Limits() if name in exempt else allowed
        found[name] = Standing(team, allowed, uses.get(name, Use()), exempt.get(name), (held_since or {}).get(name))
    return found


def slot_limits(book: TeamBook, started: Mapping[str, Sequence[datetime]], now: datetime) -> dict[str, int | None]:
    """Return how many slots each team may use now, as if none were whitelisted. `started` has the begin of each attempt that runs.

    A team that gave slots away may use more than it has left, with attempts that began before. The taker of the slots has so many less
    until these end. It may itself use more than its limit then, if it gave slots away too, so this is repeated until nothing changes.
    """
    # The newest move first. Of those of one instant, the last loan of the book first.
    transfers = sorted(_transfers(book.loans, now), key=lambda one: one.at)
    transfers.reverse()
    nominal = {name: team.limits.slots for name, team in book.teams.items()}
    for one in transfers:
        for name, change in ((one.giver, -one.slots), (one.taker, one.slots)):
            limit = nominal.get(name)
            if limit is not None:
                nominal[name] = limit + change
    bounded = {name: limit for name, limit in nominal.items() if limit is not None}
    over_apart = whitelisted(book.whitelist, now)
    while True:
        allowed = {name: limit - sum(one.held for one in transfers if one.taker == name) for name, limit in bounded.items()}
        before = [one.held for one in transfers]
        for name, limit in allowed.items():
            if name not in over_apart:
                _hold_back(name, max(0, len(started.get(name, ())) - limit), transfers, started.get(name, ()))
        if [one.held for one in transfers] == before:
            return {name: max(0, allowed[name]) if name in allowed else None for name in nominal}


def _transfers(loans: Sequence[Loan], now: datetime) -> list[_Transfer]:
    """The moves of slots so far: one when a loan began, and one back when it ended."""
    moves = []
    for loan in loans:
        if loan.slots and loan.began_at is not None and loan.began_at <= now:
            moves.append(_Transfer(loan.began_at, loan.lender, loan.borrower, loan.slots))
            if loan.end <= now:
                moves.append(_Transfer(loan.end, loan.borrower, loan.lender, loan.slots))
    return moves


def _hold_back(giver: str, over: int, transfers: Sequence[_Transfer], started: Sequence[datetime]) -> None:
    """Hold back from the takers what the giver uses over its limit, from the newest move first.

    That is with attempts which began before the move, or with slots that the giver was owed itself and has not got back.
    """
    owed = sum(one.held for one in transfers if one.taker == giver)
    for one in transfers:
        if one.giver == giver:
            one.held = max(one.held, min(one.slots, over, owed + sum(began <= one.at for began in started)))
            over -= min(over, one.held)


def _gb_hours(team: Team, loans: Sequence[Loan], now: datetime) -> float | None:
    """The GB-hours of today. These loans end at midnight, so none ends while the day's use counts."""
    if team.limits.gb_hours is None:
        return None
    counted = [loan for loan in loans if loan.counts(now)]
    borrowed = sum(loan.gb_hours for loan in counted if loan.borrower == team.name)
    return team.limits.gb_hours + borrowed - sum(loan.gb_hours for loan in counted if loan.lender == team.name)
