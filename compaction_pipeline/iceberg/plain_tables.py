"""Finds out whether a table may be compacted as a plain one, or is part of a keyed table.

Amoro's Mixed-Iceberg tables without a primary key are plain tables. When one is taken for such a table and is the base store of a keyed
table, rows are lost. So everything that could tell of a change store is looked at, and what cannot be looked at counts as a change store.
"""

from __future__ import annotations

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from compaction_pipeline.core.errors import AccessDenied, CompactionError, StorageUnavailable
from compaction_pipeline.core.tables.keyed.optimized_sequence import (
    LEGACY_KEY,
    OLDEST_LEGACY_KEY,
    SEQUENCE_BLOB,
    SEQUENCE_FLAG,
    numbers_of_properties,
)
from compaction_pipeline.core.tables.kinds import change_stores_beside, refusal_of_store, says_no_key
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs

_SAYS_NO_KEY = "the table says that it is a Mixed-Iceberg table without a primary key"
_WHY = "a base store would lose deletes if it were compacted as a plain table"


def refusal_of_part(catalogs: Catalogs, table: TableIdentifier, loaded: Table) -> str | None:
    """Why a table is not compacted as a plain one, because it is part of a keyed table or may be; None for a plain table.

    Raises StorageUnavailable when the catalog does not answer now which tables stand beside it.
    """
    properties = loaded.metadata.properties
    if not says_no_key(properties):
        return refusal_of_store(properties)
    trace = _trace_of_changes(loaded.metadata)
    if trace is not None:
        return f"{_SAYS_NO_KEY}, but {trace}: changes were merged into it, and {_WHY}. Set the lost properties of the base store again"
    return _refusal_beside(catalogs, table)


def _trace_of_changes(metadata: TableMetadata) -> str | None:
    """What in the metadata of a table tells that changes of a change store were merged into it, in words.

    Raises TableRefused when the property of old versions cannot be read.
    """
    for file in metadata.statistics:
        if any(str(blob.type) == SEQUENCE_BLOB for blob in file.blob_metadata):
            return f"the statistics file {file.statistics_path} of its snapshot {file.snapshot_id} has a blob {SEQUENCE_BLOB!r}"
    for snapshot in metadata.snapshots:
        if snapshot.summary is not None and SEQUENCE_FLAG in snapshot.summary.additional_properties:
            return f"its snapshot {snapshot.snapshot_id} says '{SEQUENCE_FLAG}'"
    # Amoro keeps times in this property too, of tables without a key as well.
    if numbers_of_properties(metadata.properties):
        return f"its property '{LEGACY_KEY}' says which"
    return f"it has the property '{OLDEST_LEGACY_KEY}'" if OLDEST_LEGACY_KEY in metadata.properties else None


def _refusal_beside(catalogs: Catalogs, table: TableIdentifier) -> str | None:
    try:
        names = catalogs.names_beside(table)
    except CompactionError as error:
        if isinstance(error, StorageUnavailable) and not isinstance(error, AccessDenied):
            raise
        return f"{_SAYS_NO_KEY}, but the catalog does not tell whether a change store stands beside it: {error}. {_WHY.capitalize()}"
    found = change_stores_beside(table.name, names)
    if found:
        return (
            f"{_SAYS_NO_KEY}, but the table {found[0]!r} stands beside it and has the name of its change store: {_WHY}. When it has "
            "nothing to do with this table, rename it"
        )
    if table.name.casefold() not in {name.casefold() for name in names}:
        # A catalog that hides this table may hide its change store as well.
        return (
            f"{_SAYS_NO_KEY}, but the catalog does not list it in its namespace, so a change store beside it may be hidden "
            f"too: {_WHY}. Let the catalog's credentials list the namespace"
        )
    return None
