"""What doors ask about tasks: how many have each status, and which nodes they work on. Reads the state database only."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.queue.application import application_page
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.queue.queue_counts import QueueCounts
from compaction_pipeline.core.queue.task import CompactionTask, TaskAttempt, TaskStatus
from compaction_pipeline.core.queue.transitions import OPEN
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.services.insight.overviews import queue_counts


class ReadTasks:
    """Answers questions about tasks and changes nothing."""

    def __init__(self, catalogs: CatalogStore, tables: TableReader, tasks: TaskStore, application_url: str | None = None) -> None:
        """`application_url` is the address of the page of a Spark application, with `{application}` in place of its id."""
        self._catalogs = catalogs
        self._tables = tables
        self._tasks = tasks
        self._application_url = application_url

    def application_page(self, application: str) -> str | None:
        """The address of the page of a Spark application; None when no address is configured, or when no application is known."""
        return application_page(self._application_url, application)

    def queue_counts(self) -> QueueCounts:
        """How many tasks have each status."""
        return queue_counts(self._tasks)

    def tasks(
        self, table: TableIdentifier | None = None, statuses: Sequence[TaskStatus] = (), limit: int | None = None
    ) -> tuple[CompactionTask, ...]:
        """The tasks of a table, or of all tables, newest first, at most `limit` of them.

        `statuses` limits the answer to these. Without it, these are the tasks that have not ended. Raises NotFoundError for a table that
        nobody knows.
        """
        if statuses:
            found = tuple(self._tasks.tasks(table, statuses, limit=limit))
        else:
            found = tuple(task for task in self._tasks.tasks(table, (*OPEN, TaskStatus.FAILED)) if not task.is_final)[:limit]
        if table is not None and not found:
            # A table that was dropped may still have tasks. Only a name without a task may be a typing mistake.
            self._catalogs.entry(table.catalog)
            self._tables.state(table)
        return found

    def task(self, task_id: TaskId) -> tuple[CompactionTask, tuple[TaskAttempt, ...]]:
        """A task, and all its attempts, the first one first. Raises NotFoundError when the task is unknown."""
        return self._tasks.task(task_id), tuple(self._tasks.attempts(task_id))

    def merged(self, table: TableIdentifier) -> tuple[CompactionTask, ...]:
        """The table's merged tasks that no commit has claimed yet."""
        return tuple(task for task in self._tasks.tasks(table, (TaskStatus.PREPARED,)) if task.record_id is None)

    def nodes(self, task_ids: Collection[TaskId]) -> frozenset[TableNode]:
        """The nodes that these tasks work on. Raises NotFoundError when a task is unknown."""
        return frozenset(self._tasks.task(task_id).work.node for task_id in task_ids)
