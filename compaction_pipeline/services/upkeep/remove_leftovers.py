"""Decides when a leftover file may be deleted, and removes it.

A leftover is a file on storage that an attempt or a commit wrote and no snapshot needs. A file is removed only when all of this holds:

- Its name has the id of a task that has ended, or of a record.
- That task was planned for this table. A table of the same name with another uuid is another table.
- It is not an output of a committed task.
- No record of the table is open or unknown.
- No snapshot lists it. The committer loads the metadata again to check this.
- It is no manifest and no manifest list of a commit that landed. After a table was set back, only newer metadata or another registration
  names the snapshot of that commit. Expiries and the removal of orphan files look there before they delete such a file.
- Neither the table, nor its catalog, nor a policy of the catalog forbids it. What would go is told then.
- No late request needs it. A commit's request without an answer may still land: for a day in any case, and after that for as long as main
  is at the snapshot on which the commit was built. The files of such a commit stay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta

from compaction_pipeline.core.commit.late_requests import LATE_REQUEST, may_arrive
from compaction_pipeline.core.commit.ports import Committer, RecordStore
from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.errors import DeletionForbidden
from compaction_pipeline.core.leases.names import upkeep_lease
from compaction_pipeline.core.leases.ports import HeldLeases
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.deletion_ban import would_go
from compaction_pipeline.core.tables.ports.scan import TableScan
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.file_names import carries
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work

_LOG = logging.getLogger(__name__)


class RemoveLeftovers:
    """One verb: remove. It also says which records it still needs."""

    def __init__(
        self,
        work: tuple[TaskStore, RecordStore],
        scan: TableScan,
        committer: Committer,
        leases: HeldLeases,
        late: timedelta = LATE_REQUEST,
        why_not: Callable[[TableIdentifier], str | None] = lambda table: None,
    ) -> None:
        """`late` is how long a commit's request without an answer may still arrive. `why_not` says which policy of a table's catalog
        forbids that files are removed which nothing names; None when none does."""
        self._tasks, self._records = work
        self._scan = scan
        self._committer = committer
        self._leases = leases
        self._clock = leases.clock
        self._late = late
        self._why_not = why_not

    def still_asked(self, now: datetime, before: datetime) -> list[str]:
        """Return the ids of the records that ended before this time, but that the removal of leftovers still needs."""
        old = [record for record in self._records.records() if not record.answered and (record.ended_at or record.created_at) < before]
        known = {table: {task.task_id for task in self._tasks.tasks(table)} for table in {record.table for record in old}}
        return [
            record.record_id for record in old if may_arrive(record, now, self._late) or not known[record.table].isdisjoint(record.task_ids)
        ]

    def remove(self, table: TableIdentifier) -> Sequence[str]:
        """Delete the files that killed and failed attempts left on storage. Return their paths. Raises DeletionForbidden, with the files.

        While a record of the table is open or unknown nothing is deleted, because the commit of that record may still land. While another
        process expires snapshots of the table nothing is deleted either: the next round does it.
        """
        with self._leases.hold(upkeep_lease(table)) as renew:
            return () if renew is None else self._remove(table)

    def _remove(self, table: TableIdentifier) -> Sequence[str]:
        if self._records.records(table, unsettled=True):
            return ()
        tasks, records = self._tasks.tasks(table), self._records.records(table)
        if not tasks:
            return ()
        # When the table was recreated, the old one may live on under another name, in the same folder. Files of its tasks must stay.
        uuid = self._scan.head(table).table_uuid
        ours = {task.task_id: task for task in tasks if task.table_uuid == uuid}
        ended = {task_id: task for task_id, task in ours.items() if task.is_final}
        own = [record for record in records if not ours.keys().isdisjoint(record.task_ids)]
        commits = {record.record_id for record in own if record.status is not RecordStatus.COMMITTED}
        found = self._committer.leftovers(table, list(ended), list(commits)) if ended or commits else ()
        if not found:
            return ()
        # A commit that landed may have sent an earlier request, with more tasks, which may land after a rollback.
        kept = self._needed_by_late_requests(table, own)
        ids = (ended.keys() | commits) - kept
        put_in = _output_names(task for task in ended.values() if task.status is TaskStatus.COMMITTED)
        candidates = [path for path in found if carries(_name(path), ids) and _name(path) not in put_in]
        forbidden = self._why_not(table) if candidates else None
        if forbidden is not None:
            raise DeletionForbidden(f"table {table}: {would_go(forbidden, candidates)}")
        # A commit that began meanwhile claims only Prepared tasks. None of these tasks is Prepared, and the record of that commit has a new
        # id.
        removed = self._committer.delete_orphans(table, uuid, candidates) if candidates else ()
        if removed:
            _LOG.info("table=%s removed %d leftover(s) of %d task(s) and %d commit(s)", table, len(removed), len(ended), len(commits))
        return removed

    def _needed_by_late_requests(self, table: TableIdentifier, records: Collection[CompactionRecord]) -> frozenset[str]:
        """Return the ids of the records with a request that may still land, and the ids of their tasks."""
        now = self._clock()
        late = [record for record in records if may_arrive(record, now, self._late)]
        asked = [record for record in records if not record.answered and record not in late]
        landing = frozenset(self._committer.may_land(table, [record.record_id for record in asked])) if asked else frozenset()
        late += [record for record in asked if record.record_id in landing]
        return frozenset(one for record in late for one in (record.record_id, *record.task_ids))


def _output_names(tasks: Iterable[MergedWork[Work]]) -> frozenset[str]:
    # Files are compared by name, because one path may be written as `file:///a`, `file:/a` or `/a`. The attempt's id makes a name unique.
    return frozenset(_name(output.path) for task in tasks if task.result is not None for output in task.result.outputs)


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]
