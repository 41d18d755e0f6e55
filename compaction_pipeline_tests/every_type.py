"""Every primitive type that a column may have. Decimals have each of the three widths that Parquet stores."""

from __future__ import annotations

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

EVERY_PRIMITIVE: tuple[PrimitiveType, ...] = (
    BooleanType(), IntegerType(), LongType(), FloatType(), DoubleType(), DecimalType(9, 2), DecimalType(18, 4), DecimalType(38, 10),
    DateType(), TimeType(), TimestampType(), TimestamptzType(), StringType(), UUIDType(), FixedType(5), BinaryType(),
)  # fmt: skip
