"""Takes tasks from the attempts whose holders are lost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.queue.ports import OptimizerStore, TaskStore, WatcherStore
from compaction_pipeline.core.queue.watchers import lost_leases


class LostAttempts:
    """One verb: release. Any number of processes may do this at the same time."""

    def __init__(self, tasks: TaskStore, optimizers: OptimizerStore, watchers: WatcherStore) -> None:
        self._tasks = tasks
        self._optimizers = optimizers
        self._watchers = watchers

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
