"""Shares the queues between the runs of Dagster and the optimizers. A queue is left to its optimizers while one takes tasks from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from compaction_pipeline.core.capacity.scaling.action import Outcome
from compaction_pipeline.core.capacity.scaling.ports import ScalingStore
from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.known_task import KnownTask
from compaction_pipeline.core.queue.ports.optimizers import OptimizerStore, WatcherStore
from compaction_pipeline.core.queue.ports.tasks import QueueReader, TaskStore
from compaction_pipeline.core.queue.queue_work import served_queues
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.queue.watchers import LONGEST_GAP, servers_of

PATIENCE = timedelta(seconds=30)
"""Optimizers get this long to take a task that a person waits for. After that, the person's run merges it."""


class ShareQueues:
    """Answers which queues a run serves, and whether it leaves its own tasks to optimizers. It changes nothing."""

    def __init__(
        self,
        queues: QueueReader,
        optimizers: OptimizerStore,
        tasks: TaskStore,
        scaling: ScalingStore,
        watchers: WatcherStore,
        clock: Clock,
    ) -> None:
        self._queues = queues
        self._optimizers = optimizers
        self._tasks = tasks
        self._scaling = scaling
        self._watchers = watchers
        self._clock = clock

    def unserved(self) -> Sequence[str]:
        """The queues with waiting tasks from which no optimizer takes tasks, sorted."""
        served = self._served()
        return tuple(queue for queue in self._queues.waiting() if queue not in served)

    def all_served(self) -> bool:
        """Whether optimizers take tasks, and nobody else is needed for any task that waits."""
        served = self._served()
        return bool(served) and served.issuperset(self._queues.waiting())

    def left_to_optimizers(self, task_ids: Iterable[TaskId]) -> Callable[[], bool]:
        """Return a function that says whether a run leaves these tasks of its own to optimizers now.

        The answer is True while both hold: every task of these that still waits is in a queue from which an optimizer takes tasks, and one
        of them was taken within the last `PATIENCE`. When it has passed, the run takes them itself.
        """
        left = list(task_ids)
        since, patient = self._clock(), True

        def are_left() -> bool:
            nonlocal since, patient, left
            if not patient or not left:
                return False
            served = self._served()
            waiting = self._waiting(left) if served else []
            now = self._clock()
            if len(waiting) < len(left):
                left, since = [task.task_id for task in waiting], now
            if now - since >= PATIENCE:
                patient = False
            return patient and bool(waiting) and all(task.queue in served for task in waiting)

        return are_left

    def _waiting(self, task_ids: Iterable[TaskId]) -> list[KnownTask]:
        """The tasks that are Pending. Those of a table that was forgotten are gone."""
        found: list[KnownTask] = []
        for task_id in task_ids:
            with suppress(NotFoundError):
                found.append(self._tasks.task(task_id))
        return [task for task in found if task.status is TaskStatus.PENDING]

    def _served(self) -> frozenset[str]:
        now = self._clock()
        return served_queues(self._optimizers.optimizers(live=True), now) | self._scaled(now)

    def _scaled(self, now: datetime) -> frozenset[str]:
        """The groups that get an optimizer for their next task although they may have none now.

        That needs a server, and optimizers that start: while the newest action of a group failed, its tasks may be taken by anybody.
        """
        if not any(now - each.renewed_at <= LONGEST_GAP for each in servers_of(self._watchers.watchers(), now)):
            return frozenset()
        found = [scale.group for scale in self._scaling.scales().values() if scale.is_on]
        return frozenset(each for each in found if not any(last.outcome is Outcome.FAILED for last in self._scaling.records(each, 1)))
