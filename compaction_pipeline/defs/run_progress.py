"""What the log of a run says while tasks are merged and committed, so that nobody looks at a silent page."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

from compaction_pipeline.core.queue.attempts import is_tried_again
from compaction_pipeline.core.queue.progress import Asked, Pace, ended_text, progress_text
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import bytes_text, count_text, duration_text
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work

SILENCE = timedelta(seconds=15)
"""After this time without a line, a run says what it is doing."""

_NAMED = 3


class RunProgress:
    """Writes lines about the merges of one run. `open_tasks` counts the tasks that wait or are being merged.

    `spark` is where merges run, such as "Spark at local[*]", or None when this process merges by itself.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        open_tasks: Callable[[], int],
        spark: str | None,
        seconds: Callable[[], float] = time.monotonic,
        silence: timedelta = SILENCE,
    ) -> None:
        self._say = say
        self._open_tasks = open_tasks
        self._spark = spark
        self._seconds = seconds
        self._starts_at: float | None = None
        self._is_ready = spark is None
        self._silence = silence.total_seconds()
        self._said_at = seconds()
        self._running: dict[str, tuple[CompactionTask, float]] = {}
        self._done = self._failed = 0
        # The tasks that the run was asked for, and those of them that have ended.
        self._asked: dict[str, MergedWork[Work]] = {}
        self._asked_ended: set[str] = set()
        self._others = 0
        # The pace is counted anew after a time without tasks, because such a time says nothing about the tasks.
        self._began_at: float | None = None
        self._has_lull = True
        self._tasks = self._merged_bytes = 0

    def line(self, text: str) -> None:
        """Write a line now."""
        self._say(text)
        self._said_at = self._seconds()

    def engine_starts(self) -> None:
        """Say that Spark is being started. Spark stays up until the run ends, so this is said once."""
        if not self._is_ready and self._starts_at is None:
            self._starts_at = self._seconds()
            self.line(f"starting {self._spark}")

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
        if self._began_at is None:
            self.line(f"merging {_named(task)}: {count_text(task.work.files_read, 'file')}, {bytes_text(task.work.input_bytes)}")
        if self._has_lull:
            self._has_lull, self._began_at, self._tasks, self._merged_bytes = False, now, 0, 0

    def planned(self, tasks: Sequence[MergedWork[Work]]) -> None:
        """Count these tasks as what the run was asked for. Open tasks of the same nodes were replaced by them."""
        places = {(task.table, task.work.node) for task in tasks}
        kept = {key: task for key, task in self._asked.items() if key in self._asked_ended or (task.table, task.work.node) not in places}
        self._asked = {**kept, **{task.task_id: task for task in tasks}}

    def settled(self, task_ids: Iterable[str]) -> None:
        """Count tasks of a record as ended. Optimizers may have merged them, and then no other event tells."""
        self._asked_ended.update(each for each in task_ids if each in self._asked)

    def task_ended(self, task: CompactionTask, status: TaskStatus) -> str:
        """Count the end of an attempt, and return how far the run is."""
        self._running.pop(task.task_id, None)
        if not is_tried_again(replace(task, status=status)):
            self._done += 1
            self._tasks += 1
            asked = self._asked_by(task)
            self._others += asked is None
            self.settled([] if asked is None else [asked])
            self._failed += status is not TaskStatus.PREPARED
        if status is TaskStatus.PREPARED:
            self._merged_bytes += task.work.input_bytes
        return self._progress()

    def _asked_by(self, task: CompactionTask) -> str | None:
        """The task that the run was asked for and that this one does; None for work of others.

        A sensor may have replaced a task of the run, before it began, by one with newer files of the same node.
        """
        if task.task_id in self._asked:
            return task.task_id
        place = (task.table, task.work.node)
        open_ones = ((key, each) for key, each in self._asked.items() if key not in self._asked_ended)
        return next((key for key, each in open_ones if (each.table, each.work.node) == place), None)

    @property
    def done_text(self) -> str:
        """What the run merged so far, for example "3 tasks merged"."""
        return f"{count_text(self._done - self._failed, 'task')} merged"

    def waits(self) -> None:
        """After some time without a line, say which merges are still running."""
        now = self._seconds()
        if self._running and now - self._said_at >= self._silence:
            oldest = sorted(self._running.values(), key=lambda found: found[1])
            names = [f"{_named(task)} for {duration_text(timedelta(seconds=round(now - began)))}" for task, began in oldest[:_NAMED]]
            more = [f"{len(oldest) - _NAMED:,} more"] if len(oldest) > _NAMED else []
            self.line(f"still merging {', '.join([*names, *more])}; {self._progress()}")

    @contextmanager
    def committing(self, table: TableIdentifier, tasks: int) -> Iterator[None]:
        """Say that so many merged tasks of a table are committed now, and then from time to time that this goes on."""
        merged = f"{ended_text(self._done, self._failed)}; " if self._done and not self._open_tasks() else ""
        self.line(f"{merged}committing {table}: {count_text(tasks, 'merged task')}")
        with self.during(f"committing {table}"):
            yield

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        """While the caller is busy for long, say again and again what it does. A thread does that, because the caller has no time."""
        ended, began = threading.Event(), self._seconds()

        def speak() -> None:
            while not ended.wait(self._silence):
                self.line(f"still {what}, for {duration_text(timedelta(seconds=round(self._seconds() - began)))} now")

        speaker = threading.Thread(target=speak, name="progress", daemon=True)
        speaker.start()
        try:
            yield
        finally:
            ended.set()
            speaker.join()

    def _progress(self) -> str:
        open_tasks = self._open_tasks()
        elapsed = 0.0 if self._began_at is None else self._seconds() - self._began_at
        self._has_lull = not open_tasks and not self._running
        asked = Asked(len(self._asked_ended), len(self._asked), self._others) if self._asked else None
        return progress_text(self._done, open_tasks, Pace(self._tasks, self._merged_bytes, timedelta(seconds=elapsed)), asked)


def _named(task: CompactionTask) -> str:
    return f"{task.table} {task.work.node}"
