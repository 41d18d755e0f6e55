"""What a person asks about records: what our commits did. Reads the state database only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compaction_pipeline.core.commit.ports import RecordStore
from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.insight.overview import SHOWN
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.queue.task import CompactionTask, TaskAttempt
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.table import TableIdentifier


@dataclass(frozen=True, slots=True)
class RecordDetail:
    """A record with those of its tasks that are still kept, and the attempts of each task by its id."""

    record: CompactionRecord
    tasks: tuple[CompactionTask, ...]
    attempts: Mapping[str, tuple[TaskAttempt, ...]]


class ReadRecords:
    """Answers questions about records and changes nothing."""

    def __init__(self, catalogs: CatalogStore, tables: TableReader, tasks: TaskStore, records: RecordStore) -> None:
        self._catalogs = catalogs
        self._tables = tables
        self._tasks = tasks
        self._records = records

    def records(self, table: TableIdentifier | None = None, limit: int | None = SHOWN) -> tuple[CompactionRecord, ...]:
        """Records of all tables, or of one, newest first. Raises NotFoundError for a table that nobody knows."""
        found = self.newest(table, limit)
        if table is not None and not found:
            # A table that was dropped may still have records. Only a name without a record may be a typing mistake.
            self._catalogs.entry(table.catalog)
            self._tables.state(table)
        return found

    def newest(self, table: TableIdentifier | None = None, limit: int | None = SHOWN) -> tuple[CompactionRecord, ...]:
        """The same, but an unknown table has no records."""
        return tuple(self._records.records(table, limit=limit))

    def record(self, record_id: RecordId) -> RecordDetail:
        """One record with its tasks. A unique beginning of its id is enough. Raises NotFoundError when it is unknown."""
        record = self._record(record_id)
        tasks = []
        for task_id in record.task_ids:
            try:
                tasks.append(self._tasks.task(task_id))
            except NotFoundError:
                continue  # Finished tasks expire before their record does.
        return RecordDetail(record, tuple(tasks), {task.task_id: tuple(self._tasks.attempts(task.task_id)) for task in tasks})

    def _record(self, record_id: RecordId) -> CompactionRecord:
        try:
            return self._records.record(record_id)
        except NotFoundError:
            matches = [record for record in self._records.records() if record_id and record.record_id.startswith(record_id)]
            if len(matches) != 1:
                raise
            return matches[0]
