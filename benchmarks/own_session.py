"""Runs our side of a benchmark in a process of its own.

The peer's JVM has other settings than ours. And what one side's JVM does after its turn is not measured as the other side's work.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.spark.engine import SparkMergeEngine
from compaction_pipeline.spark.session import SparkSessions, SparkSettings


class OwnSession:
    """A merge engine in a process of its own, whose Spark session has the product's settings."""

    def __init__(self, folder: Path) -> None:
        settings = SparkSettings(master="local[2]", home=str(folder))
        self._process = ProcessPoolExecutor(1, get_context("spawn"), _start, (settings,))

    def ready(self) -> None:
        """Start the session if it does not run yet."""
        self._process.submit(_ready).result()

    def pid(self) -> int:
        """The id of the process that holds the session."""
        return self._process.submit(os.getpid).result()

    def merge(self, tasks: Sequence[MergeInput[Work]], file_io: Mapping[str, str]) -> Iterator[MergeResult]:
        yield from self._process.submit(_merge, tasks, file_io).result()

    def close(self) -> None:
        self._process.submit(_stop).result()
        self._process.shutdown()


_engines: list[SparkMergeEngine] = []
"""The one engine of this process. Only the process of an `OwnSession` fills this list."""


def _start(settings: SparkSettings) -> None:
    _engines.append(SparkMergeEngine(SparkSessions(settings)))


def _ready() -> None:
    _engines[0].ready()


def _merge(tasks: Sequence[MergeInput[Work]], file_io: Mapping[str, str]) -> list[MergeResult]:
    return list(_engines[0].merge(tasks, file_io))


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
