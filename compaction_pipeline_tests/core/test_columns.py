"""The columns of a schema, and the values of their bounds, compared with PyIceberg's own reading of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
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
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from compaction_pipeline.core.tables.columns import Column, bound_value, primitive_columns
from compaction_pipeline.formats.parquet.leaves import leaves
from compaction_pipeline_tests.every_type import EVERY_PRIMITIVE

_INTS = st.integers(-(2**31), 2**31 - 1)
_LONGS = st.integers(-(2**63), 2**63 - 1)
_VALUES_OF: dict[type, Callable[[Any], st.SearchStrategy[Any]]] = {
    BooleanType: lambda kind: st.booleans(),
    IntegerType: lambda kind: _INTS,
    DateType: lambda kind: _INTS,
    LongType: lambda kind: _LONGS,
    TimeType: lambda kind: _LONGS,
    TimestampType: lambda kind: _LONGS,
    TimestamptzType: lambda kind: _LONGS,
    FloatType: lambda kind: st.floats(width=32, allow_nan=False),
    DoubleType: lambda kind: st.floats(allow_nan=False),
    DecimalType: lambda kind: st.integers(1 - 10**kind.precision, 10**kind.precision - 1).map(lambda digits: decimal(digits, kind.scale)),
    StringType: lambda kind: st.text(),
    UUIDType: lambda kind: st.uuids(),
    BinaryType: lambda kind: st.binary(max_size=40),
    FixedType: lambda kind: st.binary(min_size=len(kind), max_size=len(kind)),
}
VALUES: list[tuple[Any, st.SearchStrategy[Any]]] = [(kind, _VALUES_OF[type(kind)](kind)) for kind in EVERY_PRIMITIVE]


def decimal(digits: int, scale: int) -> Decimal:
    return Decimal(digits).scaleb(-scale, Context(prec=40))


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
@given(data=st.data())
def test_bounds_are_compared_as_their_values_are(data: st.DataObject, kind: Any, values: st.SearchStrategy[Any]) -> None:
    low, high = data.draw(values), data.draw(values)
    one, other = (bound_value(str(kind), to_bytes(kind, value)) for value in (low, high))
    if isinstance(kind, StringType):
        low, high = low.encode(), high.encode()
    if isinstance(kind, UUIDType):
        low, high = low.bytes, high.bytes
    assert (one < other) == (low < high)  # type: ignore[operator]
    assert (one == other) == (low == high)


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
@given(data=st.data())
def test_bytes_that_are_accepted_can_be_read(data: st.DataObject, kind: Any, values: st.SearchStrategy[Any]) -> None:
    raw = data.draw(st.binary(max_size=20))
    try:
        value = bound_value(str(kind), raw)
    except ValueError:
        return
    assert not (isinstance(value, float) and math.isnan(value))
    from_bytes(kind, raw)


def test_types_without_bounds_have_none() -> None:
    for kind in ("unknown", "variant", "decimal", "fixed"):
        with pytest.raises(ValueError, match="have no bounds"):
            bound_value(kind, b"")


def test_the_columns_are_those_that_the_kernel_writes() -> None:
    inner = StructType(NestedField(5, "c", UUIDType()))
    schema = Schema(
        NestedField(1, "a", LongType(), required=True),
        NestedField(2, "s", StructType(NestedField(3, "b", DecimalType(9, 2)), NestedField(4, "t", inner))),
        NestedField(6, "l", ListType(7, StructType(NestedField(8, "d", FixedType(3))), element_required=False)),
        NestedField(9, "m", MapType(10, StringType(), 11, ListType(12, DoubleType()), value_required=False)),
    )
    written = {leaf.field_id: Column(leaf.field_id, str(leaf.type), leaf.repeated) for leaf in leaves(schema)}
    assert primitive_columns(schema.model_dump_json()) == written
