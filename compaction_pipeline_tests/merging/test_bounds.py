"""One rule says which bounds a file may have, and every path that writes files follows it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, FloatType, IcebergType, LongType, NestedField, StringType, StructType, UUIDType

from compaction_pipeline.core.tables.data_file import OutputFile
from compaction_pipeline.merging.writing.metrics import may_have_bounds
from compaction_pipeline_tests.iceberg.lake import Lake
from compaction_pipeline_tests.merging.files import MIB, Table, copied

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "whole", DoubleType(), required=False),
    NestedField(3, "holed", DoubleType(), required=False),
    NestedField(4, "s", StructType(NestedField(6, "inner", FloatType(), required=False)), required=False),
    NestedField(5, "u", UUIDType(), required=False),
)
ROWS = 1200
_BY_ID = SortOrder(SortField(1, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_LAST), order_id=1)


@pytest.mark.parametrize(
    ("kind", "nans", "may"),
    [
        (DoubleType(), 0, True),
        (DoubleType(), 1, False),
        (FloatType(), 0, True),
        (FloatType(), 7, False),
        # NaN was not counted, so there may be one.
        (DoubleType(), None, False),
        (LongType(), None, True),
        (StringType(), None, True),
        (UUIDType(), None, False),
    ],
    ids=str,
)
def test_bounds_that_would_hide_a_value_from_a_delete_are_not_claimed(kind: IcebergType, nans: int | None, may: bool) -> None:
    assert may_have_bounds(kind, nans) is may


def _rows(with_nan: bool) -> list[dict[str, Any]]:
    """Rows with three floats. With `with_nan`, the second and the third are NaN in the row in the middle."""
    return [
        {
            "id": number,
            "whole": number * 0.37,
            "holed": math.nan if with_nan and number == ROWS // 2 else number * 0.73,
            "s": {"inner": math.nan if with_nan and number == ROWS // 2 else number * 0.5},
            "u": number.to_bytes(16, "big"),
        }
        for number in range(ROWS)
    ]


def _assert_claims(output: OutputFile, with_nan: bool) -> None:
    count = int(with_nan)
    assert output.nan_value_counts == {2: 0, 3: count, 6: count}
    assert set(output.lower_bounds) == set(output.upper_bounds) == {1, 2} | (set() if with_nan else {3, 6})


def _merged(tmp_path: Path, with_nan: bool, way: str) -> OutputFile:
    table = Table(tmp_path, [SCHEMA], order=_BY_ID if way == "sorted" else None)
    if way == "encoded":
        table.properties["write.parquet.bloom-filter-enabled.column.id"] = "true"
    inputs = [table.append(rows, use_dictionary=False) for rows in (_rows(False), _rows(with_nan))]
    if way == "beside deletes":
        table.delete_positions([(file.path, 0) for file in inputs])
    # A row group of at least 1/16 of the target is copied whole. Pages of smaller ones are put together with others.
    result = table.merge(target=MIB // 8 if way == "moved whole" else 32 * MIB)
    assert result.error is None, result.error
    [output] = result.outputs
    assert pq.read_metadata(output.path).num_row_groups == (2 if way == "moved whole" else 1)
    if way in ("moved whole", "pages copied"):
        assert all(copied(inputs, [output]))
    return output


@pytest.mark.parametrize("with_nan", [False, True])
@pytest.mark.parametrize("way", ["sorted", "encoded", "beside deletes", "pages copied", "moved whole"])
def test_every_way_of_the_kernel_keeps_the_rule(tmp_path: Path, way: str, with_nan: bool) -> None:
    _assert_claims(_merged(tmp_path, with_nan, way), with_nan)


@pytest.mark.parametrize("with_nan", [False, True])
def test_files_of_writers_keep_the_rule(tmp_path: Path, with_nan: bool) -> None:
    output = Lake(tmp_path).table(schema=SCHEMA).data_file(_rows(with_nan))
    assert output.nan_value_counts == {2: 0, 3: int(with_nan), 6: int(with_nan)}
    # PyIceberg makes these bounds. It makes none for nested columns.
    assert set(output.lower_bounds) == set(output.upper_bounds) == {1, 2} | (set() if with_nan else {3})
