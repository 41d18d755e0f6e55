"""Does what a person asks of single tasks: tries one again now, or cancels one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.work.ends import EndReason


class SteerTasks:
    """Two verbs: retry and cancel. Each looks at all named tasks first, and changes none when one of them cannot be changed."""

    def __init__(self, tasks: TaskStore, clock: Clock) -> None:
        self._tasks = tasks
        self._clock = clock

    def retry(self, task_ids: Sequence[TaskId]) -> Sequence[CompactionTask]:
        """Put failed tasks that wait to be tried again back into the queue. Return all of them as they are now.

        Raises NotFoundError for an unknown task, and ConfigError for one that does not wait so.
        """
        self._checked(task_ids, lambda task: task.waits_for_retry, "only a task that failed and waits to be tried again can be tried now")
        self._tasks.retry(task_ids)
        return tuple(map(self._tasks.task, task_ids))

    def cancel(self, task_ids: Sequence[TaskId], *, running: bool = False) -> Sequence[CompactionTask]:
        """Cancel tasks that nobody has begun, or that failed and wait to be tried again. Return all of them as they are now.

        With `running`, tasks that run are canceled too. Their workers learn it at their next heartbeat and stop the merges. Raises
        NotFoundError for an unknown task, and ConfigError for one that runs (without `running`), is merged or has ended.
        """
        rule = "only a task that waits can be canceled; `pause` keeps its table from being planned again, `--running` cancels one that runs"
        if running:
            rule = "only a task that waits or runs can be canceled"
        self._checked(task_ids, lambda task: task.is_to_be_merged and (running or task.status is not TaskStatus.EXECUTING), rule)
        self._tasks.cancel(task_ids, EndReason.GIVEN_UP, "a person canceled the task", self._clock(), running=running)
        return tuple(map(self._tasks.task, task_ids))

    def _checked(self, task_ids: Sequence[TaskId], may: Callable[[CompactionTask], bool], rule: str) -> None:
        for task in map(self._tasks.task, task_ids):
            if not may(task):
                ended = " for good" if task.status is TaskStatus.FAILED and task.is_final else ""
                raise ConfigError(f"task {task.task_id} is {task.status.value}{ended}: {rule}")
