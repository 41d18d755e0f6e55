"""What a merge gets: one piece of work, and what must be known of its table. It knows no queue, no plan and no lease."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from compaction_pipeline.core.ids import AttemptId, TaskId
from compaction_pipeline.core.tables.table import TableLayout

# Whoever merges one kind of work need not know the others, so nothing here names the union of all kinds.
W = TypeVar("W", covariant=True)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class MergeInput(Generic[W]):
    """One attempt at one piece of work.

    `layout` is that of the table; of a keyed table it is the base store's. `schema_id` is the schema that the plan read, of what the work
    writes to. The merge may take about `memory_bytes` bytes of memory. The ids are part of the names of the files that it writes.
    """

    task_id: TaskId
    attempt_id: AttemptId
    work: W
    layout: TableLayout
    schema_id: int
    memory_bytes: int

    @property
    def file_prefix(self) -> str:
        """How the names of the attempt's files begin, or go on after what a keyed table needs there. Clean-up finds files by it."""
        return f"{self.attempt_id or 'attempt'}-{self.task_id}-"

    def of(self, work: V) -> MergeInput[V]:
        """The same attempt, with a kind of work that is known. `work` is that of this value, after a match on its class."""
        return MergeInput(self.task_id, self.attempt_id, work, self.layout, self.schema_id, self.memory_bytes)
