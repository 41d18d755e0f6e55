"""Cuts plans to the GB-hours that a team has left today: of all its tables, the nodes that gain the most for their cost stay.

A node that is cut waits, and says BELOW_BUDGET_CUT. `core.planning.benefit` has the order. A node that costs more than the whole budget of
a day is begun when it comes first, because it would not fit tomorrow either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from compaction_pipeline.core.fragmentation.verdict import PlanReason, PlanReasonCode
from compaction_pipeline.core.planning.benefit import DueNode, in_order
from compaction_pipeline.core.planning.budget import W, units
from compaction_pipeline.core.planning.plan import CostLimit
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import gb_hours_text


def reached(due: Iterable[DueNode], left: float, whole: float, now: datetime) -> Sequence[DueNode]:
    """Return what the GB-hours reach that are `left` of a `whole` day. Nodes that are worked on together are reached together."""
    bundles: dict[tuple[TableIdentifier, TableNode], list[DueNode]] = defaultdict(list)
    for one in due:
        bundles[one.table, one.together or one.node].append(one)
    found: list[DueNode] = []
    spent = 0.0
    for bundle in in_order(map(_as_one, bundles.values()), now):
        too_large = not found and left > 0 and bundle.gb_hours > whole
        if spent + bundle.gb_hours > left and not too_large:
            # A cheaper node below is worth less for its cost, and would keep this one from ever being reached.
            break
        found += bundles[bundle.table, bundle.together or bundle.node]
        spent += bundle.gb_hours
    return found


def _as_one(nodes: Sequence[DueNode]) -> DueNode:
    """Nodes that are worked on together, as if they were one that has been due as long as the oldest of them."""
    since = min((one.since for one in nodes if one.since is not None), default=None)
    return replace(nodes[0], benefit=sum(one.benefit for one in nodes), gb_hours=sum(one.gb_hours for one in nodes), since=since)


def cut_by_cost(works: Sequence[W], limit: CostLimit) -> tuple[Sequence[W], Mapping[TableNode, PlanReason]]:
    """Return the works that the budget reaches, and why nodes wait of whose works it reaches none.

    Works that are taken together or not at all go when it does not reach a node of one of them.
    """
    kept = [work for unit in units(works) if all(work.node in limit.reached for work in unit) for work in unit]
    taken, left = {id(work) for work in kept}, {work.node for work in kept}
    below = {
        node: PlanReason(PlanReasonCode.BELOW_BUDGET_CUT, _why(node, limit))
        for node in dict.fromkeys(work.node for work in works)
        if node not in left
    }
    return [work for work in works if id(work) in taken], below


def _why(node: TableNode, limit: CostLimit) -> str:
    if node not in limit.costs:
        return f"it waits until a tick has compared it with what is due on the other tables of team {limit.team}"
    hours = gb_hours_text(max(0.0, limit.left))
    return (
        f"it waits: team {limit.team} has {hours} GB-hours left today (UTC) beside its waiting and running tasks; the "
        f"{gb_hours_text(limit.costs[node])} of this node do not fit into them, or other nodes of its tables gain more for theirs"
    )
