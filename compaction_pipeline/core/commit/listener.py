"""Who is told what happens while tables are compacted: a command that shows its progress, a Dagster run that writes its log."""

from __future__ import annotations

from collections.abc import Sequence

from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.queue.ports import TaskListener
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier


class CompactionListener(TaskListener):
    """A use case tells it each event at once, in the thread of its caller. Whoever listens overrides the events that matter to it."""

    def planned(self, table: TableIdentifier, tasks: Sequence[CompactionTask], reason: str) -> None:
        """These tasks of a table will be merged now, none when there is nothing to do; `reason` says why, in words."""

    def not_planned(self, table: TableIdentifier, error: CompactionError) -> None:
        """A table could not be read or planned; the other tables go on."""

    def task_ended(self, task: CompactionTask, status: TaskStatus) -> None:
        """An attempt ended: `task` has its result, and the status that it has now, which `status` repeats."""

    def committed(self, record: CompactionRecord) -> None:
        """A commit ended, and this is its record, whether tasks went in or not."""


SILENT = CompactionListener()
"""Nobody listens."""
