"""Materializations of `delta_files`: what writers and our own commits left in the nodes that changed.

They are materializations, not observations, because Dagster counts an observed partition as missing: its bar stays at 0 %, and its page
shows no metadata and no plots.

A sensor tells of changed nodes at once. It may leave some out: those beyond 500, those that were no partitions yet, and those that
another process read. So a second sensor walks over all partitions, 500 a tick, and tells of each node whose newest event is outdated.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import islice

import dagster as dg

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.insight.overview import NodeOverview
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.defs.health_metadata import node_metadata
from compaction_pipeline.defs.keys import DELTA_FILES

MOST_EVENTS = 500
"""The most events of one tick or run. The event log takes about 100 a second, and 3,500 in one sweep have blocked a daemon."""

DATA_VERSION_TAG = "dagster/data_version"

Changed = Mapping[TableIdentifier, frozenset[TableNode]]


def changed_nodes(services: Services, changed: Changed) -> list[NodeOverview]:
    """These nodes as they are now. Within a table, the worst comes first."""
    return [node for table, nodes in changed.items() for node in services.read_tables.table(table).nodes if node.node in nodes]


def file_events(nodes: Iterable[NodeOverview], partitions: frozenset[str]) -> list[dg.AssetMaterialization]:
    """One event for each of these nodes that is a partition, 500 at most. Its data version is the snapshot that changed the node."""
    visible = (node for node in nodes if node.key in partitions)
    return [
        dg.AssetMaterialization(
            DELTA_FILES,
            partition=node.key,
            description=node.reason,
            metadata=node_metadata(node),
            tags={DATA_VERSION_TAG: _data_version(node)},
        )
        for node in islice(visible, MOST_EVENTS)
    ]


def untold(instance: dg.DagsterInstance, nodes: Iterable[NodeOverview]) -> list[NodeOverview]:
    """Those of these nodes whose newest event is of another snapshot, and those that have no event yet. Ask for at most 500 nodes."""
    by_key = {node.key: node for node in nodes}
    told = instance.event_log_storage.get_latest_tags_by_partition(
        DELTA_FILES, dg.DagsterEventType.ASSET_MATERIALIZATION, [DATA_VERSION_TAG], list(by_key)
    )
    return [node for key, node in by_key.items() if told.get(key, {}).get(DATA_VERSION_TAG) != _data_version(node)]


def next_keys(partitions: Iterable[str], after: str) -> list[str]:
    """The 500 keys that follow `after` in sorted order. After the last key the first one follows again."""
    keys = sorted(partitions)
    start = bisect_right(keys, after)
    return [*keys[start:], *keys[:start]][:MOST_EVENTS]


def _data_version(node: NodeOverview) -> str:
    return "unknown" if node.changed_snapshot_id is None else str(node.changed_snapshot_id)
