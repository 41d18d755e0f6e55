"""What use cases need to have tasks merged: a queue to take them from, an engine that merges, and stores."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from compaction_pipeline.core.ids import AttemptId, TaskId
from compaction_pipeline.core.queue.assignment import Assignment, EndedAttempt
from compaction_pipeline.core.queue.container import Container
from compaction_pipeline.core.queue.group import GroupHolders, QueueRoom, ResourceGroup
from compaction_pipeline.core.queue.open_work import InUse, OpenTasks, PlannedWork
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState
from compaction_pipeline.core.queue.prepared_tasks import PreparedTasks
from compaction_pipeline.core.queue.queue_work import EndedWork, MergedTotals, QueueWork
from compaction_pipeline.core.queue.task import CompactionTask, TaskAttempt, TaskStatus
from compaction_pipeline.core.queue.watchers import Watcher, WatcherKind
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.result import EndReason, MergeResult


class TaskQueue(Protocol):
    """Everything that a worker needs apart from a merge engine. It takes tasks here, renews their leases, and reports how they ended.

    A worker is the op of a Dagster run, a command or an optimizer. It names itself by `owner`, which no other worker has. Times are the
    queue's own. Each value that goes in or comes out survives JSON (pydantic's TypeAdapter), so a worker may run on another host.
    """

    def waits(self, queue: str | None, task_ids: Sequence[TaskId] | None = None) -> bool:
        """Return whether a poll with the same arguments would find a task now. A worker asks before it starts its engine.

        `queue` None means any queue. `task_ids` limits the answer to these tasks. Raises StorageUnavailable.
        """

    def poll(self, owner: str, queue: str | None, task_ids: Sequence[TaskId] | None = None) -> Assignment | EndedAttempt | None:
        """Claim the next Pending task for `owner`, by the order of its queue (`QueueOrder`).

        Tasks of paused tables have no turn. Returns None when no other task waits, or when `owner` has given its attempts back. Raises
        StorageUnavailable.
        """

    def renew(self, attempt_ids: Sequence[AttemptId]) -> Sequence[AttemptId]:
        """Renew the leases of these attempts, and return those that still hold their task. Raises StorageUnavailable."""

    def complete(self, task: CompactionTask, result: MergeResult) -> TaskStatus:
        """Report how an attempt ended, and return the status that its task has now. `task` is the one of the assignment.

        The status is PREPARED after a merge. After a failure it is FAILED; `core.queue.attempts.is_tried_again` says whether the task waits
        to be tried again. It is PENDING when the task is tried again at once. It is CANCELED when the store of the table's files refuses
        access, provided that the reason could be stored on the table.

        Raises StaleAttempt when the attempt no longer holds its task. Files that the attempt wrote are deleted then, even when the task
        itself is gone; a server deletes only files that it has checked to be the attempt's own. Raises StorageUnavailable when the report
        may or may not have arrived: the worker does not repeat it then, because the lease of the attempt decides. Raises StateFull when the
        report certainly was not stored, and no other report can be.

        A report of a merge that arrives twice gets the present status both times, as long as the task is stored. The second arrival of
        any other report raises StaleAttempt and changes nothing.
        """

    def give_back(self, owner: str, end_reason: EndReason, reason: str) -> None:
        """End every attempt that `owner` still holds, and let it take no further task. `reason` is a sentence for people.

        What cannot be given back now is logged; its lease ends by itself.
        """


class ServedQueue(TaskQueue, Protocol):
    """The server's side of a `TaskQueue`. It also hands out several tasks at once, and tells what a worker holds."""

    def poll_many(
        self, owner: str, queue: str, most: int, token_id: str | None = None, application: str = ""
    ) -> Sequence[Assignment | EndedAttempt]:
        """Claim up to `most` Pending tasks for `owner`, as so many polls would one after the other. `application` is that of the owner.

        Returns none when no task waits, when `owner` has given its attempts back, or when it may not have tasks any more: `token_id` is
        the token of the poll, as `TaskStore.poll_many` says. Raises StorageUnavailable.
        """

    def held(self, owner: str) -> Sequence[CompactionTask]:
        """Return the Executing tasks that this worker holds."""

    def judged(self, task: CompactionTask, result: MergeResult, *, wait: bool = True) -> MergeResult | None:
        """Return the result of a report as it may be stored: its files are described by their footers. `task` is as it is stored.

        Where the group of the task has rows compared, that is done before. Without `wait`, None says that it is under way.

        A result that cannot be used although nobody may have lied has failed: the table has changed, so that nobody can tell, or a file
        cannot be opened. Raises MergeRefused when the report cannot be true, and StorageUnavailable when the catalog or the storage does
        not answer.
        """

    def sees(self, task: CompactionTask, end_reason: EndReason) -> bool:
        """Return whether a look at the storage shows what an attempt that ended for this reason says of the files of its task."""

    def complete(
        self, task: CompactionTask, result: MergeResult, claimed: EndReason | None = None, judged: MergeResult | None = None
    ) -> TaskStatus:
        """Report how an attempt ended, as `TaskQueue.complete` says. `claimed` is kept with the attempt (`TaskAttempt`).

        `judged` is the result that is stored, when it was judged before.
        """

    def assigned(self, task: CompactionTask) -> Assignment | EndedAttempt:
        """Return again the assignment of a task that a worker holds. When its table cannot be opened, the attempt has failed."""


class TaskListener(Protocol):
    """Learns about tasks from a worker, in the thread of the worker's caller."""

    def engine_starts(self) -> None:
        """Learn that the merge engine is asked to be ready. Spark takes seconds, unless it runs already."""
        return

    def engine_started(self) -> None:
        """Learn that the merge engine is ready."""
        return

    def task_began(self, task: CompactionTask) -> None:
        """Learn that an attempt has begun to merge this task."""
        return

    def waits(self) -> None:
        """Learn, about twice a second, that the worker waits for merges to end, or for tasks."""
        return

    def task_ended(self, task: CompactionTask, status: TaskStatus) -> None:
        """Learn that an attempt ended. `task` has its result and its present status, which `status` repeats."""


class TaskStore(PreparedTasks, Protocol):
    """The stored tasks. Only this store writes the status of a task, by compare-and-set, after `core.queue.transitions` allowed it."""

    def insert(self, tasks: Sequence[CompactionTask], replaces: Sequence[TaskId], now: datetime, room: QueueRoom | None = None) -> bool:
        """In one transaction, cancel the tasks `replaces` and insert `tasks` as Pending. Return True.

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
        application: str = "",
    ) -> Sequence[CompactionTask]:
        """Claim up to `most` tasks of a queue in one transaction, as so many polls would one after the other.

        With `token_id`, the transaction also asks whether `owner` is a RUNNING optimizer, and whether this token may still be used: neither
        it nor the token that it was issued for is revoked or blocked. Otherwise it claims nothing.
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

    def move_to_queue(self, table: TableIdentifier, queue: str) -> Sequence[TaskId]:
        """Move the waiting tasks of a table to another queue, however full it is, and return their ids.

        They are Pending, or FAILED and wait to be tried again. They keep their places in line.

        Raises NotFoundError when the group of that queue does not exist.
        """

    def renew(self, attempt_ids: Sequence[AttemptId], now: datetime, lease: timedelta) -> Sequence[AttemptId]:
        """Renew the leases of these attempts, and return those that still hold their task."""

    def complete(
        self, result: MergeResult, now: datetime, retry_after: timedelta = timedelta(0), claimed: EndReason | None = None
    ) -> TaskStatus:
        """Store the result of an attempt, and return the new status of its task, as `core.queue.attempts` decides.

        A task that failed is tried again after `retry_after`. `claimed` is kept with the attempt (`TaskAttempt`). Raises
        StaleAttempt when the attempt no longer holds its task.
        """

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

    def merged_by(self, since: datetime) -> Mapping[str, MergedTotals]:
        """Return what each owner merged, of the merges that ended at `since` or later. Owners that merged nothing are left out."""

    def ended(self, after: datetime, until: datetime) -> EndedWork:
        """Return the attempts and commits that ended later than `after`, and at `until` at the latest."""


class OptimizerStore(Protocol):
    """The registered optimizers."""

    def add(self, optimizer: Optimizer) -> None:
        """Store a new optimizer. Raises NotFoundError when its group does not exist."""

    def begin(self, optimizer: Optimizer, most: int) -> bool:
        """Store a STARTING optimizer, unless containers have started `most` live ones of its group already. Return whether it was stored.

        Raises NotFoundError when its group does not exist.
        """

    def register(self, optimizer: Optimizer) -> Optimizer:
        """Store an optimizer that registers, and return it as it is stored.

        When a STARTING one of its group has its resource id, this one becomes RUNNING, and keeps its id, container and settings. When
        another one of its group has it, the process was taken for lost: it gets a row of its own, with the same container and settings.
        Raises NotFoundError when its group does not exist.
        """

    def optimizer(self, optimizer_id: str) -> Optimizer | None:
        """Return an optimizer; None when none has this id."""

    def optimizers(self, *, live: bool = False) -> Sequence[Optimizer]:
        """Return all optimizers, or those that are live, the oldest first."""

    def touch(self, optimizer_id: str, now: datetime) -> Optimizer | None:
        """Note that a registered optimizer is there, and return it. Return None when it is neither RUNNING nor DRAINING, or not known."""

    def note_application(self, optimizer_id: str, application: str) -> None:
        """Note the Spark application of an optimizer. Attempts that it holds and that know of none get it too."""

    def note_poll(self, optimizer_id: str, poll_id: str, attempts: Sequence[str]) -> None:
        """Note which attempts the last poll of an optimizer got."""

    def move(self, optimizer_id: str, states: Sequence[OptimizerState], to: OptimizerState, why: str, *, failed: bool = False) -> bool:
        """Set the state of an optimizer that is in one of `states`. Return False when it is in none of them, or not known.

        `failed` says that an error ended it.
        """

    def ask(self, optimizer_id: str, *, log_level: str | None = None, stack_request: str | None = None) -> bool:
        """Note what a registered optimizer is asked for; None leaves a request as it is.

        Return False when it is neither RUNNING nor DRAINING, or not known.
        """

    def lose_silent(self, touched_before: datetime, why: str) -> Sequence[str]:
        """Set the registered optimizers that were last heard of at this time or before to LOST, and return their ids."""

    def expire(self, before: datetime) -> int:
        """Remove the optimizers that are no longer live and were last heard of before this time. Return how many they were."""


class WatcherStore(Protocol):
    """The servers and keepers that note that they are there."""

    def renew(self, name: str, kind: WatcherKind, now: datetime, gap: timedelta) -> None:
        """Note that a watcher is there. Its time `since` begins now when it is new, or when it noted nothing for longer than `gap`.

        A new one also makes the store forget the watchers that were silent for `FORGOTTEN_AFTER`.
        """

    def watchers(self) -> Sequence[Watcher]:
        """Return all watchers that are remembered, sorted by name."""


class Containers(Protocol):
    """Starts and ends optimizers, in the containers that a file on this host describes.

    `host` is the name of this host. The processes of optimizers outlive the process that started them. `has_file` says that this process
    knows a file. Without one it knows only the container of optimizers that people start.
    """

    host: str
    has_file: bool

    def containers(self) -> Mapping[str, Container]:
        """Return the containers as the file describes them now, by name. Raises ConfigError when the file cannot be read."""

    def container(self, name: str) -> Container:
        """Return one container. Raises ConfigError when there is none of this name, or when the file cannot be read."""

    def arguments(self, container: Container, group: ResourceGroup, resource_id: str = "") -> Sequence[str]:
        """Return the arguments of `compaction-pipeline` that run an optimizer of a group."""

    def start(self, container: Container, group: ResourceGroup, resource_id: str) -> None:
        """Start an optimizer of a group. It registers later, with this resource id.

        Raises ConfigError or StorageUnavailable when it cannot be started; nothing of it is left then.
        """

    def running(self) -> Collection[str]:
        """Return the resource ids of the optimizers that have a process on this host."""

    def last_words(self, resource_id: str) -> str:
        """Return the last line that an optimizer, which was started on this host, wrote into its log; "" when there is none."""

    def stop(self, resource_id: str) -> None:
        """End at once what an optimizer has on this host. Nothing happens when it has nothing there."""


class GroupStore(Protocol):
    """The resource groups. The default group is there from the beginning, and stays."""

    def groups(self) -> Sequence[ResourceGroup]:
        """Return all groups, sorted by name."""

    def group(self, name: str) -> ResourceGroup | None:
        """Return a group; None when none has this name."""

    def add(self, group: ResourceGroup) -> bool:
        """Store a new group. Return False and change nothing when the name is taken."""

    def change(self, group: ResourceGroup) -> bool:
        """Replace the stored group of this name. Return False when none has it."""

    def remove(self, name: str) -> GroupHolders:
        """Remove a group, unless it has open tasks or live optimizers, and return these. Nothing happens when none has this name."""
