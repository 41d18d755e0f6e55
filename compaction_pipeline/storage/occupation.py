"""How full a queue is, which tables have tasks waiting in it, and how long attempts have occupied its slots."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime

from sqlalchemy import Connection, func, select

from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.task_rows import HAS_TURN

_task, _attempt = schema.task.c, schema.attempt.c


def taken(connection: Connection, queue: str) -> int:
    """How much of the capacity of a queue is taken. Each of the three counts reads one index."""
    of_queue = _task.queue == queue
    kinds = (HAS_TURN, _task.status == TaskStatus.EXECUTING, (_task.status == TaskStatus.FAILED) & _task.retry_at.is_not(None))
    return sum(int(connection.execute(select(func.count()).where(of_queue, kind)).scalar_one()) for kind in kinds)


def waiting_identifiers(connection: Connection, queue: str) -> Iterator[str]:
    """The identifiers of the tables with Pending tasks in a queue that a worker may take, sorted."""
    waits = (_task.queue == queue, HAS_TURN)
    found = ""
    # Each query finds its row by the index. One query with DISTINCT would read the index entry of every waiting task.
    while (
        following := connection.execute(select(func.min(_task.identifier)).where(*waits, _task.identifier > found)).scalar()
    ) is not None:
        found = following
        yield found


def slot_seconds(connection: Connection, queue: str, since: datetime, now: datetime) -> Mapping[TableIdentifier, float]:
    """How many seconds the attempts of each table's tasks in a queue took between `since` and `now`."""
    used: dict[TableIdentifier, float] = defaultdict(float)
    times = select(_task.identifier, _attempt.started_at, _attempt.ended_at).join(schema.task, _task.task_id == _attempt.task_id)
    # An attempt that runs has an Executing task, so the few that run are found without a look at old attempts.
    running = times.where(_task.queue == queue, _task.status == TaskStatus.EXECUTING, _attempt.ended_at.is_(None))
    ended = times.where(_task.queue == queue, _attempt.ended_at > since)
    for query in (running, ended):
        for row in connection.execute(query):
            seconds = (min(row.ended_at or now, now) - max(row.started_at, since)).total_seconds()
            used[TableIdentifier.parse(row.identifier)] += max(0.0, seconds)
    return used
