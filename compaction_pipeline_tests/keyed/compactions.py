"""Merges changes of a keyed table into its base store with the product's plan, kernel and commit, for tests.

A test may act between the three steps, as other writers and other compactions do.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone

from compaction_pipeline.core.commit.ports import CommitOutcome
from compaction_pipeline.core.fragmentation.keyed_metrics import buckets_mask
from compaction_pipeline.core.fragmentation.verdict import NodeHistory
from compaction_pipeline.core.ids import AttemptId
from compaction_pipeline.core.planning.keyed.node_rewrites import plan_node_rewrites
from compaction_pipeline.core.planning.keyed.to_base import PartitionPlan, ToBaseOptions, plan_to_base
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.keyed.keyed_files import KeyedFiles
from compaction_pipeline.core.tables.properties import TableProperties, resolve_properties
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.iceberg.catalogs import Catalog
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.commit.committer import IcebergCommitter
from compaction_pipeline.iceberg.keyed.change_plan import read_keyed_files
from compaction_pipeline.iceberg.keyed.kept_manifests import KeptManifests
from compaction_pipeline.iceberg.keyed.stores import KeyedStores, load_stores
from compaction_pipeline.iceberg.keyed.transactions import read_open_transactions
from compaction_pipeline_tests.builders import task as task_builder
from compaction_pipeline_tests.works import judge, merge_task, verify_rows

MIB = 1024 * 1024


class Compactions:
    """Compacts the keyed table `db.t` of a catalog. `properties` are those with which the program opens the catalog."""

    def __init__(self, catalog: Catalog, properties: Mapping[str, str]) -> None:
        self._catalog = catalog
        self._table = TableIdentifier(catalog.name, ("db",), "t")
        self.committer = IcebergCommitter(Catalogs(lambda name: CatalogEntry(name, properties)), sleep=lambda seconds: None)
        self._numbers = itertools.count(1)
        self._kept = KeptManifests()
        self.partitions: tuple[PartitionPlan, ...] = ()

    @property
    def stores(self) -> KeyedStores:
        return load_stores(self._catalog, ("db", "t"))

    def plan(
        self, kind: CompactionType = CompactionType.MAJOR, properties: TableProperties | None = None, task_bytes: int | None = None
    ) -> list[CompactionTask]:
        """Tasks for all partitions at the head of both stores. `partitions` has the plans of this call."""
        stores = self.stores
        files = self._files(stores)
        now = datetime.now(timezone.utc)
        opened = read_open_transactions(stores.change.metadata, stores.base.metadata, files.changes, files.base, now)
        properties = properties or resolve_properties(stores.base.properties, {})
        self.partitions = plan_to_base(files, ToBaseOptions(kind, properties, opened, task_bytes=task_bytes))
        return self._tasks(stores, [work for partition in self.partitions for work in partition.tasks])

    def plan_rewrites(self, properties: TableProperties | None = None) -> list[CompactionTask]:
        """Tasks that merge the small change files of each node with each other, whatever the thresholds say."""
        stores = self.stores
        properties = properties or resolve_properties(stores.base.properties, {})
        mask, history, now = buckets_mask(stores.base.properties), NodeHistory({}, {}), datetime.now(timezone.utc)
        found = plan_node_rewrites(self._files(stores), (), mask, properties, history, now, force=True)
        return self._tasks(stores, [work for answer in found.values() for work in answer.tasks])

    def _files(self, stores: KeyedStores) -> KeyedFiles:
        """What the plans of a process that lives on find. It is the same as what a new process finds."""
        found = read_keyed_files(stores, self._kept)
        assert repr(found) == repr(read_keyed_files(stores))
        return found

    def _tasks(self, stores: KeyedStores, works: Sequence[Work]) -> list[CompactionTask]:
        snapshot = stores.base.current_snapshot()
        plan_id = f"p{next(self._numbers)}"
        return [
            task_builder(
                f"{plan_id}-{number:05d}",
                plan_id=plan_id,
                table=self._table,
                table_uuid=str(stores.base.metadata.table_uuid),
                snapshot_id=snapshot.snapshot_id if snapshot is not None else 0,
                sequence_number=(snapshot.sequence_number or 0) if snapshot is not None else 0,
                schema_id=work.written_layout(stores.layout).schema_id,
                memory_bytes=256 * MIB,
                created_at=datetime.now(timezone.utc),
                work=replace(work, group=f"{plan_id}/{work.group}" if work.group else ""),
                attempt=1,
                attempt_id=AttemptId(f"a{next(self._numbers)}"),
                status=TaskStatus.EXECUTING,
            )
            for number, work in enumerate(works)
        ]

    def merge(self, tasks: Sequence[CompactionTask]) -> list[CompactionTask]:
        """The tasks with their results. Each merge succeeds, and its report is believed."""
        stores = self.stores
        merged = []
        for task in tasks:
            result = merge_task(task, stores.layout, {})
            assert result.error is None, result.error
            judged = judge(task, result.told(), stores.layout, {})
            assert replace(judged, outputs=tuple(replace(each, version=None) for each in judged.outputs)) == result
            if os.environ.get("COMPACTION_TEST_VERIFY_ROWS"):
                assert verify_rows(task, judged, stores.layout, {}) is None
            merged.append(replace(task, status=TaskStatus.PREPARED, result=judged))
        return merged

    def commit(self, tasks: Sequence[CompactionTask]) -> CommitOutcome:
        return self.committer.commit(self._table, f"record-{next(self._numbers)}", tasks)

    def compact(
        self, kind: CompactionType = CompactionType.MAJOR, properties: TableProperties | None = None, task_bytes: int | None = None
    ) -> CommitOutcome | None:
        """Plan, merge and commit; None when there is nothing to do."""
        tasks = self.plan(kind, properties, task_bytes)
        return self.commit(self.merge(tasks)) if tasks else None
