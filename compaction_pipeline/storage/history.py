"""The HistoryStore: the few hundred points of the history of all tables' files, and the comparisons of tables with their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from sqlalchemy import delete, insert, select

from compaction_pipeline.core.insight.comparison import Comparison
from compaction_pipeline.core.insight.files_over_time import FilesPoint
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import lock, reading, upsert, writing
from compaction_pipeline.storage.sql_store import SqlStore


class SqlHistoryStore(SqlStore):
    """The history in the state database."""

    def points(self) -> Sequence[FilesPoint]:
        with reading(self._engine) as connection:
            rows = connection.execute(select(schema.history).order_by(schema.history.c.at))
            return tuple(FilesPoint(row.at, row.files, row.merged_away) for row in rows)

    def replace(self, points: Sequence[FilesPoint]) -> None:
        with writing(self._engine) as connection:
            lock(connection, "history")
            connection.execute(delete(schema.history))
            if points:
                connection.execute(insert(schema.history), list(map(asdict, points)))

    def comparisons(self) -> Mapping[TableIdentifier, Comparison]:
        rows = self._rows(select(schema.comparison))
        return {TableIdentifier.parse(row.identifier): Comparison(row.record_id, row.metadata_location, row.contradiction) for row in rows}

    def keep_comparison(self, table: TableIdentifier, comparison: Comparison) -> None:
        values = asdict(comparison)
        with writing(self._engine) as connection:
            statement = upsert(connection, schema.comparison).values(identifier=str(table), **values)
            connection.execute(statement.on_conflict_do_update(index_elements=["identifier"], set_=values))
