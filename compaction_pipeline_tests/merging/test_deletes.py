"""Which rows deletes delete: Java's equality, several field sets, scopes, sequences, and sets larger than memory."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    ListType,
    LongType,
    NestedField,
    StructType,
    UUIDType,
)

from compaction_pipeline.core.tables.node import PartitionValue
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.merging.deletes.keys import KeySet, canonical
from compaction_pipeline.merging.deletes.positions import Bits
from compaction_pipeline_tests.merging.files import MIB, Table, integer, long, rows_of, text


def _field(number: int, name: str, kind: Any, **options: Any) -> NestedField:
    return NestedField(number, name, kind, required=False, **options)


def _bits(value: float | None) -> bytes | None:
    return None if value is None else struct.pack("<d", value)


@pytest.mark.parametrize(
    ("deleted", "kept"),
    [
        ([0.0], [-0.0, None, math.nan, 1.0]),
        ([-0.0], [0.0, None, math.nan, 1.0]),
        ([math.nan], [0.0, -0.0, None, 1.0]),
        ([None], [0.0, -0.0, math.nan, 1.0]),
    ],
)
def test_keys_are_equal_as_in_java(tmp_path: Path, deleted: list[Any], kept: list[Any]) -> None:
    table = Table(tmp_path, [Schema(_field(1, "v", DoubleType()))])
    table.append([{"v": value} for value in [0.0, -0.0, math.nan, None, 1.0]])
    table.delete_equal([{"v": value} for value in deleted], table.schema.fields)
    assert sorted(map(str, map(_bits, (row["v"] for row in table.merged_rows())))) == sorted(map(str, map(_bits, kept)))


def test_a_nan_of_other_bits_is_the_same_nan(tmp_path: Path) -> None:
    table = Table(tmp_path, [Schema(_field(1, "v", DoubleType()))])
    odd = np.array([0xFFF8000000000123, 0x7FF8000000000000], dtype=np.uint64).view(np.float64)
    table.append(pa.table({"v": pa.array(odd)}, schema=pa.schema([pa.field("v", pa.float64(), metadata={b"PARQUET:field_id": b"1"})])))
    table.delete_equal([{"v": math.nan}], table.schema.fields)
    assert table.merge().rows_deleted_by_equality == 2


def test_several_field_sets_each_delete_by_their_own_columns(tmp_path: Path) -> None:
    schema = Schema(long(1, "a"), text(2, "b"), long(3, "c"))
    table = Table(tmp_path, [schema])
    table.append([{"a": index, "b": f"b{index % 3}", "c": index % 2} for index in range(12)])
    table.delete_equal([{"a": 5}], [schema.fields[0]])
    table.delete_equal([{"b": "b1", "c": 0}, {"b": None, "c": 1}], [schema.fields[1], schema.fields[2]])
    table.delete_equal([{"c": 1, "b": "b2"}], [schema.fields[2], schema.fields[1]])
    kept = [index for index in range(12) if index != 5 and (index % 3, index % 2) not in ((1, 0), (2, 1))]
    assert [row["a"] for row in table.merged_rows()] == kept


def test_an_equality_delete_reaches_older_files_only_and_a_position_delete_its_own_commit(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.append([{"id": 1, "name": "older"}], sequence=1)
    same = table.append([{"id": 1, "name": "same"}, {"id": 2, "name": "same"}], sequence=2)
    table.append([{"id": 1, "name": "newer"}], sequence=3)
    table.delete_equal([{"id": 1}], [long(1, "id")], sequence=2)
    table.delete_positions([(same.path, 1)], sequence=2)
    assert [row["name"] for row in table.merged_rows()] == ["same", "newer"]


def test_a_key_in_several_deletes_counts_with_the_highest_sequence_number(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.append([{"id": 1, "name": "a"}], sequence=1)
    table.append([{"id": 1, "name": "b"}], sequence=4)
    table.append([{"id": 1, "name": "c"}], sequence=6)
    for sequence in (5, 2, 3):
        table.delete_equal([{"id": 1}], [long(1, "id")], sequence=sequence)
    assert [row["name"] for row in table.merged_rows()] == ["c"]


def test_deletes_reach_their_partition_or_everything_by_their_spec(tmp_path: Path) -> None:
    schema = Schema(long(1, "id"), text(2, "p"))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"), spec_id=1)
    table = Table(tmp_path, [schema], [PartitionSpec(spec_id=0), spec])
    here, there = (PartitionValue("p", "string", "here"),), (PartitionValue("p", "string", "there"),)
    table.append([{"id": index, "p": "here"} for index in range(4)], partition=here, spec_id=1)
    table.delete_equal([{"id": 0}], [long(1, "id")], partition=here, spec_id=1)
    table.delete_equal([{"id": 1}], [long(1, "id")], partition=there, spec_id=1)
    table.delete_equal([{"id": 2}], [long(1, "id")])
    assert [row["id"] for row in table.merged_rows()] == [1, 3]


def test_an_equality_column_may_be_renamed_promoted_or_dropped_since(tmp_path: Path) -> None:
    first = Schema(integer(1, "id"), text(2, "old"), text(3, "dropped"))
    last = Schema(long(1, "key"), text(2, "new"))
    table = Table(tmp_path, [first, last])
    table.append([{"id": index, "old": f"o{index}", "dropped": f"d{index}"} for index in range(6)], schema=first)
    table.delete_equal([{"id": 1}], [integer(1, "id")])
    table.delete_equal([{"dropped": "d2"}], [text(3, "dropped")])
    table.delete_equal([{"old": "o3", "dropped": "d3"}, {"old": "o4", "dropped": "d0"}], [text(2, "old"), text(3, "dropped")])
    table.delete_equal([{"key": 5}], [long(1, "key")])
    assert [row["key"] for row in table.merged_rows()] == [0, 4]


def test_a_file_without_the_equality_column_has_its_default_or_null(tmp_path: Path) -> None:
    old = Schema(long(1, "id"))
    new = Schema(long(1, "id"), _field(2, "d", DecimalType(9, 2), initial_default="1.50"), text(3, "t"))
    table = Table(tmp_path, [old, new])
    table.append([{"id": 1}], schema=old)
    table.append([{"id": 2, "d": Decimal("2.00"), "t": "x"}])
    table.delete_equal([{"d": Decimal("1.50"), "t": None}], [new.fields[1], new.fields[2]])
    assert [row["id"] for row in table.merged_rows()] == [2]


def test_an_equality_column_may_lie_inside_a_struct(tmp_path: Path) -> None:
    inner = StructType(text(11, "b"), integer(12, "a"))
    schema = Schema(long(1, "id"), _field(2, "s", inner))
    table = Table(tmp_path, [schema])
    table.append(
        [
            {"id": 1, "s": {"b": "x", "a": 1}},
            {"id": 2, "s": None},
            {"id": 3, "s": {"b": "y", "a": None}},
            {"id": 4, "s": {"b": "z", "a": 2}},
        ]
    )
    only = _field(2, "s", StructType(integer(12, "a")))
    table.delete_equal([{"s": {"a": 1}}, {"s": {"a": None}}], [only], ids=(12,))
    assert [row["id"] for row in table.merged_rows()] == [4]


def test_a_whole_struct_may_be_a_key(tmp_path: Path) -> None:
    deep = StructType(_field(13, "x", DoubleType()))
    inner = StructType(text(11, "b"), integer(12, "a"), _field(14, "deep", deep))
    schema = Schema(long(1, "id"), _field(2, "s", inner))
    table = Table(tmp_path, [schema])
    values = [
        {"b": "x", "a": 1, "deep": {"x": math.nan}},
        {"b": "x", "a": 1, "deep": {"x": None}},
        {"b": "x", "a": 1, "deep": None},
        {"b": None, "a": None, "deep": None},
        None,
        {"b": "x", "a": 2, "deep": {"x": 0.0}},
        {"b": "x", "a": 2, "deep": {"x": -0.0}},
    ]
    for number, value in enumerate(values):
        folder = tmp_path / str(number)
        folder.mkdir()
        table = Table(folder, [schema])
        table.append([{"id": index, "s": each} for index, each in enumerate(values)])
        table.delete_equal([{"s": value}], [schema.fields[1]])
        assert [row["id"] for row in table.merged_rows()] == [index for index in range(len(values)) if index != number]


def test_a_struct_that_holds_a_list_is_no_key_and_no_further_attempt_is_made(tmp_path: Path) -> None:
    inner = StructType(_field(3, "l", ListType(4, LongType(), False)))
    schema = Schema(long(1, "id"), _field(2, "s", inner))
    table = Table(tmp_path, [schema])
    table.append([{"id": 1, "s": {"l": [1]}}])
    table.delete_equal([{"s": {"l": [1]}}], [schema.fields[1]])
    result = table.merge()
    assert result.end_reason is EndReason.REFUSED
    assert "equality field id 2 is or holds a list<long>, whose values cannot be compared" in (result.error or "")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (BooleanType(), [True, False, None]),
        (FloatType(), [0.1, -0.0, 0.0, math.nan]),
        (DecimalType(38, 5), [Decimal("1.00001"), Decimal("-1.00001"), None]),
        (DateType(), [0, 1, -1, None]),
        (UUIDType(), [b"a" * 16, b"b" * 16, None]),
        (BinaryType(), [b"", b"\x00", b"\x00\x00", None]),
    ],
)
def test_a_key_of_any_type_deletes_only_its_own_rows(tmp_path: Path, kind: Any, values: list[Any]) -> None:
    for chosen in range(len(values)):
        table = Table(tmp_path / str(chosen), [Schema(_field(1, "v", kind), long(2, "n"))])
        table.append([{"v": value, "n": number} for number, value in enumerate(values)])
        table.delete_equal([{"v": values[chosen]}], [table.schema.fields[0]])
        assert [row["n"] for row in table.merged_rows()] == [number for number in range(len(values)) if number != chosen]


def test_a_partition_scoped_position_delete_serves_each_of_its_files(tmp_path: Path) -> None:
    table = Table(tmp_path)
    files = [table.append([{"id": 10 * number + index, "name": ""} for index in range(4)]) for number in range(3)]
    table.delete_positions([(files[0].path, 0), (files[0].path, 0), (files[1].path, 3), ("elsewhere.parquet", 1), (files[2].path, 2)])
    assert [row["id"] for row in table.merged_rows()] == [1, 2, 3, 10, 11, 12, 20, 21, 23]


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 200), positions=st.lists(st.integers(-3, 250)))
def test_only_positions_inside_the_file_become_bits(rows: int, positions: list[int]) -> None:
    bits = Bits(rows)
    bits.set(np.array(positions, dtype=np.int64))
    expected = sorted({position for position in positions if 0 <= position < rows})
    assert np.flatnonzero(bits.part(0, rows)).tolist() == expected
    start = rows // 3
    assert (np.flatnonzero(bits.part(start, rows - start)) + start).tolist() == [position for position in expected if position >= start]


@settings(max_examples=25, deadline=None)
@given(
    keys=st.lists(st.tuples(st.one_of(st.none(), st.integers(-2, 2)), st.one_of(st.none(), st.text("ab", max_size=9)), st.integers(1, 4))),
    rows=st.lists(st.tuples(st.one_of(st.none(), st.integers(-2, 2)), st.one_of(st.none(), st.text("ab", max_size=9))), max_size=30),
    sequence=st.integers(0, 4),
)
def test_a_key_set_matches_as_python_compares(keys: list[Any], rows: list[Any], sequence: int) -> None:
    def columns(values: list[Any]) -> list[Any]:
        return [
            canonical(pa.array([value[0] for value in values], pa.int32())),
            canonical(pa.array([value[1] for value in values], pa.string())),
        ]

    keyset = KeySet(columns(keys), np.array([key[2] for key in keys], dtype=np.int64))
    expected = [any(key[:2] == row and key[2] > sequence for key in keys) for row in rows]
    assert keyset.matches(columns(rows), len(rows), sequence).tolist() == expected


def test_different_keys_with_one_hash_stay_different(monkeypatch: pytest.MonkeyPatch) -> None:
    from compaction_pipeline.merging.deletes import keys

    real = keys.hashes_of
    # The first seed maps every key to one hash. The set must notice that and take another seed.
    monkeypatch.setattr(
        keys, "hashes_of", lambda columns, length, seed: np.zeros(length, dtype=np.uint64) if seed == 0 else real(columns, length, seed)
    )
    keyset = keys.KeySet([pa.array([1, 2, 3], pa.int64())], np.array([5, 5, 5]))
    assert keyset.matches([pa.array([3, 4], pa.int64())], 2, 1).tolist() == [True, False]


def test_a_delete_set_larger_than_memory_deletes_the_same_rows(tmp_path: Path) -> None:
    results = []
    for memory in (4096 * MIB, 1 * MIB):
        table = Table(tmp_path / str(memory))
        table.append([{"id": index, "name": f"n{index}"} for index in range(20_000)])
        table.delete_equal([{"id": index} for index in range(0, 20_000, 3)], [long(1, "id")])
        table.delete_equal([{"name": f"n{index}"} for index in range(0, 20_000, 7)], [text(2, "name")])
        table.append([{"id": 3, "name": "again"}])
        results.append(table.merge(memory=memory))
    assert [result.error for result in results] == [None, None]
    assert results[0].rows_deleted_by_equality == sum(1 for index in range(20_000) if not index % 3 or not index % 7)
    assert rows_of(results[0].outputs) == rows_of(results[1].outputs)


@pytest.mark.parametrize("memory", [4096 * MIB, 1 * MIB])
@pytest.mark.parametrize("hits", [0, 3])
def test_many_keys_that_no_row_has_change_nothing(tmp_path: Path, memory: int, hits: int) -> None:
    table = Table(tmp_path)
    table.append([{"id": index, "name": f"n{index}"} for index in range(2_000)])
    table.delete_equal([{"id": index} for index in range(2_000 - hits, 72_000)], [long(1, "id")])
    table.append([{"id": 1_999, "name": "again"}])
    result = table.merge(memory=memory)
    assert result.error is None
    assert result.rows_deleted_by_equality == hits
    assert [row["id"] for row in rows_of(result.outputs)] == [*range(2_000 - hits), 1_999]


def test_several_large_sets_share_the_memory(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.append([{"id": index, "name": f"n{index}"} for index in range(3_000)])
    table.delete_equal([{"id": index} for index in range(2_900, 9_000)], [long(1, "id")])
    table.delete_equal([{"name": f"n{index}"} for index in range(2_000)], [text(2, "name")])
    table.delete_equal([{"id": index, "name": f"n{index}"} for index in range(2_500, 2_600)], [long(1, "id"), text(2, "name")])
    result = table.merge(memory=MIB // 2)
    assert result.error is None
    assert [row["id"] for row in rows_of(result.outputs)] == [*range(2_000, 2_500), *range(2_600, 2_900)]
