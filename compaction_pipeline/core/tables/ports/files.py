"""What the state database remembers of the live files of tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from compaction_pipeline.core.tables.data_file import Bounds, LiveFile
from compaction_pipeline.core.tables.figures import NodeFigures
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier

SortBounds = Mapping[int, Bounds | None] | None


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

    def sort_bounds(self, table: TableIdentifier, nodes: Collection[TableNode]) -> Mapping[TableNode, Sequence[SortBounds]]:
        """Return of each data file of these nodes the bounds with which it was added (`BoundedFile`); None for one without them."""

    def named_by_others(self, table: TableIdentifier, paths: Sequence[str]) -> Collection[str]:
        """Return those of these paths that are live in the index of another table. Paths are compared as they are written."""

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
