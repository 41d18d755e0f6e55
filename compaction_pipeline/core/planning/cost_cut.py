"""Cuts plans to the GB-hours that a team has left today: of all its tables, the nodes that gain the most for their cost stay.

A node that is cut waits, and says BELOW_BUDGET_CUT. `core.planning.benefit` has the order. A node that costs more than the whole budget of
a day is begun when it comes first, because it would not fit tomorrow either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from compaction_pipeline.core.fragmentation.verdict import PlanReason, PlanReasonCode
from compaction_pipeline.core.planning.benefit import DueNode, in_order
from compaction_pipeline.core.planning.budget import W, units
from compaction_pipeline.core.planning.plan import CostLimit
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.words import gb_hours_text


def below_the_line(due: Iterable[DueNode], left: float, whole: float, now: datetime) -> Sequence[DueNode]:
    """Return what the GB-hours that are `left` of a `whole` day do not reach."""
    ordered = in_order(due, now)
    spent = 0.0
    for place, one in enumerate(ordered):
        too_large = place == 0 and left > 0 and one.gb_hours > whole
        if spent + one.gb_hours > left and not too_large:
            # A cheaper node below is worth less for its cost, and would keep this one from ever being reached.
            return ordered[place:]
        spent += one.gb_hours
    return ()


def cut_by_cost(works: Sequence[W], limit: CostLimit) -> tuple[Sequence[W], Mapping[TableNode, PlanReason]]:
    """Return the works that the budget reaches, and why nodes whose works are all below the line wait.

    Works that are taken together or not at all go when a node of one of them is cut.
    """
    kept = [work for unit in units(works) if not any(work.node in limit.below for work in unit) for work in unit]
    taken, left = {id(work) for work in kept}, {work.node for work in kept}
    hours = gb_hours_text(max(0.0, limit.left))
    below = {
        node: PlanReason(
            PlanReasonCode.BELOW_BUDGET_CUT,
            f"it waits: team {limit.team} has {hours} GB-hours left today (UTC), and {_costs(node, limit)} not among the nodes of all its "
            "tables that gain the most for that",
        )
        for node in dict.fromkeys(work.node for work in works)
        if node not in left
    }
    return [work for work in works if id(work) in taken], below


def _costs(node: TableNode, limit: CostLimit) -> str:
    # A node whose work goes together with that of a node below the line may itself be above it.
    return f"its {gb_hours_text(limit.below[node])} are" if node in limit.below else "a node that is merged together with it is"
