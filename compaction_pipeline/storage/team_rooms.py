"""Reads how much each team uses, and so which teams may begin more now. It changes nothing, and locks only what a claim needs.

GB-hours of a day are added up at most every `RECKONED_EVERY`, because a day may have very many. What runs now is
counted each time, in the transaction that claims.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from sqlalchemy import Connection, func, select

from compaction_pipeline.core.capacity.ledger import gb_hours
from compaction_pipeline.core.capacity.limits import Standing, TeamBook, Use, standings
from compaction_pipeline.core.capacity.loan import LONGEST_LOAN, Loan
from compaction_pipeline.core.capacity.team import Limits, Team, Whitelisted
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.columns import StoredRow

RECKONED_EVERY = timedelta(seconds=5)
_team, _task, _cost, _optimizer = schema.team.c, schema.task.c, schema.cost.c, schema.optimizer.c
_loan, _entry = schema.team_loan.c, schema.team_whitelist.c
_LIMITED = _team.slots.is_not(None) | _team.memory_bytes.is_not(None) | _team.gb_hours.is_not(None)
ANY_LIMIT = select(_team.name).where(_LIMITED).exists()
"""A condition that says whether any team has a limit. While none has, no poll asks for more."""


def own_clock() -> datetime:
    """The time of this host, for processes that share a SQLite file."""
    return datetime.now(timezone.utc)


@dataclass(slots=True)
class Reckoning:
    """What a process knows for the limits of teams: the time, the memory of a slot of a run, and the GB-hours that it added up lately.

    `run_slot_memory` is in bytes. It is charged for attempts that no registered optimizer makes.
    """

    clock: Callable[[], datetime] = own_clock
    run_slot_memory: int = 0
    _used: tuple[datetime, Mapping[str, float]] | None = field(default=None)

    def used_today(self, connection: Connection, now: datetime) -> Mapping[str, float]:
        """Return the GB-hours of today by team, at most `RECKONED_EVERY` old."""
        last = self._used
        if last is None or not timedelta(0) <= now - last[0] < RECKONED_EVERY or last[0].date() != now.date():
            last = self._used = now, used_today(connection, self.run_slot_memory, now)
        return last[1]


def used_today(connection: Connection, run_slot_memory: int, now: datetime) -> Mapping[str, float]:
    """Add up the GB-hours of every team since 00:00 UTC: what the ledger has of today, and what runs, until now.

    An attempt that no registered optimizer makes has no reserve in the ledger. It is charged `run_slot_memory`.
    """
    midnight = now.astimezone(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)
    charged = func.sum(func.coalesce(_cost.gb_hours, _cost.slot_seconds * gb_hours(run_slot_memory, 1)))
    used: dict[str, float] = defaultdict(float)
    for team, hours in connection.execute(select(_cost.team, charged).where(_cost.day == midnight.date()).group_by(_cost.team)):
        used[team] += float(hours)
    running = select(_task.team, _task.owner, _task.started_at).where(_task.status == TaskStatus.EXECUTING)
    rows = connection.execute(running).all()
    memories = slot_memories(connection, {row.owner for row in rows}) if rows else {}
    for row in rows:
        seconds = (now - max(row.started_at, midnight)).total_seconds()
        used[row.team] += gb_hours(memories.get(row.owner, run_slot_memory), max(0.0, seconds))
    return used


def has_limits(connection: Connection) -> bool:
    """Whether any team has a limit."""
    return bool(connection.execute(select(ANY_LIMIT)).scalar())


def lock_limited(connection: Connection, names: Collection[str]) -> None:
    """Lock those of these teams that have a limit, in the order of their names, until this transaction ends.

    Then no other claim of their tasks, no loan and no change of their limits happens meanwhile.
    """
    if connection.dialect.name == "postgresql":
        limited = select(_team.name).where(_team.name.in_(sorted(names)), _LIMITED).order_by(_team.name)
        connection.execute(limited.with_for_update(key_share=True))


def read_book(connection: Connection, now: datetime) -> tuple[TeamBook, Mapping[str, datetime]]:
    """Return all teams with what may bound them now, and since when teams are held."""
    rows = connection.execute(select(schema.team)).all()
    # An attempt that began before a loan ended may run for hours.
    loans = select(schema.team_loan).where(_loan.began_at.is_not(None), _loan.until > now - LONGEST_LOAN)
    entries = select(schema.team_whitelist).where(_entry.until > now)
    book = TeamBook(
        {row.name: team_of(row) for row in rows},
        tuple(Loan(**row._mapping) for row in connection.execute(loans)),
        tuple(Whitelisted(row.team, row.until, row.reason, row.allowed_by, row.at) for row in connection.execute(entries)),
    )
    return book, {row.name: row.held_since for row in rows if row.held_since is not None}


def read_standings(connection: Connection, reckoning: Reckoning, now: datetime) -> Mapping[str, Standing]:
    """Return how every team stands now, by name."""
    book, held_since = read_book(connection, now)
    limits = [team.limits for team in book.teams.values()]
    hours = reckoning.used_today(connection, now) if any(one.gb_hours is not None for one in limits) else {}
    by_memory = any(one.memory_bytes is not None for one in limits)
    started: dict[str, list[datetime]] = defaultdict(list)
    memory: dict[str, int] = defaultdict(int)
    running = select(_task.team, _task.owner, _task.started_at).where(_task.status == TaskStatus.EXECUTING)
    rows = connection.execute(running).all()
    slots = slot_memories(connection, {row.owner for row in rows}) if by_memory and rows else {}
    for row in rows:
        started[row.team].append(row.started_at)
        memory[row.team] += slots.get(row.owner, reckoning.run_slot_memory)
    uses = {name: Use(tuple(started[name]), memory[name], hours.get(name, 0.0)) for name in {*started, *hours}}
    return standings(book, uses, now, held_since)


def held_teams(connection: Connection, reckoning: Reckoning, now: datetime) -> Sequence[str]:
    """Return the teams that may begin nothing now, sorted. Their waiting tasks are no demand."""
    if not has_limits(connection):
        return ()
    return sorted(name for name, one in read_standings(connection, reckoning, now).items() if one.is_held)


def slot_memories(connection: Connection, owners: Collection[str]) -> Mapping[str, int]:
    """Return the bytes of a slot of each of these owners that is a registered optimizer."""
    found = select(_optimizer.optimizer_id, _optimizer.memory_bytes, _optimizer.parallelism).where(_optimizer.optimizer_id.in_(owners))
    return {row.optimizer_id: row.memory_bytes // max(1, row.parallelism) for row in connection.execute(found)}


def team_of(row: StoredRow) -> Team:
    """The team that a row describes."""
    return Team(row.name, row.owners, Limits(row.slots, row.memory_bytes, row.gb_hours))
