"""What a worker gets when it polls a queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from compaction_pipeline.core.ids import AttemptId
from compaction_pipeline.core.queue.credentials import credentials_end
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Work


@dataclass(frozen=True, slots=True)
class Assignment:
    """A task that a worker holds, with everything that the worker needs to merge it.

    `task` is Executing: it carries the attempt, its owner and the end of its lease. `layout` is the table's layout. `file_io` are the
    FileIO properties that open the table's files; they hold secrets, so they are not part of the text of this value.
    """

    task: CompactionTask
    layout: TableLayout
    file_io: Mapping[str, str] = field(repr=False)

    @property
    def attempt_id(self) -> AttemptId:
        """The attempt that the worker makes now."""
        return self.task.current_attempt_id

    @property
    def merge_input(self) -> MergeInput[Work]:
        """What the worker's engine merges."""
        return self.task.merge_input(self.layout)

    @property
    def credentials_end_at(self) -> datetime | None:
        """When the first of the credentials in `file_io` ends; None when they do not say that they end."""
        return credentials_end(self.file_io)


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    """An attempt that was over before a worker could begin it: the table of its task could not be opened.

    `task` is as it was claimed, and `result` says why the attempt failed. `status` is the one that the task has now; it is None when
    the state database did not answer, and then the lease of the attempt ends by itself.
    """

    task: CompactionTask
    result: MergeResult
    status: TaskStatus | None
