"""A column of every type that Java can write, with its values."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any
from uuid import UUID

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

_INTS = [0, 1, -1, 2**31 - 1, -(2**31)]


_LONGS = [*_INTS, 2**53 + 1, 2**63 - 1, -(2**63)]


# The years 1, 9999, 10000 and years before 1, and the first and last values of Spark.
_DAYS = [0, -1, -719162, 2932896, 2932897, -719163, 2**31 - 1, -(2**31)]


_MOMENTS = [0, -1, 1510871468123456, -62135596800000000, 253402300799999999, 253402300800000000, 2**63 - 1, -(2**63)]


_FLOATS = [0.0, -0.0, 1.5, 16777216.0, 3.4028234663852886e38, 1.401298464324817e-45, math.inf, -math.inf, math.nan]


_DOUBLES = [0.0, -0.0, 2.222, 1e300, 16777217.0, 0.1, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan]


def _decimals(precision: int, scale: int) -> list[Decimal]:
    largest = int("9" * precision)
    return [Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale)) for number in (0, 1, -1, largest, -largest, -128, 127)]


# `fixed` is left out. Java 1.12.0 writes such a partition value with a length before it, which contradicts the manifest's Avro schema.
TYPES: list[tuple[Any, list[Any]]] = [
    (BooleanType(), [True, False]),
    (IntegerType(), _INTS),
    (LongType(), _LONGS),
    (FloatType(), _FLOATS),
    (DoubleType(), _DOUBLES),
    *[(DecimalType(*size), _decimals(*size)) for size in [(3, 0), (9, 2), (18, 18), (19, 4), (38, 0), (38, 38)]],
    (DateType(), _DAYS),
    (TimeType(), [0, 1, 81068123456, 86_399_999_999]),
    (TimestampType(), _MOMENTS),
    (TimestamptzType(), _MOMENTS),
    (StringType(), ["", "a", " ", "ä/b=c%2F", "\u0000", "\U0001f600", "x" * 200]),
    (UUIDType(), [UUID(int=0), UUID(int=1), UUID(int=1 << 127), UUID(int=(1 << 128) - 1)]),
    (BinaryType(), [b"", b"\0", b"\xff" * 20]),
]  # fmt: skip
