"""Reads the state of tables and nodes and makes overviews of it. The use cases of this folder share these functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compaction_pipeline.core.fragmentation.verdict import NodeState
from compaction_pipeline.core.insight.overview import NO_TASKS, NodeOverview, TableOverview, node_overview, table_overview
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.queue.ports import TaskStore
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier


@dataclass(frozen=True, slots=True)
class TableWithNodes:
    """A table's overview and those of all its nodes, sorted by key."""

    overview: TableOverview
    nodes: Sequence[NodeOverview]


def tables_with_nodes(
    catalogs: Iterable[CatalogEntry], tables: TableReader, tasks: TaskStore, catalog: str | None = None
) -> list[TableWithNodes]:
    """Every known table, or those of one catalog, sorted by name."""
    entries = {entry.name: entry for entry in catalogs}
    open_tasks = tasks.open_tasks()
    states = tables.states(catalog)
    nodes: dict[TableIdentifier, list[NodeState]] = {state.table: [] for state in states}
    for node in tables.nodes():
        if node.table in nodes:
            nodes[node.table].append(node)
    answer = []
    for state in states:
        # A catalog may have been added since the catalogs were read.
        entry = entries.get(state.table.catalog) or CatalogEntry(state.table.catalog, {})
        of_table = open_tasks.get(state.table, NO_TASKS)
        overviews = [node_overview(node, state, entry.observe, of_table) for node in nodes[state.table]]
        answer.append(TableWithNodes(table_overview(state, entry, overviews, of_table), overviews))
    return answer
