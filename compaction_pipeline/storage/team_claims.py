"""Finds the next tasks while teams have limits: it merges the heads of the teams that have room, in the order of the queue.

The waiting tasks of a team that is held may be very many. An index holds the tasks of each queue by team, so none of them is visited: each
team costs a few index entries, and each task that is taken costs one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, literal, select, text, tuple_

from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.columns import StoredRow
from compaction_pipeline.storage.engine import batches
from compaction_pipeline.storage.task_rows import HAS_TURN

_task = schema.task.c
_WAITS = text("(compaction_task.status = 'PENDING' AND compaction_task.paused = false) IS TRUE")
"""The condition of the indexes by team, word by word. Other indexes do not fit it. By its figures of a queue with very many held tasks,
PostgreSQL would take the index by rank, and read all of these."""
_MANY = 1 << 30
_Key = tuple[Any, ...]
Order = tuple[ColumnElement[Any], ...]


@dataclass(slots=True)
class Places:
    """How many more tasks of each team may begin. A team that is not named has no limit."""

    of: dict[str, int]
    counted: set[TaskId] = field(default_factory=set)

    def left(self, team: str) -> int:
        """How many more tasks of a team may begin."""
        return self.of.get(team, _MANY)

    def take(self, rows: Sequence[StoredRow]) -> list[StoredRow]:
        """Return those of these rows for which their teams have room, in their order, and count each of them once."""
        taken = []
        for row in rows:
            if row.task_id not in self.counted and self.left(row.team) <= 0:
                continue
            taken.append(row)
            if row.team in self.of and row.task_id not in self.counted:
                self.of[row.team] -= 1
            self.counted.add(row.task_id)
        return taken


def waiting_teams(connection: Connection, queue: str) -> Sequence[str]:
    """The teams with tasks in a queue that a worker may take, sorted. Each is found by one look at the index."""
    here = and_(_task.queue == queue, _WAITS)
    first = select(func.min(_task.team).label("team")).where(here).cte("teams", recursive=True)
    following = select(func.min(_task.team)).where(here, _task.team > first.c.team).scalar_subquery()
    teams = first.union_all(select(following).where(first.c.team.is_not(None)))
    return sorted(connection.execute(select(teams.c.team).where(teams.c.team.is_not(None))).scalars())


def waiting_queues(connection: Connection) -> Sequence[str]:
    """The queues with tasks that a worker may take, sorted."""
    found, queue = [], ""
    while (following := connection.execute(select(func.min(_task.queue)).where(_WAITS, _task.queue > queue)).scalar()) is not None:
        queue = following
        found.append(queue)
    return found


def teams_of_named(connection: Connection, task_ids: Sequence[TaskId]) -> Sequence[str]:
    """The teams of those of these tasks that a worker may take."""
    queries = (select(_task.team).where(_task.task_id.in_(batch), HAS_TURN).distinct() for batch in batches(task_ids))
    return sorted({team for query in queries for team in connection.execute(query).scalars()})


@dataclass(frozen=True, slots=True)
class TeamClaims:
    """Finds waiting tasks of teams that have room. `order` is that of the queue, and ends with the task id.

    With `locked`, the rows that are found are locked until the transaction ends, and rows that others have locked are left out.
    """

    connection: Connection
    order: Order
    places: Places
    locked: bool

    def of_queues(self, queues: Mapping[str, Sequence[str]], most: int) -> list[StoredRow]:
        """The next tasks of these queues, each with its waiting teams, at most `most`: by the heads of the teams, the first one first."""
        heads = []
        for queue, teams in queues.items():
            with_room = [team for team in teams if self.places.left(team) > 0]
            heads += [(self._key(row), queue, row.team) for row in self._heads(queue, with_room)]
        heapify(heads)
        taken: list[StoredRow] = []
        while heads and len(taken) < most:
            head, queue, team = heappop(heads)
            wanted = min(most - len(taken), self.places.left(team))
            if wanted <= 0:
                continue
            here = and_(_WAITS, _task.queue == queue, _task.team == team)
            until = heads[0][0] if heads else None
            # What this transaction has taken already comes before the head. It is still Pending.
            among = [here, self._place() >= self._at(head)] + ([self._place() <= self._at(until)] if until is not None else [])
            rows = self.places.take(self._rows(and_(*among), wanted))
            taken += rows
            if until is not None and len(rows) < wanted:
                following = self._read(select(*self._columns()).where(here, self._place() > self._at(until)), 1)
                for row in following:
                    # Python may sort task ids differently from the database. A head that does not come later would come for ever.
                    if self._key(row) > head:
                        heappush(heads, (self._key(row), queue, team))
        return taken

    def of_tables(self, queue: str, tables: Sequence[TableIdentifier], most: int) -> list[StoredRow]:
        """The next tasks of these tables, one table after the other. A table whose team is held is passed by.

        A table belongs to one team. Only until the keeper has seen that it was given to another one do its tasks differ.
        """
        taken: list[StoredRow] = []
        for table in tables:
            here = and_(HAS_TURN, _task.queue == queue, _task.identifier == str(table))
            for head in self._read(select(*self._columns()).where(here), 1):
                wanted = min(most - len(taken), self.places.left(head.team))
                taken += self.places.take(self._rows(here, wanted)) if wanted > 0 else []
            if len(taken) >= most:
                break
        return taken

    def named(self, queue: str | None, task_ids: Sequence[TaskId], teams: Sequence[str], most: int) -> list[StoredRow]:
        """The next of these tasks, which belong to these teams."""
        of: ColumnElement[bool] = _task.team.in_([team for team in teams if self.places.left(team) > 0])
        if queue is not None:
            of &= _task.queue == queue
        rows = [row for batch in batches(task_ids) for row in self._rows(and_(HAS_TURN, of, _task.task_id.in_(batch)), most)]
        return self.places.take(sorted(rows, key=self._key)[:most])

    def _heads(self, queue: str, teams: Sequence[str]) -> Sequence[StoredRow]:
        """The first waiting task of each of these teams."""
        heads: list[StoredRow] = []
        for batch in batches(teams):
            asked = select(schema.team.c.name).where(schema.team.c.name.in_(batch)).subquery("asked")
            first = schema.task.alias("first")
            waits = and_(text(_WAITS.text.replace(schema.task.name, "first")), first.c.queue == queue, first.c.team == asked.c.name)
            order = [first.c[column.name] for column in self.order]
            head = select(first.c.task_id).where(waits).order_by(*order).limit(1).correlate(asked).scalar_subquery()
            ids = list(self.connection.execute(select(head).select_from(asked)).scalars())
            heads += self.connection.execute(select(*self._columns()).where(_task.task_id.in_([one for one in ids if one]))).all()
            # A task may keep the name of a team that is gone, until the keeper gives it another one.
            for team in set(batch) - {row.team for row in heads}:
                heads += self._read(select(*self._columns()).where(_WAITS, _task.queue == queue, _task.team == team), 1)
        return heads

    def _rows(self, wanted: ColumnElement[bool], most: int) -> Sequence[StoredRow]:
        found = select(*self._columns()).where(wanted).order_by(*self.order).limit(most)
        return self.connection.execute(found.with_for_update(skip_locked=True) if self.locked else found).all()

    def _read(self, query: Any, most: int) -> Sequence[StoredRow]:
        rows: Sequence[StoredRow] = self.connection.execute(query.order_by(*self.order).limit(most)).all()
        return rows

    def _columns(self) -> tuple[ColumnElement[Any], ...]:
        return (*self.order, _task.identifier, _task.status, _task.attempt, _task.attempt_id, _task.team)

    def _key(self, row: StoredRow) -> _Key:
        return tuple(row[: len(self.order)])

    def _place(self) -> Any:
        """The place of a task in the order, to be compared with one that is known."""
        return tuple_(*self.order)

    def _at(self, key: _Key) -> Any:
        return tuple_(*(literal(value, column.type) for value, column in zip(key, self.order, strict=True)))
