"""Leaves out nodes by `self-optimizing.filter`: those that it does not let in, as if nobody had asked for them.

A plan of some nodes never changes a row, whichever nodes these are. So a filter does not either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from compaction_pipeline.core.fragmentation.verdict import NodeVerdict, PlanReason, PlanReasonCode
from compaction_pipeline.core.planning.plan import CompactionPlan, PlanRequest
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.node import Place, TableNode
from compaction_pipeline.core.tables.properties import TableProperties


def obeys_filter(request: PlanRequest) -> bool:
    """Return whether a request keeps to the filter of its table. A person who names nodes and a type wants just these."""
    return not (request.force and request.nodes is not None)


def nodes_left_out(
    nodes: Mapping[TableNode, NodeMetrics], lets_in: Callable[[Place], bool], request: PlanRequest
) -> Mapping[TableNode, NodeMetrics]:
    """Return those of the nodes that were asked for and that the filter leaves out."""
    places = {place: lets_in(place) for place in {node.place for node in nodes}}
    asked = request.nodes
    return {node: metrics for node, metrics in nodes.items() if not places[node.place] and (asked is None or node in asked)}


def with_left_out(plan: CompactionPlan, left_out: Mapping[TableNode, NodeMetrics], properties: TableProperties) -> CompactionPlan:
    """Return a plan of the other nodes with a verdict for each node that the filter left out, and with their files in its prediction."""
    if not left_out:
        return plan
    reason = PlanReason(PlanReasonCode.DISABLED, properties.left_out_by)
    judged = {verdict.node for verdict in plan.verdicts}
    verdicts = [replace(verdict, type=None, reason=reason) if verdict.node in left_out else verdict for verdict in plan.verdicts]
    apart = {node: metrics for node, metrics in left_out.items() if node not in judged}
    verdicts += [NodeVerdict(node, None, reason, metrics) for node, metrics in apart.items()]
    are_all = all(verdict.reason == reason or verdict.reason.code is PlanReasonCode.NOT_REQUESTED for verdict in verdicts)
    return replace(
        plan,
        verdicts=tuple(verdicts),
        reason=PlanReason(reason.code, f"{next(iter(left_out))}: {reason.text}") if are_all else plan.reason,
        predicted_files=plan.predicted_files + sum(metrics.data_files for metrics in apart.values()),
        predicted_delete_files=plan.predicted_delete_files + sum(metrics.delete_files for metrics in apart.values()),
        predicted_bytes=plan.predicted_bytes + sum(metrics.data_bytes + metrics.delete_bytes for metrics in apart.values()),
    )
