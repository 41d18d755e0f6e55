"""Lets go of a table that is filtered out or has vanished: its waiting tasks are cancelled, and what runs may end first."""

from __future__ import annotations

import logging

from compaction_pipeline.core.commit.ports import RecordStore
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.ports.index import IndexStore
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.ends import EndReason

_LOG = logging.getLogger(__name__)
_WAITING = (TaskStatus.PENDING, TaskStatus.FAILED)
_UNDER_WAY = (TaskStatus.EXECUTING, TaskStatus.PREPARED)


class LetGo:
    """One verb: let_go."""

    def __init__(self, tasks: TaskStore, records: RecordStore, index: IndexStore, clock: Clock) -> None:
        self._tasks = tasks
        self._records = records
        self._index = index
        self._clock = clock

    def let_go(self, table: TableIdentifier, reason: str) -> bool:
        """Cancel the waiting tasks of a table, and forget the table when nothing of it is under way. Return whether it is forgotten.

        Its records stay. Tasks that run end first, and are committed: plans make no new ones (`services/table_filters.py`). Until then the
        next listing asks again.
        """
        waiting = [task.task_id for task in self._tasks.tasks(table, statuses=_WAITING) if task.is_to_be_merged]
        self._tasks.cancel(waiting, EndReason.GIVEN_UP, reason, self._clock())
        if self._tasks.tasks(table, statuses=_UNDER_WAY, limit=1) or self._records.records(table, limit=1, unsettled=True):
            return False
        _LOG.info("table=%s not looked after any more: %s", table, reason)
        self._index.forget(table)
        return True
