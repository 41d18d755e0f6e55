"""Knows how the commits of tables went and which properties commits obey, and notes on a table how a commit of it ended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

from compaction_pipeline.core.commit.backoff import is_waiting, retry_at
from compaction_pipeline.core.commit.done_work import done_work
from compaction_pipeline.core.commit.ports import CommitsReader, CommitsStore, RecordStore
from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus, sum_if_known
from compaction_pipeline.core.commit.table_commits import TableCommits
from compaction_pipeline.core.errors import CompactionError, NotFoundError
from compaction_pipeline.core.ids import AttemptId, TaskId
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.known_task import KnownTask
from compaction_pipeline.core.queue.prepared_tasks import PreparedTasks
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.properties import TableProperties, properties_or_defaults
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work

log = logging.getLogger(__name__)

_NOT_COMMITTED = tuple(status for status in TaskStatus if status is not TaskStatus.COMMITTED)


class KnownCommits:
    """A table may be forgotten while it is committed. Then nothing is known of its commits, and nothing is noted."""

    def __init__(
        self,
        catalog: Callable[[str], CatalogEntry],
        reader: CommitsReader,
        commits: CommitsStore,
        records: RecordStore,
        tasks: PreparedTasks[KnownTask],
        clock: Clock,
        costs: Callable[[Collection[AttemptId]], Mapping[AttemptId, float]],
    ) -> None:
        """`catalog` returns a registered catalog, and raises NotFoundError when it is unknown. `costs` returns the GB-hours of attempts, as
        `CostStore.gb_hours` says."""
        self._catalog = catalog
        self._reader = reader
        self._commits = commits
        self._records = records
        self._tasks = tasks
        self._clock = clock
        self._costs = costs

    def of(self, table: TableIdentifier) -> TableCommits:
        """Return how the commits of a table went. For a table that was forgotten, return an empty value."""
        try:
            return self._reader.state(table).commits
        except NotFoundError:
            return TableCommits()

    def unknown(self, table: TableIdentifier) -> CompactionRecord | None:
        """Return a record of the table whose commit may still land; None when there is none."""
        return next((record for record in self._records.records(table, unsettled=True) if record.status is RecordStatus.UNKNOWN), None)

    def records_of(self, task_ids: Sequence[TaskId]) -> Sequence[CompactionRecord]:
        """Return the closed records of these tasks, oldest first. Any process may have made them."""
        tasks = [self._tasks.task(task_id) for task_id in task_ids]
        records = [self._records.record(record_id) for record_id in dict.fromkeys(task.record_id for task in tasks if task.record_id)]
        return sorted((record for record in records if record.ended_at is not None), key=lambda record: record.created_at)

    def gb_hours(self, tasks: Sequence[KnownTask]) -> float | None:
        """Return the GB-hours of the attempts that merged these tasks; None when they are not known of each."""
        attempts = [None if task.result is None else task.result.attempt_id for task in tasks]
        known = self._costs([attempt for attempt in attempts if attempt is not None])
        return sum_if_known(None if attempt is None else known.get(attempt) for attempt in attempts)

    def is_waiting(self, table: TableIdentifier) -> bool:
        """Whether the last commit of a table failed, and the pause after that failure is not over."""
        return is_waiting(self.of(table).retry_at, self._clock())

    def is_observed(self, table: TableIdentifier) -> bool:
        """Whether the catalog of a table is only observed, so that nothing is committed to it."""
        try:
            return self._catalog(table.catalog).observe
        except NotFoundError:
            return False

    def properties(self, table: TableIdentifier) -> TableProperties:
        """Return the table's properties; the defaults when one breaks its rule, so that merged tasks are still committed."""
        try:
            layout = self._reader.state(table).layout
            return properties_or_defaults(layout.properties if layout is not None else {}, self._catalog(table.catalog).properties)
        except CompactionError:
            return TableProperties()

    def note_failure(self, table: TableIdentifier, problem: str) -> None:
        """Store on the table why its commit failed. Ticks then leave the table alone for a while."""
        failures = self.of(table).failures + 1
        try:
            self._commits.note_failure(table, problem, failures, retry_at(failures, self._clock()))
        except NotFoundError:
            log.warning("table=%s was forgotten while it was committed", table)

    def note_landed(self, table: TableIdentifier, now: datetime) -> None:
        """Store on the table that a commit landed. An index that was read without it is outdated from now on."""
        try:
            self._commits.note_landed(table, now)
        except NotFoundError:
            log.warning("table=%s was forgotten while it was committed", table)

    def note_done(self, table: TableIdentifier, committed: Sequence[MergedWork[Work]], now: datetime) -> None:
        """Store on the nodes of these tasks that their work is done."""
        is_full = any(task.work.type is CompactionType.FULL for task in committed)
        moved = any(task.work.merged_place is not None for task in committed)
        unfinished = self._tasks.tasks(table, _NOT_COMMITTED) if is_full else ()
        nodes = [state.node for state in self._reader.nodes(table)] if moved else ()
        self._commits.mark_done(table, done_work(committed, unfinished, nodes), now)
