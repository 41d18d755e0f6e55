"""What is read of catalogs, and of the tables' own metadata and files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.figures import MetadataFigures
from compaction_pipeline.core.tables.keyed.change_rate import ChangeRate
from compaction_pipeline.core.tables.keyed.key_reading import KeyReading
from compaction_pipeline.core.tables.keyed.keyed_files import KeyedContent
from compaction_pipeline.core.tables.listing import CatalogListing
from compaction_pipeline.core.tables.node import Place
from compaction_pipeline.core.tables.table import CatalogEntry, ManifestRef, TableHead, TableIdentifier, TableLayout


class TableScan(Protocol):
    """Reads catalogs and table metadata. Every method may raise NotFoundError, ConfigError or StorageUnavailable."""

    def list_tables(self, catalog: str) -> Sequence[TableIdentifier]:
        """Return every table that the catalog lists, in all namespaces, sorted. Raises the error of a namespace that cannot be listed."""

    def listing(self, catalog: str) -> CatalogListing:
        """List the catalog namespace by namespace. No table is asked for. A namespace that fails is in the listing, with the reason."""

    def absent(self, tables: Sequence[TableIdentifier]) -> Mapping[TableIdentifier, bool | CompactionError]:
        """Return whether the catalog of each table says of the table itself that it does not exist, or the error of that question."""

    def trying(self, entry: CatalogEntry) -> TableScan:
        """Return a scan for which a catalog is as this entry says, whatever is registered. Nothing is stored."""

    def every_table(self, catalog: str) -> Sequence[TableIdentifier]:
        """Return every table as `list_tables` does, but take no answer for a namespace without tables that may be a fault.

        Raises StorageUnavailable when a namespace is there and its tables are not told. Those who delete files ask this.
        """

    def locations(self, catalog: str) -> Mapping[TableIdentifier, str]:
        """Return the path of each table's newest metadata. The result is empty when the catalog cannot list these in one answer."""

    def unmoved(self, catalog: str, known: Mapping[TableIdentifier, str]) -> frozenset[TableIdentifier]:
        """Return those of these tables of a catalog whose newest metadata is at the known path.

        This asks a catalog that cannot list these paths for each table. The result is empty for other catalogs (see `locations`). A table
        whose question fails is left out.
        """

    def heads(self, tables: Sequence[TableIdentifier]) -> Mapping[TableIdentifier, TableHead | CompactionError]:
        """Load these tables as `head` does, several at a time. Return the head of each, or the error."""

    def head(self, table: TableIdentifier) -> TableHead:
        """Load the table's newest metadata. Raises NotFoundError when the table was dropped: the catalog does not list it either."""

    def commits_since(self, table: TableIdentifier, since: datetime) -> Mapping[int, datetime]:
        """Load the table's newest metadata. Return the snapshots of main that were made since then, with their times; a keyed table has
        those of both stores. Raises TableRefused when a store cannot be read."""

    def manifests(self, table: TableIdentifier, snapshot_id: int) -> Sequence[ManifestRef]:
        """Return the manifests of a snapshot. The snapshot must be in the metadata that `head` loaded last."""

    def metadata_figures(self, head: TableHead, manifests: Sequence[ManifestRef] | None) -> MetadataFigures:
        """Return the figures of the metadata that `head` returned last. `manifests` are those of the head; None when nobody read them.

        Nothing is read.
        """

    def live_files(self, table: TableIdentifier, manifest: ManifestRef) -> Iterator[LiveFile]:
        """Yield the live files of a manifest, which are those of its entries that are not DELETED.

        Data files of a table with a sort order are `BoundedFile`s.
        """

    def keyed_content(self, head: TableHead, now: datetime) -> KeyedContent:
        """Return the live files of both stores of a keyed table, and the transactions that are open `now`.

        `head` is the table's head as `head` returned it; its layout is that of a keyed table. Raises TableRefused when the changes of the
        table must not be merged.
        """

    def partition_filter(self, table: TableIdentifier, layout: TableLayout, text: str) -> Callable[[Place], bool]:
        """Return what tells whether a partition of a table may hold a row for which a condition is true (`self-optimizing.filter`).

        Nothing is read. Raises ConfigError when the condition is not understood, or when it tells nothing about partitions.
        """

    def why_no_condition(self, text: str) -> str | None:
        """Say why a text is no condition, whatever columns a table has; None when it may be one. Nothing is read."""


class KeyReader(Protocol):
    """Reads the keys of keyed tables."""

    def read_keys(self, table: TableIdentifier, day: int) -> KeyReading:
        """Look for keys with several live rows. `day` is a number that decides which nodes of a large table are read.

        Raises CompactionError when the table or a file of it cannot be read.
        """


class ChangeRates(Protocol):
    """Tells how often keyed tables are written."""

    def rate(self, table: TableIdentifier, now: datetime) -> ChangeRate:
        """Measure the commits of the last day. Raises CompactionError when the table cannot be read."""
