"""What whoever commits tasks needs of their store: which tasks are Prepared, and how they end. `TaskStore` has everything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from compaction_pipeline.core.ids import RecordId, TaskId
from compaction_pipeline.core.queue.known_task import KnownTask
from compaction_pipeline.core.queue.open_work import PreparedWork
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.ends import EndReason

T = TypeVar("T", bound=KnownTask, covariant=True)


class PreparedTasks(Protocol[T]):
    """The stored tasks, as a commit sees them."""

    def prepared_work(self) -> Mapping[TableIdentifier, PreparedWork]:
        """Return how much work is Prepared, for every table that has any."""

    def task(self, task_id: TaskId) -> T:
        """Return a task. Raises NotFoundError when it is unknown."""

    def tasks(
        self,
        table: TableIdentifier | None = None,
        statuses: Sequence[TaskStatus] | None = None,
        record_id: RecordId | None = None,
        limit: int | None = None,
    ) -> Sequence[T]:
        """Return the tasks that match all given arguments, newest first, at most `limit` of them."""

    def claim(self, table: TableIdentifier, record_id: RecordId, task_ids: Sequence[TaskId] | None = None) -> Sequence[T]:
        """Put `record_id` on the Prepared tasks that have no record, and return these tasks. `task_ids` limits the choice to these.

        The tasks of a task group (`Work.group`) are claimed only when none of them is still to be merged. They are claimed together,
        also when `task_ids` names only some of them.
        """

    def unclaim(self, record_id: RecordId) -> None:
        """Take the record off its tasks that are still Prepared, after a commit that certainly did not land."""

    def commit(self, task_ids: Sequence[TaskId], now: datetime) -> None:
        """Set Prepared tasks to COMMITTED."""

    def fail(self, task_id: TaskId, end_reason: EndReason, reason: str, now: datetime) -> None:
        """Set an Executing or Prepared task to FAILED, for example after a conflict or when its table is gone."""
