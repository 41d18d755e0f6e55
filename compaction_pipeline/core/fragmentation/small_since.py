"""Decides since when a node has had enough small files for a MINOR."""

from __future__ import annotations

from datetime import datetime, timezone

from compaction_pipeline.core.fragmentation.triggers import enough_small_files
from compaction_pipeline.core.fragmentation.verdict import NodeState
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.index import TableIndex
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.tables.table import TableHead


def changed_at(index: TableIndex, head: TableHead, now: datetime) -> datetime:
    """Return when the change happened that a refresh at `now` has found. `index` is what was known of the table before this refresh.

    It is the time of the table's newest commit. So a table that is read for the first time today shows that it was fragmented yesterday.
    It is not before the last refresh, because that one would have found the change. When the table has no newer commit, only its
    properties can have changed, and the answer is `now`.
    """
    before = index.last_read
    if not head.ancestors or (before is not None and before.snapshot_id == head.snapshot_id):
        return now
    committed = min(datetime.fromtimestamp(head.ancestors[0].timestamp_ms / 1000, timezone.utc), now)
    return committed if before is None else max(committed, before.at)


def small_since(before: NodeState | None, metrics: NodeMetrics, properties: TableProperties, changed: datetime) -> datetime | None:
    """Return since when the node has had enough small files for a MINOR; None when it has not.

    `before` is what was known of the node, and `metrics` are its figures now. `changed` is when they changed.
    """
    if enough_small_files(metrics, properties) is None:
        return None
    return before.small_since if before is not None and before.small_since is not None else changed
