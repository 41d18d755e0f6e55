"""Reads how much each team uses, and so which teams may begin more now. It changes nothing, and locks only what a claim needs.

GB-hours of a day are added up at most every `RECKONED_EVERY`, because a day may have very many. What runs now is
counted each time, in the transaction that claims.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta, timezone

from sqlalchemy import ColumnElement, Connection, and_, func, select

from compaction_pipeline.core.capacity.ledger import gb_hours
from compaction_pipeline.core.capacity.limits import NOTHING, Reserve, Standing, TeamBook, Use, standings
from compaction_pipeline.core.capacity.loan import LONGEST_LOAN, Loan
from compaction_pipeline.core.capacity.team import Limits, Team, Whitelisted
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.queue.group import TEAM
from compaction_pipeline.core.queue.optimizer import OptimizerState
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.team_name import UNASSIGNED
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.columns import StoredRow
from compaction_pipeline.storage.engine import batches

RECKONED_EVERY = timedelta(seconds=5)
_team, _task, _cost, _optimizer, _slots = schema.team.c, schema.task.c, schema.cost.c, schema.optimizer.c, schema.slot_time.c
_loan, _entry, _attempt = schema.team_loan.c, schema.team_whitelist.c, schema.attempt.c
_RUNNING = select(_task.team, _task.owner, _task.started_at, _task.attempt_id).where(_task.status == TaskStatus.EXECUTING)
_LIMITED = _team.slots.is_not(None) | _team.memory_bytes.is_not(None) | _team.gb_hours.is_not(None)
ANY_LIMIT = select(_team.name).where(_LIMITED).exists()
"""A condition that says whether any team has a limit. While none has, no poll asks for more."""


def own_clock() -> datetime:
    """The time of this host, for processes that share a SQLite file."""
    return datetime.now(timezone.utc)


@dataclass(slots=True)
class Reckoning:
    """What a process knows for the limits of teams: the time, the memory of a slot of a run, and the GB-hours that it added up lately.

    `run_slot_memory` is in bytes. It is charged for attempts that no registered optimizer makes, and whose own memory nobody knows.
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

    The time in which slots of a group's optimizers held no attempt is charged to the team that the group names, if it names one.

    An attempt whose memory nobody knows is charged `run_slot_memory`.
    """
    midnight = now.astimezone(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)
    charged = func.sum(func.coalesce(_cost.gb_hours, _cost.slot_seconds * gb_hours(run_slot_memory, 1)))
    used: dict[str, float] = defaultdict(float)
    for team, hours in connection.execute(select(_cost.team, charged).where(_cost.day == midnight.date()).group_by(_cost.team)):
        used[team] += float(hours)
    for team, hours in _unused(connection, run_slot_memory, midnight.date()).items():
        used[team] += hours
    rows = connection.execute(_RUNNING).all()
    for row, memory in zip(rows, _reserved(connection, rows, run_slot_memory), strict=True):
        seconds = (now - max(row.started_at, midnight)).total_seconds()
        used[row.team] += gb_hours(memory, max(0.0, seconds))
    return used


def groups_of_teams(connection: Connection) -> Mapping[str, str]:
    """Return the teams that groups name, by the name of the group."""
    found = connection.execute(select(schema.group.c.name, schema.group.c.properties))
    return {row.name: row.properties[TEAM] for row in found if TEAM in row.properties}


def _unused(connection: Connection, run_slot_memory: int, day: date) -> Mapping[str, float]:
    """The GB-hours of a day in which slots held no attempt, by the team of their group. Groups without a team are left out."""
    teams = groups_of_teams(connection)
    if not teams:
        return {}
    known = set(connection.execute(select(_team.name)).scalars())
    unused: dict[str, float] = defaultdict(float)
    memory = func.coalesce(_slots.reserve_bytes, run_slot_memory)
    query = select(_slots.queue, func.sum(memory * (_slots.starting + _slots.idle + _slots.ending))).where(_slots.day == day)
    for group, byte_seconds in connection.execute(query.group_by(_slots.queue)):
        if group in teams:
            unused[teams[group] if teams[group] in known else UNASSIGNED] += gb_hours(1, max(0.0, float(byte_seconds)))
    return unused


def has_limits(connection: Connection) -> bool:
    """Whether any team has a limit."""
    return bool(connection.execute(select(ANY_LIMIT)).scalar())


def lock_limited(connection: Connection, names: Collection[str], now: datetime) -> None:
    """Lock those of these teams that have a limit, and their partners in loans, until this transaction ends.

    Then no other claim of their tasks, no loan and no change of their limits happens meanwhile. What a team may use depends on what its
    partners use, also when a loan ends by itself. All locks are taken in the order that the database gives to names.
    """
    if connection.dialect.name == "postgresql":
        of_loans = select(_loan.lender, _loan.borrower).where(_may_matter(now), _loan.slots > 0)
        pairs = [{*row} for row in connection.execute(of_loans)]
        locked = set(names)
        while more := [pair for pair in pairs if pair & locked and not pair <= locked]:
            locked.update(*more)
        limited = select(_team.name).where(_team.name.in_(sorted(locked)), _LIMITED).order_by(_team.name)
        connection.execute(limited.with_for_update(key_share=True))


def _may_matter(now: datetime) -> ColumnElement[bool]:
    """The loans that count, and those that ended lately: an attempt that began before a loan ended may run for hours."""
    return and_(_loan.began_at.is_not(None), _loan.until > now - LONGEST_LOAN)


def read_book(connection: Connection, now: datetime) -> tuple[TeamBook, Mapping[str, datetime]]:
    """Return all teams with what may bound them now, and since when teams are held."""
    rows = connection.execute(select(schema.team)).all()
    loans = select(schema.team_loan).where(_may_matter(now)).order_by(_loan.began_at)
    # The newest entry of a team wins, also when it has ended. So the older ones are not read, however many there are.
    newer = schema.team_whitelist.alias("newer")
    is_newest = ~select(newer.c.at).where(newer.c.team == _entry.team, newer.c.at > _entry.at, newer.c.at <= now).exists()
    entries = select(schema.team_whitelist).where(_entry.at <= now, _entry.until > now, is_newest)
    book = TeamBook(
        {row.name: team_of(row) for row in rows},
        tuple(Loan(**row._mapping) for row in connection.execute(loans)),
        tuple(
            Whitelisted(row.team, row.until, row.reason, row.allowed_by, row.at, row.refused_loan) for row in connection.execute(entries)
        ),
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
    rows = connection.execute(_RUNNING).all()
    slots = _reserved(connection, rows, reckoning.run_slot_memory) if by_memory else [reckoning.run_slot_memory] * len(rows)
    owners: dict[str, dict[str, Reserve]] = defaultdict(dict)
    for row, slot in zip(rows, slots, strict=True):
        started[row.team].append(row.started_at)
        memory[row.team] += slot
        owners[row.team][row.owner] = owners[row.team].get(row.owner, NOTHING) + Reserve(1, slot)
    names = {*started, *hours}
    uses = {name: Use(tuple(started[name]), memory[name], hours.get(name, 0.0), owners[name]) for name in names}
    least = least_slot(connection, reckoning) if by_memory else 0
    return {name: replace(one, least_slot=least) for name, one in standings(book, uses, now, held_since).items()}


def held_teams(connection: Connection, reckoning: Reckoning, now: datetime) -> Sequence[str]:
    """Return the teams that may begin nothing now, sorted. Their waiting tasks are no demand."""
    if not has_limits(connection):
        return ()
    return sorted(name for name, one in read_standings(connection, reckoning, now).items() if one.is_held)


def why_stuck(connection: Connection, reckoning: Reckoning, task_ids: Sequence[TaskId]) -> dict[TaskId, str]:
    """Return why those of these Pending tasks wait that no end of running work lets begin."""
    found = read_standings(connection, reckoning, reckoning.clock())
    slots: dict[str, int] = {}
    stuck = {}
    for batch in batches(task_ids):
        waiting = select(_task.task_id, _task.team, _task.queue).where(_task.task_id.in_(batch), _task.status == TaskStatus.PENDING)
        for row in connection.execute(waiting).all():
            if row.team not in found:
                continue
            if row.queue not in slots:
                slots[row.queue] = least_slot(connection, reckoning, row.queue)
            one = replace(found[row.team], least_slot=slots[row.queue])
            if one.is_held and not one.waits_for_own_work:
                stuck[row.task_id] = one.why_held or ""
    return stuck


def least_slot(connection: Connection, reckoning: Reckoning, queue: str | None = None) -> int:
    """Return the bytes of the smallest slot that takes tasks of a queue, or of any: of live optimizers and of a run. 0 means unknown."""
    live = _optimizer.state.in_([state for state in OptimizerState if state.is_live])
    found = select(_optimizer.memory_bytes, _optimizer.parallelism).where(live, *([] if queue is None else [_optimizer.group == queue]))
    slots = [row.memory_bytes // max(1, row.parallelism) for row in connection.execute(found)]
    return min([*slots, *([reckoning.run_slot_memory] if reckoning.run_slot_memory else [])], default=0)


def _reserved(connection: Connection, running: Sequence[StoredRow], run_slot_memory: int) -> list[int]:
    """The bytes of the slot of each of these attempts: those of its optimizer, else those that its own process said when it began."""
    slots = slot_memories(connection, {row.owner for row in running}) if running else {}
    said: dict[str, int] = {}
    # By their ids, because a join may read all attempts that ever were.
    for batch in batches([row.attempt_id for row in running if row.owner not in slots]):
        known = select(_attempt.attempt_id, _attempt.reserve_bytes).where(_attempt.attempt_id.in_(batch))
        said.update({row.attempt_id: row.reserve_bytes for row in connection.execute(known) if row.reserve_bytes is not None})
    return [slots.get(row.owner, said.get(row.attempt_id, run_slot_memory)) for row in running]


def slot_memories(connection: Connection, owners: Collection[str]) -> Mapping[str, int]:
    """Return the bytes of a slot of each of these owners that is a registered optimizer."""
    found = select(_optimizer.optimizer_id, _optimizer.memory_bytes, _optimizer.parallelism).where(_optimizer.optimizer_id.in_(owners))
    return {row.optimizer_id: row.memory_bytes // max(1, row.parallelism) for row in connection.execute(found)}


def team_of(row: StoredRow) -> Team:
    """The team that a row describes."""
    return Team(row.name, row.owners, Limits(row.slots, row.memory_bytes, row.gb_hours))
