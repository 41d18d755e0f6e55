"""Decides when a leftover file may be deleted, and removes it with old records, old tasks and the state of dropped tables.

A leftover is a file on storage that an attempt or a commit wrote and no snapshot needs. A file is removed only when all of this holds:

- Its name has the id of a task that has ended, or of a record.
- That task was planned for this table. A table of the same name with another uuid is another table.
- It is not an output of a committed task.
- No record of the table is open or unknown.
- No snapshot lists it. The committer loads the metadata again to check this.
- No late request needs it. A commit's request without an answer may still land: for a day in any case, and after that for as long as main
  is at the snapshot on which the commit was built. The files of such a commit stay.

A table that cannot be maintained is reported as skipped, and has its turn the next time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from compaction_pipeline.core.commit.late_requests import LATE_REQUEST, may_arrive
from compaction_pipeline.core.commit.ports import Committer, RecordStore
from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.errors import CompactionError, NotFoundError
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.ports import TaskStore
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.ports import CatalogStore, IndexStore, TableScan
from compaction_pipeline.core.tables.table import TableIdentifier

_LOG = logging.getLogger(__name__)

RECORD_TTL = timedelta(days=30)
"""Records and tasks that have ended are kept for this long by default, so that a person can look into last month's events."""


@dataclass(frozen=True, slots=True)
class Maintenance:
    """What one round did. `skipped` has the tables that were left for the next round, each with the reason.

    `stopped` is True when the round was told to end before it had looked at every table.
    """

    records_expired: int = 0
    tasks_expired: int = 0
    leftovers: Mapping[TableIdentifier, tuple[str, ...]] = field(default_factory=dict)
    forgotten: tuple[TableIdentifier, ...] = ()
    skipped: Mapping[TableIdentifier, str] = field(default_factory=dict)
    stopped: bool = False

    @property
    def files_removed(self) -> int:
        """The number of leftovers that were deleted, of all tables."""
        return sum(len(paths) for paths in self.leftovers.values())


class MaintainTables:
    """Three verbs: expire old records and tasks, remove leftovers, and forget dropped tables. `maintain` does all of them."""

    def __init__(
        self,
        catalogs: CatalogStore,
        reader: TableReader,
        index: IndexStore,
        tasks: TaskStore,
        records: RecordStore,
        scan: TableScan,
        committer: Committer,
        clock: Clock,
        ttl: timedelta = RECORD_TTL,
        late: timedelta = LATE_REQUEST,
    ) -> None:
        """`ttl` is how long records and ended tasks are kept. `late` is how long a commit's request without an answer may still arrive."""
        self._late = late
        self._catalogs = catalogs
        self._reader = reader
        self._index = index
        self._tasks = tasks
        self._records = records
        self._scan = scan
        self._committer = committer
        self._clock = clock
        self._ttl = ttl

    def maintain(self, is_over: Callable[[], bool] = lambda: False) -> Maintenance:
        """Do one round: dropped tables, then leftovers, then expiry. Expiry is last, because it removes the ids that leftovers have.

        When `is_over()` is true before a table, the round stops there, and expires nothing.
        """
        forgotten, unanswered = self.forget_dropped()
        leftovers: dict[TableIdentifier, tuple[str, ...]] = {}
        skipped = dict(unanswered)
        for state in self._reader.states():
            if is_over():
                return Maintenance(0, 0, leftovers, forgotten, skipped, stopped=True)
            if state.table in skipped:
                continue
            try:
                removed = self.remove_leftovers(state.table)
            except CompactionError as error:
                skipped[state.table] = str(error)
                _LOG.warning("table=%s leftovers not looked for: %s", state.table, error)
                continue
            if removed:
                leftovers[state.table] = tuple(removed)
        records, tasks = self.expire()
        return Maintenance(records, tasks, leftovers, forgotten, skipped)

    def expire(self) -> tuple[int, int]:
        """Remove the records and tasks that ended longer ago than the time to live. Return the number of records and of tasks.

        A record stays while one of its requests may still arrive. A record with a request that got no answer also stays while the store
        has a task of it, because the record protects the files of its tasks.
        """
        now = self._clock()
        before = now - self._ttl
        tasks = self._tasks.expire(before)
        records = self._records.expire(before, self._still_asked(now, before))
        if records or tasks:
            _LOG.info("expired %d record(s) and %d task(s) that ended before %s", records, tasks, before.isoformat())
        return records, tasks

    def _still_asked(self, now: datetime, before: datetime) -> list[str]:
        """Return the ids of the records that ended before this time, but that the removal of leftovers still needs."""
        old = [record for record in self._records.records() if not record.answered and (record.ended_at or record.created_at) < before]
        known = {table: {task.task_id for task in self._tasks.tasks(table)} for table in {record.table for record in old}}
        return [
            record.record_id for record in old if may_arrive(record, now, self._late) or not known[record.table].isdisjoint(record.task_ids)
        ]

    def remove_leftovers(self, table: TableIdentifier) -> Sequence[str]:
        """Delete the files that killed and failed attempts left on storage. Return their paths.

        While a record of the table is open or unknown nothing is deleted, because the commit of that record may still land.
        """
        if self._records.records(table, unsettled=True):
            return ()
        tasks, records = self._tasks.tasks(table), self._records.records(table)
        if not tasks:
            return ()
        # When the table was recreated, the old one may live on under another name, in the same folder. Files of its tasks must stay.
        uuid = self._scan.head(table).table_uuid
        ours = {task.task_id: task for task in tasks if task.table_uuid == uuid}
        ended = {task_id: task for task_id, task in ours.items() if task.is_final}
        commits = {record.record_id: record for record in records if not ours.keys().isdisjoint(record.task_ids)}
        found = self._committer.leftovers(table, list(ended), list(commits)) if ended or commits else ()
        if not found:
            return ()
        kept = self._needed_by_late_requests(table, commits.values())
        ids = (ended.keys() | commits.keys()) - kept
        put_in = _output_names(task for task in ended.values() if task.status is TaskStatus.COMMITTED)
        candidates = [path for path in found if _carries(_name(path), ids) and _name(path) not in put_in]
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

    def forget_dropped(self) -> tuple[tuple[TableIdentifier, ...], Mapping[TableIdentifier, str]]:
        """Forget the tables that are gone from their catalogs. Return these tables, and the ones that were skipped, each with the reason.

        A table is skipped when its catalog gives no answer. It is also skipped while an attempt of it runs or a record of it is not
        settled, because their end must still be stored.
        """
        forgotten, unanswered = [], {}
        known = self._known_tables()
        for entry in self._catalogs.entries():
            candidates = [table for table in known if table.catalog == entry.name]
            try:
                # The listing comes first, because a catalog that is gone says "not found" about each of its tables too.
                listed = set(self._scan.list_tables(entry.name)) if candidates else set()
                unlisted = [table for table in candidates if table not in listed and self._is_gone(table)]
            except CompactionError as error:
                unanswered.update(dict.fromkeys(candidates, str(error)))
                continue
            for table in unlisted:
                if self._tasks.tasks(table, statuses=(TaskStatus.EXECUTING,), limit=1) or self._records.records(table, unsettled=True):
                    unanswered[table] = "dropped, but a task or a commit of it has not ended yet"
                    continue
                self._index.forget(table)
                forgotten.append(table)
                _LOG.info("table=%s was dropped; its state is forgotten, its records stay", table)
        return tuple(forgotten), unanswered

    def _is_gone(self, table: TableIdentifier) -> bool:
        try:
            self._scan.head(table)
        except NotFoundError:
            return True
        return False

    def _known_tables(self) -> list[TableIdentifier]:
        # When a table is forgotten while it is measured, its nodes may stay.
        known = {state.table for state in self._reader.states()}
        known.update(node.table for node in self._reader.nodes())
        return sorted(known)


def _output_names(tasks: Iterable[CompactionTask]) -> frozenset[str]:
    # Files are compared by name, because one path may be written as `file:///a`, `file:/a` or `/a`. The attempt's id makes a name unique.
    return frozenset(_name(output.path) for task in tasks if task.result is not None for output in task.result.outputs)


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _carries(name: str, ids: Collection[str]) -> bool:
    """Return whether one of the ids is a whole part of the name. `p-1` is not a part of `a-p-12-x.parquet`, a file of another task."""
    parts = name.rsplit(".", 1)[0].split("-")
    return any("-".join(parts[start:end]) in ids for start in range(len(parts)) for end in range(start + 1, len(parts) + 1))
