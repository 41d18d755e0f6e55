"""Plans nodes again, at most three times, when a commit rejected their tasks because the table had changed.

The same holds for nodes whose tasks a newer plan replaced before they began.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace

from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.awaited import is_rejected, is_replaced
from compaction_pipeline.core.queue.known_task import KnownTask
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


def to_plan_again(request: PlanRequest, tasks: Sequence[KnownTask], failed: Container[TaskId]) -> PlanRequest | None:
    """Return the request for the nodes of these ended tasks that a commit rejected or a newer plan replaced; None when there are none.

    `failed` are the tasks that no further attempt can merge. A task group with one of them would be merged again for nothing.
    """
    hopeless = {task.work.group for task in tasks if task.task_id in failed} - {""}
    rejected = {task.work.node for task in tasks if is_rejected(task) and task.work.group not in hopeless}
    replaced = {task.work.node for task in tasks if is_replaced(task)}
    if rejected:
        return after_conflict(request, rejected | replaced)
    return replace(request, nodes=frozenset(replaced)) if replaced else None
