"""The statistics of a row group are compared with its rows, also where Arrow itself would keep none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, ListType, LongType, NestedField, StringType, StructType

from compaction_pipeline.merging.reading.evolution import arrow_schema
from compaction_pipeline.merging.reported.row_groups import problem_of_statistics

_LONG = 5_000
"""Arrow keeps no bounds of more than 4 KiB."""


def group(*bounds: tuple[bytes, bytes] | None, values: int, nulls: int = 0) -> Any:
    """A row group whose columns say that they have these bounds."""

    def column(index: int) -> Any:
        low, high = bounds[index] or (None, None)
        said = SimpleNamespace(has_null_count=True, null_count=nulls, has_min_max=low is not None, min_raw=low, max_raw=high)
        return SimpleNamespace(num_values=values, statistics=said)

    return SimpleNamespace(column=column)


@pytest.mark.parametrize("kind", [StringType(), BinaryType()])
@pytest.mark.parametrize(
    ("bounds", "problem"),
    [
        ((b"a" * 64, b"z" * 63 + b"{"), None),
        ((b"a" * 64, b"z" * 64), "some of its values lie outside of its bounds"),
        ((b"b", b"{"), "some of its values lie outside of its bounds"),
        (None, None),
    ],
)
def test_bounds_that_a_writer_has_cut_are_compared_with_long_values(
    kind: Any, bounds: tuple[bytes, bytes] | None, problem: str | None
) -> None:
    schema = Schema(NestedField(1, "s", kind))
    values = [each if isinstance(kind, StringType) else each.encode() for each in ("a" * _LONG, "b", "z" * _LONG)]
    rows = pa.table({"s": [*values, None]}, schema=arrow_schema(schema.fields))
    said = problem_of_statistics([group(bounds, values=4, nulls=1)], rows, schema)
    assert said == (problem and f"column s: {problem}")


def test_bounds_of_long_values_within_lists_and_structs_are_compared() -> None:
    inner = StructType(NestedField(4, "number", LongType()), NestedField(5, "text", StringType()))
    schema = Schema(NestedField(1, "all", ListType(3, inner)))
    rows = pa.table({"all": [[{"number": None, "text": "a" * _LONG}, {"number": None, "text": None}]]}, schema=arrow_schema(schema.fields))
    whole, cut = (b"a" * 64, b"a" * 63 + b"b"), (b"a" * 64, b"a" * 64)

    def said(text: tuple[bytes, bytes]) -> Any:
        return SimpleNamespace(column=lambda index: group(None, text, values=2, nulls=2 - index).column(index))

    assert problem_of_statistics([said(whole)], rows, schema) is None
    assert "outside of its bounds" in str(problem_of_statistics([said(cut)], rows, schema))


def test_bounds_of_a_column_of_nulls_are_refused() -> None:
    schema = Schema(NestedField(1, "s", StringType()))
    rows = pa.table({"s": [None, None]}, schema=arrow_schema(schema.fields))
    said = problem_of_statistics([group((b"a", b"b"), values=2, nulls=2)], rows, schema)
    assert said == "column s: it has bounds, but its values have none"
