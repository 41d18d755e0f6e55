"""Judges how long work that is due has been waiting."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from compaction_pipeline.core.fragmentation.clock import is_judged
from compaction_pipeline.core.fragmentation.triggers import enough_small_files
from compaction_pipeline.core.fragmentation.verdict import NOTHING_TO_DO, PlanReasonCode
from compaction_pipeline.core.insight.checks.facts import JudgedNode
from compaction_pipeline.core.insight.checks.judgement import Failure, Judgement
from compaction_pipeline.core.insight.checks.small_files import why_not_done
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.words import duration_text

LEAST_LIMIT = timedelta(minutes=10)
"""Work may wait this long on every table. One merge alone may take minutes."""

_NEVER_DUE = NOTHING_TO_DO | {PlanReasonCode.LIVE_TWICE, PlanReasonCode.DISABLED, PlanReasonCode.NOT_READY, PlanReasonCode.OUTSIDE_WINDOW}


def due_work_on_time(nodes: Iterable[JudgedNode], now: datetime) -> Judgement:
    """Fail each node whose due work has waited for longer than `waiting_limit`. The one that has waited longest comes first.

    Only nodes with due work are judged. Those of a table without a history are not, unless they are late by what is known.
    """
    waits: list[tuple[timedelta, JudgedNode]] = []
    for each in nodes:
        since = waiting_since(each)
        if since is not None:
            waits.append((now - since, each))
    waits.sort(key=lambda item: -item[0])
    late = [(age, each) for age, each in waits if age > waiting_limit(each.properties)]
    in_time = [each for age, each in waits if age <= waiting_limit(each.properties)]
    unjudged = [
        Failure(each.node.table, each.node.node, missing)
        for each in in_time
        if (missing := each.lacks_history(waiting_limit(each.properties), now)) is not None
    ]
    oldest = max(waits[0][0], timedelta(0)) if waits else timedelta(0)
    return Judgement(
        "nodes",
        len(waits) - len(unjudged),
        tuple(Failure(each.node.table, each.node.node, _reason(age, each)) for age, each in late),
        "with due work",
        "no node has due work",
        f"the oldest has waited for {duration_text(oldest)}" if waits else "",
        (("oldest_due_seconds", round(oldest.total_seconds(), 1)),),
        tuple(unjudged),
    )


def waiting_limit(properties: TableProperties) -> timedelta:
    """Return how long due work of a table may wait.

    The owner of a table says with the interval of MINOR how long its small files may lie. Work is never late before the table could be
    planned and committed twice.
    """
    return max(properties.minor_interval, 2 * (properties.min_plan_interval + properties.commit_interval), LEAST_LIMIT)


def waiting_since(each: JudgedNode) -> datetime | None:
    """Return since when work has been due on a node without any being done; None when none is due.

    Work on small files is due since the commit with which the node got enough of them, as far as that commit is known. Other work is due
    since a plan first found it. When work was done on the node meanwhile, its waiting begins anew: a node that writers always keep
    fragmented, and that is merged again and again, does not wait.

    A state database of an older version does not tell since when a node has had its small files. After the upgrade such a node waits since
    the first plan that finds its work due, or since its files change.
    """
    node, verdict = each.node, each.node.verdict
    if verdict is not None and is_judged(node) and verdict.reason.code in _NEVER_DUE:
        return None
    moments = []
    if enough_small_files(node.metrics, each.properties) is not None:
        moments.append(node.small_since)
    if verdict is not None and verdict.since is not None and (node.last_work is None or node.last_work < verdict.since):
        moments.append(verdict.since)
    known = [moment for moment in moments if moment is not None]
    if not known:
        return None
    return max(min(known), node.last_work) if node.last_work is not None else min(known)


def _reason(age: timedelta, each: JudgedNode) -> str:
    limit = duration_text(waiting_limit(each.properties))
    what = enough_small_files(each.node.metrics, each.properties)
    parts = [f"due work has waited for {duration_text(age)}, and {limit} are allowed", *([what] if what else []), why_not_done(each)]
    return "; ".join(parts)
