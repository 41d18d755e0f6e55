"""A copied file of tests is described as the written one is, and a table with another schema or other properties gets a file of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline_tests.iceberg.lake import SCHEMA, Lake

ROWS = [{"id": one, "name": f"n{one}"} for one in range(3)]


def test_a_copy_holds_the_same_bytes_and_is_described_alike(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    one, two = lake.table("one"), lake.table("two")
    first = one.one_row_files(ROWS)
    copies = two.one_row_files(ROWS)
    written = [two.data_file([row]) for row in ROWS]
    for made, copy, truth in zip(first, copies, written, strict=True):
        assert replace(copy, path=truth.path) == truth == replace(made, path=truth.path)
        assert content(copy.path) == content(truth.path) == content(made.path)
    assert len({file.path for file in (*first, *copies, *written)}) == 9
    row_delta(two.table, copies)
    assert two.rows() == ROWS


def test_a_table_of_another_schema_or_with_other_properties_gets_files_of_its_own(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    assert all(file.lower_bounds for file in lake.table("plain").one_row_files(ROWS))
    counted = lake.table("counted", properties={"write.metadata.metrics.default": "counts"})
    assert all(file.lower_bounds == {} for file in counted.one_row_files(ROWS))
    wider = lake.table("wider", Schema(*SCHEMA.fields, NestedField(3, "more", LongType())))
    assert all(file.value_counts.keys() == {1, 2, 3} for file in wider.one_row_files(ROWS))


def content(path: str) -> bytes:
    return Path(path.removeprefix("file://")).read_bytes()
