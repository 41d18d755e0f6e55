"""Reads and writes manifests with every field of the spec's entries, `referenced_data_file` (143) included.

PyIceberg's own entry schema lacks field 143, so a delete manifest that is written again would lose it. It also declares `equality_ids` as
list<long>, which makes a table unreadable in Java. An entry that is carried over keeps the bytes of its `data_file` (`avro.carry`). Before
a manifest goes to storage, an independent decoder (fastavro) reads it (`written_entries`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IntegerType, ListType, NestedField, StringType, StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from compaction_pipeline.core.errors import CompactionError, StorageUnavailable, TableRefused
from compaction_pipeline.core.tables.data_file import FileContent, OutputFile
from compaction_pipeline.formats.avro.entry_decoder import ManifestDecoder
from compaction_pipeline.formats.avro.frames import frame_of, packed, read_frame
from compaction_pipeline.formats.avro.values import AvroType, UnknownAvro, named_once, plain_schema
from compaction_pipeline.iceberg.manifests.partition_statistics import PartitionStatistics
from compaction_pipeline.iceberg.manifests.partitions import partition_record, partition_struct, schema_of_spec
from compaction_pipeline.iceberg.manifests.row_ids import RowIds, first_row_id_of
from compaction_pipeline.iceberg.manifests.written_entries import EntryWriter
from compaction_pipeline.iceberg.second_look import looked_at_twice

_REFERENCED_DATA_FILE = NestedField(143, "referenced_data_file", StringType(), required=False)
_EQUALITY_IDS = NestedField(
    135, "equality_ids", ListType(element_id=136, element_type=IntegerType(), element_required=True), required=False
)
_ENTRIES_PER_BLOCK = 500

DATA_FILE_FIELDS: tuple[NestedField, ...] = (
    *(_EQUALITY_IDS if field.field_id == 135 else field for field in DATA_FILE_TYPE[2].fields),
    _REFERENCED_DATA_FILE,
)
"""The fields of `data_file` in a v2 manifest entry, in the order of the slots of a `DataFile` record."""

_DATA_FILE_FIELDS_V3 = (*DATA_FILE_FIELDS, *(field for field in DATA_FILE_TYPE[3].fields if field.field_id in (142, 144, 145)))
"""v3 adds the id of the first row of a data file, and the place of a deletion vector in its file."""

CONTENTS: Mapping[FileContent, DataFileContent] = {
    FileContent.DATA: DataFileContent.DATA,
    FileContent.POSITION_DELETES: DataFileContent.POSITION_DELETES,
    FileContent.EQUALITY_DELETES: DataFileContent.EQUALITY_DELETES,
}


class CarriedFile(NamedTuple):
    """A `data_file` of another manifest: its bytes, their type, and what a rewrite must know of it."""

    content: DataFileContent
    file_path: str
    spec_id: int
    record_count: int
    file_size_in_bytes: int
    raw: bytes
    partition: bytes | None
    type: AvroType
    partition_type: AvroType | None
    first_row_id: int | None = None
    """The row id of its first row in a table of format v3, inherited or not; None when its rows have no ids."""


@looked_at_twice
def read_entries(io: FileIO, manifest: ManifestFile, *, live_only: bool = True) -> list[ManifestEntry]:
    """The entries of a manifest. Sequence numbers and snapshot ids are inherited (spec: "Sequence Number Inheritance").

    The `data_file` of each entry is a `CarriedFile`. Raises StorageUnavailable if the manifest is corrupt, or lists another number of live
    files than the manifest list says: a file that we overlook would be lost at the next rewrite. Raises TableRefused if this version cannot
    read it.
    """
    with io.new_input(manifest.manifest_path).open() as stream:
        content = stream.read()
    with_what = f"manifest {manifest.manifest_path}"
    with readable(with_what):
        decoder = ManifestDecoder(content)
        entries = _carried(decoder, manifest)
    check_live_count(manifest, sum(entry.status != ManifestEntryStatus.DELETED for entry in entries))
    return [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED] if live_only else entries


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Translate the errors of decoders into ours.

    A corrupt file is StorageUnavailable. A file that this version cannot read is TableRefused. Only the first is mended by restoring the
    file.
    """
    try:
        yield
    except CompactionError:
        raise
    except (UnknownAvro, ImportError) as error:
        raise TableRefused(f"{what} cannot be read by this version: {error}; the file is not damaged: please report it") from error
    except Exception as error:
        # A decoder may raise anything for bytes that are not Avro, SystemError and MemoryError included.
        raise StorageUnavailable(f"{what} is corrupt: {error}; restore it or roll the table back") from error


_STATUSES = {status.value: status for status in ManifestEntryStatus}
_CONTENTS: Mapping[int | None, DataFileContent] = {None: DataFileContent.DATA, **{content.value: content for content in DataFileContent}}


def _carried(decoder: ManifestDecoder, manifest: ManifestFile) -> list[ManifestEntry]:
    """The entries of a manifest, each with what it inherits. This is done for millions of entries, so nothing is asked twice."""
    row_ids = RowIds(first_row_id_of(manifest))
    spec_id, sequence_number, snapshot_id = manifest.partition_spec_id, manifest.sequence_number, manifest.added_snapshot_id
    file_type, partition_type = decoder.data_file_type, decoder.partition_type
    entries = []
    for entry in decoder.entries(whole=True):
        assert entry.data_file is not None
        file = CarriedFile(
            _CONTENTS[entry.content],
            entry.path,
            spec_id,
            entry.record_count,
            entry.file_size_bytes,
            entry.data_file,
            entry.partition,
            file_type,
            partition_type,
            row_ids.of(entry),
        )
        status = _STATUSES[entry.status]
        inherited = sequence_number if sequence_number == 0 or status is ManifestEntryStatus.ADDED else None
        entries.append(
            ManifestEntry(
                status,
                snapshot_id if entry.snapshot_id is None else entry.snapshot_id,
                inherited if entry.sequence_number is None else entry.sequence_number,
                inherited if entry.file_sequence_number is None else entry.file_sequence_number,
                file,
            )
        )
    return entries


def check_live_count(manifest: ManifestFile, live: int) -> None:
    """Raise StorageUnavailable if a manifest has more or fewer live files than its manifest list says."""
    if manifest.added_files_count is None or manifest.existing_files_count is None:
        return
    expected = manifest.added_files_count + manifest.existing_files_count
    if live != expected:
        raise StorageUnavailable(
            f"manifest {manifest.manifest_path} lists {live} live files but its manifest list says {expected}: "
            "one of them is corrupt; restore it or roll the table back"
        )


def data_file_of(output: OutputFile, struct: StructType, equality_ids: Iterable[int] = ()) -> DataFile:
    """The manifest's description of a file that was written. `struct` is the partition type of its spec."""
    ids = list(equality_ids)
    values: dict[str, Any] = {
        "content": CONTENTS[output.content],
        "file_path": output.path,
        "file_format": FileFormat.PARQUET,
        "partition": partition_record(struct, output.partition),
        "record_count": output.record_count,
        "file_size_in_bytes": output.file_size_bytes,
        "column_sizes": dict(output.column_sizes) or None,
        "value_counts": dict(output.value_counts) or None,
        "null_value_counts": dict(output.null_value_counts) or None,
        "nan_value_counts": dict(output.nan_value_counts) or None,
        "lower_bounds": {key: bytes.fromhex(value) for key, value in output.lower_bounds.items()} or None,
        "upper_bounds": {key: bytes.fromhex(value) for key, value in output.upper_bounds.items()} or None,
        "split_offsets": list(output.split_offsets) or None,
        "equality_ids": ids or None,
        # Of delete files, only equality deletes may carry a sort order. Ours are never sorted.
        "sort_order_id": output.sort_order_id if output.content is FileContent.DATA else None,
        "referenced_data_file": output.referenced_data_file,
    }
    file = DataFile(*[values.get(field.name) for field in DATA_FILE_FIELDS])
    file.spec_id = output.spec_id
    return file


def entry_of(
    status: ManifestEntryStatus, snapshot_id: int | None, sequence_number: int | None, file_sequence_number: int | None, file: DataFile
) -> ManifestEntry:
    """A manifest entry. A sequence number of None is inherited from the manifest when the entry is read."""
    return ManifestEntry(status, snapshot_id, sequence_number, file_sequence_number, file)


@dataclass
class _Counts:
    files: int = 0
    rows: int = 0

    def add(self, entry: ManifestEntry) -> None:
        self.files += 1
        self.rows += entry.data_file.record_count


class EntryCheck:
    """Finds out whether a manifest can hold a file, before one is written. A file that it cannot hold would stop a whole commit."""

    def __init__(self, metadata: TableMetadata) -> None:
        self._metadata = metadata
        self._writers: dict[int, tuple[StructType, EntryWriter]] = {}

    def check(self, file: DataFile) -> None:
        """Write the entry of a new file into nothing. Raises whatever the encoders raise for values that do not fit."""
        known = self._writers.get(file.spec_id)
        if known is None:
            struct = partition_struct(self._metadata, file.spec_id)
            known = self._writers[file.spec_id] = (struct, EntryWriter(_avro_schema(self._metadata.format_version, struct), struct))
        struct, writer = known
        writer.block([entry_of(ManifestEntryStatus.ADDED, 1, 1, 1, file)])
        statistics = PartitionStatistics(struct)
        statistics.add(writer.partition(file))
        statistics.summaries()


class _Block(NamedTuple):
    """Entries, their bytes as they stand in a file, and a hash of the bytes that were proved."""

    entries: list[ManifestEntry]
    packed: bytes
    digest: bytes


def _block(entries: list[ManifestEntry], content: bytes, codec: str) -> _Block:
    return _Block(entries, packed(content, codec), blake2b(content).digest())


@looked_at_twice
def _check_read_back(io: FileIO, path: str, blocks: Sequence[_Block]) -> None:
    """Raise StorageUnavailable unless storage gives back these blocks."""
    with io.new_input(path).open() as stream:
        content = stream.read()
    with readable(f"manifest {path}, which was just written,"):
        found = [(count, blake2b(block).digest()) for count, block in read_frame(content).contents(content)]
    if found != [(len(block.entries), block.digest) for block in blocks]:
        raise StorageUnavailable(f"manifest {path} was written, but storage gives back something else: nothing was committed; try again")


class ManifestWriter:
    """Writes manifests of one snapshot. Each has one content and one partition spec, and the partition type of this spec."""

    def __init__(
        self,
        io: FileIO,
        metadata: TableMetadata,
        snapshot_id: int,
        sequence_number: int,
        new_path: Callable[[], str],
    ) -> None:
        self._io = io
        self._metadata = metadata
        self._snapshot_id = snapshot_id
        self._sequence_number = sequence_number
        self._new_path = new_path
        self._compression = metadata.properties.get("write.avro.compression-codec", "gzip")

    def write(self, content: ManifestContent, spec_id: int, entries: list[ManifestEntry]) -> ManifestFile:
        """Write one manifest. `entries` must not be empty, because an empty manifest is not allowed."""
        return self.write_parts(content, spec_id, entries)[0]

    def write_parts(
        self,
        content: ManifestContent,
        spec_id: int,
        entries: list[ManifestEntry],
        target_bytes: int = 1,
        most: int = 1,
        *,
        read_back: Callable[[Sequence[ManifestEntry]], None] | None = None,
    ) -> list[ManifestFile]:
        """Write manifests of about `target_bytes` each, with the entries in their order, but at most `most` manifests.

        All of them are about equally large, because the size of the entries is known before the first file is written. `entries` must not
        be empty. With `read_back`, storage must give back what was written, and `read_back` is then told the entries that are there.
        """
        if not entries:
            raise ValueError(f"a manifest of {content.name} for spec {spec_id} would have no entries")
        struct = partition_struct(self._metadata, spec_id)
        writer = EntryWriter(_avro_schema(self._metadata.format_version, struct), struct)
        # When several manifests may come of it, blocks are small enough to cut between them.
        records = _ENTRIES_PER_BLOCK if most == 1 else min(_ENTRIES_PER_BLOCK, len(entries) // (4 * most) + 1)
        blocks = [
            _block(each, writer.block(each), self._compression)
            for each in (entries[start : start + records] for start in range(0, len(entries), records))
        ]
        made = []
        for part in _cut(blocks, target_bytes, most):
            made.append(self._stored(content, spec_id, writer, part))
            if read_back is not None:
                _check_read_back(self._io, made[-1].manifest_path, part)
                read_back([entry for block in part for entry in block.entries])
        return made

    def _stored(self, content: ManifestContent, spec_id: int, writer: EntryWriter, blocks: Sequence[_Block]) -> ManifestFile:
        """Write one manifest of these blocks."""
        spec, struct = self._metadata.specs()[spec_id], partition_struct(self._metadata, spec_id)
        schema = json.dumps(_avro_schema(self._metadata.format_version, struct))
        path = self._new_path()
        packs = [(len(block.entries), block.packed) for block in blocks]
        file = frame_of({**self._header(content, spec), "avro.schema": schema}, packs)
        output = self._io.new_output(path)
        with output.create(overwrite=True) as stream:
            stream.write(file)
        entries = [entry for block in blocks for entry in block.entries]
        return self._described(output.location, len(file), content, spec_id, struct, entries, writer)

    def _header(self, content: ManifestContent, spec: PartitionSpec) -> dict[str, str]:
        # Java resolves the spec in the header with the schema in the header, so this schema must have the source columns of the spec.
        schema = schema_of_spec(self._metadata, spec)
        fields = ",".join(field.model_dump_json() for field in spec.fields)
        header = {
            "schema": schema.model_dump_json(),
            "partition-spec": f"[{fields}]",
            "partition-spec-id": str(spec.spec_id),
            "format-version": str(self._metadata.format_version),
            "avro.codec": self._compression,
        }
        return header if self._metadata.format_version == 1 else {**header, "content": content.name.lower()}

    def _described(
        self,
        path: str,
        length: int,
        content: ManifestContent,
        spec_id: int,
        struct: StructType,
        entries: list[ManifestEntry],
        writer: EntryWriter,
    ) -> ManifestFile:
        counts = {status: _Counts() for status in ManifestEntryStatus}
        statistics = PartitionStatistics(struct)
        minimum: int | None = None
        # Many files have one partition. The entries keep the types alive, so no other type gets the same id.
        told: set[tuple[int, bytes | None]] = set()
        for entry in entries:
            counts[entry.status].add(entry)
            file: Any = entry.data_file
            partition = (id(file.type), file.partition) if isinstance(file, CarriedFile) else None
            if partition is None or partition not in told:
                statistics.add(writer.partition(file))
            if partition is not None:
                told.add(partition)
            if entry.status != ManifestEntryStatus.DELETED:
                sequence = self._sequence_number if entry.sequence_number is None else entry.sequence_number
                minimum = sequence if minimum is None else min(minimum, sequence)
        return ManifestFile.from_args(
            manifest_path=path,
            manifest_length=length,
            partition_spec_id=spec_id,
            content=content,
            sequence_number=self._sequence_number,
            # Only live entries count. From these numbers Java computes the lowest one of the table's data, and drops delete files that
            # are older.
            min_sequence_number=self._sequence_number if minimum is None else minimum,
            added_snapshot_id=self._snapshot_id,
            added_files_count=counts[ManifestEntryStatus.ADDED].files,
            existing_files_count=counts[ManifestEntryStatus.EXISTING].files,
            deleted_files_count=counts[ManifestEntryStatus.DELETED].files,
            added_rows_count=counts[ManifestEntryStatus.ADDED].rows,
            existing_rows_count=counts[ManifestEntryStatus.EXISTING].rows,
            deleted_rows_count=counts[ManifestEntryStatus.DELETED].rows,
            partitions=statistics.summaries(),
            key_metadata=None,
        )


def _cut(blocks: Sequence[_Block], target_bytes: int, most: int) -> list[list[_Block]]:
    """Cut blocks into parts of about equal bytes. None is empty."""
    total = sum(len(block.packed) for block in blocks)
    count = max(1, min(most, -(-total // target_bytes)))
    parts: dict[int, list[_Block]] = {}
    before = 0
    for each in blocks:
        # A block belongs to the part in which its middle lies.
        middle = before + len(each.packed) // 2
        parts.setdefault(middle * count // max(total, 1), []).append(each)
        before += len(each.packed)
    return list(parts.values())


def _entry_schema(version: int, fields: Iterable[NestedField], partition: StructType) -> Schema:
    data_file = StructType(
        *[NestedField(102, "partition", partition, required=True) if field.field_id == 102 else field for field in fields]
    )
    return Schema(
        *[
            NestedField(2, "data_file", data_file, required=True) if field.field_id == 2 else field
            for field in MANIFEST_ENTRY_SCHEMAS[1 if version == 1 else 2].fields
        ]
    )


def data_file_type(metadata: TableMetadata, spec_id: int) -> AvroType:
    """The plain Avro type of the `data_file` of our manifests' entries."""
    schema = plain_schema(_avro_schema(metadata.format_version, partition_struct(metadata, spec_id)))
    return next(field["type"] for field in schema["fields"] if field["field-id"] == 2)


def _avro_schema(version: int, partition: StructType) -> AvroType:
    """The schema of our manifests as Avro's JSON."""
    fields = {1: DATA_FILE_TYPE[1].fields, 2: DATA_FILE_FIELDS}.get(version, _DATA_FILE_FIELDS_V3)
    schema = _entry_schema(version, fields, partition)
    return named_once(AvroSchemaConversion().iceberg_to_avro(schema, schema_name="manifest_entry"))
