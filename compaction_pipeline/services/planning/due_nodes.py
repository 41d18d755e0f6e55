"""Says of due work on a table what readers gain by it and what it is predicted to cost, node by node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from compaction_pipeline.core.capacity.calibration import Fit
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.planning.benefit import DueNode
from compaction_pipeline.core.planning.budget import nodes_together
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.policies import inherited
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.properties import properties_or_defaults
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.services.planning.payers import properties_of


class DueNodes:
    """One question: of."""

    def __init__(self, reader: TableReader, catalogs: CatalogStore) -> None:
        self._reader = reader
        self._catalogs = catalogs

    def of(self, known: KnownTable, works: Iterable[Work], fit_of: Callable[[CompactionType], Fit | None]) -> Iterator[DueNode]:
        """Return the nodes on which this work of a table is due, one for each type of work.

        `fit_of` predicts what tasks of a type cost. Those of a type that it does not know cost nothing.
        """
        by_node: dict[tuple[TableNode, CompactionType], list[Work]] = defaultdict(list)
        for work in works:
            by_node[work.node, work.type].append(work)
        if not by_node:
            return
        of_catalog = inherited(self._catalogs.entry(known.table.catalog).properties, known.policies)
        weight = properties_or_defaults(properties_of(known), of_catalog).read_weight
        since = self._due_since(known, {node for node, _ in by_node})
        together = nodes_together(work for of_node in by_node.values() for work in of_node)
        for (node, kind), of_node in by_node.items():
            fit = fit_of(kind)
            cost = sum(fit.gb_hours(work.bytes_read) or 0.0 for work in of_node) if fit is not None else 0.0
            gain = weight * sum(work.gain for work in of_node)
            error = fit.error if fit is not None else None
            yield DueNode(known.table, node, kind, len(of_node), gain, cost, error, since.get(node), together[node])

    def _due_since(self, known: KnownTable, nodes: set[TableNode]) -> dict[TableNode, datetime | None]:
        return {state.node: state.verdict.since for state in self._reader.nodes(known.table, nodes) if state.verdict is not None}
