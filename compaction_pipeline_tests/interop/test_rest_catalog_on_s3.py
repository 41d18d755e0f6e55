"""Tables in Iceberg's own REST catalog, on an S3 that checks signatures.

Every type of compaction keeps the rows that Java and the reference reader see, with and without faults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.real_services.fault_proxy import Drop, Lost, Status, Truncate
from compaction_pipeline_tests.real_services.lake import ServedLake
from compaction_pipeline_tests.reference_reader import bag_difference
from compaction_pipeline_tests.scenarios.java_reader import frame_rows
from compaction_pipeline_tests.scenarios.soundness import faults

pytestmark = pytest.mark.interop


def written(lake: ServedLake) -> LakeTable:
    """A table of ten small files. Some rows are deleted by position and by equality, and one of these is inserted again."""
    table = lake.table()
    inserted = [table.ids(*range(first, first + 3)) for first in range(0, 30, 3)]
    table.delete_positions((inserted[0].path, 1))
    table.delete_positions((inserted[1].path, 0), (inserted[2].path, 2), referenced=False)
    table.delete_ids(10, 11, 25)
    table.ids(11)
    return table


COMMIT = "^POST .*/tables/t$"


def nothing_fails(lake: ServedLake) -> None:
    """Cause no fault."""


def much_fails_in_passing(lake: ServedLake) -> None:
    """S3 refuses, drops and cuts off some answers. In the catalog two commits lose a race, and the answer to the third gets lost."""
    lake.s3_proxy.add("", Status(503, "<Error><Code>SlowDown</Code></Error>"), probability=0.1)
    lake.s3_proxy.add("", Drop(reset=True), probability=0.05)
    lake.s3_proxy.add("^GET", Truncate(), probability=0.1)
    lake.catalog_proxy.add(COMMIT, Status(409, "{}", "application/json"), times=2)
    lake.catalog_proxy.add(COMMIT, Lost(), times=1)


@pytest.mark.parametrize("kind", CompactionType)
@pytest.mark.parametrize("weather", [nothing_fails, much_fails_in_passing])
def test_every_type_keeps_the_rows(
    weather: Callable[[ServedLake], None], kind: CompactionType, served_lake: ServedLake, iceberg_spark: Any
) -> None:
    table = written(served_lake)
    before, data_files = table.rows(), len(table.paths(FileContent.DATA))
    assert table.live_ids() == sorted({*range(30)} - {1, 3, 8, 10, 25})
    weather(served_lake)
    outcome = served_lake.compact(table, kind)
    assert outcome.committed
    assert not outcome.failed
    assert bag_difference(table.rows(), before) == ""
    seen_by_java = frame_rows(iceberg_spark.sql(f"SELECT * FROM {served_lake.java_table(iceberg_spark, table)}"))
    assert bag_difference(seen_by_java, before) == ""
    assert faults(table.table) == []
    assert len(table.paths(FileContent.DATA)) < data_files
    assert served_lake.catalog_proxy.requests(COMMIT)
    assert served_lake.s3_proxy.requests("^PUT .*[.]parquet")
