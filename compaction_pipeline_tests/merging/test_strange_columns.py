"""Merges that once failed, or whose bounds hid rows from Java's equality deletes. Differential fuzzing found each of them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, ListType, LongType, MapType, NestedField, StringType, StructType, UUIDType

from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.merging.reading.evolution import arrow_schema
from compaction_pipeline_tests.merging.files import Table, long, text


def _optional(number: int, name: str, kind: object) -> NestedField:
    return NestedField(number, name, kind, required=False)  # type: ignore[arg-type]


def test_nested_columns_of_files_with_and_without_ids_are_merged(tmp_path: Path) -> None:
    names = [
        {"field-id": 1, "names": ["s"], "fields": [{"field-id": 2, "names": ["x"]}]},
        {
            "field-id": 3,
            "names": ["l"],
            "fields": [{"field-id": 4, "names": ["element"], "fields": [{"field-id": 5, "names": ["y"]}]}],
        },
        {"field-id": 6, "names": ["m"], "fields": [{"field-id": 7, "names": ["key"]}, {"field-id": 8, "names": ["value"]}]},
        {"field-id": 9, "names": ["id"]},
    ]
    schema = Schema(
        _optional(1, "s", StructType(long(2, "x"))),
        _optional(3, "l", ListType(4, StructType(text(5, "y")), element_required=False)),
        _optional(6, "m", MapType(7, StringType(), 8, LongType(), value_required=False)),
        long(9, "id"),
    )
    rows = [{"s": {"x": 1}, "l": [{"y": "a"}, None], "m": [("k", 2)], "id": 1}, {"s": None, "l": None, "m": [], "id": 2}]
    plain = pa.schema(
        [
            ("s", pa.struct([("x", pa.int64())])),
            ("l", pa.list_(pa.field("element", pa.struct([("y", pa.string())])))),
            ("m", pa.map_(pa.string(), pa.int64())),
            ("id", pa.int64()),
        ]
    )
    order = SortOrder(SortField(9, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_LAST), order_id=1)
    table = Table(tmp_path, [schema], order=order, properties={"schema.name-mapping.default": json.dumps(names)})
    table.append(pa.Table.from_pylist(rows, plain))
    table.append(rows)
    table.append(pa.Table.from_pylist(rows, plain))
    assert table.merged_rows() == [rows[0]] * 3 + [rows[1]] * 3


@pytest.mark.parametrize("last", ["\ud7ff", "\uffff", "z"])
def test_upper_bound_of_a_cut_text_is_valid_text(tmp_path: Path, last: str) -> None:
    table = Table(tmp_path, [Schema(text(1, "name"))])
    table.append([{"name": "a" * 15 + last + "behind the cut"}])
    result = table.merge()
    assert result.error is None
    upper = bytes.fromhex(result.outputs[0].upper_bounds[1]).decode()
    assert upper == "a" * 15 + {"\ud7ff": "\ue000", "\uffff": "\U00010000", "z": "{"}[last]


def test_columns_whose_bounds_mislead_java_have_none(tmp_path: Path) -> None:
    table = Table(tmp_path, [Schema(long(1, "id"), _optional(2, "d", DoubleType()), _optional(3, "u", UUIDType()))])
    table.append([{"id": 1, "d": math.nan, "u": b"\x10" * 16}, {"id": 2, "d": 1.0, "u": b"\xff" * 16}])
    result = table.merge()
    assert result.error is None
    output = result.outputs[0]
    assert output.nan_value_counts == {2: 1}
    assert set(output.lower_bounds) == set(output.upper_bounds) == {1}


def _uuids_inside(values: list[bytes | None]) -> pa.Table:
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))
    schema = arrow_schema(_NESTED.fields)
    offsets = pa.array(range(len(values) + 1), pa.int32())
    keys = pa.array([float("nan")] * len(values), pa.float64())
    places = pa.array(range(len(values)), pa.int64())
    return pa.Table.from_arrays([places, pa.MapArray.from_arrays(offsets, keys, uuids, type=schema.field(1).type)], schema=schema)


_NESTED = Schema(long(1, "id"), _optional(2, "m", MapType(3, DoubleType(), 4, UUIDType(), value_required=False)))


def test_uuids_inside_of_a_map_that_is_null_in_every_row(tmp_path: Path) -> None:
    table = Table(tmp_path, [_NESTED])
    schema = arrow_schema(_NESTED.fields)
    table.append(pa.Table.from_arrays([pa.array([1, 2], pa.int64()), pa.nulls(2, schema.field(1).type)], schema=schema))
    result = table.merge()
    assert result.error is None
    assert result.outputs[0].nan_value_counts == {3: 0}


def test_a_spilled_sort_carries_uuids_inside_of_a_map(tmp_path: Path) -> None:
    order = SortOrder(SortField(1, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST), order_id=1)
    table = Table(tmp_path, [_NESTED], order=order)
    table.append(_uuids_inside([b"0" * 16, None, b"1" * 16] * 500))
    result = table.merge(kind=CompactionType.FULL, memory=20_000)
    assert result.error is None
    assert result.outputs[0].sort_order_id == 1
    assert sum(output.nan_value_counts[3] for output in result.outputs) == 1500
