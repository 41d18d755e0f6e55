"""The TaskStore: tasks and their attempts. Only this module and its helpers `task_rows` and `claims` write a task's status.

Each change is one transaction with a compare-and-set. `core/queue/transitions.py` allows the change from the status that was
read, and the UPDATE repeats that status and the attempt in its WHERE. So a caller that is too late changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine, delete, func, select, text, true, update

from compaction_pipeline.core.errors import IllegalTransition, StaleAttempt
from compaction_pipeline.core.ids import AttemptId, RecordId, TaskId
from compaction_pipeline.core.leases.timeouts import expires_at
from compaction_pipeline.core.queue.attempts import Tries, after_attempt, lost_text, timed_out_text
from compaction_pipeline.core.queue.group import QueueFull, QueueRoom
from compaction_pipeline.core.queue.open_work import InUse, OpenTasks, PlannedWork, PreparedWork
from compaction_pipeline.core.queue.task import CompactionTask, TaskAttempt, TaskStatus
from compaction_pipeline.core.queue.transitions import FINAL, allowed
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.tables.team_name import UNASSIGNED
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.result import MergeResult, UsedSoFar
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.claims import Asked, Claimer, application_of, claim, next_pending
from compaction_pipeline.storage.columns import StoredRow
from compaction_pipeline.storage.engine import batches, lock, reading, writing
from compaction_pipeline.storage.groups import lock_group
from compaction_pipeline.storage.ledger import correct, note_used
from compaction_pipeline.storage.occupation import slot_seconds, taken, waiting_identifiers
from compaction_pipeline.storage.open_work import in_use, open_tasks, planned_work, prepared_work
from compaction_pipeline.storage.queue_moves import give_team, move_waiting, other_queues
from compaction_pipeline.storage.silent_workers import lease_ended, take_from_workers
from compaction_pipeline.storage.sql_store import SqlStore
from compaction_pipeline.storage.switches import paused_among
from compaction_pipeline.storage.task_rows import (
    TO_BE_MERGED,
    WAITS,
    AttemptEnd,
    Overtaken,
    attempts_of,
    cancel_replaced,
    cancel_running,
    cancel_waiting,
    insert_tasks,
    leave_attempt,
    locked_row,
    locked_rows,
    move,
    must_move,
    row_of,
    status_of,
    task_id_of_attempt,
    task_of_row,
    unknown_task,
    write_attempt_end,
)
from compaction_pipeline.storage.team_rooms import Reckoning, has_limits, held_teams, why_stuck

_task = schema.task.c


class SqlTaskStore(SqlStore):
    """Tasks in the state database."""

    def __init__(self, engine: Engine, reckoning: Reckoning | None = None) -> None:
        super().__init__(engine)
        self._reckoning = reckoning or Reckoning()

    # ---- planning ----

    def insert(
        self,
        tasks: Sequence[CompactionTask],
        replaces: Sequence[TaskId],
        now: datetime,
        room: QueueRoom | None = None,
        team: str = UNASSIGNED,
    ) -> bool:
        for task in tasks:
            allowed(TaskStatus.INIT, TaskStatus.PENDING if task.status is TaskStatus.INIT else task.status)
        try:
            with writing(self._engine) as connection:
                for queue in sorted({task.queue for task in tasks}):
                    lock_group(connection, queue)
                identifiers = sorted({str(task.table) for task in tasks})
                for identifier in identifiers:
                    lock(connection, f"tasks {identifier}")
                paused = paused_among(connection, identifiers)
                replaced = cancel_replaced(connection, replaces, now)
                if room is not None:
                    room = replace(room, taken=taken(connection, room.group, held_teams(connection, self._reckoning, now)))
                    if not room.admits(len(tasks)):
                        raise QueueFull(room)
                insert_tasks(connection, tasks, team, paused, replaced)
        except Overtaken:
            return False
        return True

    def in_use(self, table: TableIdentifier) -> InUse:
        with reading(self._engine) as connection:
            return in_use(connection, table)

    # ---- attempts ----

    def poll(
        self,
        queue: str | None,
        owner: str,
        now: datetime,
        lease: timedelta,
        task_ids: Sequence[TaskId] | None = None,
        turns: Sequence[TableIdentifier] = (),
        application: str = "",
    ) -> CompactionTask | None:
        asked = Asked(queue, task_ids, turns)
        if not self._waits(asked, now):
            return None
        with writing(self._engine) as connection:
            rows = next_pending(connection, asked, self._reckoning, now, owner)
            by = Claimer(owner, application, self._reckoning.run_slot_memory or None)
            claimed = claim(connection, rows, by, now, lease)
        return claimed[0] if claimed else None

    def poll_many(
        self,
        queue: str,
        owner: str,
        now: datetime,
        lease: timedelta,
        most: int,
        turns: Sequence[TableIdentifier] = (),
        token_id: str | None = None,
    ) -> Sequence[CompactionTask]:
        asked = Asked(queue, None, turns, most)
        if not self._waits(asked, now):
            return ()
        with writing(self._engine) as connection:
            application = "" if token_id is None else application_of(connection, owner, token_id)
            if application is None:
                return ()
            rows = next_pending(connection, asked, self._reckoning, now, owner)
            return tuple(claim(connection, rows, Claimer(owner, application), now, lease))

    def _waits(self, asked: Asked, now: datetime) -> bool:
        """Whether a poll may find a task. Most polls find none. They must not wait for the write lock, of which SQLite has only one."""
        with reading(self._engine) as connection:
            return bool(next_pending(connection, Asked(asked.queue, asked.task_ids), self._reckoning, now))

    def first_waiting(
        self, queue: str | None, task_ids: Sequence[TaskId] | None = None, turns: Sequence[TableIdentifier] = ()
    ) -> TableIdentifier | None:
        with reading(self._engine) as connection:
            rows = next_pending(connection, Asked(queue, task_ids, turns), self._reckoning, self._reckoning.clock())
        return TableIdentifier.parse(rows[0].identifier) if rows else None

    def next_tables(self, queue: str, most: int, turns: Sequence[TableIdentifier] = ()) -> Sequence[TableIdentifier]:
        with reading(self._engine) as connection:
            rows = next_pending(connection, Asked(queue, None, turns, most), self._reckoning, self._reckoning.clock())
        return tuple(TableIdentifier.parse(identifier) for identifier in dict.fromkeys(row.identifier for row in rows))

    def renew(
        self, attempt_ids: Sequence[AttemptId], now: datetime, lease: timedelta, used: Mapping[AttemptId, UsedSoFar] | None = None
    ) -> Sequence[AttemptId]:
        held: list[AttemptId] = []
        with writing(self._engine) as connection:
            for attempt_id in sorted(attempt_ids):
                renewed = connection.execute(
                    update(schema.task)
                    .where(
                        _task.task_id == task_id_of_attempt(attempt_id),
                        _task.attempt_id == attempt_id,
                        _task.status == TaskStatus.EXECUTING,
                    )
                    .values(lease_expires_at=expires_at(now, lease))
                )
                if renewed.rowcount == 1:
                    held.append(attempt_id)
            note_used(connection, {attempt_id: used[attempt_id] for attempt_id in held if attempt_id in used} if used else {}, now)
        return tuple(attempt_id for attempt_id in attempt_ids if attempt_id in held)

    def complete(
        self, result: MergeResult, now: datetime, retry_after: timedelta = timedelta(0), claimed: EndReason | None = None
    ) -> TaskStatus:
        with writing(self._engine) as connection:
            row = locked_row(connection, result.task_id)
            if row is not None and row.attempt_id == result.attempt_id and row.result == result:
                # The worker reports again, because the answer to its first report got lost. If this report were called stale,
                # its files would be deleted as leftovers, while a commit may be adding them to the table.
                return status_of(row)
            now_held = "the task is gone" if row is None else f"the task is {row.status.value} now, its attempt {row.attempt_id}"
            if row is None or row.status is not TaskStatus.EXECUTING or row.attempt_id != result.attempt_id:
                raise StaleAttempt(
                    f"attempt {result.attempt_id!r} no longer holds task {result.task_id!r} ({now_held}); its report changes nothing"
                )
            after = after_attempt(Tries(row.failures, row.losses), row.max_attempts, result.end_reason, now, retry_after)
            end = AttemptEnd(result.end_reason, result.error, now, claimed, result)
            if after.status is TaskStatus.PREPARED:
                merged = {"result": result, "owner": None, "lease_expires_at": None, "losses": after.tries.losses, "prepared_at": now}
                moved = move(connection, row, after.status, merged)
                if moved:
                    write_attempt_end(connection, row, end)
            else:
                moved = leave_attempt(connection, row, after, end)
            if not moved:
                raise StaleAttempt(f"attempt {result.attempt_id!r} lost task {result.task_id!r} just now; its report changes nothing")
            return after.status

    def release_expired(self, now: datetime, ended_by: datetime | None = None, spared: Collection[str] = ()) -> Sequence[TaskId]:
        def leave(connection: Connection, row: StoredRow) -> bool:
            after = after_attempt(Tries(row.failures, row.losses), row.max_attempts, EndReason.LOST, now, timedelta(0))
            return leave_attempt(connection, row, after, AttemptEnd(EndReason.LOST, lost_text(row.attempt, row.owner, after), now))

        return take_from_workers(self._engine, lease_ended(ended_by or now, spared), leave)

    def end_overdue(self, now: datetime, timeout: timedelta, retry_after: timedelta) -> Sequence[TaskId]:
        def leave(connection: Connection, row: StoredRow) -> bool:
            after = after_attempt(Tries(row.failures, row.losses), row.max_attempts, EndReason.TIMED_OUT, now, retry_after)
            late = AttemptEnd(EndReason.TIMED_OUT, timed_out_text(row.attempt, row.owner, timeout), now)
            return leave_attempt(connection, row, after, late)

        return take_from_workers(self._engine, _task.started_at <= now - timeout, leave)

    def waiting_for_retry(self, due: datetime, limit: int, without: Collection[TableIdentifier] = ()) -> Sequence[CompactionTask]:
        query = select(schema.task).where(_task.retry_at <= due, _task.retry_at.is_not(None), _task.status == TaskStatus.FAILED)
        for batch in batches([str(table) for table in without]):
            query = query.where(_task.identifier.not_in(batch))
        return tuple(map(task_of_row, self._rows(query.order_by(_task.retry_at, _task.task_id).limit(limit))))

    def retry(self, task_ids: Sequence[TaskId]) -> Sequence[TaskId]:
        waits = (_task.status == TaskStatus.FAILED) & _task.retry_at.is_not(None)
        with reading(self._engine) as connection:
            queries = [select(_task.task_id).where(_task.task_id.in_(batch), waits) for batch in batches(task_ids)]
            found = [task_id for query in queries for task_id in connection.execute(query).scalars()]
        if not found:
            return ()
        with writing(self._engine) as connection:
            put_back = {
                row.task_id
                for row in locked_rows(connection, found)
                if row.status is TaskStatus.FAILED
                and row.retry_at is not None
                and move(connection, row, TaskStatus.PENDING, {"retry_at": None})
            }
        return tuple(task_id for task_id in task_ids if task_id in put_back)

    def attempts(self, task_id: TaskId) -> Sequence[TaskAttempt]:
        with reading(self._engine) as connection:
            return attempts_of(connection, task_id)

    def refused_reports(self, since: datetime) -> Mapping[str, int]:
        owner, ended_at, end_reason = (schema.attempt.c[name] for name in ("owner", "ended_at", "end_reason"))
        query = (
            select(owner, func.count().label("reports")).where(ended_at >= since, end_reason == EndReason.REPORT_REFUSED).group_by(owner)
        )
        return {row.owner: row.reports for row in self._rows(query)}

    def correct_cost(self, result: MergeResult, now: datetime) -> None:
        with writing(self._engine) as connection:
            correct(connection, result, now)

    # ---- ends ----

    def fail(self, task_id: TaskId, end_reason: EndReason, reason: str, now: datetime) -> None:
        with writing(self._engine) as connection:
            row = row_of(connection, task_id)
            if row.status is TaskStatus.PENDING:
                raise IllegalTransition(
                    f"task {task_id!r} is PENDING and cannot become FAILED: only an attempt or a commit fails; cancel it"
                )
            ended = {"end_reason": end_reason, "reason": reason, "owner": None, "lease_expires_at": None, "ended_at": now, "failed_at": now}
            must_move(connection, row, TaskStatus.FAILED, ended)
            write_attempt_end(connection, row, AttemptEnd(end_reason, reason, now))

    def cancel(
        self, task_ids: Sequence[TaskId], end_reason: EndReason, reason: str, now: datetime, *, running: bool = False
    ) -> Sequence[TaskId]:
        canceled = []
        with writing(self._engine) as connection:
            for row in locked_rows(connection, task_ids):
                cancel = cancel_running if running and row.status is TaskStatus.EXECUTING else cancel_waiting
                if cancel(connection, row, end_reason, reason, now):
                    canceled.append(row.task_id)
        return tuple(task_id for task_id in task_ids if task_id in canceled)

    def expire(self, before: datetime) -> int:
        with writing(self._engine) as connection:
            ended = delete(schema.task).where(_task.status.in_((*FINAL, TaskStatus.FAILED)), _task.ended_at < before)
            return connection.execute(ended).rowcount

    # ---- commits ----

    def claim(self, table: TableIdentifier, record_id: RecordId, task_ids: Sequence[TaskId] | None = None) -> Sequence[CompactionTask]:
        with writing(self._engine) as connection:
            lock(connection, f"tasks {table}")
            unfinished = connection.execute(
                select(_task.group_name).where(_task.identifier == str(table), TO_BE_MERGED, _task.group_name != "")
            ).scalars()
            waiting = frozenset(unfinished)
            prepared = select(schema.task).where(
                _task.identifier == str(table), _task.status == TaskStatus.PREPARED, _task.record_id.is_(None)
            )
            rows = connection.execute(prepared.order_by(_task.task_id).with_for_update()).all()
            wanted = None if task_ids is None else frozenset(task_ids)
            # A task group is claimed whole: a part of it could not be committed.
            groups = {row.group_name for row in rows if wanted is not None and row.task_id in wanted and row.group_name}
            claimed = []
            for row in rows:
                if row.group_name in waiting or (wanted is not None and row.task_id not in wanted and row.group_name not in groups):
                    continue
                claim = update(schema.task).where(
                    _task.task_id == row.task_id, _task.status == TaskStatus.PREPARED, _task.record_id.is_(None)
                )
                if connection.execute(claim.values(record_id=record_id)).rowcount == 1:
                    claimed.append(replace(task_of_row(row), record_id=record_id))
        return tuple(sorted(claimed, key=lambda task: (task.created_at, task.task_id)))

    def unclaim(self, record_id: RecordId) -> None:
        with writing(self._engine) as connection:
            held = update(schema.task).where(_task.record_id == record_id, _task.status == TaskStatus.PREPARED)
            connection.execute(held.values(record_id=None))

    def commit(self, task_ids: Sequence[TaskId], now: datetime) -> None:
        with writing(self._engine) as connection:
            rows = locked_rows(connection, task_ids)
            missing = sorted(set(task_ids) - {row.task_id for row in rows})
            if missing:
                raise unknown_task(missing[0])
            for row in rows:
                # A commit that is settled after a crash may have marked some of its tasks before the crash.
                if row.status is not TaskStatus.COMMITTED:
                    must_move(connection, row, TaskStatus.COMMITTED, {"ended_at": now, "committed_at": now})

    # ---- questions ----

    def task(self, task_id: TaskId) -> CompactionTask:
        with reading(self._engine) as connection:
            return task_of_row(row_of(connection, task_id))

    def tasks(
        self,
        table: TableIdentifier | None = None,
        statuses: Sequence[TaskStatus] | None = None,
        record_id: RecordId | None = None,
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
        return tuple(map(task_of_row, self._rows(query)))

    def planned_work(self, table: TableIdentifier) -> PlannedWork:
        with reading(self._engine) as connection:
            return planned_work(connection, table)

    def prepared_work(self) -> Mapping[TableIdentifier, PreparedWork]:
        with reading(self._engine) as connection:
            return prepared_work(connection)

    def paused(self) -> int:
        query = select(func.count()).where(_task.status == TaskStatus.PENDING, _task.paused == true())
        with reading(self._engine) as connection:
            return int(connection.execute(query).scalar_one())

    def counts(self) -> Mapping[TaskStatus, int]:
        return {row[0]: row[1] for row in self._rows(select(_task.status, func.count()).group_by(_task.status))}

    def open_tasks(self, table: TableIdentifier | None = None) -> Mapping[TableIdentifier, OpenTasks]:
        with reading(self._engine) as connection:
            return open_tasks(connection, table)

    def waiting_tables(self, queue: str) -> Sequence[TableIdentifier]:
        with reading(self._engine) as connection:
            return tuple(map(TableIdentifier.parse, waiting_identifiers(connection, queue, self._held(connection))))

    def slot_seconds(self, queue: str, since: datetime, now: datetime) -> Mapping[TableIdentifier, float]:
        with reading(self._engine) as connection:
            return slot_seconds(connection, queue, since, now)

    def queues_to_merge(self) -> Mapping[TableIdentifier, Collection[str]]:
        queues: dict[TableIdentifier, set[str]] = defaultdict(set)
        query = select(_task.identifier, _task.queue).where(WAITS).distinct()
        with reading(self._engine) as connection:
            for row in connection.execute(query):
                queues[TableIdentifier.parse(row.identifier)].add(row.queue)
        return queues

    def held(self, task_ids: Sequence[TaskId]) -> Mapping[TaskId, str]:
        with reading(self._engine) as connection:
            return why_stuck(connection, self._reckoning, task_ids) if has_limits(connection) else {}

    def teams_of_waiting(self) -> Mapping[TableIdentifier, Collection[str]]:
        teams: dict[TableIdentifier, set[str]] = defaultdict(set)
        with reading(self._engine) as connection:
            for row in connection.execute(select(_task.identifier, _task.team).where(WAITS).distinct()):
                teams[TableIdentifier.parse(row.identifier)].add(row.team)
        return teams

    def move_to_team(self, table: TableIdentifier, team: str) -> Sequence[TaskId]:
        with writing(self._engine) as connection:
            return give_team(connection, table, team)

    def _held(self, connection: Connection) -> Sequence[str]:
        return held_teams(connection, self._reckoning, self._reckoning.clock())

    def move_to_queue(self, table: TableIdentifier, queue: str) -> Sequence[TaskId]:
        with reading(self._engine) as connection:
            others = other_queues(connection, table, queue)
        if not others:
            return ()
        with writing(self._engine) as connection:
            return move_waiting(connection, table, others, queue)

    def queue_taken(self, queue: str) -> int:
        with reading(self._engine) as connection:
            return taken(connection, queue, self._held(connection))

    def count_replaced(self) -> int:
        # The condition is a literal, because a database takes a partial index only for what it knows to be in it.
        query = select(func.count()).where(text("end_reason = 'REPLACED'")).select_from(schema.task)
        with reading(self._engine) as connection:
            return connection.execute(query).scalar_one()

    def count_waiting_for_retry(self) -> int:
        query = select(func.count()).where(_task.status == TaskStatus.FAILED, _task.retry_at.is_not(None))
        with reading(self._engine) as connection:
            return connection.execute(query).scalar_one()
