"""Projection by field id: every schema evolution that the spec allows, nested ones included."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from compaction_pipeline.core.tables.node import PartitionValue
from compaction_pipeline_tests.every_type import EVERY_PRIMITIVE
from compaction_pipeline_tests.merging.files import SIMPLE, Table, integer, long, text


def _field(number: int, name: str, kind: Any, **options: Any) -> NestedField:
    return NestedField(number, name, kind, required=False, **options)


def test_columns_are_found_by_id_through_rename_reorder_drop_and_readd(tmp_path: Path) -> None:
    old = Schema(long(1, "id"), text(2, "name"), text(3, "gone"))
    new = Schema(text(2, "title"), long(1, "id"), text(4, "gone"))
    table = Table(tmp_path, [old, new])
    table.append([{"id": 1, "name": "a", "gone": "x"}], schema=old)
    table.append([{"id": 2, "title": "b", "gone": "y"}], schema=new)
    assert table.merged_rows() == [{"title": "a", "id": 1, "gone": None}, {"title": "b", "id": 2, "gone": "y"}]


def test_an_added_column_takes_its_initial_default_or_null(tmp_path: Path) -> None:
    old = Schema(long(1, "id"))
    new = Schema(
        long(1, "id"),
        _field(2, "n", IntegerType(), initial_default=7),
        _field(3, "d", DateType(), initial_default=19_000),
        text(4, "t"),
        NestedField(5, "r", StringType(), required=True, initial_default="must"),
    )
    table = Table(tmp_path, [old, new])
    table.append([{"id": 1}], schema=old)
    [row] = table.merged_rows()
    assert (row["n"], str(row["d"]), row["t"], row["r"]) == (7, "2022-01-08", None, "must")


def test_a_required_column_that_the_file_lacks_fails_with_a_sentence(tmp_path: Path) -> None:
    old, new = Schema(long(1, "id")), Schema(long(1, "id"), NestedField(2, "r", StringType(), required=True))
    table = Table(tmp_path, [old, new])
    table.append([{"id": 1}], schema=old)
    assert "required" in (table.merge().error or "")


def test_promotions_keep_the_value(tmp_path: Path) -> None:
    old = Schema(integer(1, "i"), _field(2, "f", FloatType()), _field(3, "d", DecimalType(9, 2)))
    new = Schema(long(1, "i"), _field(2, "f", DoubleType()), _field(3, "d", DecimalType(30, 2)))
    table = Table(tmp_path, [old, new])
    table.append([{"i": -5, "f": 0.5, "d": Decimal("1234567.89")}], schema=old)
    table.append([{"i": 1 << 40, "f": 0.1, "d": Decimal("-0.01")}], schema=new)
    assert table.merged_rows() == [
        {"i": -5, "f": 0.5, "d": Decimal("1234567.89")},
        {"i": 1 << 40, "f": 0.1, "d": Decimal("-0.01")},
    ]


@pytest.mark.parametrize("stored", [StringType(), LongType(), DoubleType()])
def test_a_type_change_that_is_no_promotion_fails_with_a_sentence(tmp_path: Path, stored: Any) -> None:
    table = Table(tmp_path, [Schema(_field(1, "v", stored)), Schema(_field(1, "v", DecimalType(9, 2)))])
    table.append([{"v": None}], schema=table.schemas[0])
    assert "not a promotion" in (table.merge().error or "")


def _nested(old: bool) -> Schema:
    if old:
        inner = StructType(integer(11, "a"), text(12, "b"))
        point = StructType(_field(21, "x", FloatType()))
        return Schema(
            long(1, "id"),
            _field(2, "s", inner),
            _field(3, "l", ListType(31, point, element_required=False)),
            _field(4, "m", MapType(41, StringType(), 42, IntegerType(), value_required=False)),
        )
    inner = StructType(text(12, "renamed"), long(11, "a"), text(13, "new"))
    point = StructType(_field(21, "x", DoubleType()), _field(22, "y", DoubleType()))
    return Schema(
        _field(3, "l", ListType(31, point, element_required=False)),
        long(1, "id"),
        _field(2, "s", inner),
        _field(4, "m", MapType(41, StringType(), 42, LongType(), value_required=False)),
    )


def test_nested_types_evolve_inside(tmp_path: Path) -> None:
    table = Table(tmp_path, [_nested(True), _nested(False)])
    rows = [
        {"id": 1, "s": {"a": 1, "b": "x"}, "l": [{"x": 0.5}, None], "m": [("k", 1), ("n", None)]},
        {"id": 2, "s": None, "l": None, "m": None},
        {"id": 3, "s": {"a": None, "b": None}, "l": [], "m": []},
    ]
    table.append(rows, schema=table.schemas[0])
    table.append([{"id": 4, "l": [{"x": 1.0, "y": 2.0}], "s": {"renamed": "r", "a": 5, "new": "n"}, "m": [("z", 9)]}])
    merged = {row["id"]: row for row in table.merged_rows()}
    assert merged[1] == {
        "l": [{"x": 0.5, "y": None}, None],
        "id": 1,
        "s": {"renamed": "x", "a": 1, "new": None},
        "m": [("k", 1), ("n", None)],
    }
    assert merged[2] == {"l": None, "id": 2, "s": None, "m": None}
    assert merged[3] == {"l": [], "id": 3, "s": {"renamed": None, "a": None, "new": None}, "m": []}
    assert merged[4]["l"] == [{"x": 1.0, "y": 2.0}]


def test_a_struct_that_a_file_lacks_is_null_though_its_fields_are_required(tmp_path: Path) -> None:
    inner = StructType(
        NestedField(4, "x", LongType(), required=True),
        NestedField(5, "u", FixedType(4), required=True),
        NestedField(6, "names", ListType(7, StringType(), element_required=True), required=True),
        NestedField(8, "s", StructType(NestedField(9, "price", DecimalType(20, 2), required=True)), required=True),
        NestedField(10, "yes", BooleanType(), required=True),
    )
    table = Table(tmp_path, [SIMPLE, Schema(*SIMPLE.fields, NestedField(3, "s", inner, required=False))])
    table.append([{"id": 1, "name": "a"}], schema=SIMPLE)
    value = {"x": 5, "u": bytes(4), "names": ["n"], "s": {"price": Decimal("1.50")}, "yes": True}
    table.append([{"id": 2, "name": "b", "s": value}, {"id": 3, "name": "b", "s": None}])
    assert [row["s"] for row in table.merged_rows()] == [None, value, None]


def test_nested_rows_survive_deletes_between_them(tmp_path: Path) -> None:
    table = Table(tmp_path, [_nested(True), _nested(False)])
    rows = [{"id": index, "s": {"a": index, "b": "x" * index}, "l": [{"x": 1.0}] * index, "m": [("k", index)]} for index in range(20)]
    file = table.append(rows, schema=table.schemas[0])
    table.delete_positions([(file.path, index) for index in range(0, 20, 2)])
    merged = table.merged_rows()
    assert [row["id"] for row in merged] == list(range(1, 20, 2))
    assert all(len(row["l"]) == row["id"] and row["s"]["renamed"] == "x" * row["id"] for row in merged)


def test_files_without_ids_are_read_by_the_name_mapping(tmp_path: Path) -> None:
    schema = Schema(
        long(1, "id"), _field(2, "s", StructType(text(3, "new"))), _field(4, "l", ListType(5, LongType(), element_required=False))
    )
    mapping = (
        '[{"field-id": 1, "names": ["id", "key"]}, {"field-id": 2, "names": ["s"], "fields": [{"field-id": 3, "names": ["old", "new"]}]},'
        ' {"field-id": 4, "names": ["l"], "fields": [{"field-id": 5, "names": ["element"]}]}]'
    )
    table = Table(tmp_path, [schema], properties={"schema.name-mapping.default": mapping})
    table.append(pa.table({"key": pa.array([1, 2], pa.int64()), "s": [{"old": "a"}, {"old": "b"}], "l": [[1], None], "other": [1, 2]}))
    assert table.merged_rows() == [{"id": 1, "s": {"new": "a"}, "l": [1]}, {"id": 2, "s": {"new": "b"}, "l": None}]
    table.properties.clear()
    assert "schema.name-mapping.default" in (table.merge().error or "")


def test_an_identity_partition_column_comes_from_the_partition_where_the_file_lacks_it(tmp_path: Path) -> None:
    schema = Schema(long(1, "id"), _field(2, "day", DateType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day"), spec_id=1)
    table = Table(tmp_path, [schema], [spec])
    partition = (PartitionValue("day", "date", "2024-03-01"),)
    table.append(
        pa.table({"id": pa.array([1], pa.int64())}, pa.schema([pa.field("id", pa.int64(), metadata={b"PARQUET:field_id": b"1"})])),
        partition=partition,
        spec_id=1,
    )
    [row] = table.merged_rows()
    assert str(row["day"]) == "2024-03-01"


def test_every_type_of_the_spec_keeps_its_values(tmp_path: Path) -> None:
    schema = Schema(*[_field(number + 1, f"c{number}", kind) for number, kind in enumerate(EVERY_PRIMITIVE)])
    moment = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)
    values = [
        True, -1, -(1 << 62), 1.5, -0.0, Decimal("-1.25"), Decimal("3.1415"), Decimal("-12345678901234567890.0123456789"),
        dt.date(1960, 2, 29), dt.time(23, 59, 59, 999_999), moment, moment.replace(tzinfo=dt.timezone.utc),
        "häß 🎉", uuid.uuid4().bytes, b"12345", b"\x00\xff",
    ]  # fmt: skip
    table = Table(tmp_path, [schema])
    table.append([{f"c{number}": value for number, value in enumerate(values)}])
    table.append([{f"c{number}": None for number in range(len(EVERY_PRIMITIVE))}])
    first, second = table.merged_rows()
    expected = dict(first)
    for number, value in enumerate(values):
        got = expected[f"c{number}"]
        assert (got.bytes if isinstance(got, uuid.UUID) else got) == value
    assert all(value is None for value in second.values())
