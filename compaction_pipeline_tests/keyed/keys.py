"""Keys, and the nodes that hold them."""

from __future__ import annotations

from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import Transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from compaction_pipeline.core.tables.keyed.key_hash import key_hash
from compaction_pipeline_tests.keyed.change_logs import SCHEMA


def node_of(number: int, buckets: int) -> int:
    """The id of the node that a key of one long has."""
    return buckets + (key_hash([number], ["long"]) & (buckets - 1))


_UUIDS = [UUID(int=0), UUID(int=1), UUID(int=2**127), UUID(int=2**128 - 1)]


_UTC = timezone.utc


KEYS: list[tuple[IcebergType, list[Any]]] = [
    (IntegerType(), [0, 1, -5, 2**31 - 1, -(2**31)]),
    (LongType(), [0, -1, 8589934597, 2**63 - 1, -(2**63)]),
    (StringType(), ["", "a", "中文😀", "é", "e\u0301"]),
    (DateType(), [date(1970, 1, 1), date(1969, 12, 31), date(2026, 1, 15)]),
    (TimeType(), [time(0), time(23, 59, 59, 999999), time(0, 0, 0, 1)]),
    (TimestampType(), [datetime(1970, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2026, 1, 15, 10)]),
    (TimestamptzType(), [datetime(1970, 1, 1, tzinfo=_UTC), datetime(2026, 1, 15, 10, 0, 0, 1, tzinfo=_UTC)]),
    (DecimalType(9, 2), [Decimal("0.00"), Decimal("12.34"), Decimal("-12.34")]),
    (DecimalType(38, 1), [Decimal("123456789012345678901.5"), Decimal("-123456789012345678901.5"), Decimal("0.1")]),
    (UUIDType(), _UUIDS),
    (BinaryType(), [b"", b"\x00", b"\x01\x02\xff", b"\xff\xfe"]),
    (FixedType(3), [b"\x00\x00\x00", b"\x01\x02\xff", b"\xff\xff\xff"]),
    (BooleanType(), [True, False]),
    (FloatType(), [0.0, -0.0, float("nan"), 1.5, float("inf")]),
    (DoubleType(), [0.0, -0.0, float("nan"), 0.1, float("-inf")]),
]


def by(name: str, transform: Transform[Any, Any]) -> PartitionSpec:
    return PartitionSpec(PartitionField(SCHEMA.find_field(name).field_id, 1000, transform, f"p_{name}" if name != "region" else name))
