"""Merges the tasks that a caller waits for, and beside them tasks of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.queue.drain import Beside, Drain, Drained, Ends, Hears, Takes, never
from compaction_pipeline.core.queue.known_task import KnownTask
from compaction_pipeline.services.queue.await_tasks import AwaitTasks
from compaction_pipeline.services.queue.share_queues import ShareQueues
from compaction_pipeline.services.queue.work_on_queue import WorkOnQueue


class MergeTasks:
    """One verb: merge."""

    def __init__(
        self, await_tasks: AwaitTasks, work_on_queue: WorkOnQueue, share_queues: ShareQueues, new_owner: Callable[[], str]
    ) -> None:
        self._await_tasks = await_tasks
        self._work_on_queue = work_on_queue
        self._share_queues = share_queues
        self._new_owner = new_owner

    def merge(
        self,
        own: Sequence[KnownTask],
        beside: Beside,
        hears: Hears,
        over: Callable[[], bool] = lambda: True,
        broken: Callable[[], bool] = never,
        linger: timedelta = timedelta(0),
    ) -> Drained:
        """Merge these tasks, wait for those that another worker took, and merge tasks of others while a slot is free.

        When the own tasks are worked off, this ends as soon as `over()` is true, or optimizers take the tasks of all queues that wait, or
        no task has waited for `linger`. When `broken()` is true, it ends at once. Merges that have begun are finished first.

        Raises what `WorkOnQueue.drain` raises.
        """
        ids = [task.task_id for task in own]
        owner, done = self._new_owner(), Drained()
        while True:
            # Another worker may have failed some of them. Somebody waits for them, so they are tried again at once.
            self._await_tasks.retry(ids)
            worked_off = self._await_tasks.worked_off(ids)
            ends = Ends.after(worked_off, lambda: over() or self._share_queues.all_served(), broken, linger)
            done = done.then(self._work_on_queue.drain(owner, Drain(self._takes(own, beside), ends, hears)))
            # A pause may have ended meanwhile. Then tasks that had no turn wait for a worker again.
            if broken() or self._await_tasks.worked_off(ids)():
                return done

    def _takes(self, own: Sequence[KnownTask], beside: Beside) -> Takes:
        ids = [task.task_id for task in own]
        unserved = self._share_queues.unserved
        if beside is Beside.NOTHING:
            return Takes.only(ids, self._retry)
        if beside is Beside.EVERY_QUEUE:
            return Takes(ids, unserved, self._share_queues.left_to_optimizers(ids), self._retry)
        queues = {task.queue for task in own[:1]}
        return Takes(
            ids, lambda: [queue for queue in unserved() if queue in queues], self._share_queues.left_to_optimizers(ids), self._retry
        )

    def _retry(self, task_id: TaskId) -> bool:
        """Put a failed task that would wait back into the queue. Return whether it waited."""
        return bool(self._await_tasks.retry([task_id]))
