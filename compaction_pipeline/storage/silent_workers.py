"""Takes Executing tasks from workers that are silent, or that take too long."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, Engine, and_, select

from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.columns import StoredRow
from compaction_pipeline.storage.engine import batches, reading, writing

_task = schema.task.c


def lease_ended(by: datetime, spared: Collection[str]) -> ColumnElement[bool]:
    """The condition that an attempt has no lease, or one that had ended by this time. Attempts of the owners `spared` do not meet it."""
    ended = (_task.lease_expires_at <= by) | _task.lease_expires_at.is_(None)
    return and_(ended, *(_task.owner.not_in(batch) for batch in batches(sorted(spared))))


def take_from_workers(engine: Engine, late: ColumnElement[bool], leave: Callable[[Connection, StoredRow], bool]) -> Sequence[TaskId]:
    """Take the Executing tasks that are `late` from their attempts by `leave`, and return the ids of those that it took."""
    found = select(schema.task).where(_task.status == TaskStatus.EXECUTING, late)
    with reading(engine) as connection:
        # Mostly there is none. Then the write lock is left to others.
        if connection.execute(found.limit(1)).first() is None:
            return ()
    with writing(engine) as connection:
        rows = connection.execute(found.order_by(_task.task_id).with_for_update(skip_locked=True)).all()
        return tuple(row.task_id for row in rows if leave(connection, row))
