"""What the state database remembers of tables and their nodes: heads, figures, keys and pauses."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from compaction_pipeline.core.tables.figures import MeasuredNode
from compaction_pipeline.core.tables.index import TableIndex
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier


class IndexStore(Protocol):
    """Writes what is known of tables and their files. `TableReader` (core/insight/ports.py) reads it."""

    def add(self, table: TableIdentifier) -> None:
        """Add a table as unread. It is paused when `SwitchStore` says so. A table that is known already does not change."""

    def save(self, index: TableIndex, version: str) -> str | None:
        """Replace the whole index value of a table, if it still has this version. Return its new version.

        Return None, and change nothing, when somebody else changed the index meanwhile. Raises NotFoundError when the table is unknown.
        """

    def save_all(self, indexes: Sequence[tuple[TableIndex, str]]) -> Collection[TableIdentifier]:
        """Do the same for several tables in one transaction, each with the version that its index has. Return those that were replaced."""

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
