"""Plans nodes again, at most three times, when a commit rejected their tasks because the table had changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier

CONFLICT_ROUNDS = 3
"""At most this many rounds follow the first one. A table that changes all the time is left to the next tick or command."""

Requests = Mapping[TableIdentifier, PlanRequest]


def in_rounds(asked: Requests, work: Callable[[Requests], Requests]) -> None:
    """Call `work` with the requests `asked`, and then with its own answer, until an answer is empty or no round is left."""
    requests = asked
    for _ in range(1 + CONFLICT_ROUNDS):
        requests = work(requests)
        if not requests:
            return


def after_conflict(request: PlanRequest, nodes: Iterable[TableNode]) -> PlanRequest:
    """Return the request for the nodes that a commit rejected. It ignores thresholds: the nodes were due, or somebody wanted them."""
    return replace(request, nodes=frozenset(nodes), force=True)
