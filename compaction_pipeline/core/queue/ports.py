"""What use cases need to have tasks merged: the queue and a merge engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from compaction_pipeline.core.ids import AttemptId, RecordId, TaskId
from compaction_pipeline.core.queue.open_work import InUse, PlannedWork, PreparedWork
from compaction_pipeline.core.queue.task import CompactionTask, EndReason, MergeResult, TaskAttempt, TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier, TableLayout


class MergeEngine(Protocol):
    """Merges the files of tasks; never touches metadata."""

    def ready(self) -> None:
        """Start what merges need, or find it running; asked before tasks are polled, so that none pays for an engine that is away.

        ConfigError when it can never start as it is set up, StorageUnavailable when it does not start now.
        """

    def merge(self, tasks: Sequence[CompactionTask], layout: TableLayout, file_io: Mapping[str, str]) -> Iterator[MergeResult]:
        """One result per task of one table, in any order, as they end. A failed task is a result with `error`, never an exception.

        `file_io` are the FileIO properties (secrets included) that open the table's files.
        """

    def close(self) -> None:
        """Free what the engine holds (a Spark session that it started)."""


class TaskStore(Protocol):
    """Tasks, the only place where a status is written; each change by compare-and-set after `core.lifecycle` allowed it."""

    def insert(self, tasks: Sequence[CompactionTask], replaces: Sequence[TaskId], now: datetime) -> bool:
        """One transaction: cancel `replaces` (all must still be Pending), insert `tasks` as Pending.

        False when one of `replaces` was polled meanwhile: nothing changed.
        """

    def poll(
        self, queue: str | None, owner: str, now: datetime, lease: timedelta, task_ids: Sequence[TaskId] | None = None
    ) -> CompactionTask | None:
        """Claim the next Pending task (priority, then age), of these ids only where given. None when there is none."""

    def waits(self, queue: str | None, task_ids: Sequence[TaskId] | None = None) -> bool:
        """Whether any Pending task waits that such a poll could claim."""

    def renew(self, attempt_ids: Sequence[AttemptId], now: datetime, lease: timedelta) -> Sequence[str]:
        """Renew leases; answers the attempts that are still held."""

    def complete(self, result: MergeResult, now: datetime) -> TaskStatus:
        """Report an attempt: PREPARED, or (error) PENDING with retries left, else FAILED. StaleAttempt when it no longer holds its task."""

    def release_expired(self, now: datetime) -> Sequence[str]:
        """Executing attempts whose lease ended: PENDING again, or FAILED when retries are used up. Answers the task ids."""

    def fail(self, task_id: TaskId, end_reason: EndReason, reason: str, now: datetime) -> None:
        """EXECUTING or PREPARED → FAILED (conflict, table gone)."""

    def cancel(self, task_ids: Sequence[TaskId], end_reason: EndReason, reason: str, now: datetime) -> Sequence[TaskId]:
        """Pending ones → CANCELED; answers those canceled."""

    def claim(self, table: TableIdentifier, record_id: RecordId, task_ids: Sequence[TaskId] | None = None) -> Sequence[CompactionTask]:
        """Put `record_id` on Prepared tasks without one (all of the table, or these).

        A group is claimed only when none of its tasks is Pending or Executing.
        """

    def unclaim(self, record_id: RecordId) -> None:
        """Take the record off tasks that are still Prepared: the commit was for certain not made."""

    def commit(self, task_ids: Sequence[TaskId], now: datetime) -> None:
        """PREPARED → COMMITTED."""

    def task(self, task_id: TaskId) -> CompactionTask: ...

    def tasks(
        self,
        table: TableIdentifier | None = None,
        statuses: Sequence[TaskStatus] | None = None,
        record_id: RecordId | None = None,
        limit: int | None = None,
    ) -> Sequence[CompactionTask]:
        """Newest first."""

    def counts(self) -> Mapping[TaskStatus, int]: ...

    def planned_work(self, table: TableIdentifier) -> PlannedWork:
        """What of a table is Pending or Executing: Prepared tasks run no more."""

    def prepared_work(self) -> Mapping[TableIdentifier, PreparedWork]:
        """What is Prepared, of every table that has any, claimed by a commit or not."""

    def in_use(self, table: TableIdentifier) -> InUse: ...

    def attempts(self, task_id: TaskId) -> Sequence[TaskAttempt]: ...

    def expire(self, before: datetime) -> int:
        """Remove finished tasks that ended before; answers how many."""
