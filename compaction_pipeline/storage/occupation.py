"""How full a queue is, which tables have tasks waiting in it, and how long attempts have occupied its slots."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, DateTime, case, extract, func, literal, select, type_coerce

from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.columns import Moment
from compaction_pipeline.storage.task_rows import HAS_TURN

_task, _attempt = schema.task.c, schema.attempt.c


def taken(connection: Connection, queue: str, held: Sequence[str] = ()) -> int:
    """How much of the capacity of a queue is taken. Each of the three counts reads one index. Tasks of `held` teams take none."""
    of_queue = _task.queue == queue
    if held:
        of_queue &= _task.team.not_in(held) | (_task.status == TaskStatus.EXECUTING)
    kinds = (HAS_TURN, _task.status == TaskStatus.EXECUTING, (_task.status == TaskStatus.FAILED) & _task.retry_at.is_not(None))
    return sum(int(connection.execute(select(func.count()).where(of_queue, kind)).scalar_one()) for kind in kinds)


def waiting_identifiers(connection: Connection, queue: str, held: Sequence[str] = ()) -> Iterator[str]:
    """The identifiers of the tables with Pending tasks in a queue that a worker may take, sorted. Those of `held` teams are left out."""
    waits = [_task.queue == queue, HAS_TURN]
    if held:
        waits.append(_task.team.not_in(held))
    found = ""
    # Each query finds its row by the index. One query with DISTINCT would read the index entry of every waiting task.
    while (
        following := connection.execute(select(func.min(_task.identifier)).where(*waits, _task.identifier > found)).scalar()
    ) is not None:
        found = following
        yield found


def slot_seconds(connection: Connection, queue: str, since: datetime, now: datetime) -> Mapping[TableIdentifier, float]:
    """How many seconds the attempts of each table's tasks in a queue took between `since` and `now`, to the millisecond.

    The database adds them up, because a busy queue has some hundred thousand attempts an hour.
    """
    used: dict[str, float] = defaultdict(float)
    began = case((_attempt.started_at < since, literal(since, Moment())), else_=_attempt.started_at)
    # An attempt that runs has an Executing task, so the few that run are found without a look at old attempts.
    running = (_task.status == TaskStatus.EXECUTING, _attempt.ended_at.is_(None))
    for end, kind in ((literal(now, Moment()), running), (_attempt.ended_at, (_attempt.ended_at > since,))):
        seconds = func.sum(seconds_between(connection, began, end))
        of_attempts = select(_task.identifier, seconds).join(schema.task, _task.task_id == _attempt.task_id)
        for identifier, total in connection.execute(of_attempts.where(_task.queue == queue, *kind).group_by(_task.identifier)):
            used[identifier] += max(0.0, round(float(total), 3))
    return {TableIdentifier.parse(identifier): seconds for identifier, seconds in used.items()}


def seconds_between(connection: Connection, began: ColumnElement[datetime], ended: ColumnElement[datetime]) -> ColumnElement[Any]:
    """The seconds between two moments, in the connection's dialect."""
    if connection.dialect.name == "postgresql":
        return extract("epoch", type_coerce(ended, DateTime) - type_coerce(began, DateTime))
    return (func.julianday(ended) - func.julianday(began)) * 86400
