"""Builds the use cases that show and judge, each on first use."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from compaction_pipeline.services.wiring import Wiring

if TYPE_CHECKING:
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


class InsightServices(Wiring):
    """The use cases that show and judge."""

    @cached_property
    def read_status(self) -> ReadStatus:
        from compaction_pipeline.services.insight.read_status import ReadStatus

        stores = self._stores
        return ReadStatus(stores.catalogs, stores.tables, stores.tasks, stores.records, self.clock, stores.listings)

    @cached_property
    def read_tables(self) -> ReadTables:
        from compaction_pipeline.services.insight.read_tables import ReadTables

        stores = self._stores
        return ReadTables(stores.catalogs, stores.tables, stores.files, stores.tasks, stores.records, stores.teams, self.clock)

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
        return ReadTasks(stores.catalogs, stores.tables, stores.tasks, self._settings.spark_application_url)

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
        from compaction_pipeline.services.insight.compare_tables import CompareTables
        from compaction_pipeline.services.insight.judge_compaction import JudgeCompaction, JudgedWork

        stores = self._stores
        compare_tables = CompareTables(stores.records, stores.history, self._scan)
        work = JudgedWork(stores.queues, stores.groups, stores.teams, stores.costs)
        return JudgeCompaction(stores.catalogs, stores.tables, stores.tasks, work, compare_tables, self._key_reader, self.clock)
