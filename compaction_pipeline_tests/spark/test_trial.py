"""The trial: one small task that runs on Spark before any merge is sent there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.settings import Settings
from compaction_pipeline.spark.trial import run_one_task


class _Answering:
    """A Spark session whose jobs all return this number of rows."""

    version = "4.1.1"

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def range(self, end: int, numPartitions: int) -> _Answering:
        return self

    def mapInArrow(self, function: Any, schema: str) -> _Answering:
        return self

    def collect(self) -> Sequence[int]:
        return range(self._rows)


def test_one_row_in_and_one_row_out_is_sound() -> None:
    assert run_one_task(_Answering(1), "local[2]").startswith("ran one task at local[2] (Spark 4.1.1, Python 3.")


@pytest.mark.parametrize("rows", [0, 2])
def test_lost_or_doubled_rows_are_reported(rows: int) -> None:
    with pytest.raises(StorageUnavailable, match=rf"Spark at local\[2\] answered {rows} rows for one"):
        run_one_task(_Answering(rows), "local[2]")


@pytest.mark.spark
def test_a_real_spark_runs_the_task(tmp_path: Path) -> None:
    services = Services(Settings(home=tmp_path, spark_master="local[1]"))
    try:
        assert services.try_spark().startswith("ran one task at local[1] (Spark 4.")
    finally:
        services.close()
