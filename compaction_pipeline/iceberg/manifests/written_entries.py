"""Makes the bytes of manifest entries, and proves that they hold what they should.

Entries of new files are encoded, and fastavro, which shares no code with the encoder, reads the result. Its reading is compared with the
values that were to be written. Entries of other manifests keep their bytes. Where these are converted, fastavro's readings of both are
compared. Where they are copied, the bytes are compared, and fastavro reads one entry of each schema in each block, field by field. A second
decoder (`formats/avro/records_at_once.py`) must find every file of the block at its place; what this decoder does not know, fastavro reads.
A difference ends the commit before anything is written.
"""

from __future__ import annotations

import io
import struct
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, cast

import fastavro
from pyiceberg.manifest import ManifestEntry
from pyiceberg.types import StructType

from compaction_pipeline.core.errors import CompactionError, TableRefused
from compaction_pipeline.formats.avro.carry import RecordCarrier, encoded
from compaction_pipeline.formats.avro.records_at_once import RecordsAtOnce
from compaction_pipeline.formats.avro.values import AvroType, long_bytes, nullable, plain_schema
from compaction_pipeline.iceberg.manifests.partition_bytes import PartitionDecoder, plain_value

_DATA_FILE = 2
_PARTITION = 102
FIRST_ROW_ID = 142
_TOLD = {100: "file_path", 103: "record_count", 104: "file_size_in_bytes"}
"""What both decoders must tell of a file that is copied, by field id."""
_WALKED_BYTES = 4 << 20
"""About as many bytes are walked through at once. A walk takes twenty times as many."""
_BLOCK_SIZE = 64 << 20
DEFAULTS: Mapping[int, bytes] = {134: long_bytes(0), 105: long_bytes(_BLOCK_SIZE)}
"""Defaults of two fields of a data file, by field id.

v2 requires `content`, which v1 lacks: its files are data files. v1 requires `block_size_in_bytes`, which v2 lacks: no reader uses it.
"""


class _Part(NamedTuple):
    """One entry that is to be written: its file, the bytes before its `data_file`, and those of its `data_file`."""

    file: Any
    head: bytes
    content: bytes


class EntryWriter:
    """Turns the entries of one manifest into blocks. `schema` is the manifest's schema, and `partition` the partition type of its spec."""

    def __init__(self, schema: AvroType, partition: StructType) -> None:
        plain = plain_schema(schema)
        *head, file = plain["fields"]
        assert file["field-id"] == _DATA_FILE
        self._head: AvroType = {**plain, "fields": head}
        self._file: AvroType = file["type"]
        self._file_name = file["name"]
        self._partition = partition
        self._sources: dict[int, _Source] = {}
        self._heads: dict[tuple[int | None, ...], bytes] = {}
        self._heads_read, self._files_read = _several(self._head), _several(self._file)
        self._entries_read, self._walk = _several(plain), RecordsAtOnce(plain, _TOLD)

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
            raise TableRefused(f"manifest entries cannot be written again: {error}; nothing was committed; please report it") from error

    def _proved(self, entries: Sequence[ManifestEntry]) -> bytes:
        parts: list[_Part] = []
        groups: dict[_Source | None, list[_Part]] = defaultdict(list)
        for entry in entries:
            file: Any = entry.data_file
            source = self._source(file)
            content = encoded(self._file, self._plain(file)) if source is None else source.carried(file)
            part = _Part(file, self._head_of(entry), content)
            groups[source].append(part)
            parts.append(part)
        for source, some in groups.items():
            if source is None or source.suffix is None:
                self._prove(some, source)
            else:
                # Files of one schema are copied alike, so the first one shows that their bytes mean the same in both schemas.
                self._prove(some[:1], source)
                _prove_copies(some, source.suffix)
        self._prove_places(parts)
        return b"".join([content for part in parts for content in part[1:]])

    def _head_of(self, entry: ManifestEntry) -> bytes:
        """The bytes of an entry before its `data_file`. Many entries have the same."""
        said = (entry.status, entry.snapshot_id, entry.sequence_number, entry.file_sequence_number)
        head = self._heads.get(said)
        if head is None:
            values = dict(zip((0, 1, 3, 4), said, strict=True))
            head = self._heads[said] = encoded(self._head, values)
            (read,) = _read(self._heads_read, 1, head)
            for number, value in _by_id(self._head, read).items():
                _compare(entry.data_file, number, value, values[number])
        return head

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

    def _prove_places(self, parts: Sequence[_Part]) -> None:
        """Prove that another decoder finds each entry, from where it was put to where the next one was, and the file in it."""
        some: list[_Part] = []
        size = 0
        for part in parts:
            some.append(part)
            size += len(part.head) + len(part.content)
            if size >= _WALKED_BYTES:
                self._walk_through(some)
                some, size = [], 0
        if some:
            self._walk_through(some)

    def _walk_through(self, parts: Sequence[_Part]) -> None:
        ends = list(accumulate(len(part.head) + len(part.content) for part in parts))
        walked = self._walk.walk(b"".join([content for part in parts for content in part[1:]]), [0, *ends[:-1]])
        said = [walked.told[number] for number in _TOLD]
        odd = []
        for part, end, found, is_odd, path, rows, size in zip(parts, ends, walked.ends, walked.odd, *said, strict=True):
            file = part.file
            if is_odd:
                odd.append(part)
            elif end != found or path != file.file_path.encode() or rows != file.record_count or size != file.file_size_in_bytes:
                for number, value in zip(_TOLD, (path.decode(errors="replace"), rows, size), strict=True):
                    _compare(file, number, value, getattr(file, _TOLD[number]))
                raise TableRefused(
                    f"the manifest entry of {file.file_path} would end at byte {end} of its block, but another decoder finds its end at "
                    f"{found}: nothing was committed; please report it"
                )
        if odd:
            self._prove_odd(odd)

    def _prove_odd(self, parts: Sequence[_Part]) -> None:
        """Prove with fastavro that entries that have something rare tell of their files."""
        read = _read(self._entries_read, len(parts), b"".join([part.head + part.content for part in parts]))
        for part, each in zip(parts, read, strict=True):
            said = _by_id(self._file, each[self._file_name])
            for number, of_file in _TOLD.items():
                _compare(part.file, number, said[number], getattr(part.file, of_file))

    def _prove(self, parts: Sequence[_Part], source: _Source | None) -> None:
        """Prove with another decoder that these bytes say what the files of one manifest say, or new files."""
        files = [part.file for part in parts]
        if source is None:
            expected = [self._plain(file) for file in files]
        else:
            read = _read(source.read, len(files), b"".join(file.raw for file in files))
            # An id that was inherited is written out, because the file is in another manifest now.
            expected = [{**_by_id(source.type, each), **source.row_id(file)} for each, file in zip(read, files, strict=True)]
        written = _read(self._files_read, len(files), b"".join(part.content for part in parts))
        for file, raw, wanted in zip(files, written, expected, strict=True):
            for number, value in _by_id(self._file, raw).items():
                was = wanted.get(number, {134: 0, 105: _BLOCK_SIZE}.get(number))
                if number == _PARTITION:
                    self._compare_partitions(file, source, value, was)
                else:
                    _compare(file, number, _pairs(value), _pairs(was))

    def _compare_partitions(self, file: Any, source: _Source | None, value: Mapping[str, Any], was: Any) -> None:
        kind = next(field["type"] for field in self._file["fields"] if field["field-id"] == _PARTITION)
        old = was if source is None else _by_id(source.partition_type, was) if source.partition_type else {}
        for field in kind["fields"]:
            number = field["field-id"]
            inner = nullable(field["type"])[0]
            decimal = isinstance(inner, Mapping) and inner.get("logical") == "decimal"
            _compare(file, number, _exact(value[field["name"]], decimal), _exact(old.get(number), decimal))


def _prove_copies(parts: Sequence[_Part], suffix: bytes) -> None:
    """Prove that these files have the bytes of their sources."""
    for file, _, content in parts:
        if content is not file.raw and content != file.raw + suffix:
            raise TableRefused(
                f"the manifest entry of {file.file_path} would be written with other bytes: nothing was committed; please report it"
            )


class FileCarrier:
    """Carries each `data_file` of one manifest into another schema. In format v3 the first row id is written out."""

    def __init__(self, kind: AvroType, target: AvroType) -> None:
        self._carrier = RecordCarrier(kind, target, DEFAULTS)
        places = [(place, field["type"]) for place, field in enumerate(target["fields"]) if field["field-id"] == FIRST_ROW_ID]
        self._row_id = places[0] if places else None
        self.suffix = None if places else self._carrier.suffix
        """What stands behind the bytes of each file when all of them are copied as they are; None when they are not."""

    def row_id(self, file: Any) -> dict[int, int | None]:
        """The first row id of a `CarriedFile` by its field id; nothing when the target has no row ids."""
        return {} if self._row_id is None else {FIRST_ROW_ID: file.first_row_id}

    def carried(self, file: Any) -> bytes:
        """The bytes of a `CarriedFile` in the target."""
        if self.suffix is not None:
            return cast("bytes", file.raw) + self.suffix if self.suffix else cast("bytes", file.raw)
        if self._row_id is None:
            return self._carrier(file.raw, 0, len(file.raw))
        place, kind = self._row_id
        fields = self._carrier.fields(file.raw)
        fields[place] = encoded(kind, file.first_row_id)
        return b"".join(fields)


class _Source(FileCarrier):
    """A manifest from which entries are carried."""

    def __init__(self, kind: AvroType, partition_type: AvroType | None, target: AvroType, partition: StructType) -> None:
        super().__init__(kind, target)
        self.type = kind
        self.partition_type = partition_type
        self.partitions = PartitionDecoder(partition_type, partition)
        self.read = _several(kind)


_PLACES = (134, 100, 101, 102, 103, 104, 108, 109, 110, 137, 125, 128, 131, 132, 135, 140, 143)
"""The field ids of the slots of a `DataFile` record."""

_KEYS = {108: 117, 109: 119, 110: 121, 137: 138, 125: 126, 128: 129}
"""The field ids of the keys of maps. The id of the values is one higher."""


def _several(kind: AvroType) -> Any:
    """For fastavro several values are an array, with their number before it and a zero behind it."""
    return fastavro.parse_schema({"type": "array", "items": kind})


def _read(schema: Any, count: int, content: bytes) -> list[Any]:
    """All these values. Raises ValueError if something stands behind them."""
    stream = io.BytesIO(long_bytes(count) + content + b"\x00")
    values: list[Any] = fastavro.schemaless_reader(stream, schema, None)
    if len(values) != count or stream.read(1):
        raise ValueError(f"{count} values end before their bytes do")
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


def _compare(file: Any, number: int, value: Any, was: Any) -> None:
    if value != was:
        raise TableRefused(
            f"the manifest entry of {file.file_path} would be written with another value of field id {number} "
            f"({value!r} for {was!r}): nothing was committed; please report it"
        )
