"""Tests of the reference reader itself: tables of other engines, and the rules that are easy to get wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from compaction_pipeline.iceberg.catalogs import Catalog, SqlCatalog
from compaction_pipeline_tests.reference_reader import bag_difference, reference_rows, row_bag
from compaction_pipeline_tests.scenarios.examples.unpacking import CATALOG_NAME, PLAIN_EXAMPLES, catalog_properties, expected_rows, unpack


def opened(home: Path) -> Catalog:
    return SqlCatalog(CATALOG_NAME, **catalog_properties(home))


@pytest.mark.parametrize("name", PLAIN_EXAMPLES)
def test_tables_of_other_engines_hold_the_rows_that_their_writers_logged(name: str, tmp_path: Path) -> None:
    home = unpack(name, tmp_path)
    rows = reference_rows(opened(home).load_table("db.t"))
    assert bag_difference(rows, expected_rows(home)) == ""
    assert len(rows) == {"flink_v2_unpart_cdc": 2642, "spark_v2_addfiles": 4055}[name]


def test_bags_distinguish_values_that_python_calls_equal() -> None:
    distinct = [None, 0, 0.0, -0.0, False, "0", b"0", float("nan")]
    assert len(row_bag({"v": value} for value in distinct)) == len(distinct)
    assert row_bag([{"v": float("nan")}]) == row_bag([{"v": -float("nan")}])
    assert row_bag([{"v": 1}, {"v": 1}]) != row_bag([{"v": 1}])
