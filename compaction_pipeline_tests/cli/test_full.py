"""FULL, from the command line to the rows: oversized files are split, unsorted ones are sorted, and a second one finds nothing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform

from compaction_pipeline_tests.cli.conftest import SCHEMA, Desk

_ORDER = SortOrder(SortField(1, transform=IdentityTransform()))
_ROWS = 40_000
# The ids are spread like random numbers, so a file has about 8 bytes for each row, whatever the codec.
_IDS = [(number * 0x9E3779B97F4A7C15) % (1 << 63) for number in range(_ROWS)]


def _table(desk: Desk, row_group: int, sort_order: SortOrder = UNSORTED_SORT_ORDER) -> Table:
    table = desk.lake.create_table(
        "shop.orders", SCHEMA, sort_order=sort_order, properties={"write.parquet.row-group-limit": str(row_group)}
    )
    table.append(pa.table({"id": pa.array(_IDS, pa.int64()), "bucket": pa.array([0] * _ROWS, pa.int32())}))
    return table


def _files(table: Table) -> list[Path]:
    return [Path(task.file.file_path.removeprefix("file://")) for task in table.refresh().scan().plan_files()]


@pytest.mark.parametrize("row_group", [1_000, 1_000_000], ids=["many row groups", "one row group"])
def test_a_full_splits_an_oversized_file_once(desk: Desk, row_group: int) -> None:
    table = _table(desk, row_group)
    (file,) = _files(table)
    target = int(file.stat().st_size / 2.6)
    with table.transaction() as transaction:
        transaction.set_properties({"self-optimizing.target-size": str(target), "self-optimizing.max-task-size-bytes": str(target)})
    desk.add_catalog()
    first = desk.json("compact", "lake.shop.orders", "--type", "full")
    assert (first["committed"], first["files_before"]) == (1, 1)
    sizes = [path.stat().st_size for path in _files(table)]
    assert len(sizes) >= 2
    assert max(sizes) <= 1.8 * target
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == sorted(_IDS)
    second = desk.json("compact", "lake.shop.orders", "--type", "full")
    assert (second["tasks"], second["reason_code"]) == (0, "NO_GAIN")


def test_a_full_sorts_a_right_sized_file_that_is_not_in_the_table_s_order_once(desk: Desk) -> None:
    table = _table(desk, 1_000_000, _ORDER)
    (file,) = _files(table)
    with table.transaction() as transaction:
        transaction.set_properties({"self-optimizing.target-size": str(file.stat().st_size)})
    desk.add_catalog()
    assert desk.json("compact", "lake.shop.orders", "--type", "major")["tasks"] == 0
    assert desk.json("compact", "lake.shop.orders", "--type", "full")["committed"] == 1
    (after,) = _files(table)
    assert pq.read_table(after)["id"].to_pylist() == sorted(_IDS)
    entries = table.refresh().inspect.files()["sort_order_id"].to_pylist()
    assert entries == [table.metadata.default_sort_order_id]
    second = desk.json("compact", "lake.shop.orders", "--type", "full")
    assert (second["tasks"], second["reason_code"]) == (0, "NO_GAIN")
