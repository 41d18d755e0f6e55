"""Partition values of Iceberg files as our `Partition` and back.

The partition type of a spec is resolved with a schema that still has its source columns: with the current schema PyIceberg
writes empty partitions, or raises, once a source column was dropped. Two files of one partition get equal values whatever
engine wrote them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from uuid import UUID

from pyiceberg.conversions import from_json, to_json
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from compaction_pipeline.core.errors import CommitConflict
from compaction_pipeline.core.tables.calendar import date_text, days_of, micros_of_moment, micros_of_time, moment_text, time_text
from compaction_pipeline.core.tables.node import Partition, PartitionValue


def is_unpartitioned(spec: PartitionSpec) -> bool:
    """No field, or void transforms only: Java calls it unpartitioned and its equality deletes are global."""
    return all(isinstance(field.transform, VoidTransform) for field in spec.fields)


def schema_of_spec(metadata: TableMetadata, spec: PartitionSpec) -> Schema:
    """The current schema with the source columns of `spec` that it lost, taken from the newest schema that has them."""
    current = metadata.schema()
    known = set(current.field_ids)
    lost = []
    for field in spec.fields:
        if field.source_id in known:
            continue
        for schema in sorted(metadata.schemas, key=lambda one: one.schema_id, reverse=True):
            if field.source_id in schema.field_ids:
                source = schema.find_field(field.source_id)
                # A name of its own: the old one may have been given to another column since.
                lost.append(NestedField(source.field_id, f"__dropped_{source.field_id}", source.field_type, required=False))
                known.add(field.source_id)
                break
    return Schema(*current.fields, *lost, schema_id=current.schema_id) if lost else current


def partition_struct(metadata: TableMetadata, spec_id: int) -> StructType:
    """The partition type of a spec, all fields optional as in Java."""
    spec = metadata.specs()[spec_id]
    resolved = spec.partition_type(schema_of_spec(metadata, spec))
    return StructType(*[NestedField(field.field_id, field.name, field.field_type, required=False) for field in resolved.fields])


_PLAIN = (IntegerType, LongType, StringType, DateType, TimestampType, TimestamptzType, TimeType)


class PartitionReader:
    """Turns the partition records of one spec into `Partition`s; equal records share one object."""

    def __init__(self, struct: StructType) -> None:
        self._fields = [(field.name, str(field.field_type), field.field_type) for field in struct.fields]
        self._seen: dict[tuple[object, ...], Partition] = {}
        # Values of these types are equal only when they are the same.
        self._plain = all(isinstance(kind, _PLAIN) for _, _, kind in self._fields)

    def read(self, record: Record | Sequence[object]) -> Partition:
        """The values of one record, in the order of the spec's fields."""
        if not self._fields:
            return ()
        if self._plain and isinstance(record, tuple) and len(record) == len(self._fields):
            key = record
        else:
            # repr tells 0.0 from -0.0 and 1 from True, which hash alike.
            key = tuple(repr(record[position]) for position in range(len(self._fields)))
        partition = self._seen.get(key)
        if partition is None:
            partition = tuple(
                PartitionValue(name, text, _json_of(kind, record[position])) for position, (name, text, kind) in enumerate(self._fields)
            )
            self._seen[key] = partition
        return partition


def partition_record(struct: StructType, partition: Partition) -> Record:
    """The record that a manifest entry holds for these values. CommitConflict when they are not of this spec."""
    values = {value.name: value.value for value in partition}
    names = [field.name for field in struct.fields]
    if sorted(values) != sorted(names):
        raise CommitConflict(f"partition has the fields {sorted(values)} but its spec has {sorted(names)}: plan the node again")
    return Record(*[_value_of(field.field_type, values[field.name]) for field in struct.fields])


def _json_of(kind: IcebergType, value: object) -> str | int | float | bool | None:
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
        # Python's dates end at the year 9999; partitions do not.
        if isinstance(kind, DateType):
            return date_text(value)
        if isinstance(kind, TimeType):
            return time_text(value)
        if isinstance(kind, (TimestampType, TimestamptzType)):
            return moment_text(value, utc=isinstance(kind, TimestamptzType))
    if not isinstance(kind, PrimitiveType):
        raise CommitConflict(f"partition value {value!r} has the type {kind}, which no partition can have")
    text: str | int | float | bool = to_json(kind, value)
    return text


def _value_of(kind: IcebergType, value: str | int | float | bool | None) -> object:
    if value is None or isinstance(kind, UnknownType):
        return None
    if isinstance(value, str):
        if isinstance(kind, (FloatType, DoubleType)):
            return float(value)
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
    if not isinstance(kind, PrimitiveType):
        raise CommitConflict(f"partition value {value!r} has the type {kind}, which no partition can have")
    result: object = from_json(kind, value)
    return result


def partition_types(struct: StructType) -> Iterable[PrimitiveType]:
    """The primitive types of a partition struct's fields."""
    for field in struct.fields:
        assert isinstance(field.field_type, PrimitiveType)
        yield field.field_type
