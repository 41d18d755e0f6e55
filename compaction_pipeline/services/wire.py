"""Builds every use case on first use: each column its own, and here those that string columns together."""

from __future__ import annotations

from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from compaction_pipeline.services.access.wire import AccessServices
from compaction_pipeline.services.capacity.wire import CapacityServices
from compaction_pipeline.services.commit.wire import CommitServices
from compaction_pipeline.services.dependencies.wire import DependencyServices
from compaction_pipeline.services.insight.wire import InsightServices
from compaction_pipeline.services.planning.wire import PlanningServices
from compaction_pipeline.services.queue.wire import QueueServices
from compaction_pipeline.services.tables.wire import TableServices
from compaction_pipeline.services.upkeep.wire import UpkeepServices

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from compaction_pipeline.core.tables.node import Place
    from compaction_pipeline.core.tables.policies import TablePolicies
    from compaction_pipeline.core.tables.table import TableHead, TableIdentifier
    from compaction_pipeline.services.check_tables import CheckTables
    from compaction_pipeline.services.compact import CompactTables
    from compaction_pipeline.services.keep import KeepWatch
    from compaction_pipeline.services.one_table import OneTable
    from compaction_pipeline.services.run_leases import RunLeases
    from compaction_pipeline.services.run_ticks import RunTicks
    from compaction_pipeline.services.sweep import SweepTables


class EveryService(
    TableServices,
    PlanningServices,
    QueueServices,
    CommitServices,
    AccessServices,
    InsightServices,
    UpkeepServices,
    DependencyServices,
    CapacityServices,
):
    """The use cases of all columns, and those that string columns together."""

    def _note_denied(self, table: TableIdentifier, reason: str) -> bool:
        return self.plan_tables.note_denied(table, reason)

    def _note_use(self) -> None:
        self.read_use.note()

    def _note_rollbacks(self, head: TableHead) -> None:
        self.note_rollbacks.note(head)

    def _ask_policies(self, table: TableIdentifier, table_uuid: str) -> TablePolicies | None:
        return self.ask_policies.ask(table, table_uuid)

    def _not_ready(self, table: TableIdentifier, places: Collection[Place]) -> Mapping[Place, str]:
        return self.read_readiness.missing(table, places)

    @cached_property
    def one_table(self) -> OneTable:
        from compaction_pipeline.services.one_table import OneTable

        return OneTable(self.refresh_files, self.plan_tables, self.commit_tables, lambda seconds: self.sleep(seconds))

    @cached_property
    def compact_tables(self) -> CompactTables:
        from compaction_pipeline.services.compact import CompactTables

        return CompactTables(
            self.one_table,
            self.await_tasks,
            self._merge_tasks,
            self.commit_tables,
            self.commit_due,
            lambda: self.keep_watch.keep_queue(),
            self.clock,
        )

    @cached_property
    def sweep_tables(self) -> SweepTables:
        from compaction_pipeline.services.sweep import SweepTables

        chunks, in_line, reports = self.refresh_chunks, self.tables_in_line, self._stores.reports
        return SweepTables(chunks, self.refresh_files, self.plan_tables, in_line, self.commit_due, reports, self._leases)

    @cached_property
    def keep_watch(self) -> KeepWatch:
        from compaction_pipeline.services.keep import KeepWatch

        return KeepWatch(
            self._stores.watchers,
            self.serve_optimizers,
            self.keep_tokens,
            self.keep_queue,
            self.plan_tables,
            self.commit_tables,
            self.clock,
        )

    @cached_property
    def run_leases(self) -> RunLeases:
        from compaction_pipeline.services.run_leases import RunLeases

        return RunLeases(self._stores.watchers, self._leases)

    @cached_property
    def run_ticks(self) -> RunTicks:
        from compaction_pipeline.services.run_ticks import RunTicks, Times

        settings = self._settings
        times = Times(
            explore_every=timedelta(seconds=settings.catalog_interval_seconds),
            maintain_every=timedelta(seconds=settings.maintainer_interval_seconds),
            remember=timedelta(days=settings.record_ttl_days),
        )
        return RunTicks(
            self.keep_watch,
            (self.scale_groups, self.maintain_optimizers),
            self.explore_catalogs,
            self.sweep_tables,
            self.maintain_tables,
            self._leases,
            times,
        )

    @cached_property
    def check_tables(self) -> CheckTables:
        from compaction_pipeline.services.check_tables import CheckTables

        stores, explore, refresh = self._stores, self.explore_catalogs, self.refresh_files
        return CheckTables(stores.catalogs, stores.tables, explore, refresh, self.plan_tables, self.one_table, self.judge_compaction)
