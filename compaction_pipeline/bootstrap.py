"""Builds all use cases from the settings, on the parts that `foundations` opens.

Nothing is opened or imported before it is needed, as there.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from compaction_pipeline.core.queue.ports import TaskQueue
from compaction_pipeline.foundations import Foundations, new_id, open_state_database, this_process
from compaction_pipeline.process import heartbeat, undisturbed

if TYPE_CHECKING:
    from compaction_pipeline.services.access.keep_tokens import KeepTokens
    from compaction_pipeline.services.check_tables import CheckTables
    from compaction_pipeline.services.commit.commit_due import CommitDue
    from compaction_pipeline.services.commit.commit_tables import CommitTables
    from compaction_pipeline.services.commit.known_commits import KnownCommits
    from compaction_pipeline.services.compact import CompactTables
    from compaction_pipeline.services.held_lease import Leases
    from compaction_pipeline.services.insight.judge_compaction import JudgeCompaction
    from compaction_pipeline.services.insight.mirror_records import MirrorRecords
    from compaction_pipeline.services.insight.read_change_rate import ReadChangeRate
    from compaction_pipeline.services.insight.read_files import ReadFiles
    from compaction_pipeline.services.insight.read_queues import ReadQueues
    from compaction_pipeline.services.insight.read_records import ReadRecords
    from compaction_pipeline.services.insight.read_status import ReadStatus
    from compaction_pipeline.services.insight.read_tables import ReadTables
    from compaction_pipeline.services.insight.read_tasks import ReadTasks
    from compaction_pipeline.services.insight.watch_files import WatchFiles
    from compaction_pipeline.services.keep import KeepWatch
    from compaction_pipeline.services.one_table import OneTable
    from compaction_pipeline.services.planning.plan_tables import PlanTables
    from compaction_pipeline.services.planning.queue_rooms import QueueRooms
    from compaction_pipeline.services.queue.await_tasks import AwaitTasks
    from compaction_pipeline.services.queue.keep_queue import KeepQueue
    from compaction_pipeline.services.queue.lost_attempts import LostAttempts
    from compaction_pipeline.services.queue.maintain_optimizers import MaintainOptimizers
    from compaction_pipeline.services.queue.manage_groups import ManageGroups
    from compaction_pipeline.services.queue.merge_tasks import MergeTasks
    from compaction_pipeline.services.queue.read_containers import ReadContainers
    from compaction_pipeline.services.queue.serve_optimizers import ServeOptimizers
    from compaction_pipeline.services.queue.serve_tasks import ServeTasks
    from compaction_pipeline.services.queue.share_queues import ShareQueues
    from compaction_pipeline.services.queue.steer_tasks import SteerTasks
    from compaction_pipeline.services.queue.turns import Turns
    from compaction_pipeline.services.queue.work_on_queue import WorkOnQueue
    from compaction_pipeline.services.run_leases import RunLeases
    from compaction_pipeline.services.run_ticks import RunTicks
    from compaction_pipeline.services.sweep import SweepTables
    from compaction_pipeline.services.tables.explore_catalogs import ExploreCatalogs
    from compaction_pipeline.services.tables.refresh_files import RefreshFiles
    from compaction_pipeline.services.tables.take_reports import TakeReports
    from compaction_pipeline.services.upkeep.maintain_tables import MaintainTables
    from compaction_pipeline.settings import Settings


def upgrade_state_database(settings: Settings) -> bool:
    """Bring the schema of the state database to this program's version; False if it had it. Raises ConfigError, StorageUnavailable."""
    stores = open_state_database(settings, upgrade=True)
    stores.close()
    return stores.upgraded


@dataclass
class Services(Foundations):
    """Every use case, built on first use."""

    @cached_property
    def _leases(self) -> Leases:
        from compaction_pipeline.services.held_lease import Leases

        return Leases(self._stores.leases, self.clock, heartbeat, self.new_owner)

    @cached_property
    def explore_catalogs(self) -> ExploreCatalogs:
        from compaction_pipeline.services.tables.explore_catalogs import ExploreCatalogs

        stores = self._stores
        return ExploreCatalogs(
            stores.catalogs,
            stores.tables,
            stores.index,
            stores.switches,
            lambda: self._scan,
            lambda table: self._committer.check_writable(table),
        )

    @cached_property
    def take_reports(self) -> TakeReports:
        from compaction_pipeline.services.tables.take_reports import TakeReports

        stores = self._stores
        return TakeReports(stores.catalogs, stores.tables, stores.index, stores.reports, self._scan, self.clock)

    @cached_property
    def refresh_files(self) -> RefreshFiles:
        from compaction_pipeline.services.tables.refresh_files import RefreshFiles

        stores = self._stores
        return RefreshFiles(stores.catalogs, stores.tables, stores.index, stores.files, self._leases, self._scan, self.clock)

    @cached_property
    def plan_tables(self) -> PlanTables:
        from compaction_pipeline.services.planning.plan_tables import PlanTables

        stores = self._stores
        return PlanTables(
            stores.catalogs,
            stores.tables,
            stores.planning,
            stores.files,
            self._scan,
            stores.tasks,
            self._leases,
            self.clock,
            new_id,
            self._rooms,
            self._committer.check_writable,
        )

    @cached_property
    def _rooms(self) -> QueueRooms:
        from compaction_pipeline.services.planning.queue_rooms import QueueRooms

        stores = self._stores
        return QueueRooms(stores.groups, stores.optimizers, stores.tasks, stores.tables, stores.catalogs, self.settings.task_slots)

    @cached_property
    def _turns(self) -> Turns:
        from compaction_pipeline.services.queue.turns import Turns

        stores = self._stores
        return Turns(stores.groups, stores.optimizers, stores.tasks, stores.tables, stores.catalogs, self.clock, self.settings.task_slots)

    @cached_property
    def serve_tasks(self) -> ServeTasks:
        from compaction_pipeline.services.queue.serve_tasks import ServeTasks
        from compaction_pipeline.services.queue.verify_reports import VerifyReports

        stores, denied, retry_after = self._stores, self.plan_tables.note_denied, timedelta(seconds=self.settings.retry_interval_seconds)
        verify = VerifyReports(stores.groups, self._verify_rows)
        return ServeTasks(
            stores.tables, stores.tasks, self._lost_attempts.release, self._committer, denied, self._judge, verify, self.clock, retry_after,
            self._turns.of, self.spark_application,
        )  # fmt: skip

    @cached_property
    def _lost_attempts(self) -> LostAttempts:
        from compaction_pipeline.services.queue.lost_attempts import LostAttempts

        return LostAttempts(self._stores.tasks, self._stores.optimizers, self._stores.watchers)

    @cached_property
    def keep_queue(self) -> KeepQueue:
        from compaction_pipeline.services.queue.keep_queue import KeepQueue

        stores, settings = self._stores, self.settings
        timeout, retry_after = timedelta(seconds=settings.task_timeout_seconds), timedelta(seconds=settings.retry_interval_seconds)
        return KeepQueue(
            stores.catalogs,
            stores.tables,
            stores.files,
            stores.tasks,
            stores.groups,
            self._lost_attempts,
            self.clock,
            timeout,
            retry_after,
        )

    @cached_property
    def serve_optimizers(self) -> ServeOptimizers:
        from compaction_pipeline.services.queue.serve_optimizers import ServeOptimizers

        stores = self._stores
        return ServeOptimizers(
            stores.optimizers, stores.tokens, stores.tasks, self.serve_tasks, stores.watchers, self.clock, new_id, self.version
        )

    @cached_property
    def manage_groups(self) -> ManageGroups:
        from compaction_pipeline.services.queue.manage_groups import ManageGroups

        return ManageGroups(self._stores.groups, self._stores.catalogs, self._stores.tables, self._containers)

    @cached_property
    def maintain_optimizers(self) -> MaintainOptimizers:
        from compaction_pipeline.services.queue.maintain_optimizers import MaintainOptimizers

        stores = self._stores
        return MaintainOptimizers(stores.groups, stores.optimizers, stores.queues, self._containers, self.clock, new_id)

    @cached_property
    def read_containers(self) -> ReadContainers:
        from compaction_pipeline.services.queue.read_containers import ReadContainers

        return ReadContainers(self._stores.groups, self._containers)

    @cached_property
    def keep_tokens(self) -> KeepTokens:
        from compaction_pipeline.services.access.keep_tokens import KeepTokens

        return KeepTokens(self._stores.tokens, self.clock, secrets.token_hex)

    @cached_property
    def steer_tasks(self) -> SteerTasks:
        from compaction_pipeline.services.queue.steer_tasks import SteerTasks

        return SteerTasks(self._stores.tasks, self.clock)

    @cached_property
    def share_queues(self) -> ShareQueues:
        from compaction_pipeline.services.queue.share_queues import ShareQueues

        return ShareQueues(self._stores.queues, self._stores.optimizers, self._stores.tasks, self.clock)

    @cached_property
    def work_on_queue(self) -> WorkOnQueue:
        # With the engine in this process, it merges one task at a time.
        in_process = self.settings.merge_engine == "in-process"
        return self.worker(self.serve_tasks, 1 if in_process else self.settings.task_slots, in_threads=not in_process)

    def worker(self, queue: TaskQueue, slots: int, *, in_threads: bool = True) -> WorkOnQueue:
        """A worker that takes tasks from this queue and merges so many at a time. It needs no state database of its own.

        Without `in_threads`, a worker with one slot merges in the caller's thread.
        """
        from compaction_pipeline.services.queue.work_on_queue import WorkOnQueue

        # A worker only measures how long something takes, and an optimizer has no state database that could tell the time.
        clock = self.own_clock
        return WorkOnQueue(queue, self._engine, clock, heartbeat, slots, self.on_step, lambda seconds: self.sleep(seconds), in_threads)

    @cached_property
    def _known_commits(self) -> KnownCommits:
        from compaction_pipeline.services.commit.known_commits import KnownCommits

        stores = self._stores
        return KnownCommits(stores.catalogs, stores.tables, stores.commits, stores.records, stores.tasks, self.clock)

    @cached_property
    def commit_tables(self) -> CommitTables:
        from compaction_pipeline.services.commit.carry_out_record import CarryOutRecord
        from compaction_pipeline.services.commit.commit_tables import CommitTables
        from compaction_pipeline.services.commit.open_record import OpenRecord
        from compaction_pipeline.services.commit.settle_records import SettleRecords

        tasks, records, known, committer = self._stores.tasks, self._stores.records, self._known_commits, self._committer
        open_record = OpenRecord(tasks, records, self._stores.node_keys, known, self.clock, new_id, self._note_step)
        carry_out = CarryOutRecord(tasks, records, committer, known, self.clock, self._note_step, self.late)
        settle_records = SettleRecords(tasks, records, committer, known, carry_out, undisturbed)
        return CommitTables(tasks, self._leases, known, open_record, carry_out, settle_records, undisturbed)

    def _note_step(self, step: str) -> None:
        self.on_step(step)

    @cached_property
    def commit_due(self) -> CommitDue:
        from compaction_pipeline.services.commit.commit_due import CommitDue

        return CommitDue(self._stores.tasks, self._stores.tables, self._known_commits, self.commit_tables, self.clock)

    @cached_property
    def one_table(self) -> OneTable:
        from compaction_pipeline.services.one_table import OneTable

        return OneTable(self.refresh_files, self.plan_tables, self.commit_tables, lambda seconds: self.sleep(seconds))

    @cached_property
    def await_tasks(self) -> AwaitTasks:
        from compaction_pipeline.services.queue.await_tasks import AwaitTasks

        return AwaitTasks(self._stores.tables, self._stores.tasks, self.serve_tasks.release_expired, self.clock)

    @cached_property
    def _merge_tasks(self) -> MergeTasks:
        from compaction_pipeline.services.queue.merge_tasks import MergeTasks

        return MergeTasks(self.await_tasks, self.work_on_queue, self.share_queues, self.new_owner)

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

        stores = self._stores
        return SweepTables(stores.tables, self.refresh_files, self.plan_tables, self.commit_due, stores.reports, self._leases, self.clock)

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

        settings = self.settings
        times = Times(
            explore_every=timedelta(seconds=settings.catalog_interval_seconds),
            maintain_every=timedelta(seconds=settings.maintainer_interval_seconds),
            remember=timedelta(days=settings.record_ttl_days),
        )
        return RunTicks(
            self.keep_watch,
            self.maintain_optimizers,
            self.explore_catalogs,
            self.sweep_tables,
            self.maintain_tables,
            self._leases,
            times,
        )

    @cached_property
    def read_status(self) -> ReadStatus:
        from compaction_pipeline.services.insight.read_status import ReadStatus

        stores = self._stores
        return ReadStatus(stores.catalogs, stores.tables, stores.tasks, stores.records, self.clock)

    @cached_property
    def read_tables(self) -> ReadTables:
        from compaction_pipeline.services.insight.read_tables import ReadTables

        stores = self._stores
        return ReadTables(stores.catalogs, stores.tables, stores.files, stores.tasks, stores.records, self.clock)

    @cached_property
    def read_files(self) -> ReadFiles:
        from compaction_pipeline.services.insight.read_files import ReadFiles

        stores = self._stores
        return ReadFiles(stores.tables, stores.files, self._scan, self.clock)

    @cached_property
    def read_change_rate(self) -> ReadChangeRate:
        from compaction_pipeline.services.insight.read_change_rate import ReadChangeRate

        return ReadChangeRate(self._change_rates, self.clock)

    @cached_property
    def read_records(self) -> ReadRecords:
        from compaction_pipeline.services.insight.read_records import ReadRecords

        stores = self._stores
        return ReadRecords(stores.catalogs, stores.tables, stores.tasks, stores.records)

    @cached_property
    def read_tasks(self) -> ReadTasks:
        from compaction_pipeline.services.insight.read_tasks import ReadTasks

        stores = self._stores
        return ReadTasks(stores.catalogs, stores.tables, stores.tasks, self.settings.spark_application_url)

    @cached_property
    def read_queues(self) -> ReadQueues:
        from compaction_pipeline.services.insight.read_queues import ReadQueues

        stores = self._stores
        return ReadQueues(stores.queues, stores.groups, stores.optimizers, stores.tasks, self.clock)

    @cached_property
    def watch_files(self) -> WatchFiles:
        from compaction_pipeline.services.insight.watch_files import WatchFiles

        return WatchFiles(self._stores.history, self._stores.records, self.clock)

    @cached_property
    def mirror_records(self) -> MirrorRecords:
        from compaction_pipeline.services.insight.mirror_records import MirrorRecords

        return MirrorRecords(self._stores.tasks, self._stores.records, self._stores.node_keys)

    @cached_property
    def judge_compaction(self) -> JudgeCompaction:
        from compaction_pipeline.services.insight.judge_compaction import JudgeCompaction

        stores = self._stores
        return JudgeCompaction(
            stores.catalogs,
            stores.tables,
            stores.tasks,
            stores.queues,
            stores.records,
            self._scan,
            stores.history,
            self.clock,
            self._key_reader,
        )

    @cached_property
    def check_tables(self) -> CheckTables:
        from compaction_pipeline.services.check_tables import CheckTables

        stores, explore, refresh = self._stores, self.explore_catalogs, self.refresh_files
        return CheckTables(stores.catalogs, stores.tables, explore, refresh, self.plan_tables, self.one_table, self.judge_compaction)

    @cached_property
    def maintain_tables(self) -> MaintainTables:
        from compaction_pipeline.services.upkeep.maintain_tables import MaintainTables

        stores = self._stores
        ttl = timedelta(days=self.settings.record_ttl_days)
        return MaintainTables(
            stores.catalogs,
            stores.tables,
            stores.index,
            stores.tasks,
            stores.records,
            self._scan,
            self._committer,
            self.clock,
            ttl,
            self.late,
        )


def open_services(settings: Settings | None = None, holder: str | None = None) -> Services:
    """Services of these settings, or of those in the environment. The log gets their level. Raises ConfigError for a bad setting.

    `holder` is the name that others see when they must wait for a lease that these services hold. The default names this process.
    """
    from compaction_pipeline.settings import load_settings

    settings = settings or load_settings()
    logging.getLogger("compaction_pipeline").setLevel(settings.log_level)
    return Services(settings, holder=holder or this_process())
