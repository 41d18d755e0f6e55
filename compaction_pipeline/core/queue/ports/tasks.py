"""What the state database remembers of tasks, of their attempts, and of the work in queues."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from compaction_pipeline.core.ids import AttemptId, TaskId
from compaction_pipeline.core.queue.group import QueueRoom
from compaction_pipeline.core.queue.open_work import InUse, OpenTasks, PlannedWork
from compaction_pipeline.core.queue.prepared_tasks import PreparedTasks
from compaction_pipeline.core.queue.queue_work import EndedWork, MergedTotals, QueueWork
from compaction_pipeline.core.queue.task import CompactionTask, TaskAttempt, TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.tables.team_name import UNASSIGNED
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.result import MergeResult, UsedSoFar


class TaskStore(PreparedTasks[CompactionTask], Protocol):
    """The stored tasks. Only this store writes the status of a task, by compare-and-set, after `core.queue.transitions` allowed it."""

    def insert(
        self,
        tasks: Sequence[CompactionTask],
        replaces: Sequence[TaskId],
        now: datetime,
        room: QueueRoom | None = None,
        team: str = UNASSIGNED,
    ) -> bool:
        """In one transaction, cancel the tasks `replaces` and insert `tasks` as Pending, for a team that pays for them. Return True.

        `room` is the room in their queue that the plan counted on. The taken places are counted again here; the tasks of `replaces` no
        longer count. Raises QueueFull and changes nothing when the queue does not admit the tasks any more. None inserts them however full
        the queue is.

        `replaces` may name FAILED tasks that wait to be tried again. Returns False and changes nothing when one of `replaces` is neither
        Pending nor waiting to be tried again. Raises NotFoundError when the group of a task does not exist.
        """

    def poll(
        self,
        queue: str | None,
        owner: str,
        now: datetime,
        lease: timedelta,
        task_ids: Sequence[TaskId] | None = None,
        turns: Sequence[TableIdentifier] = (),
        application: str = "",
    ) -> CompactionTask | None:
        """Claim the Pending task that is next by the order of its queue; None when there is none. `task_ids` limits the choice to these.

        A task whose team has a limit is claimed only while the team has room for it, in the transaction that counts what the team uses.

        Polls of all queues together use the order PRIORITY. `turns` are tables that have a turn before all others, in this order. Pending
        tasks of paused tables have no turn. `application` is the Spark application of the owner, which the attempt keeps.
        """

    def poll_many(
        self,
        queue: str,
        owner: str,
        now: datetime,
        lease: timedelta,
        most: int,
        turns: Sequence[TableIdentifier] = (),
        token_id: str | None = None,
    ) -> Sequence[CompactionTask]:
        """Claim up to `most` tasks of a queue in one transaction, as so many polls would one after the other.

        With `token_id`, the transaction also asks whether `owner` is a RUNNING optimizer, and whether this token may still be used: neither
        it nor the token that it was issued for is revoked or blocked. Otherwise it claims nothing. The attempts keep the Spark application
        of that optimizer.
        """

    def first_waiting(
        self, queue: str | None, task_ids: Sequence[TaskId] | None = None, turns: Sequence[TableIdentifier] = ()
    ) -> TableIdentifier | None:
        """Return the table of the task that `poll` with these arguments would claim now; None when it would claim none."""

    def next_tables(self, queue: str, most: int, turns: Sequence[TableIdentifier] = ()) -> Sequence[TableIdentifier]:
        """Return the tables of the tasks that such a `poll_many` would claim now, each once."""

    def waiting_tables(self, queue: str) -> Sequence[TableIdentifier]:
        """Return the tables with Pending tasks in a queue that a worker may take."""

    def slot_seconds(self, queue: str, since: datetime, now: datetime) -> Mapping[TableIdentifier, float]:
        """Return how many seconds the attempts of each table's tasks in a queue took between `since` and `now`, those that run included."""

    def queues_to_merge(self) -> Mapping[TableIdentifier, Collection[str]]:
        """Return in which queues each table has tasks that are Pending, or FAILED and wait to be tried again."""

    def held(self, task_ids: Sequence[TaskId]) -> Mapping[TaskId, str]:
        """Return those of these Pending tasks whose team may begin nothing, and why, also when all that it runs has ended."""

    def teams_of_waiting(self) -> Mapping[TableIdentifier, Collection[str]]:
        """Return for which teams each table has tasks that are Pending, or FAILED and wait to be tried again."""

    def move_to_team(self, table: TableIdentifier, team: str) -> Sequence[TaskId]:
        """Let the waiting tasks of a table belong to another team, and return their ids. They are those that `move_to_queue` moves."""

    def move_to_queue(self, table: TableIdentifier, queue: str) -> Sequence[TaskId]:
        """Move the waiting tasks of a table to another queue, however full it is, and return their ids.

        They are Pending, or FAILED and wait to be tried again. They keep their places in line.

        Raises NotFoundError when the group of that queue does not exist.
        """

    def renew(
        self, attempt_ids: Sequence[AttemptId], now: datetime, lease: timedelta, used: Mapping[AttemptId, UsedSoFar] | None = None
    ) -> Sequence[AttemptId]:
        """Renew the leases of these attempts, and return those that still hold their task.

        Of these, keep what they have used until now, as `used` tells it, cut at what is possible.
        """

    def complete(
        self, result: MergeResult, now: datetime, retry_after: timedelta = timedelta(0), claimed: EndReason | None = None
    ) -> TaskStatus:
        """Store the result of an attempt, and return the new status of its task, as `core.queue.attempts` decides.

        A task that failed is tried again after `retry_after`. `claimed` is kept with the attempt (`TaskAttempt`). Raises
        StaleAttempt when the attempt no longer holds its task.
        """

    def correct_cost(self, result: MergeResult, now: datetime) -> None:
        """Correct what an attempt cost, by the report of its worker that came too late to count. Only the first such report corrects it."""

    def release_expired(self, now: datetime, ended_by: datetime | None = None, spared: Collection[str] = ()) -> Sequence[TaskId]:
        """End the attempts whose lease had ended by `ended_by`, and return the ids of their tasks. None means `now`.

        Attempts of the owners `spared` go on. A task that is taken becomes PENDING again, or FAILED when it was lost too often in a row.
        """

    def end_overdue(self, now: datetime, timeout: timedelta, retry_after: timedelta) -> Sequence[TaskId]:
        """End the attempts that began `timeout` ago or earlier, whatever their lease is, and return the ids of their tasks.

        Such a task is tried again after `retry_after`, as after any failure.
        """

    def waiting_for_retry(self, due: datetime, limit: int, without: Collection[TableIdentifier] = ()) -> Sequence[CompactionTask]:
        """Return the FAILED tasks whose `retry_at` is not after `due`, those that waited longest first, at most `limit` of them.

        The tasks of the tables `without` are left out.
        """

    def retry(self, task_ids: Sequence[TaskId]) -> Sequence[TaskId]:
        """Set those of these tasks that are FAILED and wait to be tried again to PENDING, and return them."""

    def cancel(
        self, task_ids: Sequence[TaskId], end_reason: EndReason, reason: str, now: datetime, *, running: bool = False
    ) -> Sequence[TaskId]:
        """Set those of these tasks to CANCELED that are Pending, or FAILED and wait to be tried again. Return them.

        With `running`, also those that are Executing: their attempts have ended then.
        """

    def counts(self) -> Mapping[TaskStatus, int]:
        """Return how many tasks have each status."""

    def paused(self) -> int:
        """Return how many Pending tasks have no turn, because their tables are paused."""

    def count_replaced(self) -> int:
        """Return how many tasks are CANCELED because a newer plan took their files into larger tasks."""

    def count_waiting_for_retry(self) -> int:
        """Return how many FAILED tasks wait to be tried again."""

    def planned_work(self, table: TableIdentifier) -> PlannedWork:
        """Return how much work of a table is still to be merged: it is Pending, Executing, or waits to be tried again."""

    def open_tasks(self, table: TableIdentifier | None = None) -> Mapping[TableIdentifier, OpenTasks]:
        """Return how many tasks have not ended, for every table that has any. `table` limits the answer to one table."""

    def queue_taken(self, queue: str) -> int:
        """Return how much of the capacity of a queue is taken (`QueueWork.taken`)."""

    def in_use(self, table: TableIdentifier) -> InUse:
        """Return what the open tasks of a table hold."""

    def attempts(self, task_id: TaskId) -> Sequence[TaskAttempt]:
        """Return all attempts of a task, the first one first."""

    def refused_reports(self, since: datetime) -> Mapping[str, int]:
        """Return how many reports of each owner were refused at `since` or later. Owners without one are left out."""

    def expire(self, before: datetime) -> int:
        """Remove the tasks that ended before this time, and return how many they were."""


class QueueReader(Protocol):
    """Tells what waits in each queue."""

    def waiting(self) -> Sequence[str]:
        """Return the queues in which a task waits that a worker may take, sorted."""

    def works(self, since: datetime) -> Mapping[str, QueueWork]:
        """Return the work of each queue that has any. Its figures of merges count those that ended at `since` or later."""

    def running_by(self) -> Mapping[str, int]:
        """Return how many attempts each owner runs. Owners that run none are left out."""

    def merged_by(self, since: datetime) -> Mapping[str, MergedTotals]:
        """Return what each owner merged, of the merges that ended at `since` or later. Owners that merged nothing are left out."""

    def ended(self, after: datetime, until: datetime) -> EndedWork:
        """Return the attempts and commits that ended later than `after`, and at `until` at the latest."""
