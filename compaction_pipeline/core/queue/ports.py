"""What use cases need to have tasks merged: a queue to take them from, an engine that merges, and the store that holds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from compaction_pipeline.core.ids import AttemptId, RecordId, TaskId
from compaction_pipeline.core.queue.assignment import Assignment, EndedAttempt
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


class TaskQueue(Protocol):
    """All that a worker needs beside a merge engine: it takes tasks here, keeps them, and reports how they ended.

    A worker is the op of a Dagster run or a command. It names itself by `owner`, which no other worker has. Times are the queue's
    own. Each value that goes in or comes out survives JSON (pydantic's TypeAdapter), so a worker may run on another host.
    """

    def waits(self, queue: str | None, task_ids: Sequence[TaskId] | None = None) -> bool:
        """Tell whether a poll with the same arguments would find a task now; an engine is not started for an empty queue.

        `queue` None means any queue; `task_ids` limits the answer to these tasks. Raises StorageUnavailable.
        """

    def poll(self, owner: str, queue: str | None, task_ids: Sequence[TaskId] | None = None) -> Assignment | EndedAttempt | None:
        """Claim the next Pending task for `owner`; `core.queue.order` says which one is next.

        Answers None when no task waits, or when `owner` gave its attempts back before. Raises StorageUnavailable.
        """

    def renew(self, attempt_ids: Sequence[AttemptId]) -> Sequence[AttemptId]:
        """Renew the leases of these attempts; answers those that still hold their task. Raises StorageUnavailable."""

    def complete(self, result: MergeResult) -> TaskStatus:
        """Report how an attempt ended; answers the status that its task has now. The same report may be repeated.

        The status is PREPARED after a merge. After a failure it is PENDING while retries are left, else FAILED; it is CANCELED when the
        store of the table's files refuses access. Raises StaleAttempt when the attempt no longer holds its task: the files that it wrote
        are deleted then. Raises StorageUnavailable when the report may or may not have arrived.
        """

    def give_back(self, owner: str, end_reason: EndReason, reason: str) -> None:
        """End every attempt that `owner` still holds, and let it take no further task. `reason` is a sentence for people.

        What cannot be given back now is logged; its lease ends by itself.
        """


class TaskListener(Protocol):
    """A worker tells it about tasks, in the thread of the worker's caller."""

    def task_ended(self, task: CompactionTask, status: TaskStatus) -> None:
        """An attempt ended: `task` has its result, and the status that it has now, which `status` repeats."""


class TaskStore(Protocol):
    """Tasks, the only place where a status is written; each change by compare-and-set after `core.queue.transitions` allowed it."""

    def insert(self, tasks: Sequence[CompactionTask], replaces: Sequence[TaskId], now: datetime) -> bool:
        """One transaction: cancel `replaces` (all must still be Pending), insert `tasks` as Pending.

        False when one of `replaces` was polled meanwhile: nothing changed.
        """

    def poll(
        self, queue: str | None, owner: str, now: datetime, lease: timedelta, task_ids: Sequence[TaskId] | None = None
    ) -> CompactionTask | None:
        """Claim the Pending task that is next by `core.queue.order`, of these ids only where given. None when there is none."""

    def first_waiting(self, queue: str | None, task_ids: Sequence[TaskId] | None = None) -> TableIdentifier | None:
        """The table of the task that such a poll would claim now; None when it would claim none."""

    def renew(self, attempt_ids: Sequence[AttemptId], now: datetime, lease: timedelta) -> Sequence[AttemptId]:
        """Renew leases; answers the attempts that are still held."""

    def complete(self, result: MergeResult, now: datetime) -> TaskStatus:
        """Report an attempt: PREPARED, or (error) PENDING with retries left, else FAILED. StaleAttempt when it no longer holds its task."""

    def release_expired(self, now: datetime) -> Sequence[TaskId]:
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
