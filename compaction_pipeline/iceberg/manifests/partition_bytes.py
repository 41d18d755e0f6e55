"""Partition values, and their bytes in a manifest.

Java gives an identity-partitioned column the value in the manifest, and not the one in the data file. So a partition value that changes
would change rows. Each value that is read is therefore proved: when it is turned into single-value JSON, as in plans and tasks, and back,
it must give the manifest's bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    StringType,
    StructType,
    UnknownType,
    UUIDType,
)
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.tables.node import Partition
from compaction_pipeline.formats.avro.carry import RecordCarrier, encoded
from compaction_pipeline.formats.avro.values import AvroType, UnknownAvro, nullable, plain_schema, read_bytes, read_long, type_name
from compaction_pipeline.iceberg.manifests.partitions import PartitionReader, partition_record

_INTEGERS = ("int", "long", "date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")


def partition_avro(kind: StructType) -> AvroType:
    """The plain Avro type that our manifests have for a partition type."""
    return plain_schema(AvroSchemaConversion().iceberg_to_avro(Schema(*kind.fields), schema_name="r102"))


class PartitionDecoder:
    """Reads the partition bytes of one manifest as values of a spec. Equal bytes give the same object.

    Raises TableRefused for values that this version cannot read, or cannot keep exactly.
    """

    def __init__(self, source: AvroType | None, kind: StructType) -> None:
        self._kind = kind
        self._target = partition_avro(kind)
        self._carrier = RecordCarrier(source, self._target) if source is not None else None
        self._reader = PartitionReader(kind)
        self._values: dict[bytes, tuple[list[bytes], tuple[Any, ...]]] = {}
        self._partitions: dict[bytes, Partition] = {}

    def read(self, raw: bytes | None) -> Partition:
        """The partition of an entry. It is proved to be what the manifest holds."""
        content = raw or b""
        partition = self._partitions.get(content)
        if partition is None:
            fields, values = self._decoded(content)
            partition = self._reader.read(values)
            self._prove(fields, partition)
            self._partitions[content] = partition
        return partition

    def values(self, raw: bytes | None) -> tuple[Any, ...]:
        """The values in the form of PyIceberg's transforms and statistics, in the order of the spec's fields."""
        return self._decoded(raw or b"")[1]

    def _decoded(self, content: bytes) -> tuple[list[bytes], tuple[Any, ...]]:
        known = self._values.get(content)
        if known is None:
            if self._carrier is None:
                fields = [encoded(field["type"], None) for field in self._target["fields"]]
            else:
                fields = self._carrier.fields(content)
            kinds = zip(self._kind.fields, self._target["fields"], fields, strict=True)
            values = tuple([decoded(field.field_type, avro["type"], each) for field, avro, each in kinds])
            known = self._values[content] = (fields, values)
        return known

    def _prove(self, fields: Sequence[bytes], partition: Partition) -> None:
        kept = partition_fields(self._kind, partition_record(self._kind, partition))
        for field, was, now, value in zip(self._kind.fields, fields, kept, partition, strict=True):
            # NaN may have several bit patterns. They all mean the same.
            if was != now and value.value != "NaN":
                raise TableRefused(
                    f"partition field {field.name!r} has the value {value.value!r} (bytes {was.hex()}), which this version would write as "
                    f"{now.hex()}: nothing of the table is compacted; please report it"
                )


def partition_fields(kind: StructType, values: Any) -> list[bytes]:
    """Each partition value in Avro, as our manifests write it. `values` are PyIceberg's, in the order of the fields."""
    target = partition_avro(kind)
    return [
        encoded(avro["type"], plain_value(field.field_type, values[place]))
        for place, (field, avro) in enumerate(zip(kind.fields, target["fields"], strict=True))
    ]


def plain_value(kind: IcebergType, value: Any) -> Any:
    """A partition value as a number, text or bytes, for Avro's own types."""
    if value is None or isinstance(kind, UnknownType):
        return None
    if isinstance(kind, DecimalType):
        return _unscaled(kind, value).to_bytes(_decimal_bytes(kind.precision), "big", signed=True)
    if isinstance(kind, UUIDType):
        return value.bytes if isinstance(value, UUID) else bytes(value)
    if isinstance(kind, FloatType) and math.isfinite(value) and struct.unpack("<f", struct.pack("<f", value))[0] != value:
        raise TableRefused(f"partition value {value!r} is not a float of 32 bits")
    return value


def decoded(kind: IcebergType, avro: AvroType, content: bytes) -> Any:
    """The value of a field's bytes, in PyIceberg's form. Only the standard library decodes it."""
    inner, null = nullable(avro)
    if isinstance(kind, UnknownType) or (null is not None and content[:1] == bytes([null << 1])):
        return None
    value = content if null is None else content[1:]
    name = type_name(inner)
    if isinstance(kind, BooleanType) and value in (b"\x00", b"\x01"):
        return value == b"\x01"
    if str(kind) in _INTEGERS:
        return read_long(value, 0)[0]
    if isinstance(kind, (FloatType, DoubleType)):
        return struct.unpack("<f" if name == "float" else "<d", value)[0]
    if isinstance(kind, StringType):
        return read_bytes(value, 0).decode()
    if isinstance(kind, BinaryType):
        return read_bytes(value, 0)
    if isinstance(kind, FixedType):
        return value
    if isinstance(kind, UUIDType):
        return UUID(bytes=value)
    if isinstance(kind, DecimalType):
        sign, digits, _ = Decimal(int.from_bytes(value, "big", signed=True)).as_tuple()
        return Decimal((sign, digits, -kind.scale))
    raise UnknownAvro(f"a partition value of type {kind} is {name}, which this version does not read")


def _unscaled(kind: DecimalType, value: Decimal) -> int:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or exponent != -kind.scale:
        raise TableRefused(f"partition value {value} does not have the {kind.scale} decimal places of its type {kind}")
    number = int("".join(map(str, digits)))
    return -number if sign else number


def _decimal_bytes(precision: int) -> int:
    """The number of bytes of the spec's fixed decimal: the fewest that hold every number of this many digits."""
    largest: int = 10**precision - 1
    return (largest.bit_length() + 8) // 8
