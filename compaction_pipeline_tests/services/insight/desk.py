"""Stores, and the use cases that read them."""

from __future__ import annotations

from dataclasses import replace

from compaction_pipeline.core.fragmentation.verdict import NodeState, NodeVerdict, PlanReason, PlanReasonCode
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.figures import MeasuredNode
from compaction_pipeline.core.tables.index import IndexState, TableIndex, WholeRead
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.services.insight.read_records import ReadRecords
from compaction_pipeline.services.insight.read_status import ReadStatus
from compaction_pipeline.services.insight.read_tables import ReadTables
from compaction_pipeline.services.insight.read_tasks import ReadTasks
from compaction_pipeline_tests.builders import COMPLETE, indexed
from compaction_pipeline_tests.defs.values import NOW, ORDERS, node_state

WATCHED = TableIdentifier("watched", ("shop",), "orders")
"""A table in a catalog that is only observed."""


class Desk:
    """Two catalogs: `lake` is compacted, and `watched` is only observed."""

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        stores.catalogs.add(CatalogEntry("lake", {}))
        stores.catalogs.add(CatalogEntry("watched", {}, observe=True))
        self.status = ReadStatus(stores.catalogs, stores.tables, stores.tasks, stores.records, lambda: NOW, stores.listings)
        self.tables = ReadTables(stores.catalogs, stores.tables, stores.files, stores.tasks, stores.records, stores.teams, lambda: NOW)
        self.records = ReadRecords(stores.catalogs, stores.tables, stores.tasks, stores.records)
        self.tasks = ReadTasks(stores.catalogs, stores.tables, stores.tasks)

    def table(self, table: TableIdentifier, *nodes: NodeState, state: IndexState = COMPLETE, earlier: WholeRead | None = None) -> None:
        """Store a table whose index is in this state, with these nodes. By default all files of the table were read."""
        indexed(self.stores, TableIndex(table, state, earlier))
        self.stores.index.save_figures(table, [MeasuredNode(node.node, node.metrics, node.changed_snapshot_id) for node in nodes], NOW)
        self.stores.planning.save_verdicts(table, [node.verdict for node in nodes if node.verdict is not None])


def judged(
    number: int, code: PlanReasonCode, kind: CompactionType | None = None, table: TableIdentifier = ORDERS, small: int = 9, files: int = 10
) -> NodeState:
    """A node whose verdict has this code and type."""
    state = node_state(number, table, data_files=files, small_data_files=small, data_bytes=1000)
    return replace(state, verdict=NodeVerdict(state.node, kind, PlanReason(code, f"because {number}"), state.metrics))


def due(number: int, table: TableIdentifier = ORDERS, small: int = 9, files: int = 10) -> NodeState:
    """A node for which a MINOR is planned."""
    return judged(number, PlanReasonCode.PLANNED, CompactionType.MINOR, table, small, files)
