"""Reads the live files of a table, or of one of its nodes."""

from __future__ import annotations

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.insight.listed_files import ListedFile, listed_keyed, listed_plain
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.ports.files import FileStore
from compaction_pipeline.core.tables.ports.scan import TableScan
from compaction_pipeline.core.tables.table import TableIdentifier


class ReadFiles:
    """One verb: read."""

    def __init__(self, tables: TableReader, files: FileStore, scan: TableScan, clock: Clock) -> None:
        self._tables = tables
        self._files = files
        self._scan = scan
        self._clock = clock

    def read(self, table: TableIdentifier, node: TableNode | None = None) -> tuple[ListedFile, ...]:
        """Return the live files of a table, or of one node, sorted by node.

        Those of a plain table are the files that its last refresh found. Those of a keyed table are read from both stores now. Raises
        NotFoundError for an unknown table, TableRefused for a keyed table that cannot be read, and StorageUnavailable.
        """
        layout = self._tables.state(table).layout
        if layout is None or layout.keyed is None:
            found = listed_plain(self._files.files(table))
        else:
            head = self._scan.head(table)
            if head.refusal is not None:
                raise TableRefused(f"table {table}: {head.refusal}")
            found = listed_keyed(self._scan.keyed_content(head, self._clock()).files)
        # A file of a tree node above or below may have rows of this one, so a reader of the node opens it too.
        return tuple(
            each for each in found if node is None or (each.node.place == node.place and each.node.tree.shares_rows_with(node.tree))
        )
