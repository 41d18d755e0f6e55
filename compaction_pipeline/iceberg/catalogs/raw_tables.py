"""Asks a catalog for the newest metadata of a table as JSON, past PyIceberg's models, which refuse some formats and columns.

A REST catalog sends the JSON itself. The others name the file that holds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog import METADATA_LOCATION, Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.typedef import Identifier

from compaction_pipeline.core.errors import StorageUnavailable, TableRefused
from compaction_pipeline.iceberg.catalogs.glue_tables import is_iceberg_table
from compaction_pipeline.iceberg.catalogs.hive_tables import is_iceberg, kind_in_words, metadata_location, uuid_of
from compaction_pipeline.iceberg.catalogs.listings import kind_of
from compaction_pipeline.iceberg.catalogs.metadata_files import read_raw_metadata
from compaction_pipeline.iceberg.catalogs.rest_catalog import BoundedRestCatalog
from compaction_pipeline.iceberg.catalogs.sql_catalog import BoundedSqlCatalog


@dataclass(frozen=True)
class RawTable:
    """The metadata of a table as JSON, the place of its file where the catalog tells it, and what opens the files of the table.

    `etag` is that of a REST catalog's answer.
    """

    metadata: Mapping[str, Any]
    location: str | None
    io: FileIO
    etag: str | None = None


@dataclass(frozen=True)
class _Named:
    """What a catalog says of a table: where its newest metadata is, and its uuid, if it tells that."""

    location: str
    uuid: str | None = None


def read_raw_table(catalog: Catalog, identifier: Identifier, *, known: str | None = None, etag: str | None = None) -> RawTable | None:
    """The newest metadata of a table; None when it is still at the `known` place. `etag` is that of the answer that named this place.

    Raises NoSuchTableError, TableRefused for a table that is not Iceberg's, StorageUnavailable when the catalog names a file of another
    table, and whatever catalogs and FileIOs raise.
    """
    if isinstance(catalog, BoundedRestCatalog):
        answer = catalog.asked_for_table(identifier, etag)
        if answer is None or (known is not None and answer.location == known):
            return None
        return RawTable(answer.metadata, answer.location, answer.io, answer.etag)
    named = _named(catalog, identifier)
    if named.location == known:
        return None
    io = catalog._load_file_io(location=named.location)
    metadata = read_raw_metadata(io, named.location)
    uuid = metadata.get("table-uuid")
    if named.uuid is not None and uuid is not None and named.uuid.lower() != str(uuid).lower():
        raise StorageUnavailable(
            f"the catalog says that table {'.'.join(identifier)} has the uuid {named.uuid}, but its metadata file {named.location} is of "
            f"the table {uuid}: set 'metadata_location' of the table to a file of its own"
        )
    return RawTable(metadata, named.location, io)


def _named(catalog: Any, identifier: Identifier) -> _Named:
    if isinstance(catalog, BoundedSqlCatalog):
        return _Named(catalog.location_of(identifier))
    kind = kind_of(catalog)
    if kind == "HiveCatalog":
        return _of_hive(catalog, catalog.identifier_to_database_and_table(identifier, NoSuchTableError))
    if kind == "GlueCatalog":
        return _of_glue(catalog, *catalog.identifier_to_database_and_table(identifier, NoSuchTableError))
    # A catalog of somebody's own class tells the place of metadata only with a table that PyIceberg can read.
    return _Named(catalog.load_table(identifier).metadata_location)


def _of_hive(catalog: Any, name: tuple[str, str]) -> _Named:
    with catalog.connect() as client:
        row = catalog.row(client, name)
    if not is_iceberg(row):
        raise TableRefused(f"{'.'.join(name)} is {kind_in_words(row)}, not an Iceberg table")
    return _Named(_said(name, metadata_location(row), "the metastore"), uuid_of(row))


def _of_glue(catalog: Any, database: str, table: str) -> _Named:
    try:
        row = catalog.glue.get_table(DatabaseName=database, Name=table)["Table"]
    except catalog.glue.exceptions.EntityNotFoundException as error:
        raise NoSuchTableError(f"Table does not exist: {database}.{table}") from error
    if not is_iceberg_table(row):
        raise TableRefused(f"{database}.{table} is not an Iceberg table: Glue says nothing of Iceberg in its 'table_type'")
    return _Named(_said((database, table), row["Parameters"].get(METADATA_LOCATION), "Glue"))


def _said(name: tuple[str, str], location: str | None, who: str) -> str:
    if not location:
        raise TableRefused(f"{'.'.join(name)}: {who} does not say where its metadata is: set 'metadata_location' of the table again")
    return location
