"""Claims Prepared tasks of a table under a record, and writes the record: the steps 3 and 4 of `commit_tables`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from compaction_pipeline.core.commit.ports import RecordStore
from compaction_pipeline.core.commit.record import CompactionRecord, opened
from compaction_pipeline.core.commit.waited import waited_for
from compaction_pipeline.core.ids import RecordId, TaskId
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.known_task import KnownTask
from compaction_pipeline.core.queue.prepared_tasks import PreparedTasks
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.services.commit.known_commits import KnownCommits


class OpenRecord:
    """One verb: open."""

    def __init__(
        self,
        tasks: PreparedTasks[KnownTask],
        records: RecordStore,
        node_keys: Callable[[TableIdentifier, Collection[TableNode]], Mapping[TableNode, str]],
        known: KnownCommits,
        clock: Clock,
        new_id: Callable[[], str],
        on_step: Callable[[str], None],
    ) -> None:
        """`node_keys` returns the keys of these nodes of a table, as `NodeKeyStore` says."""
        self._tasks = tasks
        self._records = records
        self._node_keys = node_keys
        self._known = known
        self._clock = clock
        self._new_id = new_id
        self._on_step = on_step

    def open(
        self, table: TableIdentifier, task_ids: Sequence[TaskId] | None, run_id: str | None, at_once: bool
    ) -> tuple[CompactionRecord, Sequence[KnownTask]] | None:
        """Claim these tasks, None means all that are Prepared, and write their record. Return None when nothing is Prepared."""
        record_id = RecordId(self._new_id())
        tasks = self._tasks.claim(table, record_id, task_ids)
        self._on_step("claimed-for-commit")
        if not tasks:
            return None
        now, commits = self._clock(), self._known.of(table)
        keys = self._node_keys(table, {task.work.node for task in tasks}).values()
        interval, before = self._known.properties(table).commit_interval, self._records.records(table, limit=1)
        merged_at = [task.prepared_at for task in tasks if task.prepared_at is not None]
        waited = waited_for(merged_at, now, commits, interval, before, at_once)
        record = replace(opened(record_id, table, tasks, keys, now), run_id=run_id, waited=waited)
        self._records.save(record)
        self._on_step("record-opened")
        return record, tasks
