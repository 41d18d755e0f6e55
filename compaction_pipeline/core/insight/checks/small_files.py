"""Judges whether small files are left that a plan could have merged by now."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from compaction_pipeline.core.fragmentation.clock import is_judged
from compaction_pipeline.core.fragmentation.triggers import enough_small_files
from compaction_pipeline.core.fragmentation.verdict import PlanReasonCode
from compaction_pipeline.core.insight.checks.facts import JudgedNode
from compaction_pipeline.core.insight.checks.judgement import Failure, Judgement
from compaction_pipeline.core.tables.properties import TableProperties

TICKS = timedelta(minutes=2)
"""The time that sensors need to see a new commit and to plan its nodes, apart from the intervals of the table."""

# With these reasons of the newest plan, nobody can do anything about the small files.
_SETTLED = (PlanReasonCode.NO_GAIN, PlanReasonCode.LIVE_TWICE, PlanReasonCode.DISABLED)
_QUEUED = (
    PlanReasonCode.OVER_TEAM_BUDGET,
    PlanReasonCode.QUEUE_FULL,
    PlanReasonCode.OVER_BUDGET,
    PlanReasonCode.BELOW_BUDGET_CUT,
    PlanReasonCode.FILES_IN_USE,
)


def small_files_left(nodes: Iterable[JudgedNode], now: datetime) -> Judgement:
    """Fail each node with enough small files for a MINOR that a plan could have taken by now. The node with the most comes first.

    The check waits while tasks of the node are open. It also waits while the table has open tasks and the quota, a full queue or files in
    use keep the node waiting, and for `planning_time` after the node got so many files, was merged, or was seen first. A node whose merge
    would gain nothing passes. A node whose work failed fails at once. A node with enough small files is not judged while its table has no
    history, because nobody knows then whether it has had its time.
    """
    judged, failing, unjudged = 0, [], []
    for each in nodes:
        node = each.node
        enough = enough_small_files(node.metrics, each.properties)
        missing = each.lacks_history(planning_time(each.properties), now) if enough is not None and not each.has_open_tasks else None
        if missing is not None and node.failing is None:
            unjudged.append(Failure(node.table, node.node, f"{enough}; {missing}"))
            continue
        judged += 1
        if enough is not None and not _is_excused(each, now):
            failing.append((node.metrics.small_files, Failure(node.table, node.node, f"{enough}; {why_not_done(each)}")))
    failing.sort(key=lambda item: -item[0])
    return Judgement("nodes", judged, tuple(failure for _, failure in failing), unjudged=tuple(unjudged))


def planning_time(properties: TableProperties) -> timedelta:
    """Return how long sensors may need to plan a node: twice the time between two plans of its table, and a few ticks."""
    return 2 * properties.min_plan_interval + TICKS


def why_not_done(each: JudgedNode) -> str:
    """Say what keeps the node from being planned, as far as it is known."""
    known, verdict = each.table.known, each.node.verdict
    if known.problem is not None:
        return known.problem
    if each.node.failing is not None:
        return each.node.failing
    if verdict is None or not is_judged(each.node):
        return "no plan has looked at these files yet: see that `snapshot_sensor` is on"
    return verdict.reason.text


def _is_excused(each: JudgedNode, now: datetime) -> bool:
    node, verdict = each.node, each.node.verdict
    if each.has_open_tasks:
        return True
    if node.failing is not None:
        # The plan took the files, and the work failed.
        return False
    if verdict is not None and is_judged(node):
        if verdict.reason.code in _SETTLED:
            return True
        if verdict.reason.code in _QUEUED and each.table_has_open_tasks:
            return True
    moments = [moment for moment in (node.small_since, node.first_seen, node.last_work) if moment is not None]
    return bool(moments) and now - max(moments) <= planning_time(each.properties)
