"""The listener that learns what happens while tables are compacted: a command that shows progress, or a Dagster run that logs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.queue.ports.work import TaskListener
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work


class CompactionListener(TaskListener):
    """A use case calls it at each event, in the thread of the use case's caller. A subclass overrides the events that it needs."""

    def reading(self, table: TableIdentifier) -> None:
        """Learn that a table is read and planned next. This may take seconds."""

    def planned(self, table: TableIdentifier, tasks: Sequence[MergedWork[Work]], reason: str) -> None:
        """Learn which tasks of a table will be merged now: none when there is nothing to do. `reason` says why."""

    def not_planned(self, table: TableIdentifier, error: CompactionError) -> None:
        """Learn that a table could not be read or planned. The work on other tables goes on."""

    def committing(self, table: TableIdentifier, tasks: int) -> AbstractContextManager[None]:
        """Learn that so many merged tasks of a table are committed now. The context lasts until the commit has ended, maybe minutes."""
        return nullcontext()

    def committed(self, record: CompactionRecord) -> None:
        """Learn that a commit ended. `record` says whether any task was committed."""


SILENT = CompactionListener()
"""A listener for callers that need no events."""
