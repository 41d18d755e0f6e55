"""Looks at all files of a table: first what the storage lists, and then what freshly loaded metadata names.

The order matters. A file that a writer adds after the listing is not in it. A file that was listed and is committed meanwhile is named by
the metadata that is loaded afterwards. Manifests of Flink are read in between: once a job has committed their files, it deletes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from pyiceberg.table import Table

from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.file_names import is_of_flink
from compaction_pipeline.core.upkeep.foreign_roots import ForeignRoots
from compaction_pipeline.core.upkeep.orphan_looks import Place
from compaction_pipeline.core.upkeep.orphan_rules import ListedFile, OtherTable, OwnStore
from compaction_pipeline.core.upkeep.paths import folder_path, loose_name
from compaction_pipeline.core.upkeep.ports.files import FilesLook
from compaction_pipeline.core.upkeep.record import UpkeepRecord
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.deletions import failed_deletes
from compaction_pipeline.iceberg.stores import Stores, open_stores
from compaction_pipeline.iceberg.upkeep.history import history_of
from compaction_pipeline.iceberg.upkeep.listed_files import listed_files, real_folder
from compaction_pipeline.iceberg.upkeep.metadata_states import ListedMetadata, metadata_state
from compaction_pipeline.iceberg.upkeep.referenced import Referenced, flinks_files

_FLINKS_FOLDERS = ("flink.manifests.location", "write.metadata.path")
"""Where Flink writes its manifests when not to the folder of metadata below the location. Source: Iceberg, `ManifestOutputFileFactory`."""


class IcebergFilesLooker:
    """The FilesLooker on PyIceberg. `on_step` is told each step; crash tests end the process there."""

    def __init__(self, catalogs: Catalogs, on_step: Callable[[str], None] = lambda step: None) -> None:
        self._catalogs = catalogs
        self._on_step = on_step

    def look(self, table: TableIdentifier, roots: Sequence[str] = (), kept: Sequence[UpkeepRecord] = ()) -> FilesLook:
        """The listed files, and what metadata says that was loaded after the listing had ended."""
        before = open_stores(self._catalogs, table).tables
        places = [(store.io, store.metadata.location) for store in before]
        places += [(before[0].io, root) for root in roots]
        listing = tuple(file for io, location in places for file in listed_files(io, location))
        written = tuple(_written_by_flink(before, listing))
        self._on_step("files-listed")
        stores = self._same(table, before)
        own = tuple(_own_store(store) for store in stores.tables)
        referenced, metadata = Referenced(), ListedMetadata([store.io for store in stores.tables])
        return FilesLook(
            listing=listing,
            names=stores.names(table),
            stores=own,
            histories=tuple(history_of(store.metadata) for store in stores.tables),
            properties=dict(stores.tables[0].metadata.properties),
            metadata=metadata,
            referenced=chain(written, referenced.paths(stores.tables, kept), referenced.of_forks(metadata, listing)),
            newer=lambda: referenced.paths(self._same(table, stores.tables).tables),
            delete=lambda paths: self._deleted(stores.tables, paths),
        )

    def place(self, store: TableIdentifier, noted: Place | None = None, kept: Sequence[UpkeepRecord] = ()) -> Place:
        """Where this Iceberg table lies, and the folders outside in which it names files."""
        loaded = self._catalogs.load(store)
        if noted is not None and noted.read_at is not None and noted.metadata_location == loaded.metadata_location:
            return noted
        foreign = ForeignRoots([loaded.metadata.location])
        foreign.note_folders(loaded.metadata.properties)
        for path in Referenced().paths([loaded], kept):
            foreign.note(path)
        real = [real_folder(folder) for folder in (loaded.metadata.location, *foreign.roots)]
        roots = (*foreign.roots, *(folder for folder in real if folder is not None))
        return Place(store, str(loaded.metadata.table_uuid), loaded.metadata.location, roots, loaded.metadata_location)

    def named(self, store: TableIdentifier, kept: Sequence[UpkeepRecord] = ()) -> Iterator[str]:
        """Every path that all metadata of this Iceberg table names."""
        return Referenced().paths([self._catalogs.load(store)], kept)

    def hidden(self, catalog: str) -> Sequence[OtherTable]:
        """The tables of other formats in a catalog of Hive or Glue."""
        return [OtherTable(f"{catalog}.{name} (no Iceberg table)", location) for name, location in self._catalogs.hidden(catalog)]

    def _same(self, table: TableIdentifier, before: Sequence[Table]) -> Stores:
        """The table as it is now. Raises StorageUnavailable when it is not the one of before."""
        now = open_stores(self._catalogs, table)
        if _identity(now.tables) != _identity(before):
            raise StorageUnavailable(f"table {table} was moved or made anew while its files were looked at; look again")
        return now

    def _deleted(self, stores: Sequence[Table], paths: Sequence[str]) -> Mapping[str, str]:
        """Delete each file with the credentials of the store in whose location it lies."""
        own: dict[int, list[str]] = {}
        for path in paths:
            holding = [number for number, store in enumerate(stores) if path.startswith(f"{store.metadata.location.rstrip('/')}/")]
            own.setdefault(max(holding, key=lambda number: len(stores[number].metadata.location), default=0), []).append(path)
        # Whoever calls this has asked right before whether the table forbids it by now. Here it is asked of the look, once more.
        of_store = ((stores[number], some, [one for one in stores if one is not stores[number]]) for number, some in own.items())
        failed = {path: str(error) for store, some, beside in of_store for path, error in failed_deletes(store, some, *beside).items()}
        self._on_step("orphans-deleted")
        return failed


def _identity(stores: Sequence[Table]) -> Sequence[tuple[str, str | None]]:
    # Where metadata names no uuid, PyIceberg invents another one at each load.
    return [(store.metadata.location, metadata_state(store.io, store.metadata_location).uuid) for store in stores]


def _written_by_flink(stores: Sequence[Table], listing: Sequence[ListedFile]) -> Iterator[str]:
    """Its manifests that were listed, and what they say that it has written and not committed."""
    manifests = {file.path: stores[0] for file in listing if is_of_flink(file.path)}
    locations = [folder_path(store.metadata.location) for store in stores]
    for store in stores:
        for folder in dict.fromkeys(store.metadata.properties.get(key, "") for key in _FLINKS_FOLDERS):
            if folder and not any(folder_path(folder).is_below(location) for location in locations):
                manifests |= {file.path: store for file in listed_files(store.io, folder) if is_of_flink(file.path)}
    if not manifests:
        return
    # Tables may share a folder of manifests. What theirs list says nothing about this one.
    listed = {loose_name(file.path) for file in listing}
    for path, store in manifests.items():
        yield from (one for one in (path, *flinks_files(store.io, path)) if loose_name(one) in listed)


def _own_store(store: Table) -> OwnStore:
    metadata = store.metadata
    fields = frozenset(field.name for spec in metadata.partition_specs for field in spec.fields)
    # Java takes any text but "true" for false.
    gc_enabled = metadata.properties.get("gc.enabled", "true").strip().lower() == "true"
    state = metadata_state(store.io, store.metadata_location)
    return OwnStore(metadata.location, state, gc_enabled, fields, store.metadata_location, real_folder(metadata.location))
