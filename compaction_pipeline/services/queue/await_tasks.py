"""Looks how the tasks stand that somebody waits for, tries them again at once, and gives up those that nobody is going to merge."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime

from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.awaited import failed_for_good, held_elsewhere, left_over, waits_for_turn
from compaction_pipeline.core.queue.known_task import KnownTask
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.ends import EndReason


class AwaitTasks:
    """Questions about tasks that a caller waits for, and the verbs free, retry, give_up and give_up_paused."""

    def __init__(self, tables: TableReader, tasks: TaskStore, release_lost: Callable[[datetime], Sequence[TaskId]], clock: Clock) -> None:
        """`release_lost` takes the tasks of attempts that are lost at a time, and returns their ids."""
        self._tables = tables
        self._tasks = tasks
        self._release_lost = release_lost
        self._clock = clock

    def of(self, task_ids: Iterable[TaskId]) -> list[KnownTask]:
        """Return these tasks as they are now. Raises NotFoundError when one was forgotten with its table."""
        return [self._tasks.task(task_id) for task_id in task_ids]

    def worked_off(self, task_ids: Iterable[TaskId]) -> Callable[[], bool]:
        """Return a function that says whether the caller need not wait for workers any longer.

        That is so when each of these tasks is merged, has ended, or has no turn: its table was paused, or its team has reached a limit. A
        task that was found in one of these states is not asked about again.
        """
        left = list(task_ids)[::-1]

        def needs_worker(task_id: TaskId) -> bool:
            try:
                task = self._tasks.task(task_id)
                return task.is_to_be_merged and not self._has_no_turn(task)
            except NotFoundError:
                # The table was forgotten, and its tasks with it.
                return False

        def are_worked_off() -> bool:
            while left and not needs_worker(left[-1]):
                left.pop()
            return not left

        return are_worked_off

    def under_way(self) -> Callable[[], bool]:
        """Return a function that says whether a worker is still needed for a task that waits or is merged now. Later tasks do not count."""
        tasks = self._tasks.tasks(statuses=(TaskStatus.PENDING, TaskStatus.EXECUTING))
        worked_off = self.worked_off(task.task_id for task in tasks)
        return lambda: not worked_off()

    def left_over(self, table: TableIdentifier, nodes: Collection[TableNode] | None) -> Sequence[KnownTask]:
        """Return the tasks of these nodes, None means all, that another process planned and that wait or failed and will be tried again.

        There are none while the table is paused.
        """
        left = left_over(self._tasks.tasks(table, (TaskStatus.PENDING, TaskStatus.FAILED)), nodes)
        return left if left and not self._tables.state(table).paused else ()

    def not_committed(self, table: TableIdentifier) -> Sequence[TaskId]:
        """Return the merged tasks of a table that no commit has claimed. There are none while the table is paused."""
        prepared = [task.task_id for task in self._tasks.tasks(table, (TaskStatus.PREPARED,)) if task.record_id is None]
        return prepared if prepared and not self._tables.state(table).paused else ()

    def held(self, table: TableIdentifier, nodes: Collection[TableNode] | None, own: Collection[TaskId] = ()) -> str | None:
        """Return a text that says who merges files of these nodes, None means all, and until when. None when nobody does.

        The tasks `own` are those of the asker, whoever merges them.
        """
        running = self._tasks.tasks(table, (TaskStatus.EXECUTING,))
        return held_elsewhere(table, [task for task in running if task.task_id not in own and (nodes is None or task.work.node in nodes)])

    def failed(self, task_ids: Iterable[TaskId]) -> dict[TaskId, str]:
        """Return why these tasks failed for good, by task id, whichever worker took them."""
        return {task.task_id: task.reason or "" for task in self.of(task_ids) if failed_for_good(task)}

    def retry(self, task_ids: Sequence[TaskId]) -> Sequence[TaskId]:
        """Put those of these tasks that failed and would wait back into the queue, and return them. Their caller waits for them."""
        return self._tasks.retry(task_ids)

    def release(self) -> Sequence[TaskId]:
        """Take tasks from workers that are lost because they stopped renewing their leases, and return the ids of these tasks."""
        return self._release_lost(self._clock())

    def give_up(self, task_ids: Sequence[TaskId], reason: str) -> Sequence[TaskId]:
        """Cancel those of these tasks that nobody has begun, and return them."""
        return self._tasks.cancel(task_ids, EndReason.GIVEN_UP, reason, self._clock())

    def give_up_paused(self, task_ids: Iterable[TaskId]) -> dict[TaskId, str]:
        """Cancel those of these tasks that wait for the end of a pause, or for a new limit of their team. Return the reason by task id.

        Somebody who asked for this work is told that it was not done. After that, ticks plan what is due then.
        """
        given_up: dict[TaskId, str] = {}
        for task in self.of(task_ids):
            held = self._tasks.held([task.task_id]) if waits_for_turn(task) else {}
            if held:
                given_up.update(dict.fromkeys(self.give_up([task.task_id], held[task.task_id]), held[task.task_id]))
            elif self._has_no_turn(task):
                ends = f"`resume_job` of Dagster or `compaction-pipeline resume {task.table}` ends the pause"
                reason = f"a person paused {task.table} before this task began; {ends}"
                given_up.update(dict.fromkeys(self.give_up([task.task_id], reason), reason))
        return given_up

    def _has_no_turn(self, task: KnownTask) -> bool:
        """Return whether the task waits until its table is resumed, or until its team may begin work again."""
        return waits_for_turn(task) and (self._tables.state(task.table).paused or bool(self._tasks.held([task.task_id])))
