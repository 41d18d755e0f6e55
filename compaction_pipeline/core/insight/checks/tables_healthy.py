"""Judges the health scores of tables by the least score that each table may have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from compaction_pipeline.core.fragmentation.health import node_health
from compaction_pipeline.core.fragmentation.health_score import ScoredNode, ScoreParts, average_parts, node_score, score_parts, table_score
from compaction_pipeline.core.insight.checks.facts import JudgedNode
from compaction_pipeline.core.insight.checks.judgement import Failure, Judgement
from compaction_pipeline.core.tables.table import TableIdentifier


def tables_healthy(nodes: Iterable[JudgedNode]) -> Judgement:
    """Fail each table whose health score is below its `compaction.health.min-score`. The one with the lowest score comes first.

    Only tables that are compacted are judged, and only those whose score is known.
    """
    of_tables: dict[TableIdentifier, list[JudgedNode]] = defaultdict(list)
    for each in nodes:
        if each.properties.min_health_score:
            of_tables[each.node.table].append(each)
    judged, low = 0, []
    for table, of_table in of_tables.items():
        # Sentences are made for the failing tables alone, because each tick judges all nodes.
        parts = _known_parts(of_table)
        judged += bool(parts)
        total = average_parts(parts).total
        if total < of_table[0].properties.min_health_score:
            low.append((total, table))
    failures = tuple(Failure(table, None, _reason(of_tables[table])) for _, table in sorted(low))
    return Judgement("tables", judged, failures, "with a health score", "no table that is compacted has a health score")


def _known_parts(nodes: Sequence[JudgedNode]) -> list[tuple[ScoreParts, int]]:
    scored = ((score_parts(each.node.metrics, each.properties), each.node.metrics.data_bytes) for each in nodes)
    return [(parts, size) for parts, size in scored if parts is not None]


def _reason(nodes: Sequence[JudgedNode]) -> str:
    scored = []
    for each in nodes:
        node = each.node
        health = node_health(node.verdict, each.table.known.refusal, node.failing)
        score = node_score(node.metrics, each.properties, node.verdict, health)
        scored.append(ScoredNode(node.node, node.metrics.data_bytes, score))
    return f"health score {table_score(scored).text} ({nodes[0].properties.min_health_score} are wanted)"
