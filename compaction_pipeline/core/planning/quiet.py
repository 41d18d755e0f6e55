"""Finds what a tick need not look at again: nodes that did not change, and waiting nodes whose reasons are stored already."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from compaction_pipeline.core.fragmentation.clock import is_judged, may_be_due_from
from compaction_pipeline.core.fragmentation.verdict import NodeState, NodeVerdict, PlanReason, PlanReasonCode, weightiest
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.words import count_text

UNCHANGED = PlanReason(PlanReasonCode.NOT_FRAGMENTED, "no node is due, and no node changed since it was judged")

_WAITING = frozenset(
    {
        PlanReasonCode.MIN_PLAN_INTERVAL,
        PlanReasonCode.OVER_TEAM_BUDGET,
        PlanReasonCode.QUEUE_FULL,
        PlanReasonCode.OVER_BUDGET,
        PlanReasonCode.BELOW_BUDGET_CUT,
        PlanReasonCode.FILES_IN_USE,
        PlanReasonCode.FAILING,
        PlanReasonCode.NOT_READY,
        PlanReasonCode.OUTSIDE_WINDOW,
    }
)
"""The reasons of nodes that are due but not done."""


def nodes_to_look_at(
    nodes: Sequence[NodeState], worked: Collection[TableNode], properties: TableProperties, *, global_deletes: bool
) -> Sequence[NodeState]:
    """Return the nodes that a tick may find due although nobody wrote to them. The files of the others need not be read.

    `worked` are the nodes of tasks that are open or have failed. They are always looked at, because the end of a task frees files of its
    node without changing any.
    """
    return [node for node in nodes if node.node in worked or may_be_due_from([node], properties, global_deletes=global_deletes) is not None]


def due_by_time(nodes: Sequence[NodeState], properties: TableProperties, now: datetime, *, global_deletes: bool) -> bool:
    """Return whether an interval of a node has ended since its verdict said that nothing is due."""
    settled = [node for node in nodes if node.verdict is not None and node.verdict.type is None]
    since = may_be_due_from(settled, properties, global_deletes=global_deletes)
    return since is not None and since <= now


def are_told(nodes: Sequence[NodeState], failing: Collection[TableNode]) -> bool:
    """Return whether the stored reasons of these waiting nodes are still right, so that they need not be looked at again."""
    return all(is_judged(node) and (node.failing is not None) == (node.node in failing) for node in nodes)


def are_cut(nodes: Sequence[NodeState]) -> bool:
    """Return whether all that is due on these nodes, and something, lies below the line of the team's GB-hours of today."""
    due = [node.verdict for node in nodes if node.verdict is not None and node.verdict.type is not None]
    return bool(due) and all(verdict.reason.code is PlanReasonCode.BELOW_BUDGET_CUT for verdict in due)


def what_waits(nodes: Sequence[NodeState]) -> PlanReason | None:
    """Return a reason that describes the nodes that are due but not done, from their verdicts; None when there is no such node."""
    waiting = [
        (node.node, told, node.verdict.reason.text)
        for node in nodes
        if node.verdict is not None and (told := _told(node.verdict)) in _WAITING
    ]
    if not waiting:
        return None
    code = weightiest(told for _, told, _ in waiting)
    held = [(node, text) for node, told, text in waiting if told is code]
    node, text = held[0]
    return PlanReason(code, f"{count_text(len(held), 'node')} held back; {node}: {text}")


def _told(verdict: NodeVerdict) -> PlanReasonCode:
    """The reason of a node as it is now. The tasks of a node that was planned hold its files by now."""
    code = verdict.reason.code
    return PlanReasonCode.FILES_IN_USE if code is PlanReasonCode.PLANNED else code
