"""Orders nodes by what readers gain for what the work costs, and draws the line under which a budget does not reach.

The benefit of a node is the number of files and deletes that readers no longer open after its tasks, times `compaction.read-weight` of its
table. Its cost is the GB-hours that its tasks are predicted to take. The node with the most benefit for its cost comes first. A node gains
one place for each day that it has been due, so that none waits for ever.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType

_LEAST_GB_HOURS = 1e-12


@dataclass(frozen=True, slots=True)
class DueNode:
    """The tasks that are due on a node: how many files and deletes readers open less after them, and what they are predicted to cost.

    `error` is the factor by which such predictions are wrong in the median (`core.capacity.calibration`), and `since` is since when the
    node has been due; None when it is not known. Nodes of a table with the same `together` are worked on all or none.
    """

    table: TableIdentifier
    node: TableNode
    type: CompactionType
    tasks: int
    benefit: float
    gb_hours: float
    error: float | None = None
    since: datetime | None = None
    together: TableNode | None = None


@dataclass(frozen=True, slots=True)
class RankedNode:
    """A node in its place. `gb_hours_so_far` are those of all nodes down to this one. `is_within` says whether the budget reaches it."""

    due: DueNode
    gb_hours_so_far: float
    is_within: bool


def in_order(due: Iterable[DueNode], now: datetime) -> Sequence[DueNode]:
    """Order nodes by benefit for cost, and by the days that they have been due. Of two in one place the older one goes first."""
    best = sorted(due, key=lambda one: (-one.benefit / max(one.gb_hours, _LEAST_GB_HOURS), *_name(one)))
    places = {id(one): place - max(0, (now - (one.since or now)).days) for place, one in enumerate(best)}
    return sorted(best, key=lambda one: (places[id(one)], one.since or now, *_name(one)))


def _name(one: DueNode) -> tuple[str, str, CompactionType]:
    return str(one.table), str(one.node), one.type


def ranked(due: Iterable[DueNode], budget_gb_hours: float, now: datetime) -> Sequence[RankedNode]:
    """Put nodes in their order. The budget reaches the first ones whose costs fit into it together, and none below the first that does
    not fit: a smaller node below would be worth less for its cost."""
    ordered = in_order(due, now)
    costs = list(accumulate(one.gb_hours for one in ordered))
    return [RankedNode(one, cost, cost <= budget_gb_hours) for one, cost in zip(ordered, costs, strict=True)]


def budget_of(text: str) -> float:
    """Return the GB-hours of a text such as "4GBh" or "0.5 GBh". Raises ConfigError."""
    found = re.fullmatch(r"\s*([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*GBh\s*", text, re.IGNORECASE)
    if found is None or float(found[1]) <= 0:
        raise ConfigError(f"--budget is {text[:100]!r} but must be GB-hours above 0, for example 4GBh or 0.5GBh")
    return float(found[1])
