"""Reads the live entries of a manifest as `LiveFile`s."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyiceberg.io import FileIO
from pyiceberg.manifest import FileFormat, ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import StructType, UnknownType

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.formats.avro.entry_decoder import DecodedEntry, ManifestDecoder
from compaction_pipeline.iceberg.manifests.entries import check_live_count, readable
from compaction_pipeline.iceberg.manifests.partition_bytes import PartitionDecoder
from compaction_pipeline.iceberg.manifests.partitions import partition_struct
from compaction_pipeline.iceberg.second_look import looked_at_twice
from compaction_pipeline.merging.deletes.positions import PATH_FIELD

_CONTENTS = (FileContent.DATA, FileContent.POSITION_DELETES, FileContent.EQUALITY_DELETES)
"""The contents, by their number in the spec."""


_Made = TypeVar("_Made")


def read_live_files(io: FileIO, metadata: TableMetadata, manifest: ManifestFile) -> list[LiveFile]:
    """The live files that a manifest lists, whole or not at all.

    Raises TableRefused for a file that we cannot compact, or a manifest that this version cannot read. Raises StorageUnavailable if the
    manifest is corrupt, or lists another number of live files than the manifest list says: a file that we overlook would be lost at the
    next rewrite.
    """
    return read_live_entries(io, metadata, manifest, lambda file, entry: file)


@looked_at_twice
def read_live_entries(
    io: FileIO,
    metadata: TableMetadata,
    manifest: ManifestFile,
    make: Callable[[LiveFile, DecodedEntry], _Made],
    *,
    with_bounds: bool = False,
) -> list[_Made]:
    """What `make` makes of each live file of a manifest and of its entry, whole or not at all. Raises as `read_live_files` does.

    With `with_bounds` the entries of data files have their bounds and counts of columns too.
    """
    with io.new_input(manifest.manifest_path).open() as stream:
        content = stream.read()
    if manifest.key_metadata:
        raise TableRefused(f"manifest {manifest.manifest_path} is encrypted: files of an encrypted table cannot be read or written")
    partitions: PartitionDecoder | None = None
    live: list[_Made] = []
    with readable(f"manifest {manifest.manifest_path}"):
        decoder = ManifestDecoder(content)
        for entry in decoder.entries(with_bounds=with_bounds or manifest.content == ManifestContent.DELETES):
            if entry.status != ManifestEntryStatus.DELETED:
                partitions = partitions or PartitionDecoder(decoder.partition_type, _distinguishable_partition_type(metadata, manifest))
                live.append(make(_live_file(entry, manifest, partitions), entry))
    check_live_count(manifest, len(live))
    return live


def _distinguishable_partition_type(metadata: TableMetadata, manifest: ManifestFile) -> StructType:
    """The partition type of a manifest's spec.

    Raises TableRefused if a field has lost its type, because all its partitions would then look like one.
    """
    struct = partition_struct(metadata, manifest.partition_spec_id)
    spec = metadata.specs()[manifest.partition_spec_id]
    for field, kind in zip(spec.fields, struct.fields, strict=True):
        if isinstance(kind.field_type, UnknownType) and not isinstance(field.transform, VoidTransform):
            raise TableRefused(
                f"live files of partition spec {spec.spec_id} are partitioned by column id {field.source_id}, which is in no schema of the "
                "metadata any more: their partitions cannot be told apart"
            )
    return struct


def _live_file(entry: DecodedEntry, manifest: ManifestFile, partitions: PartitionDecoder) -> LiveFile:
    if entry.format != "PARQUET" and entry.format.upper() != FileFormat.PARQUET:
        raise TableRefused(f"live file {entry.path} is {entry.format.upper()} but only Parquet files are compacted")
    if entry.key_metadata:
        raise TableRefused(f"live file {entry.path} is encrypted: such a file cannot be read or written")
    content = _CONTENTS[entry.content or 0]
    if content is FileContent.EQUALITY_DELETES and not entry.equality_ids:
        # Without columns every row would be equal, and a merge would delete them all. Java cannot read such a table.
        raise TableRefused(f"equality delete {entry.path} names no columns (equality_ids): write it again, or take it out of the table")
    lower = upper = referenced = None
    if content is FileContent.POSITION_DELETES:
        lower = _path((entry.lower_bounds or {}).get(PATH_FIELD.field_id))
        upper = _path((entry.upper_bounds or {}).get(PATH_FIELD.field_id))
        # If both bounds are equal, neither was cut to a shorter text, because a cut makes an upper bound larger (spec: "Bounds").
        referenced = entry.referenced_data_file or (lower if lower == upper else None)
    # The arguments are positional: naming them would take half as long as making the object.
    return LiveFile(
        entry.path,
        content,
        manifest.partition_spec_id,
        partitions.read(entry.partition),
        entry.file_size_bytes,
        entry.record_count,
        _sequence_number(entry, manifest),
        manifest.manifest_path,
        (manifest.added_snapshot_id if entry.snapshot_id is None else entry.snapshot_id) or 0,
        tuple(entry.equality_ids or ()) if content is FileContent.EQUALITY_DELETES else (),
        referenced,
        lower,
        upper,
        entry.sort_order_id,
    )


def _sequence_number(entry: DecodedEntry, manifest: ManifestFile) -> int:
    """The sequence number of the entry or, if it inherits, of the manifest (spec: "Sequence Number Inheritance")."""
    if entry.sequence_number is not None:
        return entry.sequence_number
    if manifest.sequence_number == 0 or entry.status == ManifestEntryStatus.ADDED:
        return manifest.sequence_number
    raise TableRefused(f"entry of {entry.path} in {manifest.manifest_path} has no sequence number: the manifest breaks the spec")


def _path(bound: bytes | None) -> str | None:
    if bound is None:
        return None
    try:
        return bytes(bound).decode()
    except UnicodeDecodeError:
        # The bound was cut inside a character. An unknown bound excludes nothing, so it is safe.
        return None
