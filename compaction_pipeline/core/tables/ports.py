"""What use cases need to know about tables and their files: the catalogs, the tables' metadata and the index of live files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from compaction_pipeline.core.tables.commit_report import CommitReport, ReportedTable
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.figures import MeasuredNode, NodeFigures
from compaction_pipeline.core.tables.index import TableIndex
from compaction_pipeline.core.tables.keyed.change_rate import ChangeRate
from compaction_pipeline.core.tables.keyed.key_reading import KeyReading
from compaction_pipeline.core.tables.keyed.keyed_files import KeyedContent
from compaction_pipeline.core.tables.node import Place, TableNode
from compaction_pipeline.core.tables.table import CatalogEntry, ManifestRef, TableHead, TableIdentifier, TableLayout


class TableScan(Protocol):
    """Reads catalogs and table metadata. Every method may raise NotFoundError, ConfigError or StorageUnavailable."""

    def list_tables(self, catalog: str) -> Sequence[TableIdentifier]:
        """Return every table that the catalog lists, in all namespaces, sorted."""

    def locations(self, catalog: str) -> Mapping[TableIdentifier, str]:
        """Return the path of each table's newest metadata. The result is empty when the catalog cannot list these in one answer."""

    def head(self, table: TableIdentifier) -> TableHead:
        """Load the table's newest metadata. Raises NotFoundError when the table was dropped: the catalog does not list it either."""

    def manifests(self, table: TableIdentifier, snapshot_id: int) -> Sequence[ManifestRef]:
        """Return the manifests of a snapshot. The snapshot must be in the metadata that `head` loaded last."""

    def live_files(self, table: TableIdentifier, manifest: ManifestRef) -> Iterator[LiveFile]:
        """Yield the live files of a manifest, which are those of its entries that are not DELETED."""

    def keyed_content(self, head: TableHead, now: datetime) -> KeyedContent:
        """Return the live files of both stores of a keyed table, and the transactions that are open `now`.

        `head` is the table's head as `head` returned it; its layout is that of a keyed table. Raises TableRefused when the changes of the
        table must not be merged.
        """

    def partition_filter(self, table: TableIdentifier, layout: TableLayout, text: str) -> Callable[[Place], bool]:
        """Return what tells whether a partition of a table may hold a row for which a condition is true (`self-optimizing.filter`).

        Nothing is read. Raises ConfigError when the condition is not understood, or when it tells nothing about partitions.
        """


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


class CatalogStore(Protocol):
    """The registered catalogs."""

    def add(self, entry: CatalogEntry) -> None:
        """Register a catalog. Raises ConfigError when the name is taken."""

    def replace(self, entry: CatalogEntry) -> None:
        """Give a registered catalog these properties. What is known of its tables stays. Raises NotFoundError when it is unknown."""

    def remove(self, name: str) -> None:
        """Forget a catalog and all state of its tables. Raises NotFoundError when it is unknown."""

    def entry(self, name: str) -> CatalogEntry:
        """Return a catalog. Raises NotFoundError when it is unknown; the message lists the known ones."""

    def entries(self) -> Sequence[CatalogEntry]:
        """Return all registered catalogs."""


class IndexStore(Protocol):
    """Writes what is known of tables and their files. `TableReader` (core/insight/ports.py) reads it."""

    def add(self, table: TableIdentifier) -> None:
        """Add a table as unread. It is paused when `SwitchStore` says so. A table that is known already does not change."""

    def save(self, index: TableIndex, version: str) -> str | None:
        """Replace the whole index value of a table, if it still has this version. Return its new version.

        Return None, and change nothing, when somebody else changed the index meanwhile. Raises NotFoundError when the table is unknown.
        """

    def begin_anew(self, table: TableIdentifier, version: str) -> str | None:
        """Forget everything about a table except its switch and its records, if its index still has this version.

        It is called when another table now has this name. Return the new version, or None when nothing was forgotten.
        """

    def forget(self, table: TableIdentifier) -> None:
        """Remove a dropped table with its files, nodes and tasks. Its records stay."""

    def save_figures(self, table: TableIdentifier, nodes: Sequence[MeasuredNode], now: datetime) -> None:
        """Insert or replace the figures of these nodes. `now` is when nodes that are new were first seen.

        A node without a key gets one, as `NodeKeyStore` says.
        """

    def remove_nodes(self, table: TableIdentifier, nodes: Collection[TableNode]) -> None:
        """Forget these nodes, which hold no file any more."""

    def forget_verdicts(self, table: TableIdentifier) -> None:
        """Remove the verdicts of all nodes of a table, so that every node is judged again. It is called when thresholds changed."""


class NodeKeyStore(Protocol):
    """The keys by which people and Dagster name nodes (`core/tables/node_keys.py`).

    A node gets its key once. It keeps the key for ever, and no other node ever gets it: not while the node holds no file, not after its
    table was dropped and created again, and not after its catalog was removed.
    """

    def keys(self, table: TableIdentifier, nodes: Collection[TableNode]) -> Mapping[TableNode, str]:
        """Return the keys of these nodes of a table. A node without a key gets one now, also while other processes give keys."""


class SwitchStore(Protocol):
    """Writes whether tables are paused. `TableReader` (core/insight/ports.py) reads it."""

    def pause(self, table: TableIdentifier | None, paused: bool) -> int:
        """Pause or resume one table, or with None all tables. Return how many changed. Raises NotFoundError when the table is unknown.

        The waiting tasks of a paused table have no turn before the table is resumed (`TaskStore.poll`).

        When all tables were paused, a table that is added later is paused too, until all are resumed. A table that was paused when it was
        forgotten is paused again when it is found again, unless it was resumed meanwhile. This also holds for the tables of a catalog that
        was removed.
        """


class ReportStore(Protocol):
    """The reports of commits that no look at their tables has answered yet, one row for each table."""

    def add(self, report: CommitReport, now: datetime) -> ReportedTable:
        """Add a report to those of its table (`with_report`). Return all of them. Several processes may do this at once."""

    def reported(self) -> Sequence[ReportedTable]:
        """Return the tables with reports, sorted by identifier."""

    def answer(self, reported: ReportedTable) -> bool:
        """Remove the reports of a table. When another report has come since these were read, nothing is removed: return False."""


@dataclass(frozen=True, slots=True)
class TouchedNode:
    """A node that must be measured.

    `files` is the number of its files now; a node with 0 is gone. `changed` says whether its files differ from those last measured.
    """

    files: int
    changed: bool


class FileStore(Protocol):
    """The index of the live files of every table, by the manifest that lists them.

    A node is touched when its figures must be computed again. `touch` and `apply` touch nodes, `mark_measured` ends this.
    """

    def manifests(self, table: TableIdentifier) -> frozenset[str]:
        """Return the paths of the manifests whose files are in the index."""

    def apply(self, table: TableIdentifier, removed: Iterable[str], added: Mapping[str, Sequence[LiveFile]]) -> None:
        """In one transaction, remove the files of the `removed` manifests and add those of the `added` ones. Idempotent.

        This touches the nodes whose set of files differs from the set at their last `mark_measured`. A file that only moves from one
        manifest to another does not touch its node.
        """

    def files(self, table: TableIdentifier, nodes: Collection[TableNode] | None = None) -> Sequence[LiveFile]:
        """Return every file of a table in the index, or those of these nodes.

        With `nodes` the result also has files of other nodes that matter to these: position deletes that name one of their data files,
        data files that one of their position deletes names, and data files with the same path. It has no global equality deletes of
        other nodes; `has_global_deletes` tells whether there are any.
        """

    def figures(
        self, table: TableIdentifier, small_bytes: int, undersized_bytes: int, nodes: Collection[TableNode] | None = None
    ) -> Mapping[TableNode, NodeFigures]:
        """Return the sums of every node that holds files, or of these nodes. The database computes them, so no file is loaded.

        A file is small when it has at most `small_bytes`. A larger data file is undersized when it has at most `undersized_bytes`.
        """

    def named_from_elsewhere(self, table: TableIdentifier, nodes: Collection[TableNode] | None = None) -> Collection[TableNode]:
        """Return the nodes with a data file that a position delete of another node names; with `nodes`, only those of these."""

    def has_global_deletes(self, table: TableIdentifier, unpartitioned_spec_ids: Collection[int]) -> bool:
        """Return whether the index has an equality delete of one of these specs.

        Such a delete is global and reaches every node, so a plan cannot look at one node alone.
        """

    def touched(self, table: TableIdentifier) -> Mapping[TableNode, TouchedNode]:
        """Return the touched nodes of a table."""

    def touch(self, table: TableIdentifier) -> None:
        """Touch every node of a table, because something changed that all figures depend on."""

    def mark_measured(self, table: TableIdentifier, nodes: Collection[TableNode]) -> None:
        """Note that the figures of these nodes are stored, so that the nodes are no longer touched."""
