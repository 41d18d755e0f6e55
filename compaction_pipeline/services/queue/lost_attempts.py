"""Takes tasks from the attempts whose holders are lost, or that take too long."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.queue.ports.optimizers import OptimizerStore, WatcherStore
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.queue.watchers import lost_leases


class LostAttempts:
    """Two verbs: release and end_overdue. Any number of processes may do this at the same time."""

    def __init__(
        self,
        tasks: TaskStore,
        optimizers: OptimizerStore,
        watchers: WatcherStore,
        task_timeout: timedelta = timedelta.max,
        retry_after: timedelta = timedelta(0),
    ) -> None:
        """`task_timeout` is the longest time that an attempt may take, and `retry_after` the time from a failure to the next attempt."""
        self._tasks = tasks
        self._optimizers = optimizers
        self._watchers = watchers
        self._task_timeout = task_timeout
        self._retry_after = retry_after

    def release(self, now: datetime) -> Sequence[TaskId]:
        """Take the tasks whose attempts are lost now, and return their ids. Raises StorageUnavailable."""
        lost = lost_leases(self._watchers.watchers(), now)
        if lost.ended_by_of_optimizers == lost.ended_by:
            return self._tasks.release_expired(now, lost.ended_by)
        live = [optimizer.optimizer_id for optimizer in self._optimizers.optimizers(live=True)]
        return (
            *self._tasks.release_expired(now, lost.ended_by, live),
            *self._tasks.release_expired(now, lost.ended_by_of_optimizers),
        )

    def end_overdue(self, now: datetime) -> Sequence[TaskId]:
        """End the attempts that have taken too long, and return the ids of their tasks. Raises StorageUnavailable."""
        return self._tasks.end_overdue(now, self._task_timeout, self._retry_after)
