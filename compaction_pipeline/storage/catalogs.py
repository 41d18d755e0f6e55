"""The CatalogStore: the registered catalogs, by name. Their secrets are stored encrypted."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, Engine, delete, insert, select, update

from compaction_pipeline.core.errors import ConfigError, NotFoundError, StorageUnavailable
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.columns import StoredRow
from compaction_pipeline.storage.engine import lock, writing
from compaction_pipeline.storage.removal import identifiers_of, remove_records, remove_table
from compaction_pipeline.storage.sealing import Sealer, read_again_after_rotation
from compaction_pipeline.storage.sql_store import SqlStore
from compaction_pipeline.storage.switches import keep_pause


class SqlCatalogStore(SqlStore):
    """Catalogs in the state database."""

    def __init__(self, engine: Engine, sealer: Sealer) -> None:
        super().__init__(engine)
        self._sealer = sealer

    def add(self, entry: CatalogEntry) -> None:
        with writing(self._engine) as connection:
            lock(connection, "catalogs")
            if connection.execute(select(schema.catalog.c.name).where(schema.catalog.c.name == entry.name)).first():
                raise ConfigError(f"catalog {entry.name!r} is registered already; remove it first or choose another name")
            connection.execute(insert(schema.catalog).values(name=entry.name, **self._columns(connection, entry)))

    def replace(self, entry: CatalogEntry, before: CatalogEntry | None = None) -> None:
        with writing(self._engine) as connection:
            lock(connection, "catalogs")
            this = schema.catalog.c.name == entry.name
            row = connection.execute(select(schema.catalog).where(this)).first()
            if row is None and before is None:
                raise self._unknown(entry.name)
            if before is not None and (row is None or self._entry(row) != before):
                raise ConfigError(f"catalog {entry.name!r} was changed by somebody else meanwhile: look at it, and try again")
            connection.execute(update(schema.catalog).where(this).values(**self._columns(connection, entry)))

    def remove(self, name: str) -> None:
        # A catalog whose key is lost can be removed too.
        self.check_known(name)
        with writing(self._engine) as connection:
            for identifier in identifiers_of(connection, name):
                keep_pause(connection, identifier)
                remove_table(connection, identifier)
                remove_records(connection, identifier)
            gone = connection.execute(select(schema.vanished.c.identifier).distinct()).scalars()
            for identifier in [each for each in gone if TableIdentifier.parse(each).catalog == name]:
                remove_records(connection, identifier)
                connection.execute(delete(schema.vanished).where(schema.vanished.c.identifier == identifier))
            connection.execute(delete(schema.unseen).where(schema.unseen.c.catalog == name))
            connection.execute(delete(schema.catalog).where(schema.catalog.c.name == name))

    def entry(self, name: str) -> CatalogEntry:
        query = select(schema.catalog).where(schema.catalog.c.name == name)
        found = read_again_after_rotation(lambda: [self._entry(row) for row in self._rows(query)])
        if not found:
            raise self._unknown(name)
        return found[0]

    def check_known(self, name: str) -> None:
        if name not in self._names():
            raise self._unknown(name)

    def entries(self) -> Sequence[CatalogEntry]:
        query = select(schema.catalog)
        try:
            found = read_again_after_rotation(lambda: [self._entry(row) for row in self._rows(query)])
        except (ConfigError, StorageUnavailable):
            found = [self._entry_or_why_not(row) for row in self._rows(query)]
        # Databases sort texts differently, so Python sorts here.
        return tuple(sorted(found, key=lambda entry: entry.name))

    def _entry(self, row: StoredRow) -> CatalogEntry:
        try:
            properties = self._sealer.properties(row.properties, row.sealed)
        except (ConfigError, StorageUnavailable) as error:
            raise type(error)(f"catalog {row.name!r} cannot be opened: {error}") from None
        return CatalogEntry(row.name, properties, row.observe, row.held)

    def _entry_or_why_not(self, row: StoredRow) -> CatalogEntry:
        try:
            return self._entry(row)
        except (ConfigError, StorageUnavailable) as error:
            return CatalogEntry(row.name, row.properties, row.observe, row.held, str(error))

    def _columns(self, connection: Connection, entry: CatalogEntry) -> dict[str, object]:
        return {**self._sealer.columns(connection, entry.properties), "observe": entry.observe, "held": entry.held}

    def _names(self) -> Sequence[str]:
        return sorted(self._values(select(schema.catalog.c.name)))

    def _unknown(self, name: str) -> NotFoundError:
        names = ", ".join(self._names()) or "none yet: add one with `compaction-pipeline catalog add`"
        return NotFoundError(f"catalog {name!r} is not registered; registered: {names}")
