"""Finds the tables that may have become due only because time has passed.

It looks at the stored figures of the nodes, which is cheap. A plan then reads the files of the tables that it finds.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone

from compaction_pipeline.core.fragmentation.triggers import enough_small_files, interval_end
from compaction_pipeline.core.fragmentation.verdict import NodeState, PlanReasonCode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.work.kinds import CompactionType

_SETTLED = frozenset({PlanReasonCode.NOT_FRAGMENTED, PlanReasonCode.NO_GAIN, PlanReasonCode.LIVE_TWICE})
ALWAYS = datetime.min.replace(tzinfo=timezone.utc)
"""Before every time: a plan could differ from the last one at any time."""
_LEAST_FILES = 2
"""A node must have this many small files to become due by `self-optimizing.minor.trigger.interval`."""


def is_judged(node: NodeState) -> bool:
    """Return whether the node's verdict was made for the files that the node has now."""
    return node.verdict is not None and node.verdict.metrics == node.metrics


def is_pausing(last_planned_at: datetime | None, properties: TableProperties, now: datetime) -> bool:
    """Return whether `self-optimizing.min-plan-interval` has not passed yet since the last plan that made tasks."""
    return last_planned_at is not None and now - last_planned_at < properties.min_plan_interval


def may_be_due_from(nodes: Iterable[NodeState], properties: TableProperties, *, global_deletes: bool = False) -> datetime | None:
    """Return from when on a plan could differ from the last one although no file changed; None when it never could.

    It could at once (`ALWAYS`) when one of these holds for a node: it has no verdict for its present files; it is due or held back; it has
    enough small files for a MINOR, because the properties of its catalog changed. A node with two small files may be due when the
    interval of MINOR ends, and a node with files when that of FULL ends. `global_deletes` is True when the table has global equality
    deletes. These count as small files in every node, so one small file of the node itself is enough, and it may be due at once. A node
    that `self-optimizing.filter` leaves out is never due.
    """
    moments = [moment for node in nodes if (moment := _due_from(node, properties, global_deletes)) is not None]
    return min(moments, default=None)


def _due_from(node: NodeState, properties: TableProperties, global_deletes: bool) -> datetime | None:
    verdict, small = node.verdict, node.metrics.small_files
    if verdict is not None and properties.filter and verdict.reason.text == properties.left_out_by and is_judged(node):
        return None
    if (
        verdict is None
        or verdict.type is not None
        or verdict.reason.code not in _SETTLED
        or not is_judged(node)
        or (small and (global_deletes or enough_small_files(node.metrics, properties) is not None))
    ):
        return ALWAYS
    intervals = []
    if small >= _LEAST_FILES:
        intervals.append((CompactionType.MINOR, properties.minor_interval))
    if properties.full_interval is not None and node.metrics.files > 0:
        intervals.append((CompactionType.FULL, properties.full_interval))
    if intervals and node.first_seen is None:
        # Nobody knows when the intervals began.
        return ALWAYS
    ends = [interval_end(kind, interval, node.last_done, node.first_seen) for kind, interval in intervals]
    return min((end for end in ends if end is not None), default=None)
