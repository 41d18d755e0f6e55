"""Turns the partition values of Iceberg files into our `Partition`, and back.

The partition type of a spec is resolved with a schema that still has the spec's source columns. If a source column was dropped, PyIceberg
would write empty partitions with the current schema, or raise. Two files of one partition get equal values, whichever engine wrote them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from compaction_pipeline.core.errors import CommitConflict
from compaction_pipeline.core.tables.node import Partition, PartitionValue
from compaction_pipeline.merging.single_values import internal_value, single_value


def is_unpartitioned(spec: PartitionSpec) -> bool:
    """Whether a spec has no fields, or only void transforms. Java calls it unpartitioned then, and its equality deletes are global."""
    return all(isinstance(field.transform, VoidTransform) for field in spec.fields)


def schema_of_spec(metadata: TableMetadata, spec: PartitionSpec) -> Schema:
    """The current schema, with the source columns of `spec` that it lost. They are taken from the newest schema that has them."""
    current = metadata.schema()
    known = set(current.field_ids)
    lost = []
    for field in spec.fields:
        if field.source_id in known:
            continue
        for schema in sorted(metadata.schemas, key=lambda one: one.schema_id, reverse=True):
            if field.source_id in schema.field_ids:
                source = schema.find_field(field.source_id)
                # The column gets a new name, because another column may have its old one by now.
                lost.append(NestedField(source.field_id, f"__dropped_{source.field_id}", source.field_type, required=False))
                known.add(field.source_id)
                break
    return Schema(*current.fields, *lost, schema_id=current.schema_id) if lost else current


def partition_struct(metadata: TableMetadata, spec_id: int) -> StructType:
    """The partition type of a spec. All fields are optional, as in Java."""
    spec = metadata.specs()[spec_id]
    resolved = spec.partition_type(schema_of_spec(metadata, spec))
    return StructType(*[NestedField(field.field_id, field.name, field.field_type, required=False) for field in resolved.fields])


_PLAIN = (IntegerType, LongType, StringType, DateType, TimestampType, TimestamptzType, TimeType)


class PartitionReader:
    """Turns the partition records of one spec into `Partition`s. Equal records give the same object."""

    def __init__(self, struct: StructType) -> None:
        self._fields = [(field.name, str(field.field_type), field.field_type) for field in struct.fields]
        self._seen: dict[tuple[object, ...], Partition] = {}
        # Equal values of these types are always the same value.
        self._plain = all(isinstance(kind, _PLAIN) for _, _, kind in self._fields)

    def read(self, record: Record | Sequence[object]) -> Partition:
        """The partition of one record, whose values are in the order of the spec's fields."""
        if not self._fields:
            return ()
        if self._plain and isinstance(record, tuple) and len(record) == len(self._fields):
            key = record
        else:
            # 0.0 and -0.0 are equal, and so are 1 and True. repr tells them apart.
            key = tuple(repr(record[position]) for position in range(len(self._fields)))
        partition = self._seen.get(key)
        if partition is None:
            partition = tuple(
                PartitionValue(name, text, single_value(kind, record[position])) for position, (name, text, kind) in enumerate(self._fields)
            )
            self._seen[key] = partition
        return partition


def partition_record(struct: StructType, partition: Partition) -> Record:
    """The record of these values in a manifest entry. Raises CommitConflict if they are not values of this spec."""
    values = {value.name: value.value for value in partition}
    names = [field.name for field in struct.fields]
    if sorted(values) != sorted(names):
        raise CommitConflict(f"partition has the fields {sorted(values)} but its spec has {sorted(names)}: plan the node again")
    return Record(*[internal_value(field.field_type, values[field.name]) for field in struct.fields])


def partition_types(struct: StructType) -> Iterable[PrimitiveType]:
    """The primitive types of the fields of a partition type."""
    for field in struct.fields:
        assert isinstance(field.field_type, PrimitiveType)
        yield field.field_type
