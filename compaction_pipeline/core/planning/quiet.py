"""What a tick need not look at again: nodes that stood still, and waiting nodes of which everything has been told."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from compaction_pipeline.core.fragmentation.clock import is_judged, may_be_due
from compaction_pipeline.core.fragmentation.verdict import NodeState, PlanReason, PlanReasonCode
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.words import count_text

UNCHANGED = PlanReason(PlanReasonCode.NOT_FRAGMENTED, "no node is due, and none changed since it was judged")

_WAITING = (
    PlanReasonCode.MIN_PLAN_INTERVAL,
    PlanReasonCode.OVER_BUDGET,
    PlanReasonCode.FILES_IN_USE,
    PlanReasonCode.PLANNED,
    PlanReasonCode.FAILING,
)


def nodes_to_look_at(
    nodes: Sequence[NodeState], worked: Collection[TableNode], properties: TableProperties, *, global_deletes: bool
) -> Sequence[NodeState]:
    """The nodes that a tick may find due though nobody wrote to them. The files of the others need not be read.

    `worked` are the nodes of tasks that are open or have failed. They are always looked at, because the end of a task frees files of its
    node without changing any.
    """
    return [node for node in nodes if node.node in worked or may_be_due([node], properties, global_deletes=global_deletes)]


def are_told(nodes: Sequence[NodeState], failing: Collection[TableNode]) -> bool:
    """True when another look at these nodes, which wait for a slot or for the pause between two plans, would say nothing new."""
    return all(is_judged(node) and (node.failing is not None) == (node.node in failing) for node in nodes)


def what_waits(nodes: Sequence[NodeState]) -> PlanReason | None:
    """One sentence about the nodes that are due and not done, as their verdicts say. None when there is no such node."""
    reasons = [(node.node, node.verdict.reason) for node in nodes if node.verdict is not None]
    for code in _WAITING:
        held = [(node, reason) for node, reason in reasons if reason.code is code]
        if held:
            node, reason = held[0]
            # A node that was planned has its tasks by now.
            told = PlanReasonCode.FILES_IN_USE if code is PlanReasonCode.PLANNED else code
            return PlanReason(told, f"{count_text(len(held), 'node')} held back; {node}: {reason.text}")
    return None
