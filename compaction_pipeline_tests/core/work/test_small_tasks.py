"""Which tasks a run merges in its own process."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from compaction_pipeline.core.work.small_tasks import SMALL_BYTES, START, is_small, starts_spark
from compaction_pipeline.core.work.work import Work
from compaction_pipeline_tests.defs.values import task

SHORT = timedelta(milliseconds=1)


def work(inputs: int, deletes: int = 0) -> Work:
    """Work that reads so many bytes of data files and delete files."""
    made = task("t").work
    [file, *_] = made.inputs
    return replace(made, inputs=(replace(file, file_size_bytes=inputs),), deletes=(replace(file, file_size_bytes=deletes),))


@pytest.mark.parametrize(("inputs", "deletes", "small"), [(SMALL_BYTES - 1, 0, True), (SMALL_BYTES, 0, False), (1, SMALL_BYTES - 1, False)])
def test_delete_files_count_when_a_task_is_called_small(inputs: int, deletes: int, small: bool) -> None:
    assert is_small(work(inputs, deletes)) is small
    assert starts_spark(work(inputs, deletes), timedelta(0)) is not small


def test_spark_starts_for_a_small_task_when_others_took_as_long_as_a_start() -> None:
    assert not starts_spark(work(1), START - SHORT)
    assert starts_spark(work(1), START)
