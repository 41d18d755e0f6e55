"""Runs one small task on Spark, to find out whether merges can run there."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from typing import Any

from compaction_pipeline.core.errors import StorageUnavailable


def run_one_task(session: Any, where: str) -> str:
    """Run one Python task with Arrow, as a merge does, and return a text that says what ran. `where` is the address of Spark, for people.

    Raises StorageUnavailable if rows get lost. For a worker with another Python, Spark's own error is raised.
    """

    def answer(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches

    rows = session.range(1, numPartitions=1).mapInArrow(answer, "id long").collect()
    if len(rows) != 1:
        raise StorageUnavailable(f"Spark at {where} answered {len(rows)} rows for one: its Python workers lose data")
    return f"ran one task at {where} (Spark {session.version}, Python {platform.python_version()})"
