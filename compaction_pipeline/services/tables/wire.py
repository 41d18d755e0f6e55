"""Builds the use cases of tables and their catalogs, each on first use."""

from __future__ import annotations

from abc import abstractmethod
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from compaction_pipeline.services.wiring import Wiring

if TYPE_CHECKING:
    from compaction_pipeline.core.tables.table import TableHead
    from compaction_pipeline.services.tables.ask_policies import AskPolicies
    from compaction_pipeline.services.tables.explore_catalogs import ExploreCatalogs
    from compaction_pipeline.services.tables.manage_catalogs import ManageCatalogs
    from compaction_pipeline.services.tables.refresh_chunks import RefreshChunks
    from compaction_pipeline.services.tables.refresh_files import RefreshFiles
    from compaction_pipeline.services.tables.site_files import SiteFiles
    from compaction_pipeline.services.tables.take_events import TakeEvents
    from compaction_pipeline.services.tables.take_reports import TakeReports


class TableServices(Wiring):
    """The use cases of tables and their catalogs."""

    @cached_property
    def explore_catalogs(self) -> ExploreCatalogs:
        from compaction_pipeline.services.tables.explore_catalogs import ExploreCatalogs
        from compaction_pipeline.services.tables.let_go import LetGo
        from compaction_pipeline.services.tables.note_listings import NoteListings

        stores, interval = self._stores, timedelta(seconds=self._settings.catalog_interval_seconds)
        let_go = LetGo(stores.tasks, stores.records, stores.index, self.clock)
        return ExploreCatalogs(
            stores.catalogs,
            stores.tables,
            NoteListings(let_go, stores.listings, lambda: self._scan, self.clock, interval),
            stores.switches,
            lambda: self._scan,
            lambda table: self._committer.check_writable(table),
            let_go,
        )

    @cached_property
    def manage_catalogs(self) -> ManageCatalogs:
        from compaction_pipeline.core.catalogs.facts import Facts
        from compaction_pipeline.services.table_filters import why_no_pattern
        from compaction_pipeline.services.tables.manage_catalogs import ManageCatalogs

        stores, file = self._stores, self._settings.catalogs_file
        file = file and file.expanduser()

        def facts() -> Facts:
            groups = [group.name for group in stores.groups.groups()]
            teams = [team.name for team in stores.teams.teams()]
            mapped = stores.teams.mapping()
            return Facts(why_no_pattern, self.explore_catalogs.why_no_condition, groups, teams, self.site_files.kinds(), mapped)

        return ManageCatalogs(stores.catalogs, stores.tables, stores.tasks, stores.records, self.explore_catalogs, file, facts)

    @cached_property
    def site_files(self) -> SiteFiles:
        from compaction_pipeline.services.tables.site_files import SiteFiles

        return SiteFiles(self._stores.site_files, self.clock)

    @cached_property
    def take_reports(self) -> TakeReports:
        from compaction_pipeline.services.tables.take_reports import TakeReports

        stores = self._stores
        noted = stores.dependencies.note_reported
        return TakeReports(stores.catalogs, stores.tables, stores.index, stores.reports, self._scan, self.clock, noted)

    @cached_property
    def take_events(self) -> TakeEvents:
        from compaction_pipeline.services.tables.take_events import TakeEvents

        return TakeEvents(self._stores.catalogs, self.take_reports)

    @cached_property
    def ask_policies(self) -> AskPolicies:
        from compaction_pipeline.services.tables.ask_policies import AskPolicies

        stores = self._stores
        return AskPolicies(self._policy_reader, stores.tables, stores.policies, self.clock)

    @cached_property
    def refresh_chunks(self) -> RefreshChunks:
        from compaction_pipeline.services.tables.refresh_chunks import RefreshChunks

        return RefreshChunks(self._stores.tables, self._stores.index, self._scan, self.refresh_files, self.ask_policies.ask)

    @cached_property
    def refresh_files(self) -> RefreshFiles:
        from compaction_pipeline.services.tables.follow_names import FollowNames
        from compaction_pipeline.services.tables.refresh_files import OnLook, RefreshFiles

        stores = self._stores
        follow_names = FollowNames(stores.tables, stores.moves, self._scan, self._leases)
        on_look = OnLook(follow_names, self._note_rollbacks, self.ask_policies.ask)
        return RefreshFiles(stores.catalogs, stores.tables, stores.index, stores.files, self._leases, self._scan, on_look)

    @abstractmethod
    def _note_rollbacks(self, head: TableHead) -> None:
        """Note commits that were taken back, as `NoteRollbacks.note` does. Commits are another column."""
