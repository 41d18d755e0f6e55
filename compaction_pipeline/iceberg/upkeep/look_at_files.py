"""Looks at all files of a table: first what the storage lists, and then what freshly loaded metadata names.

The order matters. A file that a writer adds after the listing is not in it. A file that was listed and is committed meanwhile is named by
the metadata that is loaded afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.table import Table

from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.orphan_rules import OwnStore
from compaction_pipeline.core.upkeep.ports.files import FilesLook
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.stores import open_stores
from compaction_pipeline.iceberg.upkeep.history import history_of
from compaction_pipeline.iceberg.upkeep.listed_files import listed_files
from compaction_pipeline.iceberg.upkeep.metadata_states import ListedMetadata, metadata_state
from compaction_pipeline.iceberg.upkeep.referenced import referenced_paths


class IcebergFilesLooker:
    """The FilesLooker on PyIceberg."""

    def __init__(self, catalogs: Catalogs) -> None:
        self._catalogs = catalogs

    def look(self, table: TableIdentifier, roots: Sequence[str] = ()) -> FilesLook:
        """The listed files, and what metadata says that was loaded after the listing had ended."""
        before = open_stores(self._catalogs, table).tables
        own = tuple(_own_store(store) for store in before)
        places = [(store.io, store.metadata.location) for store in before]
        places += [(before[0].io, root) for root in roots]
        listing = tuple(file for io, location in places for file in listed_files(io, location))
        stores = open_stores(self._catalogs, table)
        fresh = tuple(_own_store(store) for store in stores.tables)
        if [(one.location, one.state.uuid) for one in own] != [(one.location, one.state.uuid) for one in fresh]:
            raise StorageUnavailable(f"table {table} was moved or made anew while its files were listed; look again")
        return FilesLook(
            listing=listing,
            names=stores.names(table),
            stores=fresh,
            histories=tuple(history_of(store.metadata) for store in stores.tables),
            properties=dict(stores.tables[0].metadata.properties),
            metadata=ListedMetadata([store.io for store in stores.tables]),
            referenced=referenced_paths(stores.tables),
        )


def _own_store(store: Table) -> OwnStore:
    metadata = store.metadata
    fields = frozenset(field.name for spec in metadata.partition_specs for field in spec.fields)
    # Java takes any text but "true" for false.
    gc_enabled = metadata.properties.get("gc.enabled", "true").strip().lower() == "true"
    return OwnStore(metadata.location, metadata_state(store.io, store.metadata_location), gc_enabled, fields)
