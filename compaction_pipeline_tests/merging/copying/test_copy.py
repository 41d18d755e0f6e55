"""A merge that copies bytes gives the same rows and metrics as a merge that decodes everything, whatever the files are like."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    UUIDType,
)

from compaction_pipeline.core.tables.data_file import FileContent, LiveFile, OutputFile
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.formats.parquet.thrift import BINARY, Struct, field, read_struct, write_struct
from compaction_pipeline.merging.copying import assemble
from compaction_pipeline.merging.copying.source import CopySource
from compaction_pipeline.merging.reading.evolution import arrow_schema
from compaction_pipeline_tests.every_type import EVERY_PRIMITIVE
from compaction_pipeline_tests.merging.files import MIB, SIMPLE, Table, copied, footer_of, integer, long, rows_of, text
from compaction_pipeline_tests.works import merge_task

TARGET = 1 * MIB
"""With this target, row groups of 64 KiB or more are copied whole, and pages of 128 bytes or more are kept."""


def _noise(rows: int, seed: int = 0) -> list[dict[str, Any]]:
    generator = np.random.default_rng(seed)
    return [{"id": int(value), "name": f"{value:x}"} for value in generator.integers(0, 1 << 60, rows)]


def _decoded(table: Table, **options: Any) -> MergeResult:
    """The result of the same merge when no bytes are copied."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CopySource, "of", classmethod(lambda *_: None))
        return _succeeded(table.merge(**options))


def _succeeded(result: MergeResult) -> MergeResult:
    assert result.error is None, result.error
    assert result.digest_read == result.digest_written
    assert result.rows_written == result.digest_written.rows == sum(pq.read_metadata(output.path).num_rows for output in result.outputs)
    return result


def _assert_like(one: MergeResult, other: MergeResult, schema: Schema) -> None:
    """Check that both merges give the same rows, the same schema, and the same metrics over all files."""
    assert sorted(map(repr, rows_of(one.outputs))) == sorted(map(repr, rows_of(other.outputs)))
    for output in one.outputs:
        assert pq.read_schema(output.path).equals(pq.read_schema(other.outputs[0].path), check_metadata=True)
    for name in ("value_counts", "nan_value_counts"):
        assert _summed(one, name) == _summed(other, name), name
    # When a source has no statistics, the copying merge leaves the count of NULLs out.
    assert _summed(one, "null_value_counts").items() <= _summed(other, "null_value_counts").items() or len(one.outputs) > 1
    if len(one.outputs) == len(other.outputs) == 1:
        for number, bound in one.outputs[0].lower_bounds.items():
            assert bound == other.outputs[0].lower_bounds[number]
        for number, bound in one.outputs[0].upper_bounds.items():
            assert bound == other.outputs[0].upper_bounds[number]


def _summed(result: MergeResult, name: str) -> dict[int, int]:
    sums: dict[int, int] = {}
    for output in result.outputs:
        for number, count in getattr(output, name).items():
            sums[number] = sums.get(number, 0) + count
    return sums


def _duckdb_rows(outputs: Sequence[OutputFile]) -> list[str]:
    paths = [output.path for output in outputs]
    return sorted(map(repr, duckdb.sql(f"select * from read_parquet({paths!r})").fetchall()))


# ---- which bytes are copied


def test_pages_of_small_files_are_joined(tmp_path: Path) -> None:
    table = Table(tmp_path)
    for seed in range(5):
        table.append(_noise(500, seed), use_dictionary=False)
    result = _succeeded(table.merge(target=TARGET))
    [output] = result.outputs
    assert all(copied(table.inputs, [output]))
    assert pq.read_metadata(output.path).num_row_groups == 1
    assert rows_of([output]) == [row for seed in range(5) for row in _noise(500, seed)]
    _assert_like(result, _decoded(table, target=TARGET), SIMPLE)
    assert set(output.lower_bounds) == {1, 2}


def test_a_large_row_group_is_copied_whole_with_its_dictionaries(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.append([{"id": each["id"], "name": f"n{each['id'] % 7}"} for each in _noise(20_000)], row_group_size=10_000)
    table.append(_noise(10), use_dictionary=False)
    result = _succeeded(table.merge(target=TARGET))
    assert all(copied(table.inputs, result.outputs))
    assert pq.read_metadata(result.outputs[0].path).num_row_groups == 3
    _assert_like(result, _decoded(table, target=TARGET), SIMPLE)
    assert sorted(_duckdb_rows(result.outputs)) == sorted(repr(tuple(row.values())) for row in rows_of(result.outputs))


def test_a_column_with_dictionaries_is_encoded_again_beside_copied_columns(tmp_path: Path) -> None:
    table = Table(tmp_path)
    for seed in range(4):
        table.append([{"id": each["id"], "name": f"n{each['id'] % 7}"} for each in _noise(3000, seed)], use_dictionary=["name"])
    result = _succeeded(table.merge(target=TARGET))
    assert copied(table.inputs, result.outputs) == [True, False] * 4
    group = pq.read_metadata(result.outputs[0].path).row_group(0)
    assert [group.column(index).has_dictionary_page for index in range(2)] == [False, True]
    assert rows_of(result.outputs) == [{"id": each["id"], "name": f"n{each['id'] % 7}"} for seed in range(4) for each in _noise(3000, seed)]


@pytest.mark.parametrize("dictionaries", [1, 3])
def test_a_column_gets_a_dictionary_when_most_files_have_one(tmp_path: Path, dictionaries: int) -> None:
    table = Table(tmp_path)
    expected = []
    for number in range(4):
        rows = [{"id": each["id"], "name": f"n{each['id'] % 50}"} for each in _noise(2000, number)]
        table.append(rows, use_dictionary=["name"] if number in range(1, 1 + dictionaries) else False)
        expected += rows
    result = _succeeded(table.merge(target=TARGET))
    assert pq.read_metadata(result.outputs[0].path).row_group(0).column(1).has_dictionary_page == (dictionaries == 3)
    assert rows_of(result.outputs) == expected
    _assert_like(result, _decoded(table, target=TARGET), SIMPLE)


def test_tiny_pages_are_not_kept(tmp_path: Path) -> None:
    table = Table(tmp_path)
    for seed in range(3):
        table.append(_noise(100, seed), use_dictionary=False)
    assert not any(copied(table.inputs, _succeeded(table.merge()).outputs))


def test_files_of_another_codec_are_encoded_again(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.append(_noise(1000), use_dictionary=False, compression="snappy")
    table.append(_noise(1000, 1), use_dictionary=False)
    result = _succeeded(table.merge(target=TARGET))
    assert copied(table.inputs, result.outputs) == [False, False, True, True]
    metadata = pq.read_metadata(result.outputs[0].path)
    assert {metadata.row_group(0).column(index).compression for index in range(2)} == {"ZSTD"}
    assert rows_of(result.outputs) == _noise(1000) + _noise(1000, 1)


@pytest.mark.parametrize("codec", ["uncompressed", "snappy", "gzip", "lz4", "brotli"])
def test_every_codec_is_copied(tmp_path: Path, codec: str) -> None:
    table = Table(tmp_path, properties={"write.parquet.compression-codec": codec})
    for seed in range(2):
        table.append(_noise(500, seed), use_dictionary=False, compression="none" if codec == "uncompressed" else codec)
    result = _succeeded(table.merge(target=TARGET))
    assert all(copied(table.inputs, result.outputs))
    assert rows_of(result.outputs) == _noise(500) + _noise(500, 1)


def test_outputs_stay_near_the_target(tmp_path: Path) -> None:
    table = Table(tmp_path)
    for seed in range(40):
        table.append(_noise(1500, seed), use_dictionary=False)
    total = sum(file.file_size_bytes for file in table.inputs)
    result = _succeeded(table.merge(target=total // 3))
    sizes = [output.file_size_bytes for output in result.outputs]
    assert len(sizes) == 3
    assert all(0.85 * total / 3 <= size <= 1.15 * total / 3 for size in sizes)


# ---- every kind of file


EVERY_TYPE = Schema(
    *[NestedField(number + 1, f"c{number}", kind, required=False) for number, kind in enumerate(EVERY_PRIMITIVE)],
    NestedField(20, "l", ListType(21, FloatType(), element_required=False), required=False),
    NestedField(22, "s", StructType(long(23, "x"), text(24, "y")), required=False),
    NestedField(25, "m", MapType(26, StringType(), 27, StructType(integer(28, "z")), value_required=False), required=False),
)


def _random_row(rng: Random, never_null: Collection[int]) -> dict[str, Any]:
    wide = rng.choice((3, 1 << 30))
    number = rng.randrange(-wide, wide)
    moment = dt.datetime(1969, 12, 31) + dt.timedelta(microseconds=number * 1000)
    values: list[Any] = [
        number % 2 == 0, number, number << 30, rng.choice((math.nan, 0.0, -0.0, float(number))), rng.choice((math.inf, -0.0, number / 7)),
        Decimal(number % 1000 - 500).scaleb(-2), Decimal(number).scaleb(-4), Decimal(number << 60).scaleb(-10),
        moment.date(), moment.time(), moment, moment.replace(tzinfo=dt.timezone.utc),
        rng.choice(("", "é\U0001f389", f"{number:x}" * 3)), rng.randbytes(16), rng.randbytes(5), rng.randbytes(abs(number) % 20),
    ]  # fmt: skip
    row: dict[str, Any] = {
        f"c{place}": None if rng.random() < 0.15 and place + 1 not in never_null else value for place, value in enumerate(values)
    }
    row["l"] = rng.choice((None, [], [1.5, None, math.nan]))
    row["s"] = rng.choice((None, {"x": number, "y": None}, {"x": None, "y": str(number)}))
    row["m"] = rng.choice((None, [], [("a", None), ("b", {"z": 3})]))
    return row


def _requiring(schema: Schema, ids: Collection[int]) -> Schema:
    return Schema(*[each.model_copy(update={"required": True}) if each.field_id in ids else each for each in schema.fields])


@settings(max_examples=max(5, settings.default.max_examples // 8), deadline=None)
@given(data=st.data(), seed=st.integers(0, 1 << 30))
def test_a_merge_that_copies_has_the_rows_and_metrics_of_one_that_decodes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, seed: int
) -> None:
    rng = Random(seed)
    table = Table(tmp_path_factory.mktemp("copy"), [EVERY_TYPE])
    never_null = data.draw(st.sets(st.integers(1, len(EVERY_PRIMITIVE)), max_size=4))
    for _ in range(data.draw(st.integers(1, 4))):
        # Most files of a table declare the same columns as required, and some declare none.
        declared = never_null if data.draw(st.sampled_from([True, True, True, False])) else set()
        rows = [_random_row(rng, declared) for _ in range(data.draw(st.sampled_from([0, 1, 20, 60])))]
        file = table.append(
            rows,
            schema=_requiring(EVERY_TYPE, declared),
            use_dictionary=data.draw(st.booleans()),
            compression=data.draw(st.sampled_from(["zstd", "zstd", "snappy"])),
            data_page_version=data.draw(st.sampled_from(["1.0", "2.0"])),
            data_page_size=data.draw(st.sampled_from([100, 1 << 20])),
            row_group_size=data.draw(st.sampled_from([15, 10_000])),
            write_statistics=data.draw(st.booleans()),
            store_decimal_as_integer=data.draw(st.booleans()),
        )
        if rows and data.draw(st.booleans()):
            table.delete_positions([(file.path, position) for position in range(1 + rng.randrange(len(rows)))])
    options = {"target": data.draw(st.sampled_from([2000, 20_000, 4 * MIB])), "kind": rng.choice(list(CompactionType))}
    decoded = _decoded(table, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assemble, "_AHEAD_BYTES", data.draw(st.sampled_from([1, 200, 3 * MIB])))
        result = _succeeded(table.merge(**options))
    if decoded.outputs:
        _assert_like(result, decoded, EVERY_TYPE)
    assert (result.rows_read, result.rows_deleted_by_position) == (decoded.rows_read, decoded.rows_deleted_by_position)
    again = Table(table.folder / "again", [EVERY_TYPE])
    again.inputs = [
        LiveFile(output.path, FileContent.DATA, 0, (), output.file_size_bytes, output.record_count, 1) for output in result.outputs
    ]
    if again.inputs:
        _assert_like(_succeeded(again.merge(**options)), decoded, EVERY_TYPE)


def _page_versions(table: Table) -> None:
    table.append(_noise(700), use_dictionary=False, data_page_version="1.0")
    table.append(_noise(700, 1), use_dictionary=False, data_page_version="2.0", data_page_size=1000)
    table.append(
        _noise(700, 2),
        use_dictionary=False,
        column_encoding={"id": "DELTA_BINARY_PACKED", "name": "DELTA_LENGTH_BYTE_ARRAY"},
    )


def test_pages_of_several_versions_and_encodings_are_read_by_arrow_and_duckdb(tmp_path: Path) -> None:
    table = Table(tmp_path)
    _page_versions(table)
    result = _succeeded(table.merge(target=TARGET))
    assert all(copied(table.inputs, result.outputs))
    expected = [row for seed in range(3) for row in _noise(700, seed)]
    assert rows_of(result.outputs) == expected
    assert _duckdb_rows(result.outputs) == sorted(repr(tuple(row.values())) for row in expected)


def test_pages_that_depend_on_each_other_are_decoded(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.append(_noise(700), use_dictionary=False, column_encoding={"name": "DELTA_BYTE_ARRAY"})
    assert copied(table.inputs, _succeeded(table.merge(target=32 * MIB)).outputs)[1] is False


# ---- deletes


def test_only_row_groups_that_a_delete_touches_are_decoded(tmp_path: Path) -> None:
    table = Table(tmp_path)
    rows = _noise(4000)
    file = table.append(rows, use_dictionary=False, row_group_size=1000)
    table.delete_positions([(file.path, 1500), (file.path, 1501)])
    table.delete_equal([{"id": rows[3500]["id"]}, {"id": -1}], [long(1, "id")])
    result = _succeeded(table.merge(target=TARGET))
    assert (result.rows_deleted_by_position, result.rows_deleted_by_equality) == (2, 1)
    assert copied(table.inputs, result.outputs) == [True, True, False, False, True, True, False, False]
    kept = [row for index, row in enumerate(rows) if index not in (1500, 1501, 3500)]
    assert rows_of(result.outputs) == kept
    _assert_like(result, _decoded(table, target=TARGET), SIMPLE)


def test_equality_deletes_of_many_touched_row_groups_leave_the_right_rows(tmp_path: Path) -> None:
    table = Table(tmp_path)
    rows = _noise(6000)
    table.append(rows, use_dictionary=False, row_group_size=100)
    gone = {*range(0, 3000, 50), 5950}
    table.delete_equal([{"id": rows[index]["id"]} for index in sorted(gone)], [long(1, "id")])
    result = _succeeded(table.merge(target=TARGET))
    assert result.rows_deleted_by_equality == len(gone)
    assert rows_of(result.outputs) == [row for index, row in enumerate(rows) if index not in gone]
    assert sum(copied(table.inputs, result.outputs)) > 20


# ---- schemas


def test_columns_that_changed_are_decoded_and_the_others_copied(tmp_path: Path) -> None:
    old = Schema(integer(1, "n"), text(2, "name"), long(3, "gone"))
    new = Schema(text(2, "renamed"), long(1, "n"), long(4, "added"))
    table = Table(tmp_path, [old, new])
    for seed in range(2):
        rows = [{"n": index, "name": f"{seed}-{index}" * 3, "gone": -index} for index in range(1000)]
        table.append(rows, schema=old, use_dictionary=False)
    table.append([{"renamed": f"{index}-new" * 3, "n": index, "added": index} for index in range(1000)], use_dictionary=False)
    result = _succeeded(table.merge(target=TARGET))
    assert copied(table.inputs, result.outputs) == [False, True, False] * 2 + [True, True, True]
    expected = [{"renamed": f"{seed}-{index}" * 3, "n": index, "added": None} for seed in range(2) for index in range(1000)]
    expected += [{"renamed": f"{index}-new" * 3, "n": index, "added": index} for index in range(1000)]
    assert rows_of(result.outputs) == expected


def test_a_column_that_was_required_is_decoded_where_it_may_be_null_now(tmp_path: Path) -> None:
    old = Schema(NestedField(1, "id", LongType(), required=True), text(2, "name"))
    table = Table(tmp_path, [old, SIMPLE])
    table.append(_noise(1000), schema=old, use_dictionary=False)
    table.append([{"id": None, "name": "x" * 200}], use_dictionary=False)
    result = _succeeded(table.merge(target=TARGET))
    assert copied(table.inputs, result.outputs)[:2] == [False, True]
    assert rows_of(result.outputs) == [*_noise(1000), {"id": None, "name": "x" * 200}]


@pytest.mark.parametrize("target", [TARGET, 32 * MIB])
def test_columns_that_every_file_declares_as_required_stay_so_and_are_copied(tmp_path: Path, target: int) -> None:
    table = Table(tmp_path)
    rows = [_noise(3000, seed) for seed in range(3)]
    for each in rows:
        table.append(each, schema=_requiring(SIMPLE, {1, 2}), use_dictionary=False)
    table.delete_positions([(table.inputs[1].path, 7)])
    result = _succeeded(table.merge(target=target))
    assert copied(table.inputs, result.outputs) == [True, True, False, False, True, True]
    assert rows_of(result.outputs) == [*rows[0], *rows[1][:7], *rows[1][8:], *rows[2]]
    assert [field.nullable for field in pq.read_schema(result.outputs[0].path)] == [False, False]


def test_of_two_columns_with_one_id_the_one_that_is_read_decides_whether_it_may_be_null(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.properties["schema.name-mapping.default"] = json.dumps(
        [{"field-id": 1, "names": ["id", "old_id"]}, {"field-id": 2, "names": ["name"]}]
    )
    fields = [pa.field("old_id", pa.int64(), nullable=False), pa.field("id", pa.int64()), pa.field("name", pa.string())]
    table.append(pa.table([[1, 2], [None, 2], ["x", "y"]], schema=pa.schema(fields)))
    assert rows_of(_succeeded(table.merge(target=TARGET)).outputs) == [{"id": None, "name": "x"}, {"id": 2, "name": "y"}]


_NESTED = Schema(
    long(1, "id"),
    NestedField(2, "l", ListType(3, StructType(long(4, "x"), text(5, "y")), element_required=False), required=False),
    NestedField(6, "m", MapType(7, StringType(), 8, DoubleType(), value_required=False), required=False),
)


def test_nested_columns_are_copied_whole_or_not_at_all(tmp_path: Path) -> None:
    table = Table(tmp_path, [_NESTED])
    rows = [
        {"id": index, "l": None if index % 7 == 0 else [{"x": index, "y": f"y{index}"}] * (index % 3), "m": [(f"k{index}", math.nan)]}
        for index in range(1000)
    ]
    table.append(rows, use_dictionary=False)
    table.append(rows, use_dictionary=["l.list.element.y"], data_page_version="2.0")
    table.append(rows, use_dictionary=False)
    result = _succeeded(table.merge(target=TARGET))
    assert copied(table.inputs, result.outputs) == [True] * 5 + [True, False, False, True, True] + [True] * 5
    assert repr(rows_of(result.outputs)) == repr(rows * 3)
    assert result.outputs[0].nan_value_counts == {8: 3000}
    _assert_like(result, _decoded(table, target=TARGET), _NESTED)


# ---- metrics


@pytest.mark.parametrize("size", [100, 30_000])
def test_nan_of_copied_columns_is_counted(tmp_path: Path, size: int) -> None:
    schema = Schema(NestedField(1, "d", DoubleType(), required=False), NestedField(2, "f", FloatType(), required=False))
    table = Table(tmp_path, [schema])
    for values in ([1.5, -0.0], [math.nan, 2.5], [0.0, 7.0]):
        table.append([{"d": value, "f": abs(value)} for value in values * size], use_dictionary=False)
    result = _succeeded(table.merge(target=TARGET))
    assert all(copied(table.inputs, result.outputs))
    assert result.outputs[0].nan_value_counts == {1: size, 2: size}
    assert result.outputs[0].lower_bounds == result.outputs[0].upper_bounds == {}
    table.inputs.pop(1)
    [output] = _succeeded(table.merge(target=TARGET)).outputs
    assert {number: np.frombuffer(bytes.fromhex(bound))[0] for number, bound in output.lower_bounds.items() if number == 1} == {1: 0.0}
    assert math.copysign(1, np.frombuffer(bytes.fromhex(output.lower_bounds[1]))[0]) == -1
    assert set(output.upper_bounds) == {1, 2}


def test_a_source_without_bounds_leaves_the_file_without(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.append(_noise(500), use_dictionary=False)
    table.append(_noise(500, 1), use_dictionary=False, write_statistics=["id"])
    result = _succeeded(table.merge(target=TARGET))
    assert all(copied(table.inputs, result.outputs))
    assert set(result.outputs[0].lower_bounds) == {1}
    assert result.outputs[0].null_value_counts == {1: 0}


# ---- footers that are wrong or incomplete


def _rewritten(path: str, change: Callable[[Struct], None]) -> None:
    data = Path(path).read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    meta, _ = read_struct(data[-8 - length : -8])
    change(meta)
    footer = write_struct(meta)
    Path(path).write_bytes(data[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def _of_chunks(change: Callable[[Struct], None]) -> Callable[[Struct], None]:
    def every(meta: Struct) -> None:
        for group in field(meta, 4):
            for column in field(group, 1):
                change(field(column, 3))

    return every


def _without_order(meta: Struct) -> None:
    del meta[7]


def _deprecated_bounds(chunk: Struct) -> None:
    statistics = field(chunk, 12)
    for new, old in ((5, 1), (6, 2)):
        statistics[old] = statistics.pop(new)


@pytest.mark.parametrize("change", [_without_order, _of_chunks(_deprecated_bounds)])
def test_bounds_of_no_defined_order_are_not_carried(tmp_path: Path, change: Callable[[Struct], None]) -> None:
    table = Table(tmp_path)
    _rewritten(table.append(_noise(500), use_dictionary=False).path, change)
    table.inputs = [replace(table.inputs[0], file_size_bytes=Path(table.inputs[0].path).stat().st_size)]
    result = _succeeded(table.merge(target=TARGET))
    assert all(copied(table.inputs, result.outputs))
    assert result.outputs[0].lower_bounds == {}
    assert rows_of(result.outputs) == _noise(500)


def _cut_bounds(chunk: Struct) -> None:
    statistics = field(chunk, 12)
    for number in (5, 6):
        statistics[number] = (BINARY, field(statistics, number)[:8])


def _of_one_length(kind: PrimitiveType, number: int) -> Any:
    if isinstance(kind, FixedType):
        return bytes([number % 251]) * len(kind)
    return UUID(int=number << 90) if isinstance(kind, UUIDType) else Decimal(number) / 4


@pytest.mark.parametrize("kind", [FixedType(100), UUIDType(), DecimalType(38, 2)])
def test_bounds_that_are_shorter_than_all_values_are_not_carried(tmp_path: Path, kind: PrimitiveType) -> None:
    """Writers in Rust cut bounds. As bounds of values of one length they are none, and end the process of a PyArrow that reads them."""
    table = Table(tmp_path, [Schema(NestedField(1, "f", kind, required=False))])
    rows = [{"f": _of_one_length(kind, number)} for number in range(500)]
    _rewritten(table.append(rows, use_dictionary=False).path, _of_chunks(_cut_bounds))
    table.inputs = [replace(table.inputs[0], file_size_bytes=Path(table.inputs[0].path).stat().st_size)]
    result = _succeeded(table.merge(target=TARGET))
    assert all(copied(table.inputs, result.outputs))
    assert result.outputs[0].lower_bounds == {}
    assert rows_of(result.outputs) == rows


def _hidden_dictionary(chunk: Struct) -> None:
    # Old versions of parquet-mr write it like this: the data offset is that of the dictionary.
    chunk[9] = chunk.pop(11, chunk[9])


def _no_dictionary_at_all(chunk: Struct) -> None:
    _hidden_dictionary(chunk)
    chunk[2] = (chunk[2][0], (5, [0, 3]))
    chunk.pop(13, None)


def _old_writer(meta: Struct) -> None:
    meta[6] = (8, b"parquet-mr version 1.8.1 (build 4aba4dae7bb0d4edbcf7923ae1339f28fd3f7fcf)")


@pytest.mark.parametrize("target", [TARGET, 64 * MIB])
@pytest.mark.parametrize("change", [_of_chunks(_hidden_dictionary), _of_chunks(_no_dictionary_at_all), _old_writer])
def test_files_with_untrustworthy_footers_are_not_copied(tmp_path: Path, change: Callable[[Struct], None], target: int) -> None:
    table = Table(tmp_path)
    rows = [{"id": index % 50, "name": f"n{index % 50}-{'x' * 30}"} for index in range(40_000)]
    _rewritten(table.append(rows, compression="none", data_page_version="2.0").path, change)
    table.properties["write.parquet.compression-codec"] = "uncompressed"
    result = _succeeded(table.merge(target=target))
    assert not any(copied(table.inputs, result.outputs))
    assert rows_of(result.outputs) == rows


def test_row_groups_of_highly_compressed_pages_stay_small_enough_for_readers(tmp_path: Path) -> None:
    table = Table(tmp_path, properties={"write.parquet.row-group-size-bytes": "100000"})
    for number in range(8):
        table.append([{"id": number, "name": "x" * 20}] * 1000, use_dictionary=False)
    result = _succeeded(table.merge())
    assert pq.read_metadata(result.outputs[0].path).num_row_groups == 3


def test_a_file_io_of_python_streams_copies_too(tmp_path: Path) -> None:
    table = Table(tmp_path)
    for seed in range(2):
        table.append([{**row, "name": f"n{row['id'] % 9}"} for row in _noise(800, seed)], use_dictionary=["name"])
    table.append(_noise(20_000, 2), use_dictionary=False)
    (tmp_path / "table" / "data").mkdir(parents=True)
    file_io = {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}
    result = _succeeded(merge_task(table.task(target=TARGET), table.layout(), file_io))
    assert copied(table.inputs, result.outputs) == [True, False] * 2 + [True, True]
    _assert_like(result, _decoded(table, target=TARGET), SIMPLE)


def test_empty_files_and_row_groups_are_no_rows(tmp_path: Path) -> None:
    table = Table(tmp_path)
    schema = arrow_schema(SIMPLE.fields)
    path = Path(table.append(_noise(300), use_dictionary=False).path)
    with pq.ParquetWriter(path, schema, compression="zstd", store_schema=False, use_dictionary=False, write_page_checksum=True) as writer:
        for rows in ([], _noise(300), []):
            writer.write_table(pa.Table.from_pylist(rows, schema))
    table.append([], use_dictionary=False)
    assert rows_of(_succeeded(table.merge(target=TARGET)).outputs) == _noise(300)


# ---- pages that are damaged or have no checksum


def _damage(path: str, chunk: int = 0) -> None:
    """Flip some bits in the middle of a column chunk."""
    data = bytearray(Path(path).read_bytes())
    found = footer_of(path).groups[0].chunks[chunk]
    middle = found.start + found.length // 2
    data[middle : middle + 50] = bytes(byte ^ 0x01 for byte in data[middle : middle + 50])
    Path(path).write_bytes(data)


@pytest.mark.parametrize(("rows", "target"), [(1_000, MIB), (30_000, TARGET)], ids=["side by side", "whole"])
def test_a_damaged_page_fails_its_task_and_is_not_copied(tmp_path: Path, rows: int, target: int) -> None:
    table = Table(tmp_path, properties={"write.parquet.compression-codec": "gzip"})
    files = [table.append(_noise(rows, seed), use_dictionary=False, compression="gzip") for seed in range(3)]
    _damage(files[2].path)
    result = table.merge(target=target)
    assert f"file {files[2].path}: unreadable" in (result.error or "")
    assert not list((tmp_path / "table").rglob("*.parquet")), "nothing of it is left"


@pytest.mark.parametrize("rows", [1_000, 30_000], ids=["side by side", "whole"])
def test_a_wrong_checksum_alone_stops_no_merge(tmp_path: Path, rows: int) -> None:
    table = Table(tmp_path, properties={"write.parquet.compression-codec": "none"})
    files = [table.append(_noise(rows, seed), use_dictionary=False, compression="none") for seed in range(2)]
    # The pages are uncompressed, so every reader that ignores checksums can read the changed values.
    _damage(files[1].path)
    result = _succeeded(table.merge(target=TARGET))
    assert sorted(map(repr, rows_of(result.outputs))) == sorted(
        map(repr, [row for file in files for row in pq.read_table(file.path).to_pylist()])
    )
    assert not any(copied(files[1:], result.outputs)[:1])


@pytest.mark.parametrize("rows", [1_000, 30_000], ids=["side by side", "whole"])
def test_pages_without_a_checksum_are_decoded(tmp_path: Path, rows: int) -> None:
    table = Table(tmp_path)
    files = [table.append(_noise(rows, seed), use_dictionary=False, write_page_checksum=False) for seed in range(2)]
    result = _succeeded(table.merge(target=TARGET))
    assert not any(copied(files, result.outputs))
    # The written files have checksums, so the next merge copies their bytes.
    outputs = [LiveFile(one.path, FileContent.DATA, 0, (), one.file_size_bytes, one.record_count, 1) for one in result.outputs]
    assert all(copied(outputs, _succeeded(replace(table, inputs=outputs).merge(target=TARGET)).outputs))
