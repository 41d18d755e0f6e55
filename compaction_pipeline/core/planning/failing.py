"""Finds the nodes that are left alone for a while, because their tasks keep failing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from compaction_pipeline.core.fragmentation.verdict import PlanReason, PlanReasonCode
from compaction_pipeline.core.planning.plan import CompactionPlan
from compaction_pipeline.core.queue.known_task import KnownTask
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.work.ends import EndReason

FAILING_PAUSE = timedelta(hours=1)
"""A node whose task used up its attempts is left alone for this long, unless a person asks for work on it."""


def failed_lately(task: KnownTask, now: datetime) -> bool:
    """Return whether the task failed for good less than `FAILING_PAUSE` ago."""
    return task.status is TaskStatus.FAILED and task.ended_at is not None and now < task.ended_at + FAILING_PAUSE


def failing_nodes(tasks: Iterable[KnownTask], now: datetime) -> Mapping[TableNode, PlanReason]:
    """Return the nodes whose newest task failed for good less than `FAILING_PAUSE` ago, with the reason. Conflicts do not count.

    `tasks` are all tasks of a table, newest first.
    """
    newest: dict[TableNode, KnownTask] = {}
    for task in tasks:
        newest.setdefault(task.work.node, task)
    return {
        node: PlanReason(PlanReasonCode.FAILING, _text(task, task.ended_at + FAILING_PAUSE))
        for node, task in newest.items()
        if failed_lately(task, now) and task.end_reason is not EndReason.CONFLICT and task.ended_at is not None
    }


def without_failing(decided: CompactionPlan, failing: Mapping[TableNode, PlanReason]) -> CompactionPlan:
    """Return the plan without the nodes that keep failing. A group with such a node is left out whole: it needs all of its tasks."""
    groups = {task.group for task in (*decided.tasks, *decided.due) if task.group and task.node in failing}
    kept, due = (
        tuple(task for task in tasks if task.node not in failing and task.group not in groups) for tasks in (decided.tasks, decided.due)
    )
    verdicts = tuple(
        replace(verdict, type=None, reason=failing[verdict.node]) if verdict.node in failing else verdict for verdict in decided.verdicts
    )
    reason = decided.reason
    if decided.tasks and not kept:
        reason = next(iter(failing.values()))
    return replace(decided, tasks=kept, verdicts=verdicts, reason=reason, due=due)


def _text(task: KnownTask, again: datetime) -> str:
    how = f"failed {task.attempt} time(s)"
    if task.end_reason is EndReason.REFUSED:
        how = "was refused, and no further attempt can merge it as it is"
    return f"task {task.task_id} {how}: {task.reason}; the node is planned again after {again:%Y-%m-%d %H:%M} UTC, or when you compact it"
