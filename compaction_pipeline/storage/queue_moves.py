"""Moves the waiting tasks of a table to another queue or team, after a person gave the table another group or team."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import ColumnElement, Connection, select, update

from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import batches, lock
from compaction_pipeline.storage.groups import lock_group, lock_queue
from compaction_pipeline.storage.task_rows import WAITS

_task = schema.task.c


def other_queues(connection: Connection, table: TableIdentifier, queue: str) -> Collection[str]:
    """The queues, `queue` left out, in which the table has waiting tasks."""
    return set(connection.execute(select(_task.queue).where(*_elsewhere(table, queue)).distinct()).scalars())


def move_waiting(connection: Connection, table: TableIdentifier, others: Collection[str], queue: str) -> Sequence[TaskId]:
    """Move the table's waiting tasks from the queues `others` to `queue`, and return them. Raises NotFoundError for an unknown group."""
    for name in sorted({*others, queue}):
        # Every transaction that locks several queues does so in the order of their names, and before it locks the tasks of a table.
        lock_queue(connection, name)
    lock_group(connection, queue)
    lock(connection, f"tasks {table}")
    found = select(_task.task_id).where(*_elsewhere(table, queue), _task.queue.in_(others)).order_by(_task.task_id).with_for_update()
    moved = list(connection.execute(found).scalars())
    for batch in batches(moved):
        connection.execute(update(schema.task).where(_task.task_id.in_(batch), WAITS).values(queue=queue))
    return tuple(moved)


def give_team(connection: Connection, table: TableIdentifier, team: str) -> Sequence[TaskId]:
    """Let the table's waiting tasks belong to a team, and return those that did not. What runs stays with the team that it began for."""
    lock(connection, f"tasks {table}")
    found = select(_task.task_id).where(_task.identifier == str(table), _task.team != team, WAITS).order_by(_task.task_id)
    moved = list(connection.execute(found.with_for_update()).scalars())
    for batch in batches(moved):
        connection.execute(update(schema.task).where(_task.task_id.in_(batch), WAITS).values(team=team))
    return tuple(moved)


def _elsewhere(table: TableIdentifier, queue: str) -> tuple[ColumnElement[bool], ...]:
    return (_task.identifier == str(table), _task.queue != queue, WAITS)
