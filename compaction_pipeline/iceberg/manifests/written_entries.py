"""Makes the bytes of manifest entries, and proves that they hold what they should.

Entries of new files are encoded. Entries of other manifests keep their bytes. In both cases fastavro then reads the result, because it
shares no code with the encoder. Its reading is compared with its reading of the source manifest's bytes, or with the values that were to be
written. A difference ends the commit before anything is written.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import fastavro
from pyiceberg.manifest import ManifestEntry
from pyiceberg.types import StructType

from compaction_pipeline.core.errors import CompactionError, TableRefused
from compaction_pipeline.formats.avro.carry import RecordCarrier, encoded
from compaction_pipeline.formats.avro.values import AvroType, long_bytes, nullable, plain_schema
from compaction_pipeline.iceberg.manifests.partition_bytes import PartitionDecoder, plain_value

_DATA_FILE = 2
_PARTITION = 102
FIRST_ROW_ID = 142
_BLOCK_SIZE = 64 << 20
DEFAULTS: Mapping[int, bytes] = {134: long_bytes(0), 105: long_bytes(_BLOCK_SIZE)}
"""Defaults of two fields of a data file, by field id.

v2 requires `content`, which v1 lacks: its files are data files. v1 requires `block_size_in_bytes`, which v2 lacks: no reader uses it.
"""


class EntryWriter:
    """Turns the entries of one manifest into blocks. `schema` is the manifest's schema, and `partition` the partition type of its spec."""

    def __init__(self, schema: AvroType, partition: StructType) -> None:
        self._schema = plain_schema(schema)
        self._partition = partition
        self._file = next(field["type"] for field in self._schema["fields"] if field["field-id"] == _DATA_FILE)
        self._sources: dict[int, _Source] = {}
        # For fastavro a block is an array of entries, with their number before it and a zero behind it.
        self._block = fastavro.parse_schema({"type": "array", "items": self._schema})

    def partition(self, file: Any) -> Sequence[Any]:
        """The partition values of a new or carried file, in the form of PyIceberg's statistics."""
        source = self._source(file)
        values: Sequence[Any] = file.partition if source is None else source.partitions.values(file.partition)
        return values

    def block(self, entries: Sequence[ManifestEntry]) -> bytes:
        """The bytes of these entries. Raises TableRefused if they do not hold what they should, or if one cannot be carried."""
        try:
            return self._proved(entries)
        except CompactionError:
            raise
        except Exception as error:
            # A decoder may raise anything for bytes that are not Avro.
            raise TableRefused(f"manifest entries cannot be written again: {error}; nothing was committed: please report it") from error

    def _proved(self, entries: Sequence[ManifestEntry]) -> bytes:
        parts = []
        for entry in entries:
            source = self._source(entry.data_file)
            for field in self._schema["fields"]:
                number = field["field-id"]
                if number == _DATA_FILE:
                    file: Any = entry.data_file
                    parts.append(encoded(self._file, self._plain(file)) if source is None else source.carried(file))
                else:
                    parts.append(encoded(field["type"], _of_entry(entry, number)))
        block = b"".join(parts)
        self._prove(block, entries)
        return block

    def _source(self, file: Any) -> _Source | None:
        """How files of the same manifest are carried. None for a new file."""
        raw = getattr(file, "raw", None)
        if raw is None:
            return None
        source = self._sources.get(id(file.type))
        if source is None:
            source = self._sources[id(file.type)] = _Source(file.type, file.partition_type, self._file, self._partition)
        return source

    def _plain(self, file: Any) -> dict[int, Any]:
        """The fields of a new file by id, as values of Avro's own types."""
        values: dict[int, Any] = {105: _BLOCK_SIZE}
        for place, number in enumerate(_PLACES):
            value: Any = file[place] if place < len(file) else None
            if number == _PARTITION:
                value = {field.field_id: plain_value(field.field_type, value[at]) for at, field in enumerate(self._partition.fields)}
            elif isinstance(value, Mapping):
                value = [{_KEYS[number]: key, _KEYS[number] + 1: each} for key, each in value.items()]
            elif number in (134, 101):
                value = value.value
            values[number] = value
        return values

    def _prove(self, block: bytes, entries: Sequence[ManifestEntry]) -> None:
        written = _read(self._block, len(entries), block)
        expected: list[dict[int, Any]] = []
        for kind, group in groupby(entries, key=lambda entry: id(getattr(entry.data_file, "type", None))):
            some = list(group)
            source = self._sources.get(kind)
            if source is None:
                expected += [self._plain(entry.data_file) for entry in some]
            else:
                read = _read(source.block, len(some), b"".join(_raw(entry.data_file) for entry in some))
                # An id that was inherited is written out, because the file is in another manifest now.
                given = [source.row_id(entry.data_file) for entry in some]
                expected += [{**_by_id(source.type, each), **ids} for each, ids in zip(read, given, strict=True)]
        for entry, raw, wanted in zip(entries, written, expected, strict=True):
            got = _by_id(self._schema, raw)
            file = _by_id(self._file, got.pop(_DATA_FILE))
            for number, value in got.items():
                _compare(entry, number, value, _of_entry(entry, number))
            for field in self._file["fields"]:
                number = field["field-id"]
                default = {134: 0, 105: _BLOCK_SIZE}.get(number)
                was = wanted.get(number, default)
                if number == _PARTITION:
                    self._compare_partitions(entry, file[number], was)
                else:
                    _compare(entry, number, _pairs(file[number]), _pairs(was))

    def _compare_partitions(self, entry: ManifestEntry, value: Mapping[str, Any], was: Any) -> None:
        kind = next(field["type"] for field in self._file["fields"] if field["field-id"] == _PARTITION)
        source = self._source(entry.data_file)
        old = was if source is None else _by_id(source.partition_type, was) if source.partition_type else {}
        for field in kind["fields"]:
            number = field["field-id"]
            inner = nullable(field["type"])[0]
            decimal = isinstance(inner, Mapping) and inner.get("logical") == "decimal"
            _compare(entry, number, _exact(value[field["name"]], decimal), _exact(old.get(number), decimal))


class FileCarrier:
    """Carries each `data_file` of one manifest into another schema. In format v3 the first row id is written out."""

    def __init__(self, kind: AvroType, target: AvroType) -> None:
        self._carrier = RecordCarrier(kind, target, DEFAULTS)
        # Manifests that were just written have this schema, so nothing of their files has to be found and copied.
        self._same = kind == target
        places = [(place, field["type"]) for place, field in enumerate(target["fields"]) if field["field-id"] == FIRST_ROW_ID]
        self._row_id = places[0] if places else None

    def row_id(self, file: Any) -> dict[int, int | None]:
        """The first row id of a `CarriedFile` by its field id; nothing when the target has no row ids."""
        return {} if self._row_id is None else {FIRST_ROW_ID: file.first_row_id}

    def carried(self, file: Any) -> bytes:
        """The bytes of a `CarriedFile` in the target."""
        fields = self._carrier.fields(file.raw)
        if self._row_id is not None:
            place, kind = self._row_id
            fields[place] = encoded(kind, file.first_row_id)
        return b"".join(fields)

    def stored(self, file: Any) -> bytes:
        """The same bytes, with the first row id as it stands in the source."""
        raw: bytes = file.raw
        return raw if self._same else b"".join(self._carrier.fields(raw))


class _Source(FileCarrier):
    """A manifest from which entries are carried."""

    def __init__(self, kind: AvroType, partition_type: AvroType | None, target: AvroType, partition: StructType) -> None:
        super().__init__(kind, target)
        self.type = kind
        self.partition_type = partition_type
        self.partitions = PartitionDecoder(partition_type, partition)
        self.block = fastavro.parse_schema({"type": "array", "items": kind})


_PLACES = (134, 100, 101, 102, 103, 104, 108, 109, 110, 137, 125, 128, 131, 132, 135, 140, 143)
"""The field ids of the slots of a `DataFile` record."""

_KEYS = {108: 117, 109: 119, 110: 121, 137: 138, 125: 126, 128: 129}
"""The field ids of the keys of maps. The id of the values is one higher."""


def _raw(file: Any) -> bytes:
    raw: bytes = file.raw
    return raw


def _of_entry(entry: ManifestEntry, number: int) -> int | None:
    place = {0: 0, 1: 1, 3: 2, 4: 3}[number]
    value: int | None = entry[place]
    return int(value) if value is not None else None


def _read(schema: Any, count: int, content: bytes) -> list[Any]:
    values: list[Any] = fastavro.schemaless_reader(io.BytesIO(long_bytes(count) + content + b"\x00"), schema, None)
    return values


def _by_id(record: AvroType, value: Mapping[str, Any]) -> dict[int, Any]:
    return {field["field-id"]: value[field["name"]] for field in record["fields"] if "field-id" in field}


def _pairs(value: Any) -> Any:
    """A map as pairs, whatever its two fields are called."""
    return [tuple(each.values()) for each in value] if isinstance(value, list) and value and isinstance(value[0], Mapping) else value


def _exact(value: Any, decimal: bool) -> Any:
    """A value that compares exactly: 0.0 differs from -0.0, 1 differs from True, and NaN equals itself."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if decimal and isinstance(value, bytes):
        return int.from_bytes(value, "big", signed=True)
    return type(value).__name__, value


def _compare(entry: ManifestEntry, number: int, value: Any, was: Any) -> None:
    if value != was:
        raise TableRefused(
            f"the manifest entry of {entry.data_file.file_path} would be written with another value of field id {number} "
            f"({value!r} for {was!r}): nothing was committed; please report it"
        )
