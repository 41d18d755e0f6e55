"""The GroupStore: the resource groups.

Whoever inserts tasks, registers an optimizer or removes a group holds the lock `queue` of that group, so that no task and no optimizer
comes to a group while it is removed.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from compaction_pipeline.core.queue.group import CompactionQueue, GroupHolders, ResourceGroup, unknown_group
from compaction_pipeline.core.queue.optimizer import OptimizerState
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import lock, writing
from compaction_pipeline.storage.sql_store import SqlStore
from compaction_pipeline.storage.task_rows import IS_OPEN

_LIVE = tuple(state for state in OptimizerState if state.is_live)
_group = schema.group.c


class SqlGroupStore(SqlStore):
    """Groups in the state database."""

    def groups(self) -> Sequence[ResourceGroup]:
        rows = self._rows(select(schema.group))
        # Databases sort texts differently, so Python sorts here.
        return tuple(sorted(map(_of, rows), key=lambda group: group.name))

    def group(self, name: str) -> ResourceGroup | None:
        row = self._first(select(schema.group).where(_group.name == name))
        return None if row is None else _of(row)

    def add(self, group: ResourceGroup) -> bool:
        with writing(self._engine) as connection:
            lock_queue(connection, group.name)
            if connection.execute(select(_group.name).where(_group.name == group.name)).first() is not None:
                return False
            insert_group(connection, group)
        return True

    def change(self, group: ResourceGroup) -> bool:
        with writing(self._engine) as connection:
            lock_queue(connection, group.name)
            return connection.execute(update(schema.group).where(_group.name == group.name).values(_values(group))).rowcount == 1

    def remove(self, name: str) -> GroupHolders:
        tasks, optimizers = schema.task.c, schema.optimizer.c
        with writing(self._engine) as connection:
            lock_queue(connection, name)
            is_open = select(func.count()).where(tasks.queue == name, IS_OPEN)
            live = select(optimizers.optimizer_id).where(optimizers.group == name, optimizers.state.in_(_LIVE))
            holders = GroupHolders(int(connection.execute(is_open).scalar_one()), tuple(sorted(connection.execute(live).scalars())))
            if not holders.are_any:
                connection.execute(delete(schema.group).where(_group.name == name))
        return holders


def insert_group(connection: Connection, group: ResourceGroup) -> None:
    """Insert a group whose name is free."""
    connection.execute(insert(schema.group).values(name=group.name, **_values(group)))


def lock_queue(connection: Connection, name: str) -> None:
    """Hold the lock of a group's queue until this transaction ends."""
    lock(connection, f"queue {name}")


def locked_group(connection: Connection, name: str) -> ResourceGroup:
    """Hold the lock of a group's queue, and return the group. Raises NotFoundError when it does not exist."""
    lock_queue(connection, name)
    row = connection.execute(select(schema.group).where(_group.name == name)).first()
    if row is None:
        raise unknown_group(name)
    return _of(row)


def _values(group: ResourceGroup) -> dict[str, object]:
    return {
        "container": group.container,
        "properties": group.properties,
        "capacity": group.queue.capacity,
        "task_order": group.queue.order,
    }


def _of(row: Row[tuple[object, ...]]) -> ResourceGroup:
    values = row._mapping
    return ResourceGroup(
        values["name"], values["container"], values["properties"], CompactionQueue(values["capacity"], values["task_order"])
    )
