"""TaskStore: tasks, their attempts, and the only place where a status is written.

Each change is one transaction and one compare-and-set: `core.lifecycle` allows the move from the status that was read, and
the UPDATE repeats that status (and the attempt, where one is meant) in its WHERE. Who comes late changes nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine, Row, Select, case, delete, func, insert, select, update

from compaction_pipeline.core.errors import CompactionError, IllegalTransition, NotFoundError, StaleAttempt
from compaction_pipeline.core.lifecycle.attempts import after_attempt, after_lost_attempt
from compaction_pipeline.core.lifecycle.timeouts import expires_at
from compaction_pipeline.core.lifecycle.transitions import FINAL, allowed
from compaction_pipeline.core.model.plan import InUse
from compaction_pipeline.core.model.table import TableIdentifier
from compaction_pipeline.core.model.task import CompactionTask, CompactionType, EndReason, MergeResult, TaskStatus
from compaction_pipeline.core.planning.budget import PlannedWork
from compaction_pipeline.core.ports import TaskAttempt
from compaction_pipeline.core.scheduling.commit_interval import PreparedWork
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import batches, lock, reading, writing

OPEN = (TaskStatus.PENDING, TaskStatus.EXECUTING, TaskStatus.PREPARED)
"""Tasks whose input files are in use."""
_ATTEMPT_ID_DIGITS = 12
_MOVING = (
    "status",
    "attempt",
    "attempt_id",
    "owner",
    "lease_expires_at",
    "started_at",
    "ended_at",
    "end_reason",
    "reason",
    "result",
    "record_id",
)
"""Fields of a task that change after it was planned; a column each, named as in CompactionTask."""

_task = schema.task.c


class SqlTaskStore:
    """Tasks in the state database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # ---- planning ----

    def insert(self, tasks: Sequence[CompactionTask], replaces: Sequence[str], now: datetime) -> bool:
        for task in tasks:
            allowed(TaskStatus.INIT, TaskStatus.PENDING if task.status is TaskStatus.INIT else task.status)
        try:
            with writing(self._engine) as connection:
                for identifier in sorted({str(task.table) for task in tasks}):
                    lock(connection, f"tasks {identifier}")
                _replace(connection, replaces, now)
                _insert(connection, tasks)
        except _Overtaken:
            return False
        return True

    def in_use(self, table: TableIdentifier) -> InUse:
        with reading(self._engine) as connection:
            rows = connection.execute(_inputs(str(table))).all()
            nodes = connection.execute(
                select(_task.exclusive_node).where(
                    _task.identifier == str(table),
                    _task.exclusive_node.is_not(None),
                    _task.status.in_((TaskStatus.EXECUTING, TaskStatus.PREPARED)),
                )
            ).scalars()
            groups = connection.execute(
                select(_task.task_id, _task.group_name).where(
                    _task.identifier == str(table), _task.status == TaskStatus.PENDING, _task.group_name != ""
                )
            )
            return InUse(
                paths=frozenset(row.path for row in rows if row.status is not TaskStatus.PENDING),
                exclusive_nodes=frozenset(nodes),
                pending={row.path: row.task_id for row in rows if row.status is TaskStatus.PENDING},
                pending_groups={row.task_id: row.group_name for row in groups},
            )

    # ---- attempts ----

    def poll(
        self, queue: str | None, owner: str, now: datetime, lease: timedelta, task_ids: Sequence[str] | None = None
    ) -> CompactionTask | None:
        with reading(self._engine) as connection:
            # Most polls find nothing; they must not stand in line for SQLite's one write lock.
            if not _candidates(connection, queue, task_ids):
                return None
        with writing(self._engine) as connection:
            candidates = _candidates(connection, queue, task_ids, locked=True)
            if not candidates:
                return None
            row = min(candidates, key=lambda each: (-each.priority, each.created_at, each.task_id))
            attempt_id = uuid.uuid4().hex[:_ATTEMPT_ID_DIGITS]
            values = {
                "attempt": row.attempt + 1,
                "attempt_id": attempt_id,
                "owner": owner,
                "lease_expires_at": expires_at(now, lease),
                "started_at": now,
                "end_reason": None,
                "reason": None,
            }
            if not _move(connection, row, TaskStatus.EXECUTING, values):
                return None
            connection.execute(
                insert(schema.attempt).values(
                    task_id=row.task_id, number=row.attempt + 1, attempt_id=attempt_id, owner=owner, started_at=now
                )
            )
            return _value(_row_of(connection, row.task_id))

    def waits(self, queue: str | None, task_ids: Sequence[str] | None = None) -> bool:
        with reading(self._engine) as connection:
            return bool(_candidates(connection, queue, task_ids))

    def renew(self, attempt_ids: Sequence[str], now: datetime, lease: timedelta) -> Sequence[str]:
        held: list[str] = []
        with writing(self._engine) as connection:
            for attempt_id in sorted(attempt_ids):
                renewed = connection.execute(
                    update(schema.task)
                    .where(_task.task_id == _task_of(attempt_id), _task.attempt_id == attempt_id, _task.status == TaskStatus.EXECUTING)
                    .values(lease_expires_at=expires_at(now, lease))
                )
                if renewed.rowcount == 1:
                    held.append(attempt_id)
        return tuple(attempt_id for attempt_id in attempt_ids if attempt_id in held)

    def complete(self, result: MergeResult, now: datetime) -> TaskStatus:
        with writing(self._engine) as connection:
            row = _find(connection, result.task_id)
            if row is not None and row.attempt_id == result.attempt_id and row.result == result:
                # The same report again, its answer got lost. Were it called stale, its files, which a commit may be
                # putting in now, would be deleted as leftovers.
                return _status(row)
            now_held = "which is gone" if row is None else f"now {row.status.value}, attempt {row.attempt_id}"
            if row is None or row.status is not TaskStatus.EXECUTING or row.attempt_id != result.attempt_id:
                raise StaleAttempt(
                    f"attempt {result.attempt_id!r} no longer holds task {result.task_id!r} ({now_held}); its report changes nothing"
                )
            after = after_attempt(row.attempt, row.max_attempts, result.end_reason)
            if after is TaskStatus.PREPARED:
                moved = _move(connection, row, after, {"result": result, "owner": None, "lease_expires_at": None})
            else:
                moved = _end_attempt(connection, row, after, result.end_reason, result.error, now)
            if not moved:
                raise StaleAttempt(f"attempt {result.attempt_id!r} lost task {result.task_id!r} just now; its report changes nothing")
            _close_attempt(connection, row, result.end_reason, result.error, now)
            return after

    def release_expired(self, now: datetime) -> Sequence[str]:
        expired = select(schema.task).where(
            _task.status == TaskStatus.EXECUTING, (_task.lease_expires_at <= now) | _task.lease_expires_at.is_(None)
        )
        with reading(self._engine) as connection:
            if connection.execute(expired.limit(1)).first() is None:
                return ()
        released = []
        with writing(self._engine) as connection:
            for row in connection.execute(expired.order_by(_task.task_id).with_for_update(skip_locked=True)).all():
                reason = f"attempt {row.attempt} of {row.max_attempts} was lost: {row.owner} did not renew its lease"
                if _end_attempt(connection, row, after_lost_attempt(row.attempt, row.max_attempts), EndReason.LOST, reason, now):
                    _close_attempt(connection, row, EndReason.LOST, reason, now)
                    released.append(row.task_id)
        return tuple(released)

    def attempts(self, task_id: str) -> Sequence[TaskAttempt]:
        columns = schema.attempt.c
        with reading(self._engine) as connection:
            rows = connection.execute(select(schema.attempt).where(columns.task_id == task_id).order_by(columns.number)).all()
        return tuple(
            TaskAttempt(row.attempt_id, row.task_id, row.number, row.owner, row.started_at, row.ended_at, row.end_reason, row.reason)
            for row in rows
        )

    # ---- ends ----

    def fail(self, task_id: str, end_reason: EndReason, reason: str, now: datetime) -> None:
        with writing(self._engine) as connection:
            row = _row_of(connection, task_id)
            if row.status is TaskStatus.PENDING:
                raise IllegalTransition(
                    f"task {task_id!r} is PENDING and cannot become FAILED: only an attempt or a commit fails; cancel it"
                )
            ended = {"end_reason": end_reason, "reason": reason, "owner": None, "lease_expires_at": None, "ended_at": now}
            _must_move(connection, row, TaskStatus.FAILED, ended)
            _close_attempt(connection, row, end_reason, reason, now)

    def cancel(self, task_ids: Sequence[str], end_reason: EndReason, reason: str, now: datetime) -> Sequence[str]:
        canceled = []
        ended = {"end_reason": end_reason, "reason": reason, "ended_at": now}
        with writing(self._engine) as connection:
            for row in _rows(connection, task_ids):
                if row.status is TaskStatus.PENDING and _move(connection, row, TaskStatus.CANCELED, ended):
                    canceled.append(row.task_id)
        return tuple(task_id for task_id in task_ids if task_id in canceled)

    def expire(self, before: datetime) -> int:
        with writing(self._engine) as connection:
            ended = delete(schema.task).where(_task.status.in_(FINAL), _task.ended_at < before)
            return connection.execute(ended).rowcount

    # ---- commits ----

    def claim(self, table: TableIdentifier, record_id: str, task_ids: Sequence[str] | None = None) -> Sequence[CompactionTask]:
        with writing(self._engine) as connection:
            lock(connection, f"tasks {table}")
            unfinished = connection.execute(
                select(_task.group_name).where(
                    _task.identifier == str(table), _task.status.in_((TaskStatus.PENDING, TaskStatus.EXECUTING)), _task.group_name != ""
                )
            ).scalars()
            waiting = frozenset(unfinished)
            prepared = select(schema.task).where(
                _task.identifier == str(table), _task.status == TaskStatus.PREPARED, _task.record_id.is_(None)
            )
            wanted = None if task_ids is None else frozenset(task_ids)
            claimed = []
            for row in connection.execute(prepared.order_by(_task.task_id).with_for_update()).all():
                if row.group_name in waiting or (wanted is not None and row.task_id not in wanted):
                    continue
                claim = update(schema.task).where(
                    _task.task_id == row.task_id, _task.status == TaskStatus.PREPARED, _task.record_id.is_(None)
                )
                if connection.execute(claim.values(record_id=record_id)).rowcount == 1:
                    claimed.append(replace(_value(row), record_id=record_id))
        return tuple(sorted(claimed, key=lambda task: (task.created_at, task.task_id)))

    def unclaim(self, record_id: str) -> None:
        with writing(self._engine) as connection:
            held = update(schema.task).where(_task.record_id == record_id, _task.status == TaskStatus.PREPARED)
            connection.execute(held.values(record_id=None))

    def commit(self, task_ids: Sequence[str], now: datetime) -> None:
        with writing(self._engine) as connection:
            rows = _rows(connection, task_ids)
            missing = sorted(set(task_ids) - {row.task_id for row in rows})
            if missing:
                raise _unknown(missing[0])
            for row in rows:
                # A commit that is settled after a crash may have got this far before.
                if row.status is not TaskStatus.COMMITTED:
                    _must_move(connection, row, TaskStatus.COMMITTED, {"ended_at": now})

    # ---- questions ----

    def task(self, task_id: str) -> CompactionTask:
        with reading(self._engine) as connection:
            return _value(_row_of(connection, task_id))

    def tasks(
        self,
        table: TableIdentifier | None = None,
        statuses: Sequence[TaskStatus] | None = None,
        record_id: str | None = None,
        limit: int | None = None,
    ) -> Sequence[CompactionTask]:
        query = select(schema.task).order_by(_task.created_at.desc(), _task.task_id.desc())
        if table is not None:
            query = query.where(_task.identifier == str(table))
        if statuses is not None:
            query = query.where(_task.status.in_(statuses))
        if record_id is not None:
            query = query.where(_task.record_id == record_id)
        if limit is not None:
            query = query.limit(limit)
        with reading(self._engine) as connection:
            return tuple(map(_value, connection.execute(query)))

    def planned_work(self, table: TableIdentifier) -> PlannedWork:
        under_way = _task.status.in_((TaskStatus.PENDING, TaskStatus.EXECUTING))
        query = select(func.count(), func.sum(_task.input_bytes)).where(_task.identifier == str(table), under_way)
        with reading(self._engine) as connection:
            tasks, size = connection.execute(query).one()
        return PlannedWork(tasks, int(size or 0))

    def prepared_work(self) -> Mapping[TableIdentifier, PreparedWork]:
        unclaimed = _task.record_id.is_(None)
        query = (
            select(
                _task.identifier,
                func.sum(case((unclaimed, 1), else_=0)).label("tasks"),
                func.sum(case((unclaimed, _task.input_bytes), else_=0)).label("size"),
                func.count().label("every"),
            )
            .where(_task.status == TaskStatus.PREPARED)
            .group_by(_task.identifier)
        )
        with reading(self._engine) as connection:
            # PostgreSQL sums to decimals.
            return {
                TableIdentifier.parse(row.identifier): PreparedWork(int(row.tasks), int(row.size), int(row.every - row.tasks))
                for row in connection.execute(query)
            }

    def counts(self) -> Mapping[TaskStatus, int]:
        with reading(self._engine) as connection:
            return {row[0]: row[1] for row in connection.execute(select(_task.status, func.count()).group_by(_task.status))}


class _Overtaken(CompactionError):
    """A task that a plan replaces, or a file that it takes, went to another meanwhile: roll back."""


def _replace(connection: Connection, replaces: Sequence[str], now: datetime) -> None:
    rows = {row.task_id: row for row in _rows(connection, replaces)}
    for task_id in replaces:
        row = rows.get(task_id)
        values = {"end_reason": EndReason.REPLACED, "reason": "replaced by a newer plan", "ended_at": now}
        if row is None or row.status is not TaskStatus.PENDING or not _move(connection, row, TaskStatus.CANCELED, values):
            raise _Overtaken(f"task {task_id} is no longer Pending")


def _insert(connection: Connection, tasks: Sequence[CompactionTask]) -> None:
    taken: set[str] = set()
    for identifier in {str(task.table) for task in tasks}:
        taken.update(row.path for row in connection.execute(_inputs(identifier)))
    if any(file.path in taken for task in tasks for file in task.work.inputs):
        # Two plans of one table beside each other: the second is made again from what is there now.
        raise _Overtaken("a data file of the plan is in use")
    for batch in batches(tasks):
        connection.execute(insert(schema.task), [_planned(task) for task in batch])
    inputs = [
        {"task_id": task.task_id, "ordinal": ordinal, "path": file.path} for task in tasks for ordinal, file in enumerate(task.work.inputs)
    ]
    for chunk in batches(inputs, 10_000):
        connection.execute(insert(schema.task_input), list(chunk))


def _planned(task: CompactionTask) -> dict[str, object]:
    planned = replace(
        task,
        status=TaskStatus.PENDING,
        attempt=0,
        attempt_id=None,
        owner=None,
        lease_expires_at=None,
        started_at=None,
        ended_at=None,
        end_reason=None,
        reason=None,
        result=None,
        record_id=None,
    )
    return {
        "task_id": task.task_id,
        "identifier": str(task.table),
        "queue": task.queue,
        "priority": task.priority,
        "created_at": task.created_at,
        "group_name": task.work.group,
        "exclusive_node": None if task.work.type is CompactionType.MINOR else task.work.node,
        "planned": planned,
        "max_attempts": task.max_attempts,
        "input_bytes": task.work.input_bytes,
        "status": TaskStatus.PENDING,
        "attempt": 0,
    }


def _inputs(identifier: str) -> Select[Any]:
    """(path, task, status) of the data files of a table's open tasks."""
    return (
        select(schema.task_input.c.path, _task.task_id, _task.status)
        .join(schema.task, _task.task_id == schema.task_input.c.task_id)
        .where(_task.identifier == identifier, _task.status.in_(OPEN))
    )


def _candidates(connection: Connection, queue: str | None, task_ids: Sequence[str] | None, locked: bool = False) -> list[Row[Any]]:
    """The first Pending task; of these ids the first of each batch.

    The highest priority is looked up first, so that both looks follow the index: sorting all that wait would make polls cost more
    the longer the queue is.
    """
    columns = (_task.task_id, _task.status, _task.priority, _task.created_at, _task.attempt, _task.attempt_id)

    def first(batch: Sequence[str] | None) -> Select[Any]:
        wanted = _task.status == TaskStatus.PENDING
        if queue is not None:
            wanted &= _task.queue == queue
        if batch is not None:
            wanted &= _task.task_id.in_(batch)
        highest = select(_task.priority).where(wanted).order_by(_task.priority.desc()).limit(1).correlate(None).scalar_subquery()
        found = select(*columns).where(wanted, _task.priority == highest).order_by(_task.created_at, _task.task_id).limit(1)
        return found.with_for_update(skip_locked=True) if locked else found

    queries = [first(None)] if task_ids is None else [first(batch) for batch in batches(task_ids)]
    return [row for each in queries if (row := connection.execute(each).first()) is not None]


def _move(connection: Connection, row: Row[Any], after: TaskStatus, values: Mapping[str, object]) -> bool:
    """Change a status by compare-and-set; False when the row is no longer as it was read."""
    allowed(row.status, after)
    as_read = _task.attempt_id.is_(None) if row.attempt_id is None else _task.attempt_id == row.attempt_id
    changed = update(schema.task).where(_task.task_id == row.task_id, _task.status == row.status, as_read)
    return connection.execute(changed.values(status=after, **values)).rowcount == 1


def _must_move(connection: Connection, row: Row[Any], after: TaskStatus, values: Mapping[str, object]) -> None:
    if not _move(connection, row, after, values):
        raise IllegalTransition(f"task {row.task_id!r} was {row.status.value} a moment ago and changed meanwhile; look at it again")


def _end_attempt(
    connection: Connection, row: Row[Any], after: TaskStatus, end_reason: EndReason, reason: str | None, now: datetime
) -> bool:
    """Take a task from the attempt that failed or was lost."""
    values: dict[str, object] = {"end_reason": end_reason, "reason": reason, "attempt_id": None, "owner": None, "lease_expires_at": None}
    return _move(connection, row, after, {**values, "ended_at": now if after in FINAL else None})


def _close_attempt(connection: Connection, row: Row[Any], end_reason: EndReason, reason: str | None, now: datetime) -> None:
    columns = schema.attempt.c
    last = update(schema.attempt).where(columns.task_id == row.task_id, columns.number == row.attempt, columns.ended_at.is_(None))
    connection.execute(last.values(ended_at=now, end_reason=end_reason, reason=reason))


def _task_of(attempt_id: str) -> Any:
    return select(schema.attempt.c.task_id).where(schema.attempt.c.attempt_id == attempt_id).scalar_subquery()


def _find(connection: Connection, task_id: str) -> Row[Any] | None:
    return connection.execute(select(schema.task).where(_task.task_id == task_id).with_for_update()).first()


def _row_of(connection: Connection, task_id: str) -> Row[Any]:
    row = connection.execute(select(schema.task).where(_task.task_id == task_id)).first()
    if row is None:
        raise _unknown(task_id)
    return row


def _rows(connection: Connection, task_ids: Iterable[str]) -> list[Row[Any]]:
    # Always locked in the order of their ids: two transactions then wait for each other, never in a circle.
    rows: list[Row[Any]] = []
    for batch in batches(sorted(set(task_ids))):
        query = select(schema.task).where(_task.task_id.in_(batch)).order_by(_task.task_id).with_for_update()
        rows += connection.execute(query).all()
    return rows


def _unknown(task_id: str) -> NotFoundError:
    return NotFoundError(f"task {task_id!r} is not known; ended tasks are removed after COMPACTION_RECORD_TTL_DAYS")


def _status(row: Row[Any]) -> TaskStatus:
    status: TaskStatus = row.status
    return status


def _value(row: Row[Any]) -> CompactionTask:
    planned: CompactionTask = row.planned
    return replace(planned, **{name: getattr(row, name) for name in _MOVING})
