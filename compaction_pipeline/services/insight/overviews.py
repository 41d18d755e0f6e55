"""Reads the state of tables, nodes and the queue, and makes overviews of it. The use cases of this folder share these functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from compaction_pipeline.core.fragmentation.verdict import NodeState
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.insight.overview import (
    NO_TASKS,
    NodeOverview,
    TableOverview,
    commit_is_overdue,
    node_overviews,
    table_overview,
    worst_first,
)
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.queue.open_work import OpenTasks
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.queue.queue_counts import QueueCounts
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.services.remembered import Remembered


@dataclass(frozen=True, slots=True)
class TableWithNodes:
    """A table's overview and those of all its nodes, sorted by key."""

    overview: TableOverview
    nodes: Sequence[NodeOverview]


_Source = tuple[KnownTable, CatalogEntry, Sequence[NodeState], OpenTasks, bool]
# Overviews depend on the time only in whether a commit is overdue. Each tick makes those of 25,000 nodes, and most have not changed.
_TABLES: Remembered[TableIdentifier, _Source, TableWithNodes] = Remembered()
_ALL: Remembered[str, tuple[Sequence[NodeOverview], ...], tuple[NodeOverview, ...]] = Remembered()


def tables_with_nodes(catalogs: Iterable[CatalogEntry], tables: TableReader, tasks: TaskStore, now: datetime) -> list[TableWithNodes]:
    """Every known table, sorted by name."""
    entries = {entry.name: entry for entry in catalogs}
    nodes = tables.nodes_of_tables()
    open_tasks = tasks.open_tasks()
    sources: dict[TableIdentifier, _Source] = {}
    for state in tables.states():
        # A catalog or a table may have been added since the others were read.
        entry = entries.get(state.table.catalog) or CatalogEntry(state.table.catalog, {})
        of_table = open_tasks.get(state.table, NO_TASKS)
        overdue = commit_is_overdue(state, entry, of_table, now)
        sources[state.table] = (state, entry, nodes.get(state.table, ()), of_table, overdue)
    return list(_TABLES.made(sources, _with_nodes).values())


def all_worst_first(found: Iterable[TableWithNodes]) -> tuple[NodeOverview, ...]:
    """The nodes of all these tables in one order (see `worst_first`)."""
    sources = tuple(table.nodes for table in found)
    return _ALL.made({"": sources}, lambda lists: worst_first(node for nodes in lists for node in nodes))[""]


def queue_counts(tasks: TaskStore) -> QueueCounts:
    """The counts of a task store."""
    counts, paused, retrying = tasks.counts(), tasks.paused(), tasks.count_waiting_for_retry()
    replaced = tasks.count_replaced()
    return QueueCounts(
        # The two counts are read one after the other, and tasks may end between them.
        pending=max(0, counts.get(TaskStatus.PENDING, 0) - paused),
        paused=paused,
        executing=counts.get(TaskStatus.EXECUTING, 0),
        prepared=counts.get(TaskStatus.PREPARED, 0),
        committed=counts.get(TaskStatus.COMMITTED, 0),
        # A task may be put back between the two questions.
        failed=max(0, counts.get(TaskStatus.FAILED, 0) - retrying),
        canceled=max(0, counts.get(TaskStatus.CANCELED, 0) - replaced),
        retrying=retrying,
        replaced=replaced,
    )


def _with_nodes(source: _Source) -> TableWithNodes:
    state, entry, nodes, tasks, overdue = source
    overviews = node_overviews(nodes, state, entry, tasks)
    return TableWithNodes(table_overview(state, entry, overviews, tasks, overdue=overdue), overviews)
