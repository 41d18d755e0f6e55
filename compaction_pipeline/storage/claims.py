"""Finds the tasks of a queue that are next, and claims them for a worker."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, func, insert, select

from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.leases.timeouts import expires_at
from compaction_pipeline.core.queue.group import QueueOrder
from compaction_pipeline.core.queue.optimizer import OptimizerState
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.columns import StoredRow
from compaction_pipeline.storage.engine import batches
from compaction_pipeline.storage.task_rows import HAS_TURN, move, task_of_row
from compaction_pipeline.storage.team_claims import Order, Places, TeamClaims, teams_of_named, waiting_queues, waiting_teams
from compaction_pipeline.storage.team_rooms import ANY_LIMIT, Reckoning, least_slot, lock_limited, read_standings, slot_memories

_ATTEMPT_ID_DIGITS = 12

_task = schema.task.c


@dataclass(frozen=True, slots=True)
class Asked:
    """Which tasks are asked for. `task_ids` limits the choice to these.

    The tables `turns` come first, in their order. Tasks of paused tables, and of teams without room, have no turn.
    """

    queue: str | None
    task_ids: Sequence[TaskId] | None = None
    turns: Sequence[TableIdentifier] = ()
    most: int = 1


@dataclass(frozen=True, slots=True)
class Claimer:
    """Who claims: its name, the Spark application that its attempts keep, and the memory of its slot; None for an optimizer, whose own row
    has it, and when nobody said it."""

    owner: str
    application: str = ""
    reserve_bytes: int | None = None


def next_pending(connection: Connection, asked: Asked, reckoning: Reckoning, now: datetime, claimer: str | None = None) -> list[StoredRow]:
    """The next Pending tasks by the order of their queue, at most `asked.most` of them.

    With the `claimer` that takes them, the rows are locked until the transaction ends, and so are the teams with limits among them.
    """
    if asked.task_ids is None:
        # Named tasks are few, so they are found by their ids and sorted.
        _read_in_order(connection)
    task_order, limited = _order_of(connection, asked.queue)
    fifo = task_order is QueueOrder.FIFO
    order = (_task.waiting_since, _task.task_id) if fifo else (_task.rank, _task.many_files, _task.waiting_since, _task.task_id)
    if limited:
        return _next_of_teams(connection, asked, order, _limits(connection, asked.queue, reckoning, now, claimer))
    return _next_of_all(connection, asked, order, locked=claimer is not None)


@dataclass(frozen=True, slots=True)
class _TeamLimits:
    """What a claim needs to obey the limits of teams: `places_of` tells the room of teams, after it has locked them for a claim."""

    places_of: Callable[[Sequence[str]], Places]
    locked: bool


def _limits(connection: Connection, queue: str | None, reckoning: Reckoning, now: datetime, claimer: str | None) -> _TeamLimits:
    def places_of(teams: Sequence[str]) -> Places:
        at = now
        if claimer is not None:
            lock_limited(connection, teams, now)
            # The claim may have waited for the locks. A loan that ended meanwhile is no longer counted by those who had them before.
            at = max(now, reckoning.clock())
        # This is read after the locks are held, so it sees what the claims before this one took.
        standings = read_standings(connection, reckoning, at)
        memory = 0
        if any(one.allowed.memory_bytes is not None for one in standings.values()):
            if claimer is None:
                memory = least_slot(connection, reckoning, queue)
            else:
                memory = slot_memories(connection, [claimer]).get(claimer, reckoning.run_slot_memory)
        known = {name: one.places(memory) for name, one in standings.items()}
        return Places({name: places for name, places in known.items() if places is not None})

    return _TeamLimits(places_of, claimer is not None)


def _next_of_teams(connection: Connection, asked: Asked, order: Order, limits: _TeamLimits) -> list[StoredRow]:
    if asked.task_ids is not None:
        named = teams_of_named(connection, asked.task_ids)
        claims = TeamClaims(connection, order, limits.places_of(named), limits.locked)
        return claims.named(asked.queue, asked.task_ids, named, asked.most)
    queues = waiting_queues(connection) if asked.queue is None else [asked.queue]
    waiting = {queue: waiting_teams(connection, queue) for queue in queues}
    claims = TeamClaims(connection, order, limits.places_of(sorted({team for teams in waiting.values() for team in teams})), limits.locked)
    first = claims.of_tables(asked.queue, asked.turns, asked.most) if asked.queue is not None else []
    taken = {row.task_id: row for row in first}
    if len(taken) < asked.most:
        # The rows that the tables with a turn gave come again here. They are in this transaction's hands already.
        for row in claims.of_queues(waiting, asked.most):
            taken.setdefault(row.task_id, row)
    return list(taken.values())[: asked.most]


def _next_of_all(connection: Connection, asked: Asked, order: Order, *, locked: bool) -> list[StoredRow]:
    queue, task_ids, most = asked.queue, asked.task_ids, asked.most

    def first(table: TableIdentifier | None, batch: Sequence[TaskId] | None) -> Sequence[StoredRow]:
        wanted = HAS_TURN
        if queue is not None:
            wanted &= _task.queue == queue
        if table is not None:
            wanted &= _task.identifier == str(table)
        if batch is not None:
            wanted &= _task.task_id.in_(batch)
        found = select(*order, _task.identifier, _task.status, _task.attempt, _task.attempt_id).where(wanted).order_by(*order).limit(most)
        return connection.execute(found.with_for_update(skip_locked=True) if locked else found).all()

    slices: list[Sequence[TaskId] | None] = [None] if task_ids is None else list(batches(task_ids))
    taken: dict[TaskId, StoredRow] = {}
    for table in (*asked.turns, None):
        rows = sorted((row for batch in slices for row in first(table, batch)), key=lambda row: tuple(row[: len(order)]))
        for row in rows[:most]:
            # The tasks of tables that have a turn come again when all tables are asked.
            taken.setdefault(row.task_id, row)
        if len(taken) >= most:
            break
    return list(taken.values())[:most]


def application_of(connection: Connection, optimizer_id: str, token_id: str) -> str | None:
    """Return the Spark application of an optimizer, "" when it has none, or None when it may have no tasks by this token.

    The optimizer cannot end before this transaction does.

    Whoever revokes or blocks a token ends its optimizers after that, and gives back what they hold. So this transaction either sees the
    token as it is then, or has claimed its tasks before they are given back.
    """
    optimizer, token = schema.optimizer.c, schema.token.c
    found = select(optimizer.state, optimizer.application).where(optimizer.optimizer_id == optimizer_id).with_for_update(read=True)
    claimer = connection.execute(found).first()
    if claimer is None or claimer.state is not OptimizerState.RUNNING:
        return None
    issuer = schema.token.alias()
    own = select(token.revoked_at, token.blocked_at, issuer.c.revoked_at, issuer.c.blocked_at).where(token.token_id == token_id)
    row = connection.execute(own.outerjoin_from(schema.token, issuer, issuer.c.token_id == token.parent_id)).first()
    return claimer.application if row is not None and all(ended is None for ended in row) else None


def claim(connection: Connection, rows: Sequence[StoredRow], by: Claimer, now: datetime, lease: timedelta) -> list[CompactionTask]:
    """Begin an attempt of each of these Pending tasks, and return those that were still Pending. They keep their order."""
    begun = []
    for row in rows:
        attempt_id = uuid.uuid4().hex[:_ATTEMPT_ID_DIGITS]
        values = {
            "attempt": row.attempt + 1,
            "attempt_id": attempt_id,
            "owner": by.owner,
            "lease_expires_at": expires_at(now, lease),
            "started_at": now,
            "end_reason": None,
            "reason": None,
        }
        if move(connection, row, TaskStatus.EXECUTING, values):
            attempt = {"task_id": row.task_id, "number": row.attempt + 1, "attempt_id": attempt_id, "owner": by.owner}
            begun.append({**attempt, "started_at": now, "application": by.application, "reserve_bytes": by.reserve_bytes})
    if not begun:
        return []
    connection.execute(insert(schema.attempt), begun)
    ids = [each["task_id"] for each in begun]
    tasks = {row.task_id: task_of_row(row) for row in connection.execute(select(schema.task).where(_task.task_id.in_(ids)))}
    return [tasks[task_id] for task_id in ids]


def _read_in_order(connection: Connection) -> None:
    """Let the polls of this transaction read the index that holds their order, and sort nothing.

    When thousands of tasks arrive at once, PostgreSQL takes the table for nearly empty until it counts the rows anew, which may take a
    minute. It thinks that a sort of all waiting tasks costs nothing, and each poll would read them all.
    """
    if connection.dialect.name == "postgresql":
        # `True` limits this to the transaction, so other queries of this connection may sort.
        connection.execute(select(func.set_config("enable_sort", "off", True)))


def _order_of(connection: Connection, queue: str | None) -> tuple[QueueOrder | None, bool]:
    """The order of a queue, and whether any team has a limit. Both come in one answer, so a poll asks no more because teams exist."""
    columns = schema.group.c
    of_queue = select(columns.task_order).where(columns.name == queue).scalar_subquery()
    row = connection.execute(select(of_queue, ANY_LIMIT)).one()
    return row[0], bool(row[1])
