"""The SwitchStore: which tables are paused."""

from __future__ import annotations

from sqlalchemy import Engine, select, true, update

from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import writing
from compaction_pipeline.storage.table_rows import unknown


class SqlSwitchStore:
    """Switches in the state database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def pause(self, table: TableIdentifier | None, paused: bool) -> int:
        columns = schema.table_state.c
        rows = columns.identifier == str(table) if table is not None else true()
        with writing(self._engine) as connection:
            if table is not None and connection.execute(select(columns.identifier).where(rows)).first() is None:
                raise unknown(table)
            changed = update(schema.table_state).where(rows, columns.paused.is_(not paused)).values(paused=paused)
            return connection.execute(changed).rowcount
