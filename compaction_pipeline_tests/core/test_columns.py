"""The columns of a schema, and the values of their bounds, compared with PyIceberg's own reading of them."""

from __future__ import annotations

import math
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
from compaction_pipeline.merging.writing.metrics import leaves

_INTS = st.integers(-(2**31), 2**31 - 1)
_LONGS = st.integers(-(2**63), 2**63 - 1)
VALUES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (BooleanType(), st.booleans()),
    (IntegerType(), _INTS),
    (DateType(), _INTS),
    (LongType(), _LONGS),
    (TimeType(), _LONGS),
    (TimestampType(), _LONGS),
    (TimestamptzType(), _LONGS),
    (FloatType(), st.floats(width=32, allow_nan=False)),
    (DoubleType(), st.floats(allow_nan=False)),
    (DecimalType(9, 2), st.decimals(-9999999, 9999999, places=2)),
    (StringType(), st.text()),
    (UUIDType(), st.uuids()),
    (BinaryType(), st.binary(max_size=40)),
    (FixedType(5), st.binary(min_size=5, max_size=5)),
]


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
