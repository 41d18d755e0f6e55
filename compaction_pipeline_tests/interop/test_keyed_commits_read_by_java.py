"""Iceberg's Java library reads the base store of a keyed table after a compaction, and goes on writing to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.keyed.compactions import Compactions
from compaction_pipeline_tests.keyed.example import Example
from compaction_pipeline_tests.reference_reader import bag_difference
from compaction_pipeline_tests.scenarios.examples.unpacking import CATALOG_NAME, KEYED_EXAMPLES, catalog_properties
from compaction_pipeline_tests.scenarios.java_reader import frame_rows, java_rows

pytestmark = pytest.mark.interop


def compacted(name: str, folder: Path) -> tuple[Example, Compactions]:
    example = Example(name, folder)
    compactions = Compactions(example.catalog, catalog_properties(example.home))
    assert compactions.compact(CompactionType.FULL) is not None
    return example, compactions


@pytest.mark.parametrize("name", KEYED_EXAMPLES)
def test_after_a_full_the_base_store_alone_has_the_rows(name: str, tmp_path: Path, iceberg_spark: Any) -> None:
    example, _ = compacted(name, tmp_path)
    assert bag_difference(java_rows(iceberg_spark, example.catalog.load_table("db.t").metadata_location), example.expected) == ""


def test_java_keeps_the_optimized_sequences_when_it_writes(tmp_path: Path, spark_catalog: Callable[[str, str, str], Any]) -> None:
    example, compactions = compacted("amoro_keyed_change_only", tmp_path)
    # A session opens a catalog of one name once, so only this test uses the name.
    spark = spark_catalog(CATALOG_NAME, str(example.home / "catalog.db"), str(example.home / "wh"))
    table = f"{CATALOG_NAME}.db.t"
    assert bag_difference(frame_rows(spark.table(table)), example.expected) == ""
    spark.sql(f"DELETE FROM {table} WHERE id % 2 = 0")
    left = [row for row in example.expected if row["id"] % 2]
    assert 0 < len(left) < len(example.expected)
    assert bag_difference(example.table.scan().to_arrow().to_pylist(), left) == ""
    assert compactions.plan(CompactionType.MAJOR) == []
    assert compactions.partitions
