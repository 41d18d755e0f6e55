"""Remembers which records Dagster was told of. So Dagster's history gets every commit, whichever process made it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from compaction_pipeline.core.commit.ports import RecordStore
from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.tables.ports.index import NodeKeyStore
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work


class MirrorRecords:
    """One verb: mirror. A door asks for the untold records, tells Dagster of them, and then reports them as told."""

    def __init__(self, tasks: TaskStore, records: RecordStore, node_keys: NodeKeyStore) -> None:
        self._node_keys = node_keys
        self._tasks = tasks
        self._records = records

    def untold(self, limit: int) -> Sequence[CompactionRecord]:
        """Ended records that nobody has reported as told, oldest first."""
        return self._records.unmirrored(limit)

    def tasks(self, record: CompactionRecord) -> Mapping[str, Sequence[MergedWork[Work]]]:
        """The tasks of a record that are still kept, by the keys of their nodes."""
        tasks = self._tasks.tasks(record.table, record_id=record.record_id)
        keys = self._node_keys.keys(record.table, {task.work.node for task in tasks})
        by_key: dict[str, list[MergedWork[Work]]] = defaultdict(list)
        for task in tasks:
            by_key[keys[task.work.node]].append(task)
        return by_key

    def told(self, record_ids: Sequence[RecordId]) -> None:
        """Note that Dagster has stored the events of these records."""
        self._records.mark_mirrored(record_ids)
