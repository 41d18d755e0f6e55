"""Reads the manifests of a store whose metadata is known as raw JSON: how many files of which partitions they hold, and since when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot
from pyiceberg.transforms import UnknownTransform, VoidTransform, parse_transform
from pyiceberg.types import IcebergType, NestedField, StructType, UnknownType

from compaction_pipeline.core.dependencies.ports import StoreFacts
from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.tables.node import Partition, Place
from compaction_pipeline.formats.avro.entry_decoder import ManifestDecoder
from compaction_pipeline.iceberg.dependencies.raw_metadata import RawField, RawSnapshot
from compaction_pipeline.iceberg.failures import translated
from compaction_pipeline.iceberg.manifests.entries import check_live_count, readable
from compaction_pipeline.iceberg.manifests.lists import read_manifests
from compaction_pipeline.iceberg.manifests.partition_bytes import PartitionDecoder
from compaction_pipeline.iceberg.second_look import looked_at_twice

_NEWEST_FORMAT = 3
_ENCRYPTION_KEY = "encryption.key-id"
_WITHOUT_MANIFESTS = "'exists' and 'quiet' need them; use 'watermark', 'flag' or 'reported'"


@dataclass(frozen=True)
class Handle:
    """What opens the manifests of a store: a FileIO, which the catalog gave at `read_at` of a monotonic clock, and where they are named."""

    io: FileIO
    format_version: int
    snapshots: Mapping[int, RawSnapshot]
    specs: Mapping[int, Sequence[RawField]]
    read_at: float = 0.0


class Listed(NamedTuple):
    """What equal entries of a manifest have in common: their partition, status, snapshot and data sequence number, inherited or not."""

    place: Place
    status: int
    snapshot_id: int
    sequence: int


class ManifestPlaces:
    """The manifests of one store. Each is read once. Threads may share it."""

    def __init__(self, store: StoreFacts) -> None:
        """Raises TableRefused when the metadata tells that its manifests cannot be read."""
        self._store = store
        self._handle: Handle = store.handle
        self._structs: dict[int, StructType] = {}
        self._listed: dict[int, Sequence[ManifestFile]] = {}
        self._read: dict[str, Counter[Listed]] = {}
        if self._handle.format_version > _NEWEST_FORMAT:
            raise TableRefused(
                f"table {store.store} is of format v{self._handle.format_version}, whose manifests this version does not read: "
                f"{_WITHOUT_MANIFESTS}"
            )
        if _ENCRYPTION_KEY in store.properties:
            raise self._encrypted(f"'{_ENCRYPTION_KEY}' is {store.properties[_ENCRYPTION_KEY]!r}")

    def manifests(self, snapshot_id: int) -> Sequence[ManifestFile]:
        """The manifests of a snapshot. Raises TableRefused when they are encrypted, and StorageUnavailable."""
        if snapshot_id not in self._listed:
            self._listed[snapshot_id] = self._list(snapshot_id)
        return self._listed[snapshot_id]

    def entries(self, manifest: ManifestFile) -> Counter[Listed]:
        """How often a manifest has which entries, DELETED ones included. Raises TableRefused for unknown partitions, StorageUnavailable."""
        if manifest.manifest_path not in self._read:
            with translated(f"table {self._store.store}"):
                self._read[manifest.manifest_path] = _counted(self._handle.io, manifest, self._struct(manifest.partition_spec_id))
        return self._read[manifest.manifest_path]

    def _list(self, snapshot_id: int) -> Sequence[ManifestFile]:
        named = self._handle.snapshots[snapshot_id]
        if named.key_id is not None:
            raise self._encrypted(f"its snapshot {snapshot_id} has the key {named.key_id!r}")
        summary = self._store.history.snapshots[snapshot_id].summary
        snapshot = IcebergSnapshot(
            **{"snapshot-id": snapshot_id, "timestamp-ms": 0, "manifest-list": named.manifest_list, "manifests": named.manifests},
            # Only its counts are looked at.
            summary=Summary(Operation.APPEND, **{key: value for key, value in summary.items() if key != "operation"}),
        )
        with translated(f"table {self._store.store}"):
            manifests = read_manifests(self._handle.io, snapshot)
        for one in manifests:
            if one.key_metadata:
                raise self._encrypted(f"its manifest {one.manifest_path} has a key")
        return manifests

    def _encrypted(self, why: str) -> TableRefused:
        return TableRefused(f"table {self._store.store} is encrypted ({why}), so its manifests cannot be read: {_WITHOUT_MANIFESTS}")

    def _struct(self, spec_id: int) -> StructType:
        known = self._structs.get(spec_id)
        if known is None:
            fields = self._handle.specs.get(spec_id)
            if fields is None:
                raise TableRefused(f"table {self._store.store} has files of partition spec {spec_id}, which its metadata lacks")
            known = self._structs[spec_id] = StructType(*[self._partition_field(one) for one in fields])
        return known

    def _partition_field(self, one: RawField) -> NestedField:
        """The field of the partition values. Raises TableRefused when this version does not know their type."""
        known, transform = one.known, parse_transform(one.known.transform)
        if isinstance(transform, VoidTransform):
            kind: IcebergType = _type_of(known.source_type) if known.source_type else UnknownType()
        elif isinstance(transform, UnknownTransform) or len(one.source_ids) > 1 or not known.source_type:
            source = known.source_type or "no known column"
            raise TableRefused(
                f"table {self._store.store}: its partition field {known.name!r} ({known.transform} of {source}) is not known to this "
                f"version, so its partitions cannot be told apart: {_WITHOUT_MANIFESTS}"
            )
        else:
            kind = transform.result_type(_type_of(known.source_type))
        return NestedField(one.field_id, known.name, kind, required=False)


@looked_at_twice
def _counted(io: FileIO, manifest: ManifestFile, struct: StructType) -> Counter[Listed]:
    with io.new_input(manifest.manifest_path).open() as stream:
        content = stream.read()
    found: Counter[Listed] = Counter()
    places: dict[Partition, Place] = {}
    with readable(f"manifest {manifest.manifest_path}"):
        decoder = ManifestDecoder(content)
        partitions = PartitionDecoder(decoder.partition_type, struct)
        for entry in decoder.entries():
            partition = partitions.read(entry.partition)
            place = places.setdefault(partition, (manifest.partition_spec_id, partition))
            snapshot_id = manifest.added_snapshot_id if entry.snapshot_id is None else entry.snapshot_id
            sequence = manifest.sequence_number if entry.sequence_number is None else entry.sequence_number
            found[Listed(place, entry.status, snapshot_id or 0, sequence or 0)] += 1
    check_live_count(manifest, sum(count for one, count in found.items() if one.status != ManifestEntryStatus.DELETED))
    return found


def _type_of(text: str) -> IcebergType:
    return NestedField.model_validate({"id": 1, "name": "n", "type": text, "required": False}).field_type
