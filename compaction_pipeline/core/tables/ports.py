"""What use cases need to know tables and their files: the catalogs, the table metadata and the index of live files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.figures import MeasuredNode, NodeFigures
from compaction_pipeline.core.tables.index import TableIndex
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import CatalogEntry, ManifestRef, TableHead, TableIdentifier


class TableScan(Protocol):
    """Reads catalogs and table metadata. Errors: NotFoundError, ConfigError, StorageUnavailable."""

    def list_tables(self, catalog: str) -> Sequence[TableIdentifier]:
        """Every table that the catalog lists, all namespaces, sorted."""

    def locations(self, catalog: str) -> Mapping[TableIdentifier, str]:
        """Where the newest metadata of each table lies, if the catalog tells it of all in one answer; else none."""

    def head(self, table: TableIdentifier) -> TableHead:
        """The table's newest metadata, loaded afresh. NotFoundError when it was dropped."""

    def manifests(self, table: TableIdentifier, snapshot_id: int) -> Sequence[ManifestRef]:
        """The manifest list of a snapshot of the metadata that `head` loaded last."""

    def live_files(self, table: TableIdentifier, manifest: ManifestRef) -> Iterator[LiveFile]:
        """The live (not DELETED) entries of a manifest."""


class CatalogStore(Protocol):
    """Registered catalogs."""

    def add(self, entry: CatalogEntry) -> None:
        """Register; ConfigError when the name is taken."""

    def remove(self, name: str) -> None:
        """Forget a catalog and all state of its tables; NotFoundError when unknown."""

    def entry(self, name: str) -> CatalogEntry:
        """NotFoundError when unknown; the message lists those that are."""

    def entries(self) -> Sequence[CatalogEntry]: ...


class IndexStore(Protocol):
    """What is known of tables and their files. `core/insight/ports.py` reads it."""

    def add(self, table: TableIdentifier) -> None:
        """Make a table known, unread. One that is known already stays as it is."""

    def save(self, index: TableIndex) -> None:
        """Replace the index whole. NotFoundError when the table is unknown."""

    def begin_anew(self, table: TableIdentifier) -> None:
        """Forget everything of a table but its switch: another table has its name now. Its records stay."""

    def forget(self, table: TableIdentifier) -> None:
        """Remove a dropped table with files, nodes and tasks; its records stay."""

    def save_figures(self, table: TableIdentifier, nodes: Sequence[MeasuredNode], now: datetime) -> None:
        """Insert or replace the figures of these nodes. `now` is when nodes that are new were first seen."""

    def remove_nodes(self, table: TableIdentifier, nodes: Collection[TableNode]) -> None:
        """Forget nodes that hold no file any more."""

    def forget_verdicts(self, table: TableIdentifier) -> None:
        """Take every node's verdict away: the thresholds are others now, so every node must be judged anew."""


class SwitchStore(Protocol):
    """Whether tables are paused. `core/insight/ports.py` reads it."""

    def pause(self, table: TableIdentifier | None, paused: bool) -> int:
        """Pause or resume one table or all; answers how many tables changed. NotFoundError when unknown."""


@dataclass(frozen=True, slots=True)
class TouchedNode:
    """A node to be measured: how many files it holds now (0: the node is gone), and whether they are others than those last measured."""

    files: int
    changed: bool


class FileStore(Protocol):
    """The live files of every table, by the manifest that lists them."""

    def manifests(self, table: TableIdentifier) -> frozenset[str]:
        """Paths of the manifests whose files are indexed."""

    def apply(self, table: TableIdentifier, removed: Iterable[str], added: Mapping[str, Sequence[LiveFile]]) -> None:
        """In one transaction: drop the files of `removed` manifests, add those of `added` ones. Idempotent.

        Touched are the nodes whose set of files is another than when they were settled: not those of a file that goes with one
        manifest and comes as it was with another.
        """

    def files(self, table: TableIdentifier, nodes: Collection[TableNode] | None = None) -> Sequence[LiveFile]:
        """Every indexed file, or those of these nodes.

        With `nodes` come files of other nodes that matter to theirs whatever the partition: position deletes that name one of their
        data files, data files that one of their position deletes names, and data files of the same path. Global equality deletes do
        not: see `has_global_deletes`.
        """

    def figures(
        self, table: TableIdentifier, small_bytes: int, undersized_bytes: int, nodes: Collection[TableNode] | None = None
    ) -> Mapping[TableNode, NodeFigures]:
        """Sums of every node that holds files, or of these: a million files are counted without being read.

        A file of at most `small_bytes` is small, a data file of more and at most `undersized_bytes` undersized.
        """

    def crossed(self, table: TableIdentifier, nodes: Collection[TableNode] | None = None) -> Collection[TableNode]:
        """All nodes, or those of these, of which a data file is named by a position delete of another node."""

    def has_global_deletes(self, table: TableIdentifier, unpartitioned_spec_ids: Collection[int]) -> bool:
        """Whether an equality delete of one of these specs is indexed: it reaches every node, so none can be looked at alone."""

    def touched(self, table: TableIdentifier) -> Mapping[TableNode, TouchedNode]:
        """Nodes whose figures are to be made anew since they were settled."""

    def touch(self, table: TableIdentifier) -> None:
        """Mark every node touched: what all figures are made with has changed."""

    def settle(self, table: TableIdentifier, nodes: Collection[TableNode]) -> None:
        """The figures of these nodes are stored."""
