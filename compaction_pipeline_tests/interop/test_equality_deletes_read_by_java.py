"""Compares what Java shows before and after a merge, for equality deletes on which Java and the specification may disagree."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType, StructType

from compaction_pipeline.core.tables.data_file import FileContent, OutputFile
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.demo.write_files import write_parquet_file
from compaction_pipeline_tests.interop.warehouse import Compactions, Warehouse
from compaction_pipeline_tests.reference_reader import reference_rows

pytestmark = pytest.mark.interop

_STRUCT = StructType(NestedField(3, "b", StringType(), required=False), NestedField(4, "a", IntegerType(), required=False))
WITH_STRUCT = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "s", _STRUCT, required=False))
WITH_DOUBLE = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "v", DoubleType(), required=False))
STRUCTS = [{"b": "x", "a": 1}, {"b": "x", "a": None}, {"b": None, "a": None}, None, {"b": "x", "a": 2}, {"b": "y", "a": 1}]


class Deleting:
    """A table of rows (id, value) in one file. An equality delete deletes some of them."""

    def __init__(self, warehouse: Warehouse, schema: Schema, values: Sequence[Any], name: str = "t") -> None:
        self._warehouse = warehouse
        self._name = name
        self._column = schema.fields[1].name
        self._table = warehouse.catalog.create_table(("db", name), schema, properties={"format-version": "2"})
        rows = [{"id": number, self._column: value} for number, value in enumerate(values)]
        self.data = self._written(FileContent.DATA, rows, "data")

    def _written(self, content: FileContent, rows: Sequence[Mapping[str, Any]], name: str) -> OutputFile:
        whole = schema_to_pyarrow(self._table.schema())
        schema = whole if content is FileContent.DATA else pa.schema([whole.field(self._column)])
        ids = () if content is FileContent.DATA else (2,)
        arrow = pa.Table.from_pylist([dict(row) for row in rows], schema=schema)
        return write_parquet_file(self._table, arrow, content=content, equality_ids=ids, name=name)

    def keys(self, *values: Any) -> OutputFile:
        """A delete file with these values of the second column."""
        return self._written(FileContent.EQUALITY_DELETES, [{self._column: value} for value in values], "deletes")

    def commit(self, deletes: OutputFile, equality_id: int) -> None:
        """Commit the rows, and then the deletes."""
        row_delta(self._table, [self.data])
        row_delta(self._warehouse.table(self._name), equality_deletes=[(deletes, [equality_id])])

    def seen(self) -> tuple[list[int], list[int]]:
        """The ids of the rows that Java shows, and of the rows that are live according to the specification."""
        java = sorted(row["id"] for row in self._warehouse.java_rows(self._name))
        return java, sorted(row["id"] for row in reference_rows(self._warehouse.table(self._name)))


def _merged(compactions: Compactions, name: str = "t") -> None:
    outcome = compactions.compact(CompactionType.FULL, name)
    assert outcome.committed, outcome.reason
    assert not outcome.failed


def test_a_delete_by_a_whole_struct_takes_the_same_rows_for_java_as_for_us(warehouse: Warehouse, compactions: Compactions) -> None:
    for number, value in enumerate(STRUCTS):
        name = f"t{number}"
        table = Deleting(warehouse, WITH_STRUCT, STRUCTS, name)
        table.commit(table.keys(value), 2)
        left = [index for index in range(len(STRUCTS)) if index != number]
        assert table.seen() == (left, left), value
        _merged(compactions, name)
        assert table.seen() == (left, left), value


def test_java_shows_a_null_struct_that_a_null_key_of_its_field_deletes_until_a_merge(
    warehouse: Warehouse, compactions: Compactions
) -> None:
    table = Deleting(warehouse, WITH_STRUCT, STRUCTS)
    # The delete file contains the whole struct, but only its field `a` is the key.
    table.commit(table.keys({"b": "any", "a": None}), 4)
    assert table.seen() == ([0, 3, 4, 5], [0, 4, 5])
    _merged(compactions)
    assert table.seen() == ([0, 4, 5], [0, 4, 5])


def test_java_shows_a_nan_whose_delete_file_its_bounds_rule_out_until_a_merge(warehouse: Warehouse, compactions: Compactions) -> None:
    table = Deleting(warehouse, WITH_DOUBLE, [1.0, math.nan])
    deletes = table.keys(5.0, math.nan)
    # Both files have the bounds that Java writes, which leave NaN out.
    table.data = _bounded(table.data, 1.0)
    table.commit(_bounded(deletes, 5.0), 2)
    assert table.seen() == ([0, 1], [0])
    _merged(compactions)
    assert table.seen() == ([0], [0])


def _bounded(file: OutputFile, value: float) -> OutputFile:
    bound = struct.pack("<d", value).hex()
    return replace(file, lower_bounds={**file.lower_bounds, 2: bound}, upper_bounds={**file.upper_bounds, 2: bound})
