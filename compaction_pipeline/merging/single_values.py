"""Single values of Iceberg types as JSON, and back (spec, appendix D: "JSON single-value serialization").

Plans, tasks and results hold partition values in this form. The internal value is the one of PyIceberg's partition records: dates,
times and timestamps are numbers, because Python's own date types end at the year 9999, but those of partitions do not.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any
from uuid import UUID

from pyiceberg.conversions import from_json, to_json
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    PrimitiveType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.tables.calendar import date_text, days_of, micros_of_moment, micros_of_time, moment_text, time_text

SingleValue = str | int | float | bool | None
"""A single value as JSON. NaN and the infinities, which JSON lacks, are the texts "NaN", "Infinity" and "-Infinity"."""


def single_value(kind: IcebergType, value: object) -> SingleValue:
    """The JSON of an internal value. Raises TableRefused for a type that has no single values."""
    if value is None or isinstance(kind, UnknownType):
        return None
    if isinstance(kind, (FloatType, DoubleType)) and isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(kind, DecimalType):
        return format(Decimal(str(value)), "f")
    if isinstance(kind, UUIDType):
        return str(value if isinstance(value, UUID) else UUID(bytes=value))  # type: ignore[arg-type]
    if isinstance(kind, (BinaryType, FixedType)):
        return bytes(value).hex()  # type: ignore[call-overload, no-any-return]
    if isinstance(value, int):
        if isinstance(kind, DateType):
            return date_text(value)
        if isinstance(kind, TimeType):
            return time_text(value)
        if isinstance(kind, (TimestampType, TimestamptzType)):
            return moment_text(value, utc=isinstance(kind, TimestamptzType))
    result: str | int | float | bool = to_json(_primitive(kind, value), value)
    return result


def internal_value(kind: IcebergType, value: Any) -> Any:
    """The internal value of a JSON. A value that is internal already stays as it is.

    Raises TableRefused for a type that has no single values, and ValueError for a text that is not a value of the type.
    """
    if value is None or isinstance(kind, UnknownType):
        return None
    if isinstance(kind, (FloatType, DoubleType)):
        return float(value)
    if isinstance(value, str):
        if isinstance(kind, DateType):
            return days_of(value)
        if isinstance(kind, TimeType):
            return micros_of_time(value)
        if isinstance(kind, (TimestampType, TimestamptzType)):
            return micros_of_moment(value, utc=isinstance(kind, TimestamptzType))
        if isinstance(kind, DecimalType):
            return Decimal(value)
        if isinstance(kind, UUIDType):
            return UUID(value)
        if isinstance(kind, (BinaryType, FixedType)):
            return bytes.fromhex(value)
    result: Any = from_json(_primitive(kind, value), value)
    return result


def _primitive(kind: IcebergType, value: object) -> PrimitiveType:
    if not isinstance(kind, PrimitiveType):
        raise TableRefused(f"value {value!r} has the type {kind}: only primitive types have single values")
    return kind
