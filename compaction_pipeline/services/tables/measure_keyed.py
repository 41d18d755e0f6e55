"""Stores the figures of the nodes of a keyed table.

Such a table has no index of files: which change files count depends on the optimized sequences, which change without the files. So each
look takes the files of both stores, and every node is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from compaction_pipeline.core.fragmentation.metrics import same_content
from compaction_pipeline.core.fragmentation.small_since import small_since
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.tables.figures import MeasuredNode, NodeMetrics
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.ports.index import IndexStore
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.tables.table import TableIdentifier


class MeasureKeyed:
    """One verb: measure."""

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
        figures = [
            MeasuredNode(
                node,
                measured[node],
                snapshot_id if node in moved else known[node].changed_snapshot_id,
                small_since(known.get(node), measured[node], properties, changed_at),
            )
            for node in changed
        ]
        if figures:
            self._index.save_figures(table, figures, self._clock())
        self._index.remove_nodes(table, [node for node in known if node not in measured])
        return tuple(changed)
