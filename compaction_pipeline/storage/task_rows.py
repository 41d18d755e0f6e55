"""Rows of tasks: inserts them, finds them, changes their status by compare-and-set, and makes tasks from them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, false, insert, select, update

from compaction_pipeline.core.errors import CompactionError, IllegalTransition, NotFoundError
from compaction_pipeline.core.ids import AttemptId, TaskId
from compaction_pipeline.core.queue.attempts import AfterAttempt
from compaction_pipeline.core.queue.order import in_place_of, rank
from compaction_pipeline.core.queue.task import CompactionTask, TaskAttempt, TaskStatus
from compaction_pipeline.core.queue.transitions import OPEN, allowed
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.columns import StoredRow
from compaction_pipeline.storage.engine import batches
from compaction_pipeline.storage.ledger import charge, used_by_ended

_task = schema.task.c

_FRESH = {each.name: each.default for each in fields(CompactionTask) if each.default is not MISSING}
"""The fields of a task's life, with the values that they begin with. Each has a column with the field's name in CompactionTask."""
_MOVING = ("queue", *_FRESH)
"""The fields of a task that change after it was planned."""


_NOT_FOR_GOOD = (_task.status != TaskStatus.FAILED) | _task.retry_at.is_not(None)
# The status comes first in both conditions, so that the index on table and status finds the few open tasks among many that have ended.
TO_BE_MERGED = _task.status.in_((TaskStatus.PENDING, TaskStatus.EXECUTING, TaskStatus.FAILED)) & _NOT_FOR_GOOD
"""The tasks that are still to be merged. `CompactionTask.is_to_be_merged` says the same of a task."""
IS_OPEN = _task.status.in_((*OPEN, TaskStatus.FAILED)) & _NOT_FOR_GOOD
"""The tasks that have not ended."""


HAS_TURN = (_task.status == TaskStatus.PENDING) & (_task.paused == false())
"""The tasks that a worker may take."""
WAITS = (_task.status == TaskStatus.PENDING) | ((_task.status == TaskStatus.FAILED) & _task.retry_at.is_not(None))
"""The tasks that are Pending, or FAILED and wait to be tried again."""


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How an attempt ended, and when.

    `why` is in words. `claimed` is the end that its worker reported without a witness (`TaskAttempt`). `result` is its report; None when
    there is none.
    """

    end_reason: EndReason
    why: str | None
    at: datetime
    claimed: EndReason | None = None
    result: MergeResult | None = None


class Overtaken(CompactionError):
    """A task that a plan replaces has begun or ended, or another task has taken a file of the plan.

    The transaction must be rolled back.
    """


def cancel_replaced(connection: Connection, replaces: Sequence[TaskId], now: datetime) -> dict[str, datetime]:
    """Cancel the waiting tasks that a plan replaces. Return since when each of their data files has waited in a task.

    Raises Overtaken when one of the tasks no longer waits.
    """
    rows = {row.task_id: row for row in locked_rows(connection, replaces)}
    for task_id in replaces:
        row = rows.get(task_id)
        if row is None or not cancel_waiting(connection, row, EndReason.REPLACED, "replaced by a newer plan", now):
            raise Overtaken(f"task {task_id} no longer waits")
    waited: dict[str, datetime] = {}
    for batch in batches(replaces):
        columns = schema.task_input.c
        for path, task_id in connection.execute(select(columns.path, columns.task_id).where(columns.task_id.in_(batch))):
            waited[path] = rows[task_id].waiting_since
    return waited


def cancel_waiting(connection: Connection, row: StoredRow, end_reason: EndReason, reason: str, now: datetime) -> bool:
    """Cancel a task that is Pending, or FAILED and waits to be tried again. False and no change when it is neither, or has changed."""
    if row.status is not TaskStatus.PENDING and (row.status is not TaskStatus.FAILED or row.retry_at is None):
        return False
    return move(connection, row, TaskStatus.CANCELED, {"end_reason": end_reason, "reason": reason, "ended_at": now, "retry_at": None})


def cancel_running(connection: Connection, row: StoredRow, end_reason: EndReason, reason: str, now: datetime) -> bool:
    """Cancel an Executing task and end its attempt. False and no change when it is not Executing, or has changed."""
    if row.status is not TaskStatus.EXECUTING:
        return False
    ended = {"attempt_id": None, "owner": None, "lease_expires_at": None, "end_reason": end_reason, "reason": reason, "ended_at": now}
    if not move(connection, row, TaskStatus.CANCELED, ended):
        return False
    write_attempt_end(connection, row, AttemptEnd(end_reason, reason, now))
    return True


def insert_tasks(
    connection: Connection, tasks: Sequence[CompactionTask], team: str, paused: Collection[str], replaced: Mapping[str, datetime]
) -> None:
    """Insert tasks of one team as Pending.

    `paused` are the identifiers of the paused tables, and `replaced` what `cancel_replaced` has returned.

    Raises Overtaken when an open task has one of the data files of these tasks.
    """
    taken: set[str] = set()
    for identifier in {str(task.table) for task in tasks}:
        taken.update(row.path for row in connection.execute(open_inputs(identifier)))
    if any(file.path in taken for task in tasks for file in task.work.inputs):
        # Two plans of one table ran at the same time. The caller makes this one again from the present state.
        raise Overtaken("a data file of the plan is in use")
    for batch in batches(in_place_of(replaced, tasks)):
        connection.execute(insert(schema.task), [{**_planned(task), "team": team, "paused": str(task.table) in paused} for task in batch])
    inputs = [
        {"task_id": task.task_id, "ordinal": ordinal, "path": file.path} for task in tasks for ordinal, file in enumerate(task.work.inputs)
    ]
    for chunk in batches(inputs, 10_000):
        connection.execute(insert(schema.task_input), list(chunk))


def _planned(task: CompactionTask) -> dict[str, object]:
    waiting_since = task.waiting_since or task.created_at
    planned = replace(task, **{**_FRESH, "waiting_since": task.waiting_since})
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
        "waiting_since": waiting_since,
        "rank": rank(task.priority, waiting_since),
        "many_files": -task.work.small_files,
        "predicted_gb_hours": task.prediction.gb_hours,
    }


def open_inputs(identifier: str) -> Select[Any]:
    """A query for (path, task id, status) of each data file in a table's open tasks."""
    return (
        select(schema.task_input.c.path, _task.task_id, _task.status)
        .join(schema.task, _task.task_id == schema.task_input.c.task_id)
        .where(_task.identifier == identifier, IS_OPEN)
    )


def move(connection: Connection, row: StoredRow, after: TaskStatus, values: Mapping[str, object]) -> bool:
    """Change a task's status by compare-and-set. False when its status or attempt has changed since `row` was read."""
    waits_for_retry = row.status is TaskStatus.FAILED and row.retry_at is not None
    allowed(row.status, after, for_good=row.status is TaskStatus.FAILED and not waits_for_retry)
    as_read = _task.attempt_id.is_(None) if row.attempt_id is None else _task.attempt_id == row.attempt_id
    if waits_for_retry:
        as_read &= _task.retry_at == row.retry_at
    changed = update(schema.task).where(_task.task_id == row.task_id, _task.status == row.status, as_read)
    return connection.execute(changed.values(status=after, **values)).rowcount == 1


def must_move(connection: Connection, row: StoredRow, after: TaskStatus, values: Mapping[str, object]) -> None:
    """Change a task's status as `move` does. Raises IllegalTransition when its status or attempt has changed since `row` was read."""
    if not move(connection, row, after, values):
        raise IllegalTransition(f"task {row.task_id!r} was {row.status.value} a moment ago and changed meanwhile; look at it again")


def leave_attempt(connection: Connection, row: StoredRow, after: AfterAttempt, end: AttemptEnd) -> bool:
    """Move a task away from an attempt that did not merge it, and end the attempt. False when the task has changed since `row` was read."""
    values: dict[str, object] = {
        "end_reason": end.end_reason,
        "reason": end.why,
        "attempt_id": None,
        "owner": None,
        "lease_expires_at": None,
        "failures": after.tries.failures,
        "losses": after.tries.losses,
        "retry_at": after.retry_at,
    }
    if after.tries.failures > row.failures:
        values["failed_at"] = end.at
    if after.status is TaskStatus.FAILED:
        values |= {"failed_at": end.at, "ended_at": end.at if after.retry_at is None else None}
    if not move(connection, row, after.status, values):
        return False
    write_attempt_end(connection, row, end)
    return True


def write_attempt_end(connection: Connection, row: StoredRow, end: AttemptEnd) -> None:
    """Write when and why the task's current attempt ended, and what it cost, unless that is written already.

    `row` is the task as it was when the attempt still held it.
    """
    columns = schema.attempt.c
    last = update(schema.attempt).where(columns.task_id == row.task_id, columns.number == row.attempt, columns.ended_at.is_(None))
    written = last.values(ended_at=end.at, end_reason=end.end_reason, reason=end.why, claimed=end.claimed)
    if connection.execute(written).rowcount == 1:
        charge(connection, row, end.end_reason, end.at, end.result)


def attempts_of(connection: Connection, task_id: TaskId) -> tuple[TaskAttempt, ...]:
    """The attempts of a task, the first one first, with what they have used."""
    columns = schema.attempt.c
    rows = connection.execute(select(schema.attempt).where(columns.task_id == task_id).order_by(columns.number)).all()
    used = used_by_ended(connection, [row.attempt_id for row in rows if row.ended_at is not None])
    return tuple(
        TaskAttempt(
            row.attempt_id,
            row.task_id,
            row.number,
            row.owner,
            row.started_at,
            row.ended_at,
            row.end_reason,
            row.reason,
            row.claimed,
            row.application,
            used.get(row.attempt_id) if row.ended_at is not None else row.used_so_far,
        )
        for row in rows
    )


def task_id_of_attempt(attempt_id: AttemptId) -> Any:
    """A subquery for the id of the task that an attempt belongs to."""
    return select(schema.attempt.c.task_id).where(schema.attempt.c.attempt_id == attempt_id).scalar_subquery()


def locked_row(connection: Connection, task_id: TaskId) -> StoredRow | None:
    """The row of a task, locked until the transaction ends; None when there is no such task."""
    return connection.execute(select(schema.task).where(_task.task_id == task_id).with_for_update()).first()


def row_of(connection: Connection, task_id: TaskId) -> StoredRow:
    """The row of a task. Raises NotFoundError."""
    row = connection.execute(select(schema.task).where(_task.task_id == task_id)).first()
    if row is None:
        raise unknown_task(task_id)
    return row


def locked_rows(connection: Connection, task_ids: Iterable[TaskId]) -> list[StoredRow]:
    """The rows of these tasks, locked until the transaction ends. Tasks that do not exist are left out."""
    # Every transaction locks tasks in the order of their ids, so no two transactions wait for each other in a circle.
    rows: list[StoredRow] = []
    for batch in batches(sorted(set(task_ids))):
        query = select(schema.task).where(_task.task_id.in_(batch)).order_by(_task.task_id).with_for_update()
        rows += connection.execute(query).all()
    return rows


def unknown_task(task_id: TaskId) -> NotFoundError:
    """The error for a task that does not exist."""
    known = "`compaction-pipeline task list` shows those that are, and ended tasks are removed after COMPACTION_RECORD_TTL_DAYS"
    return NotFoundError(f"task {task_id!r} is not known; {known}")


def status_of(row: StoredRow) -> TaskStatus:
    """The status of a row, with its type."""
    status: TaskStatus = row.status
    return status


def task_of_row(row: StoredRow) -> CompactionTask:
    """The task that a row describes."""
    planned: CompactionTask = row.planned
    return replace(planned, **{name: getattr(row, name) for name in _MOVING})
