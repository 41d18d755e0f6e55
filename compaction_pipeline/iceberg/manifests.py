"""Manifests read and written whole: every field of the spec's v2 entries, `referenced_data_file` (143) included.

PyIceberg's own entry schema lacks field 143, which would be lost when a delete manifest is carried over, and declares
`equality_ids` as list<long>, which makes a table unreadable in Java. Here one schema serves both ways. Entries are written
in blocks of many, not one block each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.avro.file import AvroFile, AvroOutputFile
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
    PartitionFieldStats,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IntegerType, ListType, NestedField, StringType, StructType

from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.core.model.data_file import FileContent, OutputFile
from compaction_pipeline.iceberg.partitions import partition_record, partition_struct, partition_types, schema_of_spec

_REFERENCED_DATA_FILE = NestedField(143, "referenced_data_file", StringType(), required=False)
_EQUALITY_IDS = NestedField(
    135, "equality_ids", ListType(element_id=136, element_type=IntegerType(), element_required=True), required=False
)
_ENTRIES_PER_BLOCK = 500

DATA_FILE_FIELDS: tuple[NestedField, ...] = (
    *(_EQUALITY_IDS if field.field_id == 135 else field for field in DATA_FILE_TYPE[2].fields),
    _REFERENCED_DATA_FILE,
)
"""The fields of `data_file` in a v2 manifest entry, in the order of a `DataFile` record's slots."""

CONTENTS: Mapping[FileContent, DataFileContent] = {
    FileContent.DATA: DataFileContent.DATA,
    FileContent.POSITION_DELETES: DataFileContent.POSITION_DELETES,
    FileContent.EQUALITY_DELETES: DataFileContent.EQUALITY_DELETES,
}


def read_entries(io: FileIO, manifest: ManifestFile, *, live_only: bool = True) -> list[ManifestEntry]:
    """The entries of a manifest with sequence numbers, snapshot id and spec id inherited (spec: "Sequence Number Inheritance").

    StorageUnavailable for a manifest that is corrupt, or that lists fewer live files than the manifest list says: PyIceberg's
    reader takes a file that was cut for one that ends there, and a file that we overlook would be lost at the next rewrite.
    """
    try:
        with AvroFile[ManifestEntry](
            io.new_input(manifest.manifest_path),
            _READ_SCHEMA,
            read_types={-1: ManifestEntry, 2: DataFile},
            read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
        ) as reader:
            entries = list(reader)
    except OSError:
        raise
    except Exception as error:
        # Whatever a decoder does with bytes that are not Avro: SystemError and MemoryError included.
        raise StorageUnavailable(f"manifest {manifest.manifest_path} is corrupt: {error}; restore it or roll the table back") from error
    check_live_count(manifest, sum(entry.status != ManifestEntryStatus.DELETED for entry in entries))
    for entry in entries:
        _inherit(entry, manifest)
    return [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED] if live_only else entries


def check_live_count(manifest: ManifestFile, live: int) -> None:
    """StorageUnavailable when a manifest lists more or fewer live files than its manifest list says."""
    if manifest.added_files_count is None or manifest.existing_files_count is None:
        return
    expected = manifest.added_files_count + manifest.existing_files_count
    if live != expected:
        raise StorageUnavailable(
            f"manifest {manifest.manifest_path} lists {live} live files but its manifest list says {expected}: "
            "it is corrupt; restore it or roll the table back"
        )


def _inherit(entry: ManifestEntry, manifest: ManifestFile) -> None:
    if entry.snapshot_id is None and manifest.added_snapshot_id is not None:
        entry.snapshot_id = manifest.added_snapshot_id
    inherits = manifest.sequence_number == 0 or entry.status == ManifestEntryStatus.ADDED
    if entry.sequence_number is None and inherits:
        entry.sequence_number = manifest.sequence_number
    if entry.file_sequence_number is None and inherits:
        entry.file_sequence_number = manifest.sequence_number
    entry.data_file.spec_id = manifest.partition_spec_id


def data_file_of(output: OutputFile, struct: StructType, equality_ids: Iterable[int] = ()) -> DataFile:
    """The manifest's description of a file that was written; `struct` is the partition type of its spec."""
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
        # Of delete files only equality deletes may carry an order; ours are never sorted.
        "sort_order_id": output.sort_order_id if output.content is FileContent.DATA else None,
        "referenced_data_file": output.referenced_data_file,
    }
    file = DataFile(*[values.get(field.name) for field in DATA_FILE_FIELDS])
    file.spec_id = output.spec_id
    return file


def entry_of(
    status: ManifestEntryStatus, snapshot_id: int | None, sequence_number: int | None, file_sequence_number: int | None, file: DataFile
) -> ManifestEntry:
    """A manifest entry; a None sequence number is inherited from the manifest when it is read."""
    return ManifestEntry(status, snapshot_id, sequence_number, file_sequence_number, file)


@dataclass
class _Counts:
    files: int = 0
    rows: int = 0

    def add(self, entry: ManifestEntry) -> None:
        self.files += 1
        self.rows += entry.data_file.record_count


class ManifestWriter:
    """Writes manifests of one snapshot: one content and one spec each, with the partition type of that spec."""

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
        """Write one manifest; `entries` must not be empty (an empty manifest is not allowed)."""
        if not entries:
            raise ValueError(f"a manifest of {content.name} for spec {spec_id} would have no entries")
        spec = self._metadata.specs()[spec_id]
        struct = partition_struct(self._metadata, spec_id)
        output = self._io.new_output(self._new_path())
        with AvroOutputFile[ManifestEntry](
            output_file=output,
            file_schema=_file_schema(self._metadata.format_version, struct),
            record_schema=_entry_schema(2, DATA_FILE_FIELDS, struct),
            schema_name="manifest_entry",
            metadata=self._header(content, spec),
        ) as writer:
            for start in range(0, len(entries), _ENTRIES_PER_BLOCK):
                writer.write_block(entries[start : start + _ENTRIES_PER_BLOCK])
        return self._described(output.location, len(output), content, spec_id, struct, entries)

    def _header(self, content: ManifestContent, spec: PartitionSpec) -> dict[str, str]:
        # Java binds the header's spec to the header's schema, so it must know the spec's source columns.
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
        self, path: str, length: int, content: ManifestContent, spec_id: int, struct: StructType, entries: list[ManifestEntry]
    ) -> ManifestFile:
        counts = {status: _Counts() for status in ManifestEntryStatus}
        statistics = [PartitionFieldStats(kind) for kind in partition_types(struct)]
        minimum: int | None = None
        for entry in entries:
            counts[entry.status].add(entry)
            for position, statistic in enumerate(statistics):
                statistic.update(entry.data_file.partition[position])
            if entry.status != ManifestEntryStatus.DELETED:
                sequence = self._sequence_number if entry.sequence_number is None else entry.sequence_number
                minimum = sequence if minimum is None else min(minimum, sequence)
        return ManifestFile.from_args(
            manifest_path=path,
            manifest_length=length,
            partition_spec_id=spec_id,
            content=content,
            sequence_number=self._sequence_number,
            # Over live entries only: Java drops delete files below the table's minimum.
            min_sequence_number=self._sequence_number if minimum is None else minimum,
            added_snapshot_id=self._snapshot_id,
            added_files_count=counts[ManifestEntryStatus.ADDED].files,
            existing_files_count=counts[ManifestEntryStatus.EXISTING].files,
            deleted_files_count=counts[ManifestEntryStatus.DELETED].files,
            added_rows_count=counts[ManifestEntryStatus.ADDED].rows,
            existing_rows_count=counts[ManifestEntryStatus.EXISTING].rows,
            deleted_rows_count=counts[ManifestEntryStatus.DELETED].rows,
            partitions=[statistic.to_summary() for statistic in statistics],
            key_metadata=None,
        )


def _entry_schema(version: int, fields: Iterable[NestedField], partition: StructType | None) -> Schema:
    data_file = StructType(
        *[
            NestedField(102, "partition", partition, required=True) if field.field_id == 102 and partition is not None else field
            for field in fields
        ]
    )
    return Schema(
        *[
            NestedField(2, "data_file", data_file, required=True) if field.field_id == 2 else field
            for field in MANIFEST_ENTRY_SCHEMAS[1 if version == 1 else 2].fields
        ]
    )


def _file_schema(version: int, partition: StructType) -> Schema:
    return _entry_schema(version, DATA_FILE_TYPE[1].fields if version == 1 else DATA_FILE_FIELDS, partition)


# Without a partition type the reader takes the file's own.
# Read as PyIceberg's list<long>: its own manifests hold longs, and the int of everybody else's promotes.
_READ_FIELDS = (*DATA_FILE_TYPE[2].fields, _REFERENCED_DATA_FILE)
_READ_SCHEMA = _entry_schema(2, _READ_FIELDS, None)
