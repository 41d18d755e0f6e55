"""The merge engine of a process that starts a Spark of its own only when that is worth it (`core/work/small_tasks.py`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from threading import Lock

from compaction_pipeline.core.ids import AttemptId
from compaction_pipeline.core.work.merge_engine import MergeEngine
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult, UsedSoFar
from compaction_pipeline.core.work.small_tasks import is_small, starts_spark
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.merging.engine import InProcessMergeEngine

_LONGEST_TURN_SECONDS = 30
"""A task waits so long for the merge before it. Then that one hangs, for example because its store does not answer."""


class SmallFirstEngine:
    """Merges small tasks in this process until Spark has to start. From then on all tasks are merged on Spark.

    However many slots there are, one task at a time is merged here. So the memory of this process grows by that of one task, which is what
    its result says. `spark` makes the engine that merges on Spark. `runs` tells whether Spark runs in this process already, because
    another part of the program uses it.
    """

    def __init__(
        self,
        spark: Callable[[], MergeEngine],
        runs: Callable[[], bool],
        seconds: Callable[[], float] = time.monotonic,
        longest_turn_seconds: float = _LONGEST_TURN_SECONDS,
    ) -> None:
        self._make_spark = spark
        self._runs = runs
        self._seconds = seconds
        self._longest_turn_seconds = longest_turn_seconds
        self._here = InProcessMergeEngine()
        self._spark: MergeEngine | None = None
        self._starts = Lock()
        self._turn = Lock()
        self._spent = 0.0

    def must_start(self, task: MergeInput[Work] | None) -> bool:
        if self._spark is not None or self._runs():
            # Spark merges everything then. Should its session die, it is started again before the next poll.
            return task is None
        return task is not None and starts_spark(task.work, timedelta(seconds=self._spent))

    def ready(self) -> None:
        with self._starts:
            engine = self._spark or self._make_spark()
            engine.ready()
            self._spark = engine

    def merge(self, tasks: Sequence[MergeInput[Work]], file_io: Mapping[str, str]) -> Iterator[MergeResult]:
        for task in tasks:
            result = self._merged_here(task, file_io) if self._spark is None and is_small(task.work) else None
            if result is not None:
                yield result
            else:
                yield from self._on_spark().merge([task], file_io)

    def _on_spark(self) -> MergeEngine:
        """The engine on Spark. Its session starts with its first merge, if nobody has made it ready."""
        with self._starts:
            self._spark = self._spark or self._make_spark()
            return self._spark

    def _merged_here(self, task: MergeInput[Work], file_io: Mapping[str, str]) -> MergeResult | None:
        """Merge a task in this process. None when the merge before it hangs."""
        if not self._turn.acquire(timeout=self._longest_turn_seconds):
            return None
        began = self._seconds()
        try:
            [result] = self._here.merge([task], file_io)
            return result
        finally:
            self._spent += self._seconds() - began
            self._turn.release()

    def cancel(self, attempt_id: AttemptId) -> None:
        self._here.cancel(attempt_id)
        if self._spark is not None:
            self._spark.cancel(attempt_id)

    def used_so_far(self, attempt_id: AttemptId) -> UsedSoFar | None:
        here, spark = self._here.used_so_far(attempt_id), self._spark
        return here if here is not None or spark is None else spark.used_so_far(attempt_id)

    def close(self) -> None:
        if self._spark is not None:
            self._spark.close()
