"""PyIceberg's SQL catalog with time limits on PostgreSQL, so that no question waits for ever.

libpq limits the time to connect, and notices when a network or a machine is gone. It waits without end for a server that is there but
silent, for example because it was stopped or hangs on its disk. So `iceberg/catalogs/bounded_psycopg2.py` limits the time of every answer,
too. With the driver psycopg 3 only the limits of libpq hold.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pyiceberg.catalog import AVAILABLE_CATALOGS, CatalogType
from pyiceberg.catalog.sql import IcebergNamespaceProperties, IcebergTables, SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.typedef import Identifier
from sqlalchemy import Engine, Select, event, select
from sqlalchemy.orm import Session

from compaction_pipeline.iceberg.catalogs.rest_catalog import RequestLimits
from compaction_pipeline.iceberg.catalogs.told_properties import NothingOfTables

_NAMES = 500
"""So many names are in one query. SQLite allows 999 values at the least."""


def use_bounded_sql_catalogs(limits: RequestLimits) -> None:
    """Make PyIceberg open our SQL catalog, for `type=sql` and where the form of 'uri' tells the type."""
    AVAILABLE_CATALOGS[CatalogType.SQL] = lambda name, properties: BoundedSqlCatalog(name, limits, **properties)


class BoundedSqlCatalog(NothingOfTables, SqlCatalog):
    """A SQL catalog that follows the rule of this module. It raises the same errors as PyIceberg's SQL catalog."""

    def __init__(self, name: str, limits: RequestLimits, **properties: str) -> None:
        self._limits = limits
        super().__init__(name, **properties)

    def _init_catalog(self) -> None:
        # PyIceberg calls this first for a new engine, before it asks anything.
        if self.engine.dialect.name == "postgresql":
            _limit_postgres(self.engine, self._limits)
        super()._init_catalog()

    def located(self) -> Mapping[Identifier, str | None]:
        """Every table with the path of its newest metadata, by one query of one moment."""
        with Session(self.engine) as session:
            rows = session.execute(self._located_query()).all()
        return {(*self.identifier_to_tuple(namespace), table): location or None for namespace, table, location in rows}

    def locations_of(self, identifiers: Collection[Identifier]) -> Mapping[Identifier, str]:
        """The path of the newest metadata of each of these tables, by one query for some hundreds. Tables that do not exist are missing."""
        by_namespace: dict[str, list[str]] = {}
        for identifier in identifiers:
            namespace = self.namespace_to_string(self.namespace_from(identifier))
            by_namespace.setdefault(namespace, []).append(self.table_name_from(identifier))
        found: dict[Identifier, str] = {}
        with Session(self.engine) as session:
            for namespace, names in by_namespace.items():
                query = self._located_query().where(IcebergTables.table_namespace == namespace)
                for begin in range(0, len(names), _NAMES):
                    rows = session.execute(query.where(IcebergTables.table_name.in_(names[begin : begin + _NAMES]))).all()
                    found.update(((*self.identifier_to_tuple(of), table), location) for of, table, location in rows if location)
        return found

    def _located_query(self) -> Select[tuple[str, str, str | None]]:
        columns = IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location
        query = select(*columns).where(IcebergTables.catalog_name == self.name)
        # A database of the newer schema keeps views in the same table.
        only_tables = self._iceberg_type_filter()
        return query if only_tables is None else query.where(only_tables)

    def location_of(self, identifier: Identifier) -> str:
        """The path of a table's newest metadata. Raises NoSuchTableError."""
        namespace = self.namespace_to_string(self.namespace_from(identifier))
        query = select(IcebergTables.metadata_location).where(
            IcebergTables.catalog_name == self.name,
            IcebergTables.table_namespace == namespace,
            IcebergTables.table_name == self.table_name_from(identifier),
        )
        only_tables = self._iceberg_type_filter()
        with Session(self.engine) as session:
            location = session.scalar(query if only_tables is None else query.where(only_tables))
        if not location:
            raise NoSuchTableError(f"Table does not exist: {'.'.join(identifier)}")
        return location

    def namespaces_and_tables(self) -> frozenset[str]:
        """The namespaces that are registered or hold a table, as the database spells them."""
        own = select(IcebergTables.table_namespace).where(IcebergTables.catalog_name == self.name)
        named = select(IcebergNamespaceProperties.namespace).where(IcebergNamespaceProperties.catalog_name == self.name)
        with Session(self.engine) as session:
            return frozenset(session.execute(own.union(named)).scalars())


def _limit_postgres(engine: Engine, limits: RequestLimits) -> None:
    """Give time limits to every connection that the engine opens, where 'uri' sets none."""
    if engine.dialect.driver not in ("psycopg2", "psycopg"):
        return

    @event.listens_for(engine, "do_connect")
    def limit(dialect: Any, record: Any, arguments: Any, options: dict[str, Any]) -> None:
        # libpq takes whole seconds, and treats 1 as 2.
        seconds = max(2, int(limits.connect_seconds))
        options.setdefault("connect_timeout", seconds)
        options.setdefault("keepalives_idle", seconds)
        options.setdefault("tcp_user_timeout", int(limits.read_seconds * 1000))
        if dialect.driver == "psycopg2":
            from compaction_pipeline.iceberg.catalogs.bounded_psycopg2 import bounded_connection

            options.setdefault("connection_factory", bounded_connection(limits))
