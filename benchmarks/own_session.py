"""Our side of a benchmark in a process of its own: the peer's JVM is tuned for rows, and neither works on in the other's turn."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from compaction_pipeline.core.queue.task import CompactionTask, MergeResult
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.spark.engine import SparkMergeEngine
from compaction_pipeline.spark.session import SparkSessions, SparkSettings


class OwnSession:
    """A merge engine in a process of its own, with a Spark session as the product starts it."""

    def __init__(self, folder: Path) -> None:
        settings = SparkSettings(master="local[2]", home=str(folder))
        self._process = ProcessPoolExecutor(1, get_context("spawn"), _start, (settings,))

    def ready(self) -> None:
        """Start the session, or find it running."""
        self._process.submit(_ready).result()

    def pid(self) -> int:
        """The process that holds the session."""
        return self._process.submit(os.getpid).result()

    def merge(self, tasks: Sequence[CompactionTask], layout: TableLayout, file_io: Mapping[str, str]) -> Iterator[MergeResult]:
        yield from self._process.submit(_merge, tasks, layout, file_io).result()

    def close(self) -> None:
        self._process.submit(_stop).result()
        self._process.shutdown()


_engines: list[SparkMergeEngine] = []
"""The engine of an `OwnSession`'s process."""


def _start(settings: SparkSettings) -> None:
    _engines.append(SparkMergeEngine(SparkSessions(settings)))


def _ready() -> None:
    _engines[0].ready()


def _merge(tasks: Sequence[CompactionTask], layout: TableLayout, file_io: Mapping[str, str]) -> list[MergeResult]:
    return list(_engines[0].merge(tasks, layout, file_io))


def _stop() -> None:
    _engines[0].close()


@contextmanager
def own_session(folder: Path) -> Iterator[OwnSession]:
    """An engine whose process ends with the block."""
    engine = OwnSession(folder)
    try:
        yield engine
    finally:
        engine.close()
