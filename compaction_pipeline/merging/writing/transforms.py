"""Iceberg's partition transforms on Arrow arrays, and the partition values that they give.

Results are the internal values of the spec: days, months and hours are integers, timestamps are microseconds. NumPy computes whole arrays
where it can. Elsewhere PyIceberg's public transforms compute each distinct value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import BinaryType, IcebergType, IntegerType, LongType, NestedField, PrimitiveType, StringType, StructType

from compaction_pipeline.core.tables.node import PartitionValue
from compaction_pipeline.merging.single_values import single_value

Convert = Callable[[pa.Array], pa.Array]
"""Turns an Arrow array into another with as many rows."""
_MICROS_PER_HOUR = 3_600_000_000
_MICROS_PER_DAY = 24 * _MICROS_PER_HOUR
_UNITS: dict[type[Transform[Any, Any]], str] = {YearTransform: "Y", MonthTransform: "M", DayTransform: "D"}


def column_path(schema: Schema, number: int) -> tuple[int, ...] | None:
    """The places of the fields that lead through structs to a primitive field. None if it lies inside a list or map, or does not exist."""

    def search(fields: tuple[NestedField, ...]) -> tuple[int, ...] | None:
        for index, field in enumerate(fields):
            if field.field_id == number:
                return (index,) if isinstance(field.field_type, PrimitiveType) else None
            if isinstance(field.field_type, StructType):
                inside = search(field.field_type.fields)
                if inside is not None:
                    return (index, *inside)
        return None

    return search(schema.fields)


def transformed(transform: Transform[Any, Any], source: IcebergType) -> Convert | None:
    """The transform as a function of Arrow arrays. None for a transform that this version does not know."""
    if isinstance(transform, UnknownTransform):
        return None
    if isinstance(transform, IdentityTransform):
        return lambda array: array
    if isinstance(transform, VoidTransform):
        return lambda array: pa.nulls(len(array), pa.int32())
    unit = _UNITS.get(type(transform))
    if unit is not None:
        return lambda array: _calendar(array, unit)
    if isinstance(transform, HourTransform):
        return _hours
    if isinstance(transform, TruncateTransform):
        if isinstance(source, (IntegerType, LongType)):
            return lambda array: _truncated_numbers(array, transform.width)
        if isinstance(source, StringType):
            return lambda array: pc.utf8_slice_codeunits(array, 0, transform.width)
        if isinstance(source, BinaryType):
            return lambda array: pc.binary_slice(array, 0, transform.width)
    one = transform.transform(source)
    result = pa.int32() if not isinstance(transform, TruncateTransform) else None
    return lambda array: _by_distinct(array, one, result)


def _with_nulls(values: NDArray[np.generic], array: pa.Array, arrow: pa.DataType) -> pa.Array:
    return pa.array(values, arrow, mask=array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None)


def _calendar(array: pa.Array, unit: str) -> pa.Array:
    """The years, months or days since 1970 of dates or timestamps, rounded down."""
    if pa.types.is_date(array.type):
        days = array.cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False)
    else:
        # Timestamps are turned into days first: the lowest number of microseconds is a valid moment, but NumPy takes it for "no moment".
        days = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) // _MICROS_PER_DAY
    moments = days.astype("datetime64[D]")
    return _with_nulls(moments.astype(f"datetime64[{unit}]").astype(np.int64).astype(np.int32), array, pa.int32())


def _hours(array: pa.Array) -> pa.Array:
    micros = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return _with_nulls((micros // _MICROS_PER_HOUR).astype(np.int32), array, pa.int32())


def _truncated_numbers(array: pa.Array, width: int) -> pa.Array:
    numbers = array.fill_null(0).to_numpy(zero_copy_only=False)
    return _with_nulls(numbers - numbers % width, array, array.type)


def _by_distinct(array: pa.Array, transform: Callable[[Any], Any], result: pa.DataType | None) -> pa.Array:
    encoded = (array.storage if isinstance(array.type, pa.BaseExtensionType) else array).dictionary_encode()
    values = [transform(_internal(value, encoded.dictionary.type)) for value in encoded.dictionary]
    return pa.array(values, result or array.type).take(encoded.indices)


def _internal(scalar: pa.Scalar, arrow: pa.DataType) -> Any:
    if pa.types.is_date(arrow) or pa.types.is_time(arrow) or pa.types.is_timestamp(arrow):
        return scalar.value
    return scalar.as_py()


def partition_value(name: str, kind: IcebergType, scalar: pa.Scalar) -> PartitionValue:
    """A partition field's value, an Arrow scalar, as the table's own manifests would give it."""
    if scalar is None or not scalar.is_valid:
        return PartitionValue(name, str(kind), None)
    # Only the number of a moment is used, because Python has no date for some moments.
    return PartitionValue(name, str(kind), single_value(kind, scalar.value if pa.types.is_temporal(scalar.type) else scalar.as_py()))
