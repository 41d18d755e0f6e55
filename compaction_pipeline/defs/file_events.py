"""Materializations of `delta_files`: what writers and our own commits left in the nodes that changed.

They are materializations, not observations, because Dagster counts an observed partition as missing: its bar stays at 0 %, and its page
shows no metadata and no plots.

A sensor tells of changed nodes at once. It may leave some out, and a second sensor tells of these (see `defs/walk.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

import dagster as dg

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.insight.overview import NodeOverview
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.defs.health_metadata import node_metadata
from compaction_pipeline.defs.names import Names

MOST_EVENTS = 500
"""The most events of one tick or run. The event log takes about 100 a second, and 3,500 in one sweep have blocked a daemon."""

DATA_VERSION_TAG = "dagster/data_version"

Changed = Mapping[TableIdentifier, frozenset[TableNode]]


def changed_nodes(services: Services, changed: Changed) -> list[NodeOverview]:
    """These nodes as they are now. Within a table, the worst comes first."""
    return [node for table, nodes in changed.items() for node in services.read_tables.table(table).nodes if node.node in nodes]


def file_events(names: Names, nodes: Iterable[NodeOverview], partitions: frozenset[str]) -> list[dg.AssetMaterialization]:
    """One event for each of these nodes that is a partition, 500 at most. Its data version is the snapshot that changed the node."""
    visible = (node for node in nodes if node.key in partitions)
    return [
        dg.AssetMaterialization(
            names.delta_files,
            partition=node.key,
            description=node.reason,
            metadata=node_metadata(node),
            tags={DATA_VERSION_TAG: data_version(node)},
        )
        for node in islice(visible, MOST_EVENTS)
    ]


def data_version(node: NodeOverview) -> str:
    """The snapshot that last changed the node's files."""
    return "unknown" if node.changed_snapshot_id is None else str(node.changed_snapshot_id)
