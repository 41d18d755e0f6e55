"""Keeps the state and the tables' folders from growing for ever: old records and tasks, leftovers of attempts, dropped tables.

Removes a file only when nothing can want it any more: its name carries the id of a task that is at an end, or of a record; the task
was planned on this very table (same uuid); the file is not what a committed task put in; no record of the table is open or unknown;
no snapshot lists it (the committer looks at freshly loaded metadata); and no request of a commit may still arrive that needs it: a day
has passed since one that nobody answered, and the table does not stand where its requirement holds. A table that fails is named and
left for the next time.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
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
"""How long records and finished tasks are kept by default: long enough to look into last month's surprise."""

_ENDED = (TaskStatus.COMMITTED, TaskStatus.FAILED, TaskStatus.CANCELED)


@dataclass(frozen=True, slots=True)
class Maintenance:
    """What one round did. `skipped` says per table why its part was left for the next time."""

    records_expired: int = 0
    tasks_expired: int = 0
    leftovers: Mapping[TableIdentifier, tuple[str, ...]] = field(default_factory=dict)
    forgotten: tuple[TableIdentifier, ...] = ()
    skipped: Mapping[TableIdentifier, str] = field(default_factory=dict)

    @property
    def files_removed(self) -> int:
        """How many leftovers were deleted, of all tables."""
        return sum(len(paths) for paths in self.leftovers.values())


class MaintainTables:
    """Expires, cleans, forgets."""

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
        """`late`: how long a commit's request that nobody answered may still arrive."""
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

    def maintain(self) -> Maintenance:
        """One whole round: dropped tables, then leftovers, then expiry (which forgets the ids that leftovers are found by)."""
        forgotten, unanswered = self.forget_dropped()
        leftovers: dict[TableIdentifier, tuple[str, ...]] = {}
        skipped = dict(unanswered)
        for state in self._reader.states():
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
        """Remove records and finished tasks that ended longer ago than the time to live; answers how many of each.

        A record whose request may still arrive stays, and one that nobody answered stays as long as a task of it: it keeps their files.
        """
        now = self._clock()
        before = now - self._ttl
        tasks = self._tasks.expire(before)
        records = self._records.expire(before, self._still_asked(now, before))
        if records or tasks:
            _LOG.info("expired %d record(s) and %d task(s) that ended before %s", records, tasks, before.isoformat())
        return records, tasks

    def _still_asked(self, now: datetime, before: datetime) -> list[str]:
        """Ids of the records that ended before, and that the removal of leftovers must still know."""
        old = [record for record in self._records.records() if not record.answered and (record.ended_at or record.created_at) < before]
        known = {table: {task.task_id for task in self._tasks.tasks(table)} for table in {record.table for record in old}}
        return [
            record.record_id for record in old if may_arrive(record, now, self._late) or not known[record.table].isdisjoint(record.task_ids)
        ]

    def remove_leftovers(self, table: TableIdentifier) -> Sequence[str]:
        """Delete what killed and failed attempts left on storage; answers the paths deleted.

        Nothing is looked for while a record of the table is open or unknown: its files may still land.
        """
        if self._records.records(table, unsettled=True):
            return ()
        tasks, records = self._tasks.tasks(table), self._records.records(table)
        if not tasks:
            return ()
        # A table recreated under the name may share the folder with the old one, renamed away and alive: its files are not ours.
        uuid = self._scan.head(table).table_uuid
        ours = {task.task_id: task for task in tasks if task.table_uuid == uuid}
        ended = {task_id: task for task_id, task in ours.items() if task.status in _ENDED}
        commits = {record.record_id: record for record in records if not ours.keys().isdisjoint(record.task_ids)}
        found = self._committer.leftovers(table, list(ended), list(commits)) if ended or commits else ()
        if not found:
            return ()
        kept = self._needed_by_late_requests(table, commits.values())
        ids = (ended.keys() | commits.keys()) - kept
        put_in = _output_names(task for task in ended.values() if task.status is TaskStatus.COMMITTED)
        candidates = [path for path in found if _carries(_name(path), ids) and _name(path) not in put_in]
        # A commit that began meanwhile claims Prepared tasks only, never one of these, and has an id of its own.
        removed = self._committer.delete_orphans(table, uuid, candidates) if candidates else ()
        if removed:
            _LOG.info("table=%s removed %d leftover(s) of %d task(s) and %d commit(s)", table, len(removed), len(ended), len(commits))
        return removed

    def _needed_by_late_requests(self, table: TableIdentifier, records: Collection[CompactionRecord]) -> frozenset[str]:
        """Ids of records of which a request may still land, and of their tasks."""
        now = self._clock()
        late = [record for record in records if may_arrive(record, now, self._late)]
        asked = [record for record in records if not record.answered and record not in late]
        landing = frozenset(self._committer.may_land(table, [record.record_id for record in asked])) if asked else frozenset()
        late += [record for record in asked if record.record_id in landing]
        return frozenset(one for record in late for one in (record.record_id, *record.task_ids))

    def forget_dropped(self) -> tuple[tuple[TableIdentifier, ...], Mapping[TableIdentifier, str]]:
        """Forget tables that their catalog no longer holds; answers them, and those of which the catalog gave no answer.

        A table with a running attempt or an unsettled record waits: its end is still to be written down.
        """
        forgotten, unanswered = [], {}
        known = self._known_tables()
        for entry in self._catalogs.entries():
            candidates = [table for table in known if table.catalog == entry.name]
            try:
                # First the listing: a catalog that is gone altogether says "not found" of each table too.
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
        # A table that is forgotten while it is measured may leave nodes.
        known = {state.table for state in self._reader.states()}
        known.update(node.table for node in self._reader.nodes())
        return sorted(known)


def _output_names(tasks: Iterable[CompactionTask]) -> frozenset[str]:
    # By name, which holds the attempt and is unique: one file may be written as `file:///a`, `file:/a` or `/a`.
    return frozenset(_name(output.path) for task in tasks if task.result is not None for output in task.result.outputs)


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _carries(name: str, ids: Collection[str]) -> bool:
    """Whether a name holds one of the ids whole: `p-1` is no part of `a-p-12-x.parquet`, which is another task's file."""
    parts = name.rsplit(".", 1)[0].split("-")
    return any("-".join(parts[start:end]) in ids for start in range(len(parts)) for end in range(start + 1, len(parts) + 1))
