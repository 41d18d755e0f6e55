"""What the log of a run says while tasks are merged, so that nobody looks at a silent page."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from compaction_pipeline.core.queue.attempts import is_tried_again
from compaction_pipeline.core.queue.progress import progress_text
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.words import bytes_text, count_text, duration_text

SILENCE = timedelta(seconds=15)
"""After this time without a line, a run says what it is doing."""

_NAMED = 3


class RunProgress:
    """Writes lines about the merges of one run. `open_tasks` counts the tasks that wait or are being merged.

    `spark` is the address of Spark, or None when this process merges by itself.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        open_tasks: Callable[[], int],
        spark: str | None,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say = say
        self._open_tasks = open_tasks
        self._spark = spark
        self._seconds = seconds
        self._starts_at: float | None = None
        self._is_ready = spark is None
        self._first_at: float | None = None
        self._said_at = seconds()
        self._running: dict[str, tuple[CompactionTask, float]] = {}
        self._done = 0
        self._merged_bytes = 0

    def line(self, text: str) -> None:
        """Write a line now."""
        self._say(text)
        self._said_at = self._seconds()

    def engine_starts(self) -> None:
        """Say that Spark is being started. Spark stays up until the run ends, so this is said once."""
        if not self._is_ready and self._starts_at is None:
            self._starts_at = self._seconds()
            self.line(f"starting Spark at {self._spark}")

    def engine_started(self) -> None:
        """Say how long the start took."""
        if not self._is_ready and self._starts_at is not None:
            self._is_ready = True
            took = timedelta(seconds=self._seconds() - self._starts_at)
            self.line(f"Spark has started in {duration_text(took)}; {count_text(self._open_tasks(), 'task')} to merge")

    def task_began(self, task: CompactionTask) -> None:
        """Remember the task. Only the first one of a run gets a line, because most merges are short and end with a line of their own."""
        now = self._seconds()
        self._running[task.task_id] = (task, now)
        if self._first_at is None:
            self._first_at = now
            self.line(f"merging {_named(task)}: {count_text(len(task.work.inputs), 'file')}, {bytes_text(task.work.input_bytes)}")

    def task_ended(self, task: CompactionTask, status: TaskStatus) -> str:
        """Count the end of an attempt, and return how far the run is."""
        self._running.pop(task.task_id, None)
        if not is_tried_again(replace(task, status=status)):
            self._done += 1
        if status is TaskStatus.PREPARED:
            self._merged_bytes += task.work.input_bytes
        return self._progress()

    def waits(self) -> None:
        """After some time without a line, say which merges are still running."""
        now = self._seconds()
        if self._running and now - self._said_at >= SILENCE.total_seconds():
            oldest = sorted(self._running.values(), key=lambda found: found[1])
            names = [f"{_named(task)} for {duration_text(timedelta(seconds=round(now - began)))}" for task, began in oldest[:_NAMED]]
            more = [f"{len(oldest) - _NAMED:,} more"] if len(oldest) > _NAMED else []
            self.line(f"still merging {', '.join([*names, *more])}; {self._progress()}")

    def _progress(self) -> str:
        elapsed = 0.0 if self._first_at is None else self._seconds() - self._first_at
        return progress_text(self._done, self._open_tasks(), self._merged_bytes, timedelta(seconds=elapsed))


def _named(task: CompactionTask) -> str:
    return f"{task.table} {task.work.node}"
