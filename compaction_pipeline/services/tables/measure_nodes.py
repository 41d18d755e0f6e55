"""Measures the nodes of tables, and stores the figures of those that changed.

Of a table with an index, the nodes are measured whose files changed: the store remembers them until their figures are stored. Of a keyed
table every node is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from compaction_pipeline.core.fragmentation.metrics import measure, same_content
from compaction_pipeline.core.fragmentation.overlap import overlap_depth
from compaction_pipeline.core.fragmentation.small_since import small_since
from compaction_pipeline.core.fragmentation.verdict import NodeState
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.figures import MeasuredNode, NodeMetrics
from compaction_pipeline.core.tables.live_files import TableFiles
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.ports.files import FileStore, TouchedNode
from compaction_pipeline.core.tables.ports.index import IndexStore
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.tables.sort_order import sort_columns
from compaction_pipeline.core.tables.table import TableHead, TableIdentifier

MEASURED_FILES = 50_000
"""At most this many files are in memory while nodes are measured. A node with more files is measured alone."""
FEW_NODES = 500
"""Up to this many nodes are looked up one by one. For more nodes the whole table is read through, which costs less."""


class MeasureNodes:
    """Stores the figures of the nodes of a table that has an index of files. One verb: measure."""

    def __init__(self, reader: TableReader, index: IndexStore, files: FileStore, clock: Clock) -> None:
        self._reader = reader
        self._index = index
        self._files = files
        self._clock = clock

    def measure(
        self, head: TableHead, properties: TableProperties, changed_at: datetime, renew: Callable[[], bool]
    ) -> tuple[TableNode, ...]:
        """Store the figures of every node whose files changed. Return the nodes whose set of files, or whose figures, have changed.

        `changed_at` is when the change happened that is measured now.
        """
        table = head.table
        touched = self._files.touched(table)
        if not touched:
            return ()
        known = {state.node: state for state in self._reader.nodes(table, touched)}
        unpartitioned = head.layout.unpartitioned_spec_ids
        global_before = any(node.spec_id in unpartitioned and state.metrics.equality_delete_files for node, state in known.items())
        if global_before or self._files.has_global_deletes(table, unpartitioned):
            # A global delete counts in every node.
            return self._measure_all(head, properties, changed_at, touched)
        some = list(touched) if len(touched) <= FEW_NODES else None
        figures = self._files.figures(table, properties.fragment_size_bytes, properties.undersized_bytes, some)
        named_by_others = self._files.named_from_elsewhere(table, some)
        # Deleted rows are estimated from the files. For a node without deletes, sums over its files are enough.
        summed = {
            node: figures[node].metrics
            for node in touched
            if node in figures and node not in named_by_others and not figures[node].metrics.delete_files
        }
        gone = [node for node, found in touched.items() if not found.files]
        changed = list(self._store(head, properties, changed_at, summed, touched, known))
        self._files.mark_measured(table, summed)
        for nodes in _batches({node: found.files for node, found in touched.items() if node not in summed}):
            measured = measure(_table_files(head, self._files.files(table, nodes)), properties)
            some_measured = {node: measured[node] for node in nodes if node in measured}
            changed += self._store(head, properties, changed_at, some_measured, touched, known)
            self._files.mark_measured(table, nodes)
            renew()
        self._index.remove_nodes(table, gone)
        self._files.mark_measured(table, gone)
        return tuple(changed)

    def _measure_all(
        self, head: TableHead, properties: TableProperties, changed_at: datetime, touched: Mapping[TableNode, TouchedNode]
    ) -> tuple[TableNode, ...]:
        table: TableIdentifier = head.table
        known = {state.node: state for state in self._reader.nodes(table)}
        measured = measure(_table_files(head, self._files.files(table)), properties)
        changed = self._store(head, properties, changed_at, measured, touched, known)
        self._index.remove_nodes(table, [node for node in known if node not in measured])
        self._files.mark_measured(table, list(touched))
        return changed

    def _store(
        self,
        head: TableHead,
        properties: TableProperties,
        changed_at: datetime,
        measured: Mapping[TableNode, NodeMetrics],
        touched: Mapping[TableNode, TouchedNode],
        known: Mapping[TableNode, NodeState],
    ) -> tuple[TableNode, ...]:
        """Store these figures. Return the nodes whose set of files, or whose figures, have changed."""
        others = {node for node, found in touched.items() if found.changed}
        changed = tuple(node for node, metrics in measured.items() if node not in known or node in others or known[node].metrics != metrics)
        # Another threshold changes the count of small files, but nothing that a reader of the node would see.
        moved = {node for node in changed if node not in known or node in others or not same_content(known[node].metrics, measured[node])}
        nodes = _figures(measured, known, moved, head.snapshot_id, properties, changed_at)
        depths = self._overlap_depths(head, measured)
        self._index.save_figures(head.table, [replace(one, overlap_depth=depths.get(one.node)) for one in nodes], self._clock())
        return changed

    def _overlap_depths(self, head: TableHead, measured: Mapping[TableNode, NodeMetrics]) -> Mapping[TableNode, int | None]:
        """How many files of each node a look-up on the sort columns may open. Nothing is read of a table without a sort order."""
        columns = sort_columns(head.layout)
        batches = _batches({node: metrics.data_files for node, metrics in measured.items()}) if columns else ()
        return {
            node: overlap_depth(bounds, columns) for batch in batches for node, bounds in self._files.sort_bounds(head.table, batch).items()
        }


class MeasureKeyed:
    """Stores the figures of the nodes of a keyed table. One verb: measure.

    Such a table has no index of files: which change files count depends on the optimized sequences, which change without the files. So each
    look takes the files of both stores, and every node is measured.
    """

    def __init__(self, reader: TableReader, index: IndexStore, clock: Clock) -> None:
        self._reader = reader
        self._index = index
        self._clock = clock

    def measure(
        self,
        table: TableIdentifier,
        measured: Mapping[TableNode, NodeMetrics],
        snapshot_id: int | None,
        properties: TableProperties,
        changed_at: datetime,
        renew: Callable[[], bool],
    ) -> tuple[TableNode, ...] | None:
        """Store the figures of the nodes that differ from what is stored, and forget nodes without files.

        `snapshot_id` is that of the newest change, and `changed_at` is when it happened. Return the nodes that changed. Return None, and
        store nothing, when another process has taken over.
        """
        known = {state.node: state for state in self._reader.nodes(table)}
        changed = [node for node, metrics in measured.items() if node not in known or known[node].metrics != metrics]
        if not renew():
            return None
        moved = [node for node in changed if node not in known or not same_content(known[node].metrics, measured[node])]
        figures = _figures({node: measured[node] for node in changed}, known, moved, snapshot_id, properties, changed_at)
        if figures:
            self._index.save_figures(table, figures, self._clock())
        self._index.remove_nodes(table, [node for node in known if node not in measured])
        return tuple(changed)


def _figures(
    measured: Mapping[TableNode, NodeMetrics],
    known: Mapping[TableNode, NodeState],
    moved: Collection[TableNode],
    snapshot_id: int | None,
    properties: TableProperties,
    changed_at: datetime,
) -> list[MeasuredNode]:
    """The figures to store. The nodes `moved` were changed by the snapshot `snapshot_id`."""
    return [
        MeasuredNode(
            node,
            metrics,
            snapshot_id if node in moved else known[node].changed_snapshot_id,
            small_since(known.get(node), metrics, properties, changed_at),
        )
        for node, metrics in measured.items()
    ]


def _batches(counts: Mapping[TableNode, int]) -> Iterator[list[TableNode]]:
    """The nodes that hold files, in groups of at most `MEASURED_FILES` files. A larger node is a group of its own."""
    batch: list[TableNode] = []
    held = 0
    for node, count in counts.items():
        if batch and held + count > MEASURED_FILES:
            yield batch
            batch, held = [], 0
        if count:
            batch.append(node)
            held += count
    if batch:
        yield batch


def _table_files(head: TableHead, files: Sequence[LiveFile]) -> TableFiles:
    return TableFiles(
        head.table,
        head.table_uuid,
        head.snapshot_id or 0,
        head.sequence_number,
        head.layout.format_version,
        head.layout.schema_id,
        head.layout.default_spec_id,
        head.layout.unpartitioned_spec_ids,
        tuple(files),
    )
