"""The QueueReader: what waits in each queue. It changes nothing; `storage/tasks.py` writes the tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, Select, false, func, select

from compaction_pipeline.core.queue.queue_work import EndedWork, MergedTotals, QueueWork
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.columns import StoredRow
from compaction_pipeline.storage.engine import reading
from compaction_pipeline.storage.sql_store import SqlStore
from compaction_pipeline.storage.team_claims import waiting_teams
from compaction_pipeline.storage.team_rooms import Reckoning, held_teams

_task = schema.task.c
_attempt = schema.attempt.c
_cost = schema.cost.c
_record = schema.record.c
_COUNTED = (TaskStatus.PENDING, TaskStatus.EXECUTING, TaskStatus.PREPARED, TaskStatus.FAILED)


class SqlQueueReader(SqlStore):
    """The queues of the state database."""

    def __init__(self, engine: Engine, reckoning: Reckoning | None = None) -> None:
        super().__init__(engine)
        self._reckoning = reckoning or Reckoning()

    def waiting(self) -> Sequence[str]:
        found, queue = [], ""
        with reading(self._engine) as connection:
            held = held_teams(connection, self._reckoning, self._reckoning.clock())
            # Each query finds its row by the index. One query with DISTINCT would read the index entry of every waiting task.
            while (following := connection.execute(select(func.min(_task.queue)).where(_task.queue > queue)).scalar()) is not None:
                queue = following
                if _any_waits(connection, queue, held):
                    found.append(queue)
        return tuple(found)

    def works(self, since: datetime) -> Mapping[str, QueueWork]:
        merged = (
            select(_task.queue, func.count().label("tasks"), func.sum(_task.input_bytes).label("size"))
            .where(_task.prepared_at >= since)
            .group_by(_task.queue)
        )
        refused = (
            select(_task.queue, func.count().label("reports"))
            .join(schema.attempt, _task.task_id == _attempt.task_id)
            .where(_attempt.ended_at >= since, _attempt.end_reason == EndReason.REPORT_REFUSED)
            .group_by(_task.queue)
        )
        works: dict[str, QueueWork] = {}
        with reading(self._engine) as connection:
            held = held_teams(connection, self._reckoning, self._reckoning.clock())
            for row in connection.execute(_open_tasks(held)):
                works[row.queue] = _counted(works.get(row.queue, QueueWork(row.queue)), row)
            for row in connection.execute(merged):
                work = works.get(row.queue, QueueWork(row.queue))
                works[row.queue] = replace(work, merged=row.tasks, merged_bytes=int(row.size))
            for row in connection.execute(refused):
                works[row.queue] = replace(works.get(row.queue, QueueWork(row.queue)), refused_reports=row.reports)
        return works

    def running_by(self) -> Mapping[str, int]:
        query = select(_task.owner, func.count().label("tasks")).where(_task.status == TaskStatus.EXECUTING).group_by(_task.owner)
        return {row.owner: row.tasks for row in self._rows(query)}

    def merged_by(self, since: datetime) -> Mapping[str, MergedTotals]:
        # A task forgets its owner when it is merged, and its attempts do not.
        query = (
            select(_attempt.owner, func.count().label("tasks"), func.sum(_task.input_bytes).label("size"))
            .join(schema.task, _task.task_id == _attempt.task_id)
            .where(_attempt.ended_at >= since, _attempt.end_reason == EndReason.MERGED)
            .group_by(_attempt.owner)
        )
        return {row.owner: MergedTotals(row.tasks, int(row.size)) for row in self._rows(query)}

    def ended(self, after: datetime, until: datetime) -> EndedWork:
        attempts = (
            select(_task.queue, _attempt.end_reason, func.count().label("attempts"), func.sum(_task.input_bytes).label("size"))
            .join(schema.task, _task.task_id == _attempt.task_id)
            .where(_attempt.ended_at > after, _attempt.ended_at <= until)
            .group_by(_task.queue, _attempt.end_reason)
        )
        commits = (
            select(_record.status, func.count().label("commits"))
            .where(_record.ended_at > after, _record.ended_at <= until)
            .group_by(_record.status)
        )
        used = (
            select(_cost.queue, func.sum(_cost.cpu_seconds).label("seconds"))
            .join(schema.attempt, _attempt.attempt_id == _cost.attempt_id)
            .where(_attempt.ended_at > after, _attempt.ended_at <= until, _cost.cpu_seconds.is_not(None))
            .group_by(_cost.queue)
        )
        with reading(self._engine) as connection:
            cpu = {row.queue: row.seconds for row in connection.execute(used)}
            ends = connection.execute(attempts).all()
            outcomes = {row.status.value: row.commits for row in connection.execute(commits)}
        merged = {row.queue: int(row.size) for row in ends if row.end_reason is EndReason.MERGED}
        return EndedWork({(row.queue, row.end_reason): row.attempts for row in ends}, merged, outcomes, cpu)


def _open_tasks(held: Sequence[str]) -> Select[Any]:
    """Count the open tasks by queue and by what they wait for. `held` are the teams whose waiting tasks may not begin now."""
    for_good, is_held = _task.retry_at.is_(None), _task.team.in_(held) if held else false()
    groups = (_task.queue, _task.status, _task.paused, for_good.label("for_good"), is_held.label("held"))
    counted = select(*groups, func.count().label("tasks"), func.min(_task.waiting_since).label("waiting_since"))
    return counted.where(_task.status.in_(_COUNTED)).group_by(*(groups if held else groups[:4]))


def _any_waits(connection: Connection, queue: str, held: Sequence[str]) -> bool:
    """Whether a worker may take a task of a queue. Tasks of teams that are `held` are not looked at, because they may be very many."""
    if held:
        return any(team not in held for team in waiting_teams(connection, queue))
    waits = (_task.queue == queue, _task.status == TaskStatus.PENDING, _task.paused == false())
    return connection.execute(select(_task.task_id).where(*waits).limit(1)).first() is not None


def _counted(work: QueueWork, row: StoredRow) -> QueueWork:
    """Add one row of the counts to the work of its queue."""
    if row.status is TaskStatus.PENDING:
        if row.paused:
            return replace(work, paused=work.paused + row.tasks)
        if row.held:
            return replace(work, held=row.tasks)
        return replace(work, pending=row.tasks, waiting_since=row.waiting_since)
    if row.status is TaskStatus.EXECUTING:
        return replace(work, executing=work.executing + row.tasks)
    if row.status is TaskStatus.PREPARED:
        return replace(work, prepared=work.prepared + row.tasks)
    if row.for_good:
        return replace(work, failed=work.failed + row.tasks)
    return replace(work, retrying=work.retrying + row.tasks)
