"""Finds the orphan files of one table, and deletes none: the dry run.

It does not know yet of tables that catalogs hide or list as of another format, nor of tables that name files of this one in their metadata.
Both must be known before anything that it finds may be deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta

from compaction_pipeline.core.commit.ports import RecordStore
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.ports.scan import TableScan
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.orphan_rules import ACCEPTED_SHARE, DEFAULT_AGE, OrphanRules, OtherTable, minimum_age
from compaction_pipeline.core.upkeep.orphans import OrphanDecision, decide_orphans
from compaction_pipeline.core.upkeep.paths import ToldStores
from compaction_pipeline.core.upkeep.ports.files import FilesLooker
from compaction_pipeline.core.upkeep.retention import resolve_retention


class FindOrphans:
    """One verb: find."""

    def __init__(
        self, looker: FilesLooker, catalogs: CatalogStore, scan: TableScan, tasks: TaskStore, records: RecordStore, clock: Clock
    ) -> None:
        self._looker = looker
        self._catalogs = catalogs
        self._scan = scan
        self._tasks = tasks
        self._records = records
        self._clock = clock

    def find(
        self,
        table: TableIdentifier,
        roots: Sequence[str] = (),
        *,
        asked_age: timedelta = DEFAULT_AGE,
        accept_share: float = ACCEPTED_SHARE,
        told: ToldStores = ToldStores(),
    ) -> OrphanDecision:
        """Say what each file below the table's locations and below `roots` is.

        Raises what the looker and the scan raise: a table or a catalog that cannot be read leaves everything unknown.
        """
        # The time before the listing, so that no file looks older than it is.
        now = self._clock()
        look = self._looker.look(table, roots)
        retention = resolve_retention(look.properties, self._catalogs.entry(table.catalog).properties, table)
        rules = OrphanRules(
            stores=look.stores,
            roots=tuple(roots),
            others=tuple(self._others(look.names)),
            ids=self._ids(table),
            metadata=look.metadata,
            minimum_age=max(minimum_age(history, retention, asked_age) for history in look.histories),
            accept_share=accept_share,
            told=told,
        )
        return decide_orphans(look.listing, look.referenced, rules, now)

    def _ids(self, table: TableIdentifier) -> frozenset[str]:
        """The ids of all tasks and records that are stored. What ended long ago is stored no more."""
        tasks, records = self._tasks.tasks(table), self._records.records(table)
        return frozenset([*(task.task_id for task in tasks), *(record.record_id for record in records)])

    def _others(self, own: Collection[TableIdentifier]) -> Iterator[OtherTable]:
        """Where all other tables of all catalogs lie."""
        for entry in self._catalogs.entries():
            for other in self._scan.list_tables(entry.name):
                if other not in own:
                    for layout in self._scan.head(other).layout.stores:
                        yield OtherTable(str(other), layout.location)
