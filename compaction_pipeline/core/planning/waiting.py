"""What a tick says of a table whose due nodes wait, when it does not judge them again."""

from __future__ import annotations

from collections.abc import Sequence

from compaction_pipeline.core.fragmentation.verdict import NodeState, PlanReason, PlanReasonCode
from compaction_pipeline.core.words import count_text

_WAITING = (
    PlanReasonCode.MIN_PLAN_INTERVAL,
    PlanReasonCode.OVER_BUDGET,
    PlanReasonCode.FILES_IN_USE,
    PlanReasonCode.PLANNED,
    PlanReasonCode.FAILING,
)


def what_waits(nodes: Sequence[NodeState]) -> PlanReason | None:
    """What the verdicts say of nodes that are due and not done, in one sentence; None when there is no such node."""
    reasons = [(node.node, node.verdict.reason) for node in nodes if node.verdict is not None]
    for code in _WAITING:
        held = [(node, reason) for node, reason in reasons if reason.code is code]
        if held:
            node, reason = held[0]
            # What was planned has its tasks by now.
            told = PlanReasonCode.FILES_IN_USE if code is PlanReasonCode.PLANNED else code
            return PlanReason(told, f"{count_text(len(held), 'node')} held back; {node}: {reason.text}")
    return None
