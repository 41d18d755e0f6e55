"""The merge engine without Spark: the kernel in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Event

from compaction_pipeline.core.ids import AttemptId
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult, UsedSoFar
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.merging.deletes.shared_deletes import SharedDeletes
from compaction_pipeline.merging.kernel import merge_task
from compaction_pipeline.merging.so_far import MergingProcess, begins_to_merge


class InProcessMergeEngine:
    """Merges in this process, one task after the other. It needs no Spark.

    A canceled merge ends before it opens its next file, or at once while it waits for a busy store.
    """

    def __init__(self) -> None:
        self._canceled: dict[AttemptId, Event] = {}
        self._begun: dict[AttemptId, MergingProcess | None] = {}

    def must_start(self, task: MergeInput[Work] | None) -> bool:
        return task is None

    def ready(self) -> None:
        """Do nothing: this process is always ready."""

    def merge(self, tasks: Sequence[MergeInput[Work]], file_io: Mapping[str, str]) -> Iterator[MergeResult]:
        shared = SharedDeletes()
        for task in tasks:
            canceled = self._canceled[task.attempt_id] = Event()
            self._begun[task.attempt_id] = begins_to_merge(shared.nbytes)
            try:
                result = merge_task(task, file_io, shared, sleep=_until(canceled), canceled=canceled.is_set)
            finally:
                del self._canceled[task.attempt_id], self._begun[task.attempt_id]
            yield result

    def cancel(self, attempt_id: AttemptId) -> None:
        canceled = self._canceled.get(attempt_id)
        if canceled is not None:
            canceled.set()

    def used_so_far(self, attempt_id: AttemptId) -> UsedSoFar | None:
        begun = self._begun.get(attempt_id)
        return None if begun is None else begun.used()

    def close(self) -> None:
        """Do nothing: the engine holds no resources."""


def _until(event: Event) -> Callable[[float], None]:
    """A pause that the event cuts short."""

    def pause(seconds: float) -> None:
        event.wait(seconds)

    return pause
