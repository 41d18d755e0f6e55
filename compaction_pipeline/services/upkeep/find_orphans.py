"""Finds the orphan files of one table, and notes in which folders it names files. Nothing is deleted here, and no look is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from compaction_pipeline.core.commit.ports import RecordStore
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.orphan_rules import ACCEPTED_SHARE, OrphanRules, minimum_age
from compaction_pipeline.core.upkeep.orphans import OrphanDecision, decide_orphans
from compaction_pipeline.core.upkeep.paths import ToldStores
from compaction_pipeline.core.upkeep.ports.files import FilesLook, FilesLooker
from compaction_pipeline.core.upkeep.ports.snapshots import UpkeepStore
from compaction_pipeline.core.upkeep.retention import resolve_retention
from compaction_pipeline.services.upkeep.other_places import OtherPlaces


@dataclass(frozen=True, slots=True)
class Found:
    """What a look saw, and what it makes of each file."""

    look: FilesLook
    decision: OrphanDecision


class FindOrphans:
    """The verb find, and live_elsewhere of `OtherPlaces`."""

    def __init__(
        self,
        looker: FilesLooker,
        catalogs: CatalogStore,
        tasks: TaskStore,
        records: RecordStore,
        upkeep: UpkeepStore,
        places: OtherPlaces,
    ) -> None:
        self._looker = looker
        self._catalogs = catalogs
        self._tasks = tasks
        self._records = records
        self._upkeep = upkeep
        self._places = places
        self.live_elsewhere = places.live_elsewhere

    def find(
        self,
        table: TableIdentifier,
        now: datetime,
        roots: Sequence[str] = (),
        *,
        accept_share: float = ACCEPTED_SHARE,
        told: ToldStores = ToldStores(),
        is_over: Callable[[], bool] = lambda: False,
        before_deletion: bool = False,
    ) -> Found:
        """Say what each file below the table's locations and below `roots` is. `now` is the time before it: no file looks older than it is.

        The caller holds the table's upkeep lease, so that no expiry begins meanwhile. Raises what the looker and the scan raise: a table
        or a catalog that cannot be read leaves everything unknown. After `is_over()` no other table is read. `before_deletion`
        lets every other table be read that has changed.
        """
        kept = self._upkeep.records(under_way=True)
        look = self._looker.look(table, roots, kept)
        retention = resolve_retention(look.properties, self._catalogs.entry(table.catalog).properties, table)
        rules = OrphanRules(
            stores=look.stores,
            roots=tuple(roots),
            others=tuple(self._places.others(look, kept, is_over, fresh=before_deletion)),
            shared=self._places.live_elsewhere(table, [file.path for file in look.listing]),
            ids=self._ids(look),
            metadata=look.metadata,
            minimum_age=max(minimum_age(history, retention, look.listing) for history in look.histories),
            accept_share=accept_share,
            told=told,
        )
        decision = decide_orphans(look.listing, look.referenced, rules, now)
        self._places.note(look, decision.foreign_roots)
        return Found(look, decision)

    def _ids(self, look: FilesLook) -> frozenset[str]:
        """The ids of all tasks and records of the table that are stored, under any name that it ever had. What ended long ago is stored no
        more."""
        names = self._places.names_of(look)
        tasks = (task.task_id for name in names for task in self._tasks.tasks(name))
        records = (record.record_id for name in names for record in self._records.records(name, former=True))
        of_upkeep = (record.record_id for name in names for record in self._upkeep.commits(name))
        return frozenset([*tasks, *records, *of_upkeep])
