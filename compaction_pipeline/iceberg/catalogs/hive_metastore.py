"""Reads the tables of a Hive metastore, with time limits and a connection for each thread.

PyIceberg shares one connection, asks for all tables of a database at once, and answers with an empty list for a database that is not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hive_metastore.ttypes import NoSuchObjectException, UnknownDBException
from pyiceberg.catalog.hive import HiveCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier

from compaction_pipeline.core.errors import StorageUnavailable, TableRefused
from compaction_pipeline.iceberg.catalogs.hive_client import BoundedHiveClient, connections
from compaction_pipeline.iceberg.catalogs.hive_tables import is_iceberg, kind_in_words, metadata_location
from compaction_pipeline.iceberg.catalogs.rest_catalog import RequestLimits
from compaction_pipeline.iceberg.catalogs.told_properties import NothingOfTables

_BATCH = 200
"""As many tables are asked for at once. PyIceberg asks for all tables of a database at once."""


class HiveMetastore(NothingOfTables, HiveCatalog):
    """Reads the tables of a Hive metastore, and writes metadata files that it does not name yet. Several threads may use one."""

    def __init__(self, name: str, limits: RequestLimits, **properties: str) -> None:
        self._limits = limits
        self._connect = connections(properties, limits)
        super().__init__(name, **properties)

    @staticmethod
    def _create_hive_client(properties: dict[str, str]) -> BoundedHiveClient:
        # PyIceberg makes a connection of its own here, which needs more packages where Kerberos is used, and is never asked.
        return connections(properties, RequestLimits())()

    @property
    def _client(self) -> BoundedHiveClient:
        # PyIceberg keeps one connection here, and opens it again for each call, whichever thread that comes from.
        return self._connect()

    @_client.setter
    def _client(self, client: object) -> None:
        pass

    # ---- what there is ---------------------------------------------------------------------------------------------

    def load_table(self, identifier: str | Identifier) -> Table:
        """The table with its newest metadata. Raises NoSuchTableError, and TableRefused for one that is not Iceberg's."""
        name = self.identifier_to_database_and_table(identifier, NoSuchTableError)
        with self._connect() as client:
            row = self._get_hive_table(client, *name)
        return self.as_iceberg(row)

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """The Iceberg tables of a database. Raises NoSuchNamespaceError."""
        return [(row.dbName, row.tableName) for row in self.rows(namespace) if is_iceberg(row)]

    def others(self) -> Iterator[tuple[str, str, str | None]]:
        """The tables that are not Iceberg's: `database.table`, what it is in words, and its location. A view has no location.

        Raises StorageUnavailable for a database that the metastore lists, and says that it does not exist: nobody may think that nothing
        is in it.
        """
        for namespace in self.list_namespaces():
            try:
                for row in self.rows(namespace):
                    if not is_iceberg(row):
                        yield f"{row.dbName}.{row.tableName}", kind_in_words(row), (row.sd.location if row.sd is not None else None) or None
            except NoSuchNamespaceError as error:
                if namespace not in self.list_namespaces():
                    # It was dropped meanwhile, with all that was in it.
                    continue
                raise StorageUnavailable(
                    f"catalog {self.name!r} lists the database {namespace[0]}, and says that it does not exist when asked for what is "
                    "in it: tables there may be hidden; see that the metastore is healthy, and try again later"
                ) from error

    def rows(self, namespace: str | Identifier) -> Iterator[Any]:
        """All tables of a database, as the metastore describes them, asked for in batches. Raises NoSuchNamespaceError."""
        database = self.identifier_to_database(namespace, NoSuchNamespaceError)
        with self._connect() as client:
            try:
                names = sorted(client.get_all_tables(db_name=database))
                if not names:
                    # A metastore answers an empty list for a database that is not there.
                    client.get_database(name=database)
                for start in range(0, len(names), _BATCH):
                    yield from client.get_table_objects_by_name(dbname=database, tbl_names=names[start : start + _BATCH])
            except (NoSuchObjectException, UnknownDBException) as error:
                raise NoSuchNamespaceError(f"Database does not exist: {database}") from error

    # ---- what a swap asks -------------------------------------------------------------------------------------------------

    def connect(self) -> BoundedHiveClient:
        """A connection to the metastore, for one `with` block."""
        return self._connect()

    def row(self, client: Any, name: tuple[str, str]) -> Any:
        """A table as the metastore describes it now. Raises NoSuchTableError."""
        return self._get_hive_table(client, *name)

    def as_iceberg(self, row: Any) -> Table:
        """The Iceberg table of a row, with the metadata that the row names. Raises TableRefused."""
        named = f"{row.dbName}.{row.tableName}"
        if not is_iceberg(row):
            raise TableRefused(f"{named} is {kind_in_words(row)}, not an Iceberg table")
        if metadata_location(row) is None:
            raise TableRefused(f"{named}: the metastore does not say where its metadata is: set 'metadata_location' of the table again")
        return self._convert_hive_into_iceberg(row)

    def staged(self, current: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]) -> StagedTable:
        """The table with these updates, which nobody names yet. Raises CommitFailedException when it is not as required."""
        return self._update_and_stage_table(current, current.name(), requirements, updates)

    def write(self, staged: StagedTable) -> None:
        """Write the metadata file of a staged table."""
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
