"""How `compact` ended on one table, for whoever asked for it: the last plan, the records, and what failed or waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.planning.plan import CompactionPlan
from compaction_pipeline.core.queue.failures import failures_in_words
from compaction_pipeline.core.queue.known_task import KnownTask
from compaction_pipeline.core.tables.table import TableIdentifier


@dataclass(frozen=True, slots=True)
class Compaction:
    """How `compact` ended.

    `plan` is the last plan that made tasks; the first plan when none did. `records` are the commits that it made or found, newest last.
    `failed` has the reason of each failed task, and `refused` are those of them that no further attempt can merge. `waiting` says which
    processes hold the files when nothing could be planned, or why the planned work was not committed. `held` says which other processes
    held files of requested nodes when the table was planned last; it is None when none did.
    """

    table: TableIdentifier
    plan: CompactionPlan
    records: tuple[CompactionRecord, ...] = ()
    tasks: tuple[KnownTask, ...] = ()
    failed: Mapping[TaskId, str] = field(default_factory=dict)
    waiting: str | None = None
    refused: frozenset[TaskId] = frozenset()
    held: str | None = None

    @property
    def committed(self) -> tuple[str, ...]:
        return tuple(task_id for record in self.records for task_id in record.committed_task_ids)

    @property
    def conflicts(self) -> Mapping[TaskId, str]:
        return {task_id: reason for record in self.records for task_id, reason in record.conflicts.items()}

    @property
    def unknown(self) -> bool:
        return any(record.status is RecordStatus.UNKNOWN for record in self.records)

    @property
    def reason(self) -> str:
        """A sentence that says what went wrong, what was committed, or why nothing was done."""
        if self.failed:
            return failures_in_words(self.failed)
        if self.waiting is not None:
            return self.waiting
        if self.records:
            return self.records[-1].reason or self.records[-1].summary
        return self.plan.reason.text
