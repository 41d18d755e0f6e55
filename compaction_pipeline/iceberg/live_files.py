"""The live entries of a manifest as `LiveFile`s."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntry, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import StructType, UnknownType

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.model.data_file import FileContent, LiveFile
from compaction_pipeline.iceberg.manifests import read_entries, referenced_data_file
from compaction_pipeline.iceberg.partitions import PartitionReader, partition_struct

_PATH_COLUMN = 2147483546
_CONTENTS = {
    DataFileContent.DATA: FileContent.DATA,
    DataFileContent.POSITION_DELETES: FileContent.POSITION_DELETES,
    DataFileContent.EQUALITY_DELETES: FileContent.EQUALITY_DELETES,
}


def read_live_files(io: FileIO, metadata: TableMetadata, manifest: ManifestFile) -> Iterator[LiveFile]:
    """The live files that a manifest lists; TableRefused for one that we cannot compact."""
    entries = read_entries(io, manifest)
    return live_files_of(entries, metadata, manifest)


def live_files_of(entries: list[ManifestEntry], metadata: TableMetadata, manifest: ManifestFile) -> Iterator[LiveFile]:
    """The same from entries that were read already."""
    if manifest.key_metadata:
        raise TableRefused(f"manifest {manifest.manifest_path} is encrypted: files of an encrypted table cannot be read or written")
    if not entries:
        return
    partitions = PartitionReader(_told_apart(metadata, manifest))
    for entry in entries:
        yield _live_file(entry, manifest, partitions)


def _told_apart(metadata: TableMetadata, manifest: ManifestFile) -> StructType:
    """The partition type of a manifest's spec. TableRefused when a field has lost its type: all its partitions would look like one."""
    struct = partition_struct(metadata, manifest.partition_spec_id)
    spec = metadata.specs()[manifest.partition_spec_id]
    for field, kind in zip(spec.fields, struct.fields, strict=True):
        if isinstance(kind.field_type, UnknownType) and not isinstance(field.transform, VoidTransform):
            raise TableRefused(
                f"live files of partition spec {spec.spec_id} are partitioned by column id {field.source_id}, which is in no schema of the "
                "metadata any more: their partitions cannot be told apart"
            )
    return struct


def _live_file(entry: ManifestEntry, manifest: ManifestFile, partitions: PartitionReader) -> LiveFile:
    file = entry.data_file
    if file.file_format != FileFormat.PARQUET:
        raise TableRefused(f"live file {file.file_path} is {file.file_format.value} but only Parquet files are compacted")
    if file.key_metadata:
        raise TableRefused(f"live file {file.file_path} is encrypted: such a file cannot be read or written")
    if entry.sequence_number is None:
        raise TableRefused(f"entry of {file.file_path} in {manifest.manifest_path} has no sequence number: the manifest breaks the spec")
    content = _CONTENTS[file.content]
    lower = upper = referenced = None
    if content is FileContent.POSITION_DELETES:
        lower = _path((file.lower_bounds or {}).get(_PATH_COLUMN))
        upper = _path((file.upper_bounds or {}).get(_PATH_COLUMN))
        # Bounds that are equal were not cut: a cut upper bound is raised (spec: "Bounds").
        referenced = referenced_data_file(file) or (lower if lower == upper else None)
    return LiveFile(
        path=file.file_path,
        content=content,
        spec_id=manifest.partition_spec_id,
        partition=partitions.read(file.partition),
        file_size_bytes=file.file_size_in_bytes,
        record_count=file.record_count,
        data_sequence_number=entry.sequence_number,
        manifest_path=manifest.manifest_path,
        added_snapshot_id=entry.snapshot_id or 0,
        equality_ids=tuple(file.equality_ids or ()) if content is FileContent.EQUALITY_DELETES else (),
        referenced_data_file=referenced,
        path_lower=lower,
        path_upper=upper,
        sort_order_id=file.sort_order_id,
    )


def _path(bound: bytes | None) -> str | None:
    if bound is None:
        return None
    try:
        return bytes(bound).decode()
    except UnicodeDecodeError:
        # Cut in the middle of a character: unknown is never narrower than the truth.
        return None
