"""Compacts a table without pause while others write to it, and counts the results."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from compaction_pipeline.core.ids import AttemptId
from compaction_pipeline.core.insight.compaction import Compaction
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.merge_engine import MergeEngine
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Work
from compaction_pipeline_tests.interop.warehouse import Compactions

Say = Callable[[str], None]
"""A function that prints a line of figures, also when the test passes."""

Enough = Callable[["Tally"], bool]
"""True when the compactions so far have shown all that the test wants to see. A slow machine gets more time for that."""


@dataclass
class Tally:
    """The results of the compactions. `conflicts` counts tasks that met one, `salvaged` the tasks that were committed beside those."""

    compactions: int = 0
    commits: int = 0
    committed: int = 0
    salvaged: int = 0
    conflicts: int = 0
    lost_bytes: int = 0
    merged_bytes: int = 0
    reasons: set[str] = field(default_factory=set)

    def add(self, outcome: Compaction) -> None:
        assert not outcome.failed, outcome.failed
        assert not outcome.unknown, outcome.reason
        self.compactions += 1
        sizes = {task.task_id: sum(file.file_size_bytes for file in task.work.inputs) for task in outcome.tasks}
        self.merged_bytes += sum(sizes.values())
        for record in outcome.records:
            self.commits += bool(record.committed_task_ids)
            self.committed += len(record.committed_task_ids)
            self.salvaged += len(record.committed_task_ids) if record.conflicts else 0
            self.conflicts += len(record.conflicts)
            self.lost_bytes += sum(sizes.get(task_id, 0) for task_id in record.conflicts)
            self.reasons |= set(record.conflicts.values())

    def __str__(self) -> str:
        lost = self.lost_bytes / self.merged_bytes if self.merged_bytes else 0
        return (
            f"{self.compactions} compactions, {self.commits} commits of ours with {self.committed} tasks ({self.salvaged} salvaged beside "
            f"conflicts), {self.conflicts} tasks lost to conflicts ({lost:.0%} of {self.merged_bytes:,} bytes)"
        )


class Lagging:
    """An engine whose every other merge lasts until others have committed to the table, as during a large merge, at most `seconds`."""

    def __init__(self, engine: MergeEngine, head: Callable[[], object], commits: int = 3, seconds: float = 6) -> None:
        self._engine = engine
        self._head = head
        self._commits = commits
        self._seconds = seconds
        self._merges = itertools.count()

    def must_start(self, task: MergeInput[Work] | None) -> bool:
        return self._engine.must_start(task)

    def ready(self) -> None:
        self._engine.ready()

    def merge(self, tasks: Sequence[MergeInput[Work]], file_io: Mapping[str, str]) -> Iterator[MergeResult]:
        yield from self._engine.merge(tasks, file_io)
        if next(self._merges) % 2 == 0:
            seen, deadline = {self._head()}, time.monotonic() + self._seconds
            while len(seen) <= self._commits and time.monotonic() < deadline:
                threading.Event().wait(0.05)
                seen.add(self._head())

    def used_so_far(self, attempt_id: AttemptId) -> None: ...

    def close(self) -> None:
        self._engine.close()


def compact_while(running: Callable[[], bool], compactions: Compactions, enough: Enough, seconds: float, table: str = "t") -> Tally:
    """Compact with one type after the other, for `seconds` and then until `enough`. End early when nothing runs beside it any more."""
    tally, ends = Tally(), time.monotonic() + seconds
    for kind in itertools.cycle(CompactionType):
        if not running() or (time.monotonic() >= ends and enough(tally)):
            return tally
        tally.add(compactions.compact(kind, table))
    raise AssertionError("unreachable")


class Worker:
    """Repeats a step in a thread until it is stopped or fails."""

    def __init__(self, step: Callable[[], Any]) -> None:
        self._step = step
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Wait for the end of the present step. Raises the error that the step failed with."""
        self._stopped.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._step()
        except BaseException as error:
            self._error = error


@contextmanager
def working(*steps: Callable[[], Any]) -> Iterator[Callable[[], bool]]:
    """Repeat steps in threads beside the block. The block gets a function that says whether all threads still run.

    At the end, the error of a step that failed is raised.
    """
    workers = [Worker(step) for step in steps]
    try:
        yield lambda: all(worker.running for worker in workers)
    finally:
        with ExitStack() as stops:
            for worker in workers:
                stops.callback(worker.stop)
