"""Merges that fail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from compaction_pipeline.core.ids import AttemptId
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Work


class Broken:
    """An engine whose attempts all fail."""

    def must_start(self, task: MergeInput[Work] | None) -> bool:
        return task is None

    def ready(self) -> None: ...

    def merge(self, tasks: Sequence[MergeInput[Work]], file_io: Mapping[str, str]) -> Iterator[MergeResult]:
        for task in tasks:
            yield MergeResult(task.task_id, task.attempt_id, error="file x.parquet: footer unreadable")

    def used_so_far(self, attempt_id: AttemptId) -> None: ...

    def close(self) -> None: ...
