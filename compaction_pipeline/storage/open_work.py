"""What the open tasks in the state database hold, and how many there are: the values of `core/queue/open_work.py`. Nothing is written."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import ColumnElement, Connection, and_, case, func, select

from compaction_pipeline.core.queue.open_work import InUse, OpenTasks, PlannedWork, PreparedWork
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.task_rows import HAS_TURN, IS_OPEN, TO_BE_MERGED, open_inputs

_task = schema.task.c


def in_use(connection: Connection, table: TableIdentifier) -> InUse:
    """The files and nodes that open tasks of a table hold."""
    rows = connection.execute(open_inputs(str(table))).all()
    held = connection.execute(
        select(_task.status, _task.exclusive_node).where(
            _task.identifier == str(table), IS_OPEN, _task.status != TaskStatus.PENDING, _task.exclusive_node.is_not(None)
        )
    ).all()
    groups = connection.execute(
        select(_task.task_id, _task.status, _task.group_name).where(
            _task.identifier == str(table),
            TO_BE_MERGED,
            _task.status != TaskStatus.EXECUTING,
            _task.group_name != "",
        )
    ).all()
    running = {row.exclusive_node for row in held if row.status is not TaskStatus.FAILED}
    exclusive = frozenset(row.exclusive_node for row in held)
    return InUse(
        paths=frozenset(row.path for row in rows if row.status is not TaskStatus.PENDING),
        exclusive_nodes=exclusive,
        pending={row.path: row.task_id for row in rows if row.status is TaskStatus.PENDING},
        pending_groups={row.task_id: row.group_name for row in groups if row.status is TaskStatus.PENDING},
        failed={row.path: row.task_id for row in rows if row.status is TaskStatus.FAILED},
        failed_groups={row.task_id: row.group_name for row in groups if row.status is TaskStatus.FAILED},
        failed_nodes=exclusive - running,
    )


def planned_work(connection: Connection, table: TableIdentifier) -> PlannedWork:
    """The tasks of a table that are still to be merged."""
    query = select(func.count(), func.sum(_task.input_bytes)).where(_task.identifier == str(table), TO_BE_MERGED)
    tasks, size = connection.execute(query).one()
    return PlannedWork(tasks, int(size or 0))


def prepared_work(connection: Connection) -> Mapping[TableIdentifier, PreparedWork]:
    """The merged tasks of each table."""
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
    # PostgreSQL returns sums as decimals.
    return {
        TableIdentifier.parse(row.identifier): PreparedWork(int(row.tasks), int(row.size), int(row.every - row.tasks))
        for row in connection.execute(query)
    }


def open_tasks(connection: Connection, table: TableIdentifier | None = None) -> Mapping[TableIdentifier, OpenTasks]:
    """How many open tasks each table has, or this one."""

    def number_of(which: ColumnElement[bool]) -> ColumnElement[int]:
        return func.sum(case((which, 1), else_=0))

    query = (
        select(
            _task.identifier,
            number_of(HAS_TURN).label("waiting"),
            number_of(_task.status == TaskStatus.EXECUTING).label("merging"),
            number_of(_task.status == TaskStatus.PREPARED).label("merged"),
            number_of(and_(_task.status == TaskStatus.PENDING, _task.paused.is_(True))).label("paused"),
            number_of(_task.status == TaskStatus.FAILED).label("failed"),
        )
        .where(IS_OPEN)
        .group_by(_task.identifier)
    )
    if table is not None:
        query = query.where(_task.identifier == str(table))
    return {
        TableIdentifier.parse(row.identifier): OpenTasks(
            int(row.waiting), int(row.merging), int(row.merged), int(row.paused), int(row.failed)
        )
        for row in connection.execute(query)
    }
