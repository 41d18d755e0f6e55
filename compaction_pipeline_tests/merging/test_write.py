"""Written files: sizes, encodings, ids, metrics, order and partitions."""

from __future__ import annotations

import datetime as dt
import math
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, MonthTransform, TruncateTransform
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    FloatType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

from compaction_pipeline.core.tables.node import PartitionValue
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.merging.files import MIB, Table, long, rows_of, text


def _field(number: int, name: str, kind: Any) -> NestedField:
    return NestedField(number, name, kind, required=False)


def _noise(rows: int, seed: int = 0) -> list[dict[str, Any]]:
    generator = np.random.default_rng(seed)
    return [{"id": int(value), "name": f"{value:x}"} for value in generator.integers(0, 1 << 60, rows)]


def test_files_are_close_to_the_target_and_no_fragment_is_left(tmp_path: Path) -> None:
    table = Table(tmp_path)
    for seed in range(6):
        table.append(_noise(20_000, seed))
    total = sum(file.file_size_bytes for file in table.inputs)
    for share in (2.05, 3.5, 1.0):
        target = int(total / share)
        result = table.merge(target=target)
        assert result.error is None
        sizes = [output.file_size_bytes for output in result.outputs]
        assert result.rows_written == 120_000
        assert all(size >= target // 8 for size in sizes)
        assert all(0.8 * target <= size <= 1.25 * target for size in sizes[:-1])
        assert sizes[-1] <= 1.25 * target


def test_only_columns_that_the_sources_dictionary_encode_are_dictionary_encoded(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.append(_noise(1000), use_dictionary=["name"])
    table.append(_noise(1000), use_dictionary=["name"])
    [output] = table.merge().outputs
    group = pq.read_metadata(output.path).row_group(0)
    assert [group.column(index).has_dictionary_page for index in range(2)] == [False, True]


def test_the_tables_parquet_properties_hold(tmp_path: Path) -> None:
    table = Table(tmp_path, properties={"write.parquet.compression-codec": "gzip", "write.parquet.row-group-size-bytes": "100000"})
    table.append(_noise(20_000))
    [output] = table.merge().outputs
    metadata = pq.read_metadata(output.path)
    assert metadata.row_group(0).column(0).compression == "GZIP"
    assert metadata.num_row_groups > 3
    assert output.split_offsets == tuple(sorted(output.split_offsets))
    assert len(output.split_offsets) == metadata.num_row_groups
    table.properties["write.parquet.compression-codec"] = "shrink"
    assert "write.parquet.compression-codec" in (table.merge().error or "")


def test_the_data_path_and_names_hold_task_attempt_and_a_random_part(tmp_path: Path) -> None:
    table = Table(tmp_path, properties={"write.data.path": str(tmp_path / "elsewhere")})
    table.append([{"id": 1, "name": "a"}])
    paths = {table.merge().outputs[0].path for _ in range(2)}
    assert len(paths) == 2
    assert all(path.startswith(str(tmp_path / "elsewhere" / "attempt-1-task-1-")) for path in paths)


def test_every_nested_field_carries_its_id(tmp_path: Path) -> None:
    schema = Schema(long(1, "id"), _field(2, "l", ListType(3, StructType(_field(4, "x", StringType())), element_required=False)))
    table = Table(tmp_path, [schema])
    table.append([{"id": 1, "l": [{"x": "a"}]}])
    [output] = table.merge().outputs
    arrow = pq.read_schema(output.path)
    assert arrow.field("l").metadata[b"PARQUET:field_id"] == b"2"
    assert arrow.field("l").type.value_field.metadata[b"PARQUET:field_id"] == b"3"
    assert arrow.field("l").type.value_type.field("x").metadata[b"PARQUET:field_id"] == b"4"


_METERED = Schema(
    long(1, "n"),
    text(2, "s"),
    _field(3, "d", DoubleType()),
    _field(4, "c", DecimalType(9, 2)),
    _field(5, "b", BinaryType()),
    _field(6, "st", StructType(_field(7, "f", FloatType()))),
    _field(8, "l", ListType(9, DoubleType(), element_required=False)),
)


def _metered(tmp_path: Path, **properties: str) -> Any:
    table = Table(tmp_path, [_METERED], properties=dict(properties))
    low = {"n": -5, "s": "a" * 20, "d": math.nan, "c": Decimal("-1.28"), "b": b"\x01" * 20, "st": {"f": 1.5}, "l": [1.0, math.nan]}
    high = {"n": 300, "s": "z" * 20, "d": 2.5, "c": Decimal("1.28"), "b": b"\xff" * 20, "st": {"f": math.nan}, "l": None}
    table.append([low, high, {field.name: None for field in _METERED.fields}])
    result = table.merge()
    assert result.error is None, result.error
    return result.outputs[0]


def test_metrics_are_those_of_the_spec(tmp_path: Path) -> None:
    output = _metered(tmp_path)
    assert output.value_counts == {1: 3, 2: 3, 3: 3, 4: 3, 5: 3, 7: 3, 9: 4}
    assert {number: count for number, count in output.null_value_counts.items() if number != 9} == {1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 7: 1}
    assert output.nan_value_counts == {3: 1, 7: 1, 9: 1}
    assert output.lower_bounds == {
        1: struct.pack("<q", -5).hex(),
        2: ("a" * 16).encode().hex(),
        4: (-128).to_bytes(1, "big", signed=True).hex(),
        5: (b"\x01" * 16).hex(),
    }
    assert output.upper_bounds == {
        1: struct.pack("<q", 300).hex(),
        2: ("z" * 15 + "{").encode().hex(),
        4: (128).to_bytes(2, "big", signed=True).hex(),
    }
    assert set(output.column_sizes) == {1, 2, 3, 4, 5, 7, 9}


def test_metrics_modes_are_honoured(tmp_path: Path) -> None:
    output = _metered(
        tmp_path,
        **{
            "write.metadata.metrics.default": "counts",
            "write.metadata.metrics.column.s": "full",
            "write.metadata.metrics.column.n": "none",
        },
    )
    assert set(output.lower_bounds) == {2}
    assert bytes.fromhex(output.upper_bounds[2]) == b"z" * 20
    assert 1 not in output.value_counts
    assert 3 in output.value_counts


def _order(*fields: SortField) -> SortOrder:
    return SortOrder(*fields, order_id=7)


_BY_ID = _order(SortField(1, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_FIRST))


@pytest.mark.parametrize("memory", [256 * MIB, 256 * 1024])
def test_a_full_sorts_in_memory_or_by_runs(tmp_path: Path, memory: int) -> None:
    table = Table(tmp_path, order=_BY_ID)
    for seed in range(3):
        table.append(_noise(4_000, seed))
    table.append([{"id": None, "name": "null"}])
    result = table.merge(kind=CompactionType.FULL, memory=memory)
    assert result.error is None, result.error
    assert {output.sort_order_id for output in result.outputs} == {7}
    ids = [row["id"] for row in rows_of(result.outputs)]
    assert ids[0] is None
    assert ids[1:] == sorted(ids[1:], reverse=True)
    assert len(ids) == 12_001


def test_smaller_work_that_does_not_fit_stays_unsorted_and_says_so(tmp_path: Path) -> None:
    table = Table(tmp_path, order=_BY_ID)
    table.append(_noise(12_000))
    assert table.merge(kind=CompactionType.MINOR).outputs[0].sort_order_id == 7
    result = table.merge(kind=CompactionType.MINOR, memory=256 * 1024)
    assert result.error is None
    assert result.outputs[0].sort_order_id is None


def test_floats_sort_as_the_spec_orders_them(tmp_path: Path) -> None:
    order = _order(
        SortField(3, TruncateTransform(1), SortDirection.ASC, NullOrder.NULLS_LAST),
        SortField(1, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_LAST),
    )
    table = Table(tmp_path, [Schema(_field(1, "v", DoubleType()), text(3, "t"))], order=order)
    values = [math.nan, 1.0, -0.0, 0.0, -math.inf, None, math.inf, -2.0]
    table.append([{"v": value, "t": "bx"} for value in values] + [{"v": 5.0, "t": "ay"}, {"v": 0.0, "t": None}])
    rows = table.merged_rows()
    assert [str(row["v"]) for row in rows] == ["5.0", "-inf", "-2.0", "-0.0", "0.0", "1.0", "inf", "nan", "None", "0.0"]


def test_rows_move_to_the_partitions_of_a_new_spec(tmp_path: Path) -> None:
    schema = Schema(long(1, "id"), _field(2, "at", TimestampType()), text(3, "t"))
    new = PartitionSpec(
        PartitionField(2, 1000, DayTransform(), "at_day"),
        PartitionField(1, 1001, BucketTransform(4), "id_bucket"),
        PartitionField(3, 1002, IdentityTransform(), "t"),
        PartitionField(2, 1003, MonthTransform(), "m"),
        spec_id=1,
    )
    table = Table(tmp_path, [schema], [PartitionSpec(spec_id=0), new])
    start = dt.datetime(1969, 12, 31, 12)
    table.append([{"id": index, "at": start + dt.timedelta(hours=index), "t": None if index % 5 == 0 else "x"} for index in range(48)])
    result = table.merge(kind=CompactionType.FULL, output_spec_id=1)
    assert result.error is None, result.error
    assert result.rows_written == 48
    bucket = BucketTransform(4).transform(LongType())
    for output in result.outputs:
        assert output.spec_id == 1
        for row in rows_of([output]):
            assert output.partition == (
                PartitionValue("at_day", "date", row["at"].date().isoformat()),
                PartitionValue("id_bucket", "int", bucket(row["id"])),
                PartitionValue("t", "string", row["t"]),
                PartitionValue("m", "int", (row["at"].year - 1970) * 12 + row["at"].month - 1),
            )
    assert len({output.partition for output in result.outputs}) == len(result.outputs)


def test_a_failure_while_writing_leaves_no_file(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.append(_noise(1000))
    broken = tmp_path / "broken.parquet"
    data = Path(table.append(_noise(1000, 1)).path).read_bytes()
    broken.write_bytes(data[: len(data) // 3] + b"\0" * (len(data) // 3) + data[2 * (len(data) // 3) :])
    Path(table.inputs[1].path).write_bytes(broken.read_bytes())
    result = table.merge(memory=128 * 1024)
    assert f"file {table.inputs[1].path}" in (result.error or "")
    assert list((tmp_path / "table").rglob("*.parquet")) == []


def test_a_cut_footer_is_named(tmp_path: Path) -> None:
    table = Table(tmp_path)
    path = Path(table.append(_noise(10)).path)
    path.write_bytes(path.read_bytes()[:-20])
    assert f"file {path}: footer unreadable" in (table.merge().error or "")


def test_a_file_with_another_row_count_than_its_entry_is_refused(tmp_path: Path) -> None:
    table = Table(tmp_path)
    file = table.append(_noise(10))
    pq.write_table(pa.Table.from_pylist(_noise(9), pq.read_schema(file.path)), file.path)
    assert "holds 9 rows" in (table.merge().error or "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_reported_with_a_sentence(tmp_path: Path) -> None:
    table = Table(tmp_path, properties={"write.data.path": str(tmp_path / "full")})
    table.append(_noise(10))
    (tmp_path / "full").mkdir()
    real = pa.OSFile

    class Full:
        """A file system that opens the device /dev/full in place of a new file."""

        def __new__(cls, path: str, mode: str) -> Any:
            return real("/dev/full" if mode == "wb" else path, mode)

    patch = pytest.MonkeyPatch()
    patch.setattr("compaction_pipeline.merging.reading.file_access.pa.OSFile", Full)
    try:
        result = table.merge()
    finally:
        patch.undo()
    assert "disk full" in (result.error or ""), result.error


def test_text_of_few_values_stays_dictionary_encoded_whatever_the_files_mix(tmp_path: Path) -> None:
    table = Table(tmp_path, properties={"write.parquet.row-group-size-bytes": "20000"})
    expected = []
    for number, values in enumerate([["a", "b"], ["c", None, "b"], [f"unique-{index}" for index in range(3000)], ["z"], [None]]):
        rows = [{"id": 10_000 * number + index, "name": values[index % len(values)]} for index in range(3000)]
        file = table.append(rows)
        table.delete_positions([(file.path, position) for position in range(0, 3000, 3)])
        expected += [row for index, row in enumerate(rows) if index % 3]
    result = table.merge()
    assert result.error is None, result.error
    assert rows_of(result.outputs) == expected
    [output] = result.outputs
    assert pq.read_schema(output.path).field("name").type == pa.string()
    assert bytes.fromhex(output.upper_bounds[2]) == b"z"
    assert output.null_value_counts[2] == sum(row["name"] is None for row in expected)


def _excluded(path: str, column: str, value: str) -> set[bool]:
    """The answers of the bloom filters of a file's row groups for a value, as DuckDB reads them."""
    found = duckdb.sql(f"SELECT bloom_filter_excludes FROM parquet_bloom_probe('{path}', '{column}', {value})").fetchall()
    return {excluded for (excluded,) in found}


@pytest.mark.parametrize("sort", [False, True])
def test_columns_get_the_bloom_filters_that_the_table_asks_for(tmp_path: Path, sort: bool) -> None:
    schema = Schema(long(1, "id"), text(2, "name"), text(3, "code"), _field(4, "s", StructType(long(5, "a"))))
    asked = {f"write.parquet.bloom-filter-enabled.column.{name}": "true" for name in ("id", "code", "s.a", "gone")}
    order = SortOrder(SortField(2, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST), order_id=1) if sort else None
    table = Table(tmp_path, [schema], properties=asked | {"write.parquet.bloom-filter-fpp.column.id": "0.0001"}, order=order)
    for first in (0, 1000):
        rows = [
            {"id": 3 * number, "name": f"n{number}", "code": f"c{number % 9}", "s": {"a": 3 * number}}
            for number in range(first, first + 1000)
        ]
        table.append(rows, use_dictionary=["code"])
    [output] = table.merge().outputs
    assert pq.read_metadata(output.path).row_group(0).column(2).has_dictionary_page
    for number in range(0, 2000, 7):
        assert _excluded(output.path, "id", str(3 * number)) == {False}
        assert _excluded(output.path, "code", f"'c{number % 9}'") == {False}
    assert sum(_excluded(output.path, "id", str(3 * number + 1)) == {True} for number in range(200)) > 190
    assert sum(_excluded(output.path, "code", f"'d{number}'") == {True} for number in range(50)) > 40
    columns = dict(duckdb.sql(f"SELECT path_in_schema, bloom_filter_offset FROM parquet_metadata('{output.path}')").fetchall())
    assert {column for column, offset in columns.items() if offset is not None} == {"id", "code", "s, a"}


def test_a_bloom_filter_stays_within_the_bytes_that_the_table_allows(tmp_path: Path) -> None:
    asked = {"write.parquet.bloom-filter-enabled.column.id": "true"}
    sizes = []
    for number, most in enumerate((64, 1000, 4096)):
        folder = tmp_path / str(number)
        folder.mkdir()
        table = Table(folder, properties=asked | {"write.parquet.bloom-filter-max-bytes": str(most)})
        table.append(_noise(20_000))
        [output] = table.merge().outputs
        row = duckdb.sql(f"SELECT max(bloom_filter_length) FROM parquet_metadata('{output.path}')").fetchone()
        assert row is not None
        # The header of a filter takes some more bytes.
        sizes.append(row[0] - row[0] % 32)
    assert sizes == [64, 512, 4096]


@pytest.mark.parametrize(("key", "value"), [("fpp.column.id", "1"), ("fpp.column.id", "much"), ("max-bytes", "0"), ("ndv.column.id", "-3")])
def test_a_bloom_filter_property_out_of_its_rule_is_named(tmp_path: Path, key: str, value: str) -> None:
    name = f"write.parquet.bloom-filter-{key}"
    table = Table(tmp_path, properties={"write.parquet.bloom-filter-enabled.column.id": "true", name: value})
    table.append(_noise(10))
    error = table.merge().error or ""
    assert f"'{name}' is {value!r} but must be" in error
