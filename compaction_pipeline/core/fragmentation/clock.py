"""Finds the tables that may have become due only because time has passed.

It looks at the stored figures of the nodes, which is cheap. A plan then reads the files of the tables that it finds.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from compaction_pipeline.core.fragmentation.verdict import NodeState, PlanReasonCode
from compaction_pipeline.core.tables.properties import TableProperties

_SETTLED = frozenset({PlanReasonCode.NOT_FRAGMENTED, PlanReasonCode.NO_GAIN, PlanReasonCode.LIVE_TWICE})
_LEAST_FILES = 2
"""A node must have this many small files to become due by `self-optimizing.minor.trigger.interval`."""


def is_judged(node: NodeState) -> bool:
    """Return whether the node's verdict was made for the files that the node has now."""
    return node.verdict is not None and node.verdict.metrics == node.metrics


def is_pausing(last_planned_at: datetime | None, properties: TableProperties, now: datetime) -> bool:
    """Return whether `self-optimizing.min-plan-interval` has not passed yet since the last plan that made tasks."""
    return last_planned_at is not None and now - last_planned_at < properties.min_plan_interval


def may_be_due(nodes: Iterable[NodeState], properties: TableProperties, *, global_deletes: bool = False) -> bool:
    """Return whether a plan made now could differ from the last one although no file changed.

    It could when one of these holds for a node: it has no verdict for its present files; it is due or held back; it has two small
    files, so that the interval of MINOR may end; FULL has an interval, and the node has files. `global_deletes` is True when the table
    has global equality deletes. These count as small files in every node, so one small file of the node itself is enough.
    """
    least = 1 if global_deletes else _LEAST_FILES
    return any(
        node.verdict is None
        or node.verdict.type is not None
        or node.verdict.reason.code not in _SETTLED
        or node.metrics.small_files >= least
        or not is_judged(node)
        or (properties.full_interval is not None and node.metrics.files > 0)
        for node in nodes
    )
