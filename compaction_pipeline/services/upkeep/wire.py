"""Builds the use cases of upkeep, each on first use."""

from __future__ import annotations

from abc import abstractmethod
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING

from compaction_pipeline.services.wiring import Wiring

if TYPE_CHECKING:
    from compaction_pipeline.core.tables.policies import TablePolicies
    from compaction_pipeline.core.tables.table import TableIdentifier
    from compaction_pipeline.services.upkeep.clean_orphans import CleanOrphans
    from compaction_pipeline.services.upkeep.commit_upkeep import CommitUpkeep
    from compaction_pipeline.services.upkeep.expire_snapshots import ExpireSnapshots
    from compaction_pipeline.services.upkeep.keep_consumers import KeepConsumers
    from compaction_pipeline.services.upkeep.maintain_tables import MaintainTables
    from compaction_pipeline.services.upkeep.other_places import OtherPlaces
    from compaction_pipeline.services.upkeep.other_tables import OtherTables
    from compaction_pipeline.services.upkeep.read_upkeep import ReadUpkeep
    from compaction_pipeline.services.upkeep.shared_files import SharedFiles
    from compaction_pipeline.services.upkeep.upkeep_tables import TakeTurn, UpkeepTables
    from compaction_pipeline.services.upkeep.why_not_change import WhyNotChange


class UpkeepServices(Wiring):
    """The use cases of upkeep."""

    @cached_property
    def maintain_tables(self) -> MaintainTables:
        from compaction_pipeline.core.upkeep.works import UpkeepWork
        from compaction_pipeline.services.upkeep.expire_records import ExpireRecords
        from compaction_pipeline.services.upkeep.forget_dropped import ForgetDropped
        from compaction_pipeline.services.upkeep.maintain_tables import MaintainTables
        from compaction_pipeline.services.upkeep.remove_leftovers import RemoveLeftovers

        stores, ttl = self._stores, timedelta(days=self._settings.record_ttl_days)
        dropped = ForgetDropped(stores.catalogs, stores.tables, stores.index, stores.tasks, stores.records, self._scan)
        leftovers = RemoveLeftovers(
            (stores.tasks, stores.records),
            self._scan,
            self._committer,
            self._leases,
            self.late,
            lambda table: self._why_not_change.by_policy(table, UpkeepWork.ORPHAN_FILES),
        )
        outlived = ExpireRecords(stores.tasks, stores.records, stores.costs, leftovers.still_asked, self.clock, ttl)
        return MaintainTables(stores.tables, dropped, leftovers, outlived)

    @cached_property
    def expire_snapshots(self) -> ExpireSnapshots:
        from compaction_pipeline.services.upkeep.delete_expired import DeleteExpired
        from compaction_pipeline.services.upkeep.expire_snapshots import ExpireSnapshots

        stores, looked_at = self._stores, self._snapshot_stores
        delete_expired = DeleteExpired(
            looked_at, stores.upkeep, self._why_not_change, self._other_tables, self._shared_files, self.clock, self.late
        )
        return ExpireSnapshots(looked_at, stores.upkeep, self._why_not_change, delete_expired, self._leases, self._new_id)

    @cached_property
    def upkeep_tables(self) -> UpkeepTables:
        from compaction_pipeline.core.upkeep.works import UpkeepWork
        from compaction_pipeline.services.upkeep.snapshot_work import SnapshotWork
        from compaction_pipeline.services.upkeep.upkeep_tables import UpkeepTables

        stores, ttl = self._stores, timedelta(days=self._settings.record_ttl_days)
        snapshots = SnapshotWork(stores.catalogs, stores.tables, stores.upkeep, self.expire_snapshots, self.clock)
        commits = (UpkeepWork.CHANGE_FILES, UpkeepWork.OLD_ROWS, UpkeepWork.MANIFESTS)
        turns: dict[UpkeepWork, TakeTurn] = {
            **{work: partial(self.commit_upkeep.turn, work) for work in commits},
            UpkeepWork.SNAPSHOTS: snapshots.turn,
            UpkeepWork.ORPHAN_FILES: self.clean_orphans.turn,
        }
        return UpkeepTables(stores.catalogs, stores.tables, stores.upkeep, snapshots, turns, self.clock, ttl)

    @cached_property
    def read_upkeep(self) -> ReadUpkeep:
        from compaction_pipeline.services.upkeep.read_upkeep import ReadUpkeep

        return ReadUpkeep(self._stores.tables, self._stores.upkeep, self._stores.orphans)

    @cached_property
    def keep_consumers(self) -> KeepConsumers:
        from compaction_pipeline.services.upkeep.keep_consumers import KeepConsumers

        return KeepConsumers(self._snapshot_stores, self._stores.upkeep, self._leases)

    @cached_property
    def commit_upkeep(self) -> CommitUpkeep:
        from compaction_pipeline.services.upkeep.commit_upkeep import CommitUpkeep
        from compaction_pipeline.services.upkeep.why_not_commit import WhyNotCommit

        stores, why_not = self._stores, WhyNotCommit(self._snapshot_stores, self._stores.upkeep, self._why_not_change, self._shared_files)
        return CommitUpkeep(stores.catalogs, why_not, self._leases, self._upkeep_committer, stores.upkeep, self._new_id, self.late)

    @cached_property
    def clean_orphans(self) -> CleanOrphans:
        from compaction_pipeline.services.upkeep.clean_orphans import CleanOrphans
        from compaction_pipeline.services.upkeep.find_orphans import FindOrphans

        stores = self._stores
        find = FindOrphans(self._files_looker, stores.catalogs, stores.tasks, stores.records, stores.upkeep, self.other_places)
        return CleanOrphans(find, self._snapshot_stores, stores.orphans, self._why_not_change, self._leases, self._new_id)

    @cached_property
    def other_places(self) -> OtherPlaces:
        from compaction_pipeline.services.upkeep.other_places import OtherPlaces

        stores = self._stores
        return OtherPlaces(stores.catalogs, self._scan, self._other_tables, self._files_looker, stores.orphans, self.clock)

    @abstractmethod
    def _ask_policies(self, table: TableIdentifier, table_uuid: str) -> TablePolicies | None:
        """What the catalog says about a table, as `AskPolicies.ask` does. Catalogs are another column."""

    @cached_property
    def _other_tables(self) -> OtherTables:
        from compaction_pipeline.services.upkeep.other_tables import OtherTables

        stores = self._stores
        return OtherTables(stores.catalogs, stores.tables, stores.files, self._scan, self.clock)

    @cached_property
    def _shared_files(self) -> SharedFiles:
        from compaction_pipeline.services.upkeep.shared_files import SharedFiles

        return SharedFiles(self._other_tables, self._stores.orphans, self._files_looker, self.other_places)

    @cached_property
    def _why_not_change(self) -> WhyNotChange:
        from compaction_pipeline.services.upkeep.why_not_change import WhyNotChange

        stores = self._stores
        return WhyNotChange(stores.catalogs, stores.tables, (stores.tasks, stores.records), stores.upkeep, self.clock, self._ask_policies)
