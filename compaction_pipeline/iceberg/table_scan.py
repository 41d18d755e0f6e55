"""Reads catalogs and table metadata: the TableScan port.

`head` loads a table and keeps it. `manifests` and `live_files` then answer for this metadata. The head of a keyed table holds both of its
stores, and `keyed_content` answers for them. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from pyiceberg.table import Table

from compaction_pipeline.core.errors import CompactionError, NotFoundError, TableRefused
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.figures import MetadataFigures
from compaction_pipeline.core.tables.keyed.keyed_files import KeyedContent
from compaction_pipeline.core.tables.keyed.small_files import held_by_sinks
from compaction_pipeline.core.tables.listing import CatalogListing
from compaction_pipeline.core.tables.node import Place
from compaction_pipeline.core.tables.table import (
    UNKNOWN_PLACE,
    CatalogEntry,
    ManifestRef,
    TableHead,
    TableIdentifier,
    TableLayout,
    place_of_all,
)
from compaction_pipeline.core.upkeep.history import MAIN
from compaction_pipeline.core.upkeep.manifests import manifests_opened, places_of
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.failures import translated
from compaction_pipeline.iceberg.keyed.change_plan import read_keyed_files
from compaction_pipeline.iceberg.keyed.kept_manifests import KeptManifests, kept_manifests
from compaction_pipeline.iceberg.keyed.stores import KeyedStores
from compaction_pipeline.iceberg.keyed.transactions import read_open_transactions
from compaction_pipeline.iceberg.manifests.live_files import read_live_entries
from compaction_pipeline.iceberg.manifests.sort_bounds import SortBounds
from compaction_pipeline.iceberg.partition_filter import partition_filter, why_no_condition
from compaction_pipeline.iceberg.scan import head_of, manifest_ref, manifests_of
from compaction_pipeline.iceberg.stores import open_stores, stores_of
from compaction_pipeline.iceberg.upkeep.history import history_of
from compaction_pipeline.iceberg.upkeep.manifests import listed


class IcebergScan:
    """The TableScan on PyIceberg."""

    def __init__(self, catalogs: Catalogs, kept: KeptManifests = kept_manifests) -> None:
        self._catalogs = catalogs
        self._kept = kept
        self._loaded: dict[TableIdentifier, Table] = {}
        # The names of the stores of the tables whose heads were loaded.
        self._names: dict[TableIdentifier, tuple[TableIdentifier, ...]] = {}

    def list_tables(self, catalog: str) -> Sequence[TableIdentifier]:
        """Every table that the catalog lists, in all namespaces, sorted."""
        return self._catalogs.tables(catalog)

    def trying(self, entry: CatalogEntry) -> IcebergScan:
        """A scan for which a catalog is as this entry says."""
        return IcebergScan(self._catalogs.trying(entry), self._kept)

    def every_table(self, catalog: str) -> Sequence[TableIdentifier]:
        """Every table, sorted. Raises StorageUnavailable when a namespace is there and its tables are not told."""
        return self._catalogs.every_table(catalog)

    def listing(self, catalog: str) -> CatalogListing:
        """What the catalog answers when it is asked for its namespaces and for the tables of each. No table is asked for."""
        return self._catalogs.listing(catalog)

    def absent(self, tables: Sequence[TableIdentifier]) -> Mapping[TableIdentifier, bool | CompactionError]:
        """Whether the catalog of each table says of the table itself that it does not exist, or the error of a question."""

        def ask(table: TableIdentifier) -> bool | CompactionError:
            try:
                return self._catalogs.is_absent(table)
            except CompactionError as error:
                return error

        return dict(zip(tables, self._catalogs.in_threads(ask, tables), strict=True))

    def unmoved(self, catalog: str, known: Mapping[TableIdentifier, str]) -> frozenset[TableIdentifier]:
        """Those of these tables of a catalog whose newest metadata is at the known place, as far as it tells that table by table."""
        return self._catalogs.unmoved(catalog, known)

    def heads(self, tables: Sequence[TableIdentifier]) -> Mapping[TableIdentifier, TableHead | CompactionError]:
        """The heads of these tables, several loaded at a time, or the error of each."""

        def load(table: TableIdentifier) -> TableHead | CompactionError:
            try:
                return self.head(table)
            except CompactionError as error:
                return error

        return dict(zip(tables, self._catalogs.in_threads(load, tables), strict=True))

    def locations(self, catalog: str) -> Mapping[TableIdentifier, str]:
        """The location of each table's newest metadata, as `TableHead.metadata_location` has it, if the catalog tells all in one answer.

        Empty otherwise. A keyed table whose head was not loaded yet has the location of its base store alone.
        """
        locations = self._catalogs.locations(catalog)
        known = {
            table: place_of_all(locations[store] for store in stores)
            # Another thread may load the head of a table that is new.
            for table, stores in list(self._names.items())
            if locations.keys() >= set(stores)
        }
        return {**locations, **known}

    def head(self, table: TableIdentifier) -> TableHead:
        """The table's newest metadata, loaded afresh. Raises NotFoundError if the table was dropped, TableRefused if it cannot be read."""
        loaded = self._loaded[table] = self._catalogs.load(table)
        try:
            stores = stores_of(self._catalogs, table, loaded)
        except NotFoundError as error:
            # When the base store is there, its change store is missing. Then the table is not gone, but nobody can read it.
            self._catalogs.load(table)
            refusal = f"its change store cannot be found: {error}"
        except TableRefused as error:
            refusal = str(error)
        else:
            self._names[table] = stores.names(table)
            return stores.head(table)
        return replace(head_of(table, loaded), metadata_location=UNKNOWN_PLACE, refusal=refusal)

    def commits_since(self, table: TableIdentifier, since: datetime) -> Mapping[int, datetime]:
        """The snapshots of main in all stores that were made since then, with their times."""
        found: dict[int, datetime] = {}
        for store in open_stores(self._catalogs, table).tables:
            history = history_of(store.metadata)
            main = history.refs.get(MAIN)
            ancestry = history.ancestry(main.snapshot_id) if main is not None else ()
            found |= {one.snapshot_id: one.made_at for one in ancestry if one.made_at >= since}
        return found

    def keyed_content(self, head: TableHead, now: datetime) -> KeyedContent:
        """The live files of both stores. Raises TableRefused when the changes of the table must not be merged."""
        stores: KeyedStores = head.stores
        with translated(f"the files of table {head.table}"):
            files = read_keyed_files(stores, self._kept)
        opened = read_open_transactions(stores.change.metadata, stores.base.metadata, files.changes, files.base, now)
        summaries = {each.snapshot_id: each.summary.additional_properties for each in stores.change.metadata.snapshots if each.summary}
        return KeyedContent(files, opened, held_by_sinks(files.changes, summaries, now))

    def partition_filter(self, table: TableIdentifier, layout: TableLayout, text: str) -> Callable[[Place], bool]:
        """What tells which partitions a condition leaves in. Raises ConfigError when it is not understood."""
        return partition_filter(table, layout, text)

    def why_no_condition(self, text: str) -> str | None:
        """Why a text is a condition for no table at all; None when it may be one."""
        return why_no_condition(text)

    def manifests(self, table: TableIdentifier, snapshot_id: int) -> Sequence[ManifestRef]:
        """The manifest list of a snapshot. Raises NotFoundError if the metadata that `head` loaded last does not have the snapshot."""
        loaded = self._table(table)
        snapshot = loaded.metadata.snapshot_by_id(snapshot_id)
        if snapshot is None:
            raise NotFoundError(f"table {table} has no snapshot {snapshot_id}: it was expired or rolled back; read the head again")
        with translated(f"the manifest list of table {table}", is_file=True):
            return tuple(manifest_ref(manifest) for manifest in manifests_of(snapshot, loaded.io))

    def metadata_figures(self, head: TableHead, manifests: Sequence[ManifestRef] | None) -> MetadataFigures:
        """The figures of the metadata of all stores. The metadata is as large as PyIceberg writes it."""
        of_stores = [each.metadata for each in (head.stores.tables if head.stores is not None else (self._table(head.table),))]
        figures = MetadataFigures(
            sum(len(metadata.snapshots) for metadata in of_stores),
            sum(len(metadata.model_dump_json().encode(errors="surrogatepass")) for metadata in of_stores),
        )
        if manifests is None:
            return figures
        of_head = listed(of_stores[0], [manifest.handle for manifest in manifests])
        return replace(figures, manifests=len(of_head), manifests_opened=manifests_opened(of_head, places_of(of_head)))

    def live_files(self, table: TableIdentifier, manifest: ManifestRef) -> Iterator[LiveFile]:
        """The live entries of a manifest; data files of a table with a sort order are `BoundedFile`s.

        Raises TableRefused for a file that we do not compact (Avro, ORC, encrypted).
        """
        loaded = self._table(table)
        with translated(f"manifest {manifest.path} of table {table}", is_file=True):
            bounds = SortBounds(loaded.metadata)
            yield from read_live_entries(loaded.io, loaded.metadata, manifest.handle, bounds.of, with_bounds=bool(bounds.columns))

    def _table(self, table: TableIdentifier) -> Table:
        loaded = self._loaded.get(table)
        if loaded is None:
            loaded = self._loaded[table] = self._catalogs.load(table)
        return loaded
