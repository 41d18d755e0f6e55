"""The GroupStore: the resource groups.

Whoever inserts tasks, registers an optimizer or removes a group holds the lock `queue` of that group, so that no task and no optimizer
comes to a group while it is removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection, Engine, Row, delete, func, insert, select, update

from compaction_pipeline.core.queue.group import CompactionQueue, GroupHolders, ResourceGroup, unknown_group
from compaction_pipeline.core.queue.optimizer import OptimizerState
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import lock, writing
from compaction_pipeline.storage.sealing import Sealer, read_again_after_rotation
from compaction_pipeline.storage.sql_store import SqlStore
from compaction_pipeline.storage.task_rows import IS_OPEN

_LIVE = tuple(state for state in OptimizerState if state.is_live)
_group = schema.group.c


class SqlGroupStore(SqlStore):
    """Groups in the state database. Secrets in their properties are stored encrypted."""

    def __init__(self, engine: Engine, sealer: Sealer) -> None:
        super().__init__(engine)
        self._sealer = sealer

    def groups(self) -> Sequence[ResourceGroup]:
        found = read_again_after_rotation(lambda: [self._of(row) for row in self._rows(select(schema.group))])
        # Databases sort texts differently, so Python sorts here.
        return tuple(sorted(found, key=lambda group: group.name))

    def group(self, name: str) -> ResourceGroup | None:
        query = select(schema.group).where(_group.name == name)
        return read_again_after_rotation(lambda: None if (row := self._first(query)) is None else self._of(row))

    def add(self, group: ResourceGroup) -> bool:
        with writing(self._engine) as connection:
            lock_queue(connection, group.name)
            if connection.execute(select(_group.name).where(_group.name == group.name)).first() is not None:
                return False
            connection.execute(insert(schema.group).values(name=group.name, **self._columns(connection, group)))
        return True

    def change(self, group: ResourceGroup, before: ResourceGroup | None = None) -> bool:
        with writing(self._engine) as connection:
            lock_queue(connection, group.name)
            row = connection.execute(select(schema.group).where(_group.name == group.name)).first()
            if before is not None and (row is None or replace(self._of(row), held="") != replace(before, held="")):
                return False
            columns = self._columns(connection, group)
            return connection.execute(update(schema.group).where(_group.name == group.name).values(columns)).rowcount == 1

    def hold(self, name: str, why: str) -> None:
        self._write(update(schema.group).where(_group.name == name).values(held=why))

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

    def _columns(self, connection: Connection, group: ResourceGroup) -> dict[str, object]:
        return {**_values(group), **self._sealer.columns(connection, group.properties)}

    def _of(self, row: Row[tuple[object, ...]]) -> ResourceGroup:
        values = row._mapping
        properties = self._sealer.properties(values["properties"], values["sealed"])
        return ResourceGroup(
            values["name"], values["container"], properties, CompactionQueue(values["capacity"], values["task_order"]), values["held"]
        )


def insert_group_without_properties(connection: Connection, group: ResourceGroup) -> None:
    """Insert a group whose name is free, and which has no properties."""
    connection.execute(insert(schema.group).values(name=group.name, properties={}, **_values(group)))


def lock_queue(connection: Connection, name: str) -> None:
    """Hold the lock of a group's queue until this transaction ends."""
    lock(connection, f"queue {name}")


def lock_group(connection: Connection, name: str) -> None:
    """Hold the lock of a group's queue. Raises NotFoundError when there is no such group."""
    lock_queue(connection, name)
    if connection.execute(select(_group.name).where(_group.name == name)).first() is None:
        raise unknown_group(name)


def _values(group: ResourceGroup) -> dict[str, object]:
    return {"container": group.container, "capacity": group.queue.capacity, "task_order": group.queue.order}
