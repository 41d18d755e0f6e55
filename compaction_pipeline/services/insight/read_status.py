"""What a person asks first: the health of all tables, the worst nodes, the tasks that run, and what was done.

Reads the state database only, so it answers at once and also while a catalog is down.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from compaction_pipeline.core.commit.ports import RecordStore
from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.insight.overview import SHOWN, NodeOverview, TableOverview
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.queue.queue_counts import QueueCounts
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.listing import Unseen
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.ports.listings import ListingStore
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.services.insight.overviews import all_worst_first, queue_counts, tables_with_nodes


@dataclass(frozen=True, slots=True)
class Status:
    """The page to look at first. `all_nodes` are sorted worst first; `worst` are the first few of them.

    `tables` are without the change stores of keyed tables. Nobody can mend their refusal, and their base stores stand for them.
    `unseen` says what the last listings of catalogs did not see: while it is not empty, nobody may say that all is well.
    """

    at: datetime
    catalogs: tuple[CatalogEntry, ...]
    tables: tuple[TableOverview, ...]
    worst: tuple[NodeOverview, ...]
    executing: tuple[CompactionTask, ...]
    queue: QueueCounts
    unsettled: tuple[CompactionRecord, ...]
    records: tuple[CompactionRecord, ...]
    nodes: int
    due: int
    all_nodes: tuple[NodeOverview, ...] = ()
    unseen: tuple[Unseen, ...] = ()

    @property
    def needing(self) -> tuple[NodeOverview, ...]:
        """All nodes that are not healthy, worst first."""
        return tuple(node for node in self.all_nodes if node.health is not HealthStatus.HEALTHY)


class ReadStatus:
    """Answers how everything stands and changes nothing."""

    def __init__(
        self, catalogs: CatalogStore, tables: TableReader, tasks: TaskStore, records: RecordStore, clock: Clock, listings: ListingStore
    ) -> None:
        self._catalogs = catalogs
        self._tables = tables
        self._tasks = tasks
        self._records = records
        self._clock = clock
        self._listings = listings

    def status(self) -> Status:
        """Catalogs, tables, the worst nodes, what runs, the queue and the newest records."""
        catalogs = tuple(self._catalogs.entries())
        now = self._clock()
        found = tables_with_nodes(catalogs, self._tables, self._tasks, now)
        nodes = all_worst_first(found)
        return Status(
            at=now,
            catalogs=catalogs,
            tables=tuple(table.overview for table in found if not table.overview.is_change_store),
            worst=nodes[:SHOWN],
            executing=tuple(self._tasks.tasks(statuses=(TaskStatus.EXECUTING,), limit=SHOWN)),
            queue=queue_counts(self._tasks),
            unsettled=tuple(self._records.records(unsettled=True)),
            records=tuple(self._records.records(limit=SHOWN)),
            nodes=len(nodes),
            due=sum(node.health is HealthStatus.DUE for node in nodes),
            all_nodes=nodes,
            unseen=tuple(self._listings.unseen()),
        )

    def nodes(self) -> tuple[NodeOverview, ...]:
        """Every node of every table, worst first."""
        return all_worst_first(tables_with_nodes(self._catalogs.entries(), self._tables, self._tasks, self._clock()))
