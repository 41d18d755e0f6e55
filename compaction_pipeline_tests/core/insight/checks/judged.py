"""Nodes as the checks get them."""

from __future__ import annotations

from datetime import datetime

from compaction_pipeline.core.fragmentation.verdict import NodeState, NodeVerdict, PlanReason, PlanReasonCode
from compaction_pipeline.core.insight.checks.facts import JudgedNode, TableFacts
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.index import TableIndex
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.work.kinds import CompactionType


def judged_node(
    node: NodeState, properties: TableProperties | None = None, *, problem: str | None = None, open_tasks: bool = False, busy: bool = False
) -> JudgedNode:
    """A node of a table with these properties. `busy` is True when other tasks of the table are open."""
    of_table = properties or TableProperties()
    index = TableIndex(node.table)
    known = KnownTable(index.failed(problem) if problem else index)
    return JudgedNode(node, TableFacts(known, of_table), of_table, open_tasks, open_tasks or busy)


def verdict(
    node: NodeState,
    code: PlanReasonCode,
    kind: CompactionType | None = None,
    since: datetime | None = None,
    metrics: NodeMetrics | None = None,
) -> NodeVerdict:
    """A verdict for the present figures of the node, unless other `metrics` are given."""
    return NodeVerdict(node.node, kind, PlanReason(code, f"said {code.value}"), metrics or node.metrics, since)
