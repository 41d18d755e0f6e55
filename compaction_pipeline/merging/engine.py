"""The merge engine without Spark: the kernel in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from compaction_pipeline.core.ids import AttemptId
from compaction_pipeline.core.queue.task import CompactionTask, MergeResult
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.merging.deletes.shared_deletes import SharedDeletes
from compaction_pipeline.merging.kernel import merge_task


class InProcessMergeEngine:
    """Merges in this process, one task after the other. It needs no Spark."""

    def ready(self) -> None:
        """Do nothing: this process is always ready."""

    def merge(self, tasks: Sequence[CompactionTask], layout: TableLayout, file_io: Mapping[str, str]) -> Iterator[MergeResult]:
        shared = SharedDeletes()
        for task in tasks:
            yield merge_task(task, layout, file_io, shared)

    def cancel(self, attempt_id: AttemptId) -> None:
        """Do nothing: a merge in this process cannot be stopped."""

    def close(self) -> None:
        """Do nothing: the engine holds no resources."""
