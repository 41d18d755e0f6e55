"""Which tables time alone may make due: a cheap look at the nodes' figures, before their files are read for a plan."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from compaction_pipeline.core.fragmentation.verdict import NodeState, PlanReasonCode
from compaction_pipeline.core.tables.properties import TableProperties

_SETTLED = frozenset({PlanReasonCode.NOT_FRAGMENTED, PlanReasonCode.NO_GAIN, PlanReasonCode.LIVE_TWICE})
_LEAST_FILES = 2  # `minor.trigger.interval` wants at least two small files.


def is_judged(node: NodeState) -> bool:
    """Whether the node's verdict is of the files that it has now."""
    return node.verdict is not None and node.verdict.metrics == node.metrics


def is_pausing(last_planned_at: datetime | None, properties: TableProperties, now: datetime) -> bool:
    """Whether the last plan that made tasks is too young for another ('self-optimizing.min-plan-interval')."""
    return last_planned_at is not None and now - last_planned_at < properties.min_plan_interval


def may_be_due(nodes: Iterable[NodeState], properties: TableProperties, *, global_deletes: bool = False) -> bool:
    """Whether a plan made now could differ from the last one though no file changed.

    `global_deletes`: the table has deletes that count in nodes where they do not lie.
    True when a node was not judged by the files that it has, or is due or held back; or when an interval may end: two small files,
    or a full interval.
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
