"""Merges that fail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.core.work.result import MergeResult


class Broken:
    """An engine whose attempts all fail."""

    def must_start(self, task: CompactionTask | None) -> bool:
        return task is None

    def ready(self) -> None: ...

    def merge(self, tasks: Sequence[CompactionTask], layout: TableLayout, file_io: Mapping[str, str]) -> Iterator[MergeResult]:
        for task in tasks:
            yield MergeResult(task.task_id, task.attempt_id or "", error="file x.parquet: footer unreadable")

    def close(self) -> None: ...
