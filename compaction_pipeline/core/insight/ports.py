"""What use cases read of tables and nodes, whoever wrote it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from compaction_pipeline.core.fragmentation.verdict import NodeState
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier


class TableReader(Protocol):
    """Known tables and their nodes. Nothing is written here."""

    def states(self, catalog: str | None = None) -> Sequence[KnownTable]:
        """All known tables, or those of a catalog, sorted by identifier."""

    def seen(self) -> Mapping[TableIdentifier, str | None]:
        """All known tables, with the place of the metadata that was read to its end (`KnownTable.metadata_location`)."""

    def state(self, table: TableIdentifier) -> KnownTable:
        """NotFoundError when unknown."""

    def nodes(self, table: TableIdentifier | None = None, only: Collection[TableNode] | None = None) -> Sequence[NodeState]:
        """All nodes of a table, or of all tables, sorted by key; of a table only these where given."""

    def node(self, key: str) -> NodeState:
        """By node key, cut keys included; NotFoundError when unknown."""
