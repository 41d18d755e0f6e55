"""The CatalogStore: the registered catalogs, by name."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, insert, select, update

from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.columns import StoredRow
from compaction_pipeline.storage.engine import lock, writing
from compaction_pipeline.storage.removal import identifiers_of, remove_records, remove_table
from compaction_pipeline.storage.sql_store import SqlStore
from compaction_pipeline.storage.switches import keep_pause


class SqlCatalogStore(SqlStore):
    """Catalogs in the state database."""

    def add(self, entry: CatalogEntry) -> None:
        with writing(self._engine) as connection:
            lock(connection, "catalogs")
            if connection.execute(select(schema.catalog.c.name).where(schema.catalog.c.name == entry.name)).first():
                raise ConfigError(f"catalog {entry.name!r} is registered already; remove it first or choose another name")
            connection.execute(insert(schema.catalog).values(name=entry.name, **_columns(entry)))

    def replace(self, entry: CatalogEntry, before: CatalogEntry | None = None) -> None:
        self.entry(entry.name)
        with writing(self._engine) as connection:
            lock(connection, "catalogs")
            this = schema.catalog.c.name == entry.name
            row = connection.execute(select(schema.catalog).where(this)).first()
            if before is not None and (row is None or _entry(row) != before):
                raise ConfigError(f"catalog {entry.name!r} was changed by somebody else meanwhile: look at it, and try again")
            connection.execute(update(schema.catalog).where(this).values(**_columns(entry)))

    def remove(self, name: str) -> None:
        self.entry(name)
        with writing(self._engine) as connection:
            for identifier in identifiers_of(connection, name):
                keep_pause(connection, identifier)
                remove_table(connection, identifier)
                remove_records(connection, identifier)
            connection.execute(delete(schema.catalog).where(schema.catalog.c.name == name))

    def entry(self, name: str) -> CatalogEntry:
        known = self.entries()
        for entry in known:
            if entry.name == name:
                return entry
        names = ", ".join(entry.name for entry in known) or "none yet: add one with `compaction-pipeline catalog add`"
        raise NotFoundError(f"catalog {name!r} is not registered; registered: {names}")

    def entries(self) -> Sequence[CatalogEntry]:
        rows = self._rows(select(schema.catalog))
        # Databases sort texts differently, so Python sorts here.
        return tuple(sorted(map(_entry, rows), key=lambda entry: entry.name))


def _columns(entry: CatalogEntry) -> dict[str, object]:
    return {"properties": entry.properties, "observe": entry.observe, "held": entry.held}


def _entry(row: StoredRow) -> CatalogEntry:
    return CatalogEntry(row.name, row.properties, row.observe, row.held)
