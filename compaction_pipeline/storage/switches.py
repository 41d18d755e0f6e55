"""The SwitchStore: which tables are paused."""

from __future__ import annotations

from sqlalchemy import Connection, Engine, delete, exists, select, true, update
from sqlalchemy.sql.elements import ColumnElement

from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import lock, upsert, writing
from compaction_pipeline.storage.table_rows import unknown

_ALL_PAUSED = "all tables paused"
"""The switch that says that a person has paused all tables. While it is on, each new table is paused."""


def lock_new_tables(connection: Connection) -> None:
    """Let nobody else add a table, or pause all tables, before this transaction ends."""
    lock(connection, "switch of new tables")


def new_table_is_paused() -> ColumnElement[bool]:
    """The value of `paused` in the row of a table that is added now. The caller must hold `lock_new_tables`."""
    return exists(select(schema.switch.c.name).where(schema.switch.c.name == _ALL_PAUSED))


class SqlSwitchStore:
    """Switches in the state database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def pause(self, table: TableIdentifier | None, paused: bool) -> int:
        columns = schema.table_state.c
        rows = columns.identifier == str(table) if table is not None else true()
        with writing(self._engine) as connection:
            if table is None:
                _switch_new_tables(connection, paused)
            elif connection.execute(select(columns.identifier).where(rows)).first() is None:
                raise unknown(table)
            changed = update(schema.table_state).where(rows, columns.paused.is_(not paused)).values(paused=paused)
            return connection.execute(changed).rowcount


def _switch_new_tables(connection: Connection, paused: bool) -> None:
    lock_new_tables(connection)
    if paused:
        connection.execute(upsert(connection, schema.switch).values(name=_ALL_PAUSED).on_conflict_do_nothing(index_elements=["name"]))
    else:
        connection.execute(delete(schema.switch).where(schema.switch.c.name == _ALL_PAUSED))
