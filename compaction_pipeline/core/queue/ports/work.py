"""Where a worker takes its tasks and says how they ended: the queue of this process, or that of a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from compaction_pipeline.core.ids import AttemptId, TaskId
from compaction_pipeline.core.queue.assignment import Assignment, EndedAttempt
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.result import MergeResult, UsedSoFar


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

    def renew(self, attempt_ids: Sequence[AttemptId], used: Mapping[AttemptId, UsedSoFar] | None = None) -> Sequence[AttemptId]:
        """Renew the leases of these attempts, and return those that still hold their task. Raises StorageUnavailable.

        `used` is what some of them have used until now, where the worker can see it.
        """

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

    def poll_many(self, owner: str, queue: str, most: int, token_id: str | None = None) -> Sequence[Assignment | EndedAttempt]:
        """Claim up to `most` Pending tasks for `owner`, as so many polls would one after the other.

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
        return
