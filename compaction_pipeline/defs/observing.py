"""Observations of `delta_files`: what writers and our own commits left in the nodes that changed."""

from __future__ import annotations

from collections.abc import Mapping

import dagster as dg

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.insight.overview import NodeOverview
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.defs.health_metadata import node_metadata
from compaction_pipeline.defs.keys import DELTA_FILES

MOST_EVENTS = 500
"""The most events of one tick or run. The event log takes about 100 a second, and 3,500 in one sweep have blocked a daemon."""

Changed = Mapping[TableIdentifier, frozenset[TableNode]]


def changed_nodes(services: Services, changed: Changed) -> list[NodeOverview]:
    """These nodes as they are now. Within a table, the worst comes first."""
    return [node for table, nodes in changed.items() for node in services.read_tables.table(table).nodes if node.node in nodes]


def observations(services: Services, changed: Changed, partitions: frozenset[str]) -> list[dg.AssetObservation]:
    """One event for each of these nodes that is a partition, 500 at most. Its data version is the snapshot that changed the node."""
    visible = [node for node in changed_nodes(services, changed) if node.key in partitions][:MOST_EVENTS]
    return [
        dg.AssetObservation(
            DELTA_FILES,
            partition=node.key,
            description=node.reason,
            metadata=node_metadata(node),
            tags={"dagster/data_version": str(node.changed_snapshot_id)} if node.changed_snapshot_id is not None else None,
        )
        for node in visible
    ]
