"""Notes in its record that a commit of ours was taken back, and lets its nodes be planned again. No file is deleted for that."""

from __future__ import annotations

import logging
from dataclasses import replace

from compaction_pipeline.core.commit.ports import CommitsStore, RecordStore
from compaction_pipeline.core.commit.rollbacks import rolled_back
from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableHead
from compaction_pipeline.core.work.kinds import CompactionType

log = logging.getLogger(__name__)

_RECORDS = 50
"""So many of the newest records of a table are compared with its history. `TableHead.ancestors` has twice as many snapshots."""


class NoteRollbacks:
    """One verb: note."""

    def __init__(self, records: RecordStore, tasks: TaskStore, commits: CommitsStore, clock: Clock) -> None:
        self._records = records
        self._tasks = tasks
        self._commits = commits
        self._clock = clock

    def note(self, head: TableHead) -> None:
        """Compare the newest records of a table with the history of its head, which has just been loaded.

        What the last work of a node was is forgotten, where a commit of this work was taken back: else its node would wait for the next
        interval.
        """
        records = self._records.records(head.table, _RECORDS)
        for record in rolled_back(records, head.snapshot_id, head.ancestors):
            # The store drops nothing twice. So when the process ends in between, the next look does both again.
            done = [work for task_id in record.committed_task_ids if (work := self._work(task_id)) is not None]
            self._commits.forget_done(head.table, done, record.created_at, record.ended_at or self._clock())
            self._records.save(replace(record, rolled_back_at=self._clock()))
            log.warning(
                "table=%s record=%s its snapshot %s was rolled back: its nodes are planned again, and its files are orphan files",
                head.table,
                record.record_id,
                record.snapshot_after,
            )

    def _work(self, task_id: TaskId) -> tuple[TableNode, CompactionType] | None:
        try:
            work = self._tasks.task(task_id).work
        except NotFoundError:
            # It ended long ago, and was removed.
            return None
        return work.node, work.type
