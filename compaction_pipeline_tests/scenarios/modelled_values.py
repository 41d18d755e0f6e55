"""Random values of every Iceberg v2 type that is easy to get wrong, and rows that are keyed by field id.

A modelled row maps field ids to values, and so does each struct in it. So it stays right after a column is renamed, moved or
dropped. `named` gives the row in the names of a schema.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

from compaction_pipeline_tests.reference_reader import Row, canonical

ModelledRow = dict[int, Any]

FIRST_SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "region", StringType()),
    NestedField(3, "name", StringType()),
    NestedField(4, "score", FloatType()),
    NestedField(5, "qty", IntegerType()),
    NestedField(6, "amount", DecimalType(9, 2)),
    NestedField(7, "day", DateType()),
    NestedField(8, "at", TimestampType()),
    NestedField(9, "ratio", DoubleType()),
    NestedField(10, "loc", StructType(NestedField(11, "a", IntegerType()), NestedField(12, "b", StringType()))),
    NestedField(13, "tags", ListType(14, StringType(), element_required=False)),
    NestedField(15, "attrs", MapType(16, StringType(), 17, IntegerType(), value_required=False)),
    NestedField(18, "blob", BinaryType()),
    NestedField(19, "ok", BooleanType()),
)

_TEXTS = ("", "a", "b", "ab", "é", "日本", "null", "x" * 40)
# Each of these is the same number in 32 and in 64 bits, because a promotion must not change it.
_FLOATS = (0.0, -0.0, math.nan, 1.5, -2.25, math.inf, -math.inf)
_NULL_SHARE = 0.15


def random_row(rng: Random, schema: Schema) -> ModelledRow:
    """A random row of `schema`. Keys and partition columns have few different values, so that rows often share them."""
    row: ModelledRow = {}
    for item in schema.fields:
        if item.field_id == 1:
            row[1] = None if rng.random() < 0.03 else rng.randrange(40)
        elif item.field_id == 2:
            row[2] = rng.choice(("eu", "us", "é/=", None))
        else:
            row[item.field_id] = random_value(rng, item.field_type)
    return row


def random_value(rng: Random, kind: IcebergType) -> Any:
    """A random value, or NULL."""
    if rng.random() < _NULL_SHARE:
        return None
    if isinstance(kind, (IntegerType, LongType)):
        return rng.choice((rng.randrange(5), rng.randrange(5), -(2**31), 2**31 - 1))
    if isinstance(kind, StringType):
        return rng.choice(_TEXTS) if rng.random() < 0.6 else f"{rng.getrandbits(256):x}"
    if isinstance(kind, (FloatType, DoubleType)):
        return rng.choice(_FLOATS)
    if isinstance(kind, DecimalType):
        return Decimal(rng.choice((0, 1, -1, 999_999_999, rng.randrange(1000)))).scaleb(-kind.scale)
    if isinstance(kind, DateType):
        return date(1969, 12, 30) + timedelta(days=rng.randrange(4))
    if isinstance(kind, TimestampType):
        return datetime(1969, 12, 31, 22) + timedelta(hours=rng.randrange(5), microseconds=rng.randrange(3))
    if isinstance(kind, BooleanType):
        return rng.random() < 0.5
    if isinstance(kind, BinaryType):
        return rng.choice((b"", b"\x00\xff", rng.randbytes(8)))
    if isinstance(kind, StructType):
        return {item.field_id: random_value(rng, item.field_type) for item in kind.fields}
    if isinstance(kind, ListType):
        return [random_value(rng, kind.element_type) for _ in range(rng.randrange(3))]
    if isinstance(kind, MapType):
        return {key: random_value(rng, kind.value_type) for key in rng.sample(_TEXTS, rng.randrange(3))}
    raise TypeError(f"the model draws no {kind}")


def named(row: Mapping[int, Any], fields: Iterable[NestedField]) -> Row:
    """The row as a reader sees it. A column that the row never had is NULL. Maps have the form of the reference reader's maps."""
    return {item.name: _shown(row.get(item.field_id), item.field_type) for item in fields}


def _shown(value: Any, kind: IcebergType) -> Any:
    if isinstance(value, Mapping):
        if isinstance(kind, StructType):
            return named(value, kind.fields)
        return frozenset((canonical(key), canonical(item)) for key, item in value.items())
    return value


def arrow_table(rows: Sequence[Mapping[int, Any]], schema: Schema) -> pa.Table:
    """The rows as an Arrow table, with the column names of `schema`."""
    return pa.Table.from_pylist([_written(row, schema.fields) for row in rows], schema=schema_to_pyarrow(schema))


def _written(row: Mapping[int, Any], fields: Iterable[NestedField]) -> Row:
    return {item.name: _plain(row.get(item.field_id), item.field_type) for item in fields}


def _plain(value: Any, kind: IcebergType) -> Any:
    if isinstance(value, Mapping):
        return _written(value, kind.fields) if isinstance(kind, StructType) else list(value.items())
    return value
