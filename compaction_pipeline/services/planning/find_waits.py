"""Finds what work of a table must wait for: partitions that are not ready, writers that have not left, and windows that are closed.

Only tables that ask for it are looked at.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from datetime import datetime

from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.fragmentation.verdict import NodeHistory
from compaction_pipeline.core.planning.waits import Waits, closed_windows, places_to_ask
from compaction_pipeline.core.tables.node import Place, TableNode
from compaction_pipeline.core.tables.ports.scan import TableScan
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.tables.table import TableIdentifier

log = logging.getLogger(__name__)

NotReady = Callable[[TableIdentifier, Collection[Place]], Mapping[Place, str]]
"""Tells which of these partitions of a table are not ready, and what is missing."""


class FindWaits:
    """One verb: find."""

    def __init__(self, scan: TableScan, not_ready: NotReady) -> None:
        self._scan = scan
        self._not_ready = not_ready

    def find(
        self, table: TableIdentifier, properties: TableProperties, nodes: Collection[TableNode], of: NodeHistory, now: datetime
    ) -> Waits:
        """Return what work on these nodes must wait for. Raises NotFoundError and StorageUnavailable."""
        places = places_to_ask(nodes, of, properties, now)
        cold_after = properties.major_cold_after
        return Waits(
            self._missing(table, places) if places else {},
            self._scan.commits_since(table, now - cold_after) if cold_after is not None else {},
            closed_windows(properties, now),
        )

    def _missing(self, table: TableIdentifier, places: Collection[Place]) -> Mapping[Place, str]:
        """What cannot be told is not ready: a FULL that came too early has rewritten a partition in vain."""
        try:
            return self._not_ready(table, places)
        except CompactionError as error:
            log.info("table=%s whether %d partition(s) are ready is not known: %s", table, len(places), error)
            return dict.fromkeys(places, f"whether it is ready cannot be told: {error}")
