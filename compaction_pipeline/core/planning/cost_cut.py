"""Cuts a plan to the GB-hours that the table's team has left today: the nodes that gain the most for what they cost stay.

A node that is cut waits, and says BELOW_BUDGET_CUT. It gains one rank for each day that it has been due, so that no node waits for ever. A
node that costs more than the whole budget of a day is begun when it comes first, because it would not fit tomorrow either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from compaction_pipeline.core.fragmentation.verdict import PlanReason, PlanReasonCode
from compaction_pipeline.core.planning.budget import W, units
from compaction_pipeline.core.planning.plan import CostLimit
from compaction_pipeline.core.tables.node import TableNode

_LEAST_GB_HOURS = 1e-12


def cut_by_cost(
    works: Sequence[W], gains: Mapping[TableNode, int], limit: CostLimit, now: datetime
) -> tuple[Sequence[W], Mapping[TableNode, PlanReason]]:
    """Return the works that the budget reaches, and why nodes whose works are all below the line wait.

    Works that are taken together or not at all go when a node of one of them is cut.
    """
    costs: dict[TableNode, float] = defaultdict(float)
    for work in works:
        costs[work.node] += limit.gb_hours(work)
    best = sorted(costs, key=lambda node: (-gains.get(node, 0) / max(costs[node], _LEAST_GB_HOURS), str(node)))
    ranks = {node: rank - _days_waited(limit, node, now) for rank, node in enumerate(best)}
    reached: set[TableNode] = set()
    spent = 0.0
    for node in sorted(best, key=lambda node: (ranks[node], limit.due_since.get(node, now), str(node))):
        too_large = not reached and limit.left > 0 and costs[node] > limit.whole
        if spent + costs[node] > limit.left and not too_large:
            # A cheaper node below is worth less for its cost, and would keep this one from ever being reached.
            break
        reached.add(node)
        spent += costs[node]
    kept = [work for unit in units(works) if all(work.node in reached for work in unit) for work in unit]
    taken = {id(work) for work in kept}
    left = {work.node for work in kept}
    below = {
        node: PlanReason(
            PlanReasonCode.BELOW_BUDGET_CUT,
            f"it waits: team {limit.team} has {max(0.0, limit.left):.3f} GB-hours left today (UTC), and its {costs[node]:.3f} are not "
            "among the nodes that gain the most for that",
        )
        for node in costs
        if node not in left
    }
    return [work for work in works if id(work) in taken], below


def _days_waited(limit: CostLimit, node: TableNode, now: datetime) -> int:
    since = limit.due_since.get(node)
    return 0 if since is None else max(0, (now - since).days)
