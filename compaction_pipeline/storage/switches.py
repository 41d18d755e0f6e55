"""The SwitchStore: which tables are paused. Each open task has a copy of its table's switch, which polls read.

A pause belongs to the name of a table, and only a person ends it. So the pause of a table that is forgotten is kept until the table is
found again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, delete, select, true, update

from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import batches, lock, upsert, writing
from compaction_pipeline.storage.sql_store import SqlStore
from compaction_pipeline.storage.table_rows import unknown
from compaction_pipeline.storage.task_rows import IS_OPEN

_ALL_PAUSED = "all tables paused"
"""The switch that says that a person has paused all tables. While it is on, each new table is paused."""


def lock_new_tables(connection: Connection) -> None:
    """Let nobody else add a table, or pause all tables, before this transaction ends."""
    lock(connection, "switch of new tables")


def new_tables_paused(connection: Connection, identifiers: Sequence[str]) -> Collection[str]:
    """Those of these tables, which are added now, that are paused. The caller must hold `lock_new_tables`."""
    if connection.execute(select(schema.switch.c.name).where(schema.switch.c.name == _ALL_PAUSED)).first() is not None:
        return identifiers
    forgotten = schema.forgotten_pause.c.identifier
    return set(connection.execute(select(forgotten).where(forgotten.in_(identifiers)).with_for_update()).scalars())


def keep_pause(connection: Connection, identifier: str) -> None:
    """Keep the pause of a table that is forgotten in this transaction, if it is paused. Call this before the table is removed."""
    columns = schema.table_state.c
    # The row is locked, so that nobody pauses or resumes the table before it is gone.
    if connection.execute(select(columns.paused).where(columns.identifier == identifier).with_for_update()).scalar():
        kept = upsert(connection, schema.forgotten_pause).values(identifier=identifier)
        connection.execute(kept.on_conflict_do_nothing(index_elements=["identifier"]))


def end_kept_pauses(connection: Connection, identifiers: Sequence[str] | None) -> int:
    """End the kept pauses of these tables, or with None all of them. Return how many they were."""
    kept = delete(schema.forgotten_pause)
    return connection.execute(kept if identifiers is None else kept.where(schema.forgotten_pause.c.identifier.in_(identifiers))).rowcount


def pause_table(connection: Connection, identifier: str) -> None:
    """Pause a table in the caller's transaction, with its open tasks."""
    connection.execute(update(schema.table_state).where(schema.table_state.c.identifier == identifier).values(paused=True))
    _switch_tasks(connection, [identifier], True)


def paused_among(connection: Connection, identifiers: Sequence[str]) -> frozenset[str]:
    """The paused ones of these tables. Nobody pauses or resumes one of them before this transaction ends.

    The caller must not have locked any task yet. Who pauses tables locks tables before tasks, too, so no two transactions wait for each
    other in a circle.
    """
    columns = schema.table_state.c
    rows = select(columns.identifier, columns.paused).where(columns.identifier.in_(identifiers)).order_by(columns.identifier)
    return frozenset(row.identifier for row in connection.execute(rows.with_for_update(read=True)) if row.paused)


class SqlSwitchStore(SqlStore):
    """Switches in the state database."""

    def pause(self, table: TableIdentifier | None, paused: bool) -> int:
        columns = schema.table_state.c
        rows = columns.identifier == str(table) if table is not None else true()
        with writing(self._engine) as connection:
            if table is None:
                _switch_new_tables(connection, paused)
            elif connection.execute(select(columns.identifier).where(rows)).first() is None:
                if not paused and end_kept_pauses(connection, [str(table)]):
                    return 1
                raise unknown(table)
            # Tables are locked in the order of their names and tasks in the order of their ids, as everywhere.
            found = connection.execute(
                select(columns.identifier, columns.paused).where(rows).order_by(columns.identifier).with_for_update()
            )
            changed = [row.identifier for row in found if row.paused is not paused]
            for batch in batches(changed):
                connection.execute(update(schema.table_state).where(columns.identifier.in_(batch)).values(paused=paused))
                _switch_tasks(connection, batch, paused)
            return len(changed)


def _switch_tasks(connection: Connection, identifiers: Sequence[str], paused: bool) -> None:
    """Let polls leave out the open tasks of these tables, or find them again. Executing and failed tasks may be Pending again later."""
    columns = schema.task.c
    theirs = columns.identifier.in_(identifiers) & IS_OPEN
    connection.execute(select(columns.task_id).where(theirs).order_by(columns.task_id).with_for_update())
    connection.execute(update(schema.task).where(theirs).values(paused=paused))


def _switch_new_tables(connection: Connection, paused: bool) -> None:
    lock_new_tables(connection)
    if paused:
        connection.execute(upsert(connection, schema.switch).values(name=_ALL_PAUSED).on_conflict_do_nothing(index_elements=["name"]))
    else:
        connection.execute(delete(schema.switch).where(schema.switch.c.name == _ALL_PAUSED))
        end_kept_pauses(connection, None)
