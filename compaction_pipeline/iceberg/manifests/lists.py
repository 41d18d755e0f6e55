"""Reads and writes manifest lists, whole or not at all.

PyIceberg does not notice that an Avro file was cut: it reads what is left as a shorter file. The counts of a manifest stand in its manifest
list, but nothing says how much a manifest list should hold. If a list was cut, the next rewrite would lose a manifest, with every row in
it. So the frame of the file is checked first. fastavro reads the values. A list that is written is read again before it goes to storage,
and must hold what it should: the bounds of partitions in it decide what a filtered scan reads.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from io import BytesIO
from typing import Any

import fastavro
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS, ManifestContent, ManifestFile, PartitionFieldSummary, write_manifest_list
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.formats.avro.carry import encoded
from compaction_pipeline.formats.avro.entry_decoder import ManifestDecoder
from compaction_pipeline.formats.avro.frames import codec_name, read_frame, write_frame
from compaction_pipeline.formats.avro.values import AvroType, UnknownAvro, long_bytes, nullable, plain_schema, type_name
from compaction_pipeline.iceberg.catalogs.inline_manifests import inline_paths
from compaction_pipeline.iceberg.manifests.entries import readable
from compaction_pipeline.iceberg.second_look import looked_at_twice

_CONTENT = 517
_PARTITIONS = 507
_FIELDS = (500, 501, 502, _CONTENT, 515, 516, 503, 504, 505, 506, 512, 513, 514, _PARTITIONS, 519, 520)
"""The field ids of a `ManifestFile`'s slots. PyIceberg's own ones end before the last, which is that of format v3."""
_SUMMARY_FIELDS = (509, 518, 510, 511)
_DEFAULTS = {_CONTENT: 0, 515: 0, 516: 0}
"""The values of fields that lists of v1 lack: the manifests hold data files, without sequence numbers."""


@looked_at_twice
def read_manifests(io: FileIO, snapshot: Snapshot) -> list[ManifestFile]:
    """The manifests of a snapshot.

    Raises StorageUnavailable if its manifest list is corrupt or was cut, TableRefused if this version cannot read it.
    """
    path = snapshot.manifest_list
    if path is None:
        paths = inline_paths(snapshot)
        if paths is None:
            raise TableRefused(f"snapshot {snapshot.snapshot_id} names neither a manifest list nor manifests: its files are not known")
        return [_inline(io, each, snapshot.snapshot_id) for each in paths]
    with io.new_input(path).open() as stream:
        content = stream.read()
    with readable(f"manifest list {path}"):
        manifests = _decoded(content)
        twice = [name for name, count in Counter(manifest.manifest_path for manifest in manifests).items() if count > 1]
        if twice:
            raise TableRefused(
                f"manifest list {path} names the manifest {twice[0]} more than once: all files in it are live more than once"
            )
        if not manifests and _total_files(snapshot):
            # A list that was cut behind its header looks like a complete list without manifests.
            raise ValueError(f"it names no manifest, but its snapshot holds {_total_files(snapshot)} files")
    return manifests


def _inline(io: FileIO, path: str, snapshot_id: int) -> ManifestFile:
    """A manifest that its snapshot names itself, as in early v1. The counts that a manifest list would give are counted here."""
    with io.new_input(path).open() as stream:
        content = stream.read()
    with readable(f"manifest {path}"):
        decoder = ManifestDecoder(content)
        files: Counter[int] = Counter()
        rows: Counter[int] = Counter()
        for entry in decoder.entries():
            files[entry.status] += 1
            rows[entry.status] += entry.record_count
    existing, added, deleted = 0, 1, 2
    values: dict[int, Any] = {
        500: path, 501: len(content), 502: decoder.spec_id, _CONTENT: ManifestContent.DATA, 515: 0, 516: 0, 503: snapshot_id,
        504: files[added], 505: files[existing], 506: files[deleted], 512: rows[added], 513: rows[existing], 514: rows[deleted],
    }  # fmt: skip
    return ManifestFile(*[values.get(number) for number in _FIELDS])


def write_manifests(io: FileIO, metadata: TableMetadata, snapshot: Snapshot, manifests: Sequence[ManifestFile]) -> None:
    """Write the manifest list of a snapshot. Raises TableRefused, before anything is written, if it would not hold what it should."""
    path = snapshot.manifest_list
    content = _encoded_v3(metadata, snapshot, manifests) if metadata.format_version > 2 else _encoded(metadata, snapshot, manifests)
    written = _decoded(content)
    known = {field.field_id for field in MANIFEST_LIST_FILE_SCHEMAS[metadata.format_version].fields}
    for number, (was, now) in enumerate(zip(manifests, written, strict=True)):
        for place, field in enumerate(_FIELDS):
            if field in known and _plain(was[place]) != _plain(now[place]):
                raise TableRefused(
                    f"manifest {was.manifest_path} (number {number}) would be listed with another value of field id {field} "
                    f"({now[place]!r} for {was[place]!r}): nothing was committed; please report it"
                )
    with io.new_output(path).create(overwrite=True) as stream:
        stream.write(content)


def _encoded(metadata: TableMetadata, snapshot: Snapshot, manifests: Sequence[ManifestFile]) -> bytes:
    """A manifest list of format v1 or v2, by PyIceberg."""
    memory = _Memory(snapshot.manifest_list)
    with write_manifest_list(
        format_version=metadata.format_version,
        output_file=memory,
        snapshot_id=snapshot.snapshot_id,
        parent_snapshot_id=snapshot.parent_snapshot_id,
        sequence_number=snapshot.sequence_number,
        avro_compression=codec_name(metadata.properties.get("write.avro.compression-codec", "gzip")),
    ) as writer:
        writer.add_manifests(list(manifests))
    return memory.content()


def _encoded_v3(metadata: TableMetadata, snapshot: Snapshot, manifests: Sequence[ManifestFile]) -> bytes:
    """A manifest list of format v3, which PyIceberg does not write. Each manifest has the slot of its first row id."""
    schema = AvroSchemaConversion().iceberg_to_avro(MANIFEST_LIST_FILE_SCHEMAS[3], schema_name="manifest_file")
    kind = plain_schema(schema)
    parent = snapshot.parent_snapshot_id
    header = {
        "snapshot-id": str(snapshot.snapshot_id),
        "parent-snapshot-id": "null" if parent is None else str(parent),
        "sequence-number": str(snapshot.sequence_number),
        "first-row-id": str(snapshot.first_row_id),
        "format-version": "3",
        "avro.codec": metadata.properties.get("write.avro.compression-codec", "gzip"),
        "avro.schema": json.dumps(schema),
    }
    block = b"".join(encoded(kind, _values(one)) for one in manifests)
    return write_frame(header, [(len(manifests), block)] if manifests else [])


def _values(manifest: ManifestFile) -> dict[int, Any]:
    values = {number: manifest[place] for place, number in enumerate(_FIELDS)}
    partitions = values[_PARTITIONS]
    listed = None if partitions is None else [{number: each[at] for at, number in enumerate(_SUMMARY_FIELDS)} for each in partitions]
    return {**values, _PARTITIONS: listed, _CONTENT: int(values[_CONTENT])}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return tuple(value[place] for place in range(4)) if isinstance(value, PartitionFieldSummary) else value


def _decoded(content: bytes) -> list[ManifestFile]:
    frame = read_frame(content)
    if "avro.schema" not in frame.meta:
        raise ValueError("its header holds no schema")
    block_schema, names, summary = _schema(frame.meta["avro.schema"])
    manifests = []
    for records, block in frame.contents(content):
        # An empty array is only its final zero.
        stream = BytesIO((long_bytes(records) if records else b"") + block + b"\x00")
        read: Any = fastavro.schemaless_reader(stream, block_schema, None)
        if len(read) != records or stream.read(1):
            raise ValueError(f"a block says that it holds {records} manifests, but holds another number")
        manifests += [_manifest(each, names, summary) for each in read]
    return manifests


@lru_cache(maxsize=64)
def _schema(said: bytes) -> tuple[Any, Mapping[int, str], Mapping[int, str]]:
    """fastavro's schema of a block of lists with this schema, and the names of the fields of a manifest and of a summary by their ids.

    All lists of one writer have the same, and a table may have 100,000 of them.
    """
    schema = plain_schema(json.loads(said))
    names = _names(schema)
    missing = [number for number in (500, 501, 502) if number not in names]
    if missing:
        raise UnknownAvro(f"its schema lacks the field ids {missing}, which the Iceberg specification requires")
    summary = _names(_items(schema, _PARTITIONS)) if _PARTITIONS in names else {}
    return fastavro.parse_schema({"type": "array", "items": schema}), names, summary


def _manifest(said: Mapping[str, Any], names: Mapping[int, str], summary: Mapping[int, str]) -> ManifestFile:
    values: dict[int, Any] = {number: said[names[number]] if number in names else _DEFAULTS.get(number) for number in _FIELDS}
    values[_CONTENT] = ManifestContent(values[_CONTENT])
    if values[_PARTITIONS] is not None:
        values[_PARTITIONS] = [
            PartitionFieldSummary(*[each[summary[number]] if number in summary else None for number in _SUMMARY_FIELDS])
            for each in values[_PARTITIONS]
        ]
    return ManifestFile(*[values[number] for number in _FIELDS])


def _names(record: AvroType) -> dict[int, str]:
    return {field["field-id"]: field["name"] for field in record["fields"] if "field-id" in field}


def _items(record: AvroType, number: int) -> AvroType:
    """The type of the items of a list in a record. Both the list and its items may be optional."""
    kind = nullable(next(field["type"] for field in record["fields"] if field.get("field-id") == number))[0]
    items = nullable(kind["items"])[0] if type_name(kind) == "array" else None
    if items is None or type_name(items) != "record":
        raise UnknownAvro(f"field id {number} of its schema is no list of records, as the Iceberg specification wants it")
    return items


def _total_files(snapshot: Snapshot) -> int:
    said = snapshot.summary.additional_properties if snapshot.summary else {}
    totals = [said.get(key, "") for key in ("total-data-files", "total-delete-files")]
    return sum(int(total) for total in totals if total.isdigit())


class _Memory(OutputFile):
    """An output file in memory."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self._stream = _Kept()

    def __len__(self) -> int:
        return len(self.content())

    def exists(self) -> bool:
        return False

    def to_input_file(self) -> InputFile:
        raise NotImplementedError("it is in memory only")

    def create(self, overwrite: bool = False) -> Any:
        return self._stream

    def content(self) -> bytes:
        return self._stream.getvalue()


class _Kept(BytesIO):
    def close(self) -> None:
        """Do nothing, because the bytes are still needed."""
