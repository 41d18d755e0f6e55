"""Tells what the metadata of a loaded table says: its head, its layout, and why it may be refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from compaction_pipeline.core.tables.table import ManifestRef, SnapshotSummary, TableHead, TableIdentifier, TableLayout, data_folder
from compaction_pipeline.iceberg.manifests.lists import read_manifests
from compaction_pipeline.iceberg.manifests.partitions import is_unpartitioned
from compaction_pipeline.iceberg.opened_paths import opens_elsewhere

_ANCESTORS = 100
_ENCRYPTION_KEY = "encryption.key-id"


def manifests_of(snapshot: Snapshot, io: FileIO) -> Sequence[ManifestFile]:
    """The manifests of a snapshot."""
    return read_manifests(io, snapshot)


def manifest_ref(manifest: ManifestFile) -> ManifestRef:
    """The manifest as the core sees it."""
    return ManifestRef(
        path=manifest.manifest_path,
        content="DELETES" if manifest.content == ManifestContent.DELETES else "DATA",
        spec_id=manifest.partition_spec_id,
        added_snapshot_id=manifest.added_snapshot_id or 0,
        sequence_number=manifest.sequence_number,
        handle=manifest,
    )


def head_of(table: TableIdentifier, loaded: Table) -> TableHead:
    """The head of a loaded table. If the table is refused for what its contents are, it holds the reason."""
    metadata = loaded.metadata
    snapshot = metadata.snapshot_by_name(MAIN_BRANCH)
    return TableHead(
        table=table,
        table_uuid=str(metadata.table_uuid),
        metadata_location=loaded.metadata_location,
        snapshot_id=snapshot.snapshot_id if snapshot else None,
        sequence_number=_sequence_number(metadata, snapshot),
        ancestors=tuple(_ancestors(metadata, snapshot)),
        layout=layout_of(metadata),
        refusal=refusal_of_contents(metadata),
    )


def layout_of(metadata: TableMetadata) -> TableLayout:
    """All schemas, specs and sort orders, as JSON of the spec's appendix C."""
    specs = metadata.specs()
    return TableLayout(
        location=metadata.location,
        format_version=metadata.format_version,
        schema_id=metadata.current_schema_id,
        schemas={schema.schema_id: schema.model_dump_json() for schema in metadata.schemas},
        default_spec_id=metadata.default_spec_id,
        specs={spec_id: spec.model_dump_json() for spec_id, spec in specs.items()},
        default_sort_order_id=metadata.default_sort_order_id,
        sort_orders={order.order_id: order.model_dump_json() for order in metadata.sort_orders},
        unpartitioned_spec_ids=unpartitioned_spec_ids(metadata),
        properties=dict(metadata.properties),
    )


def unpartitioned_spec_ids(metadata: TableMetadata) -> frozenset[int]:
    """The partition specs whose equality deletes are global."""
    return frozenset(spec_id for spec_id, spec in metadata.specs().items() if is_unpartitioned(spec))


def refusal_of_contents(metadata: TableMetadata, newest: int = 2) -> str | None:
    """Why we neither compact this table nor merge changes into it, as far as its metadata tells. Avro, ORC and encrypted files are found in
    the manifests; `refusal_of_part` in `iceberg/plain_tables.py` says which tables are part of a keyed one. `newest` is the newest format
    that the caller writes."""
    properties: Mapping[str, str] = metadata.properties
    if metadata.format_version > newest:
        known = " or ".join((", ".join(map(str, range(1, newest))), str(newest)))
        return f"format version is {metadata.format_version} but must be {known}: this version does not write newer formats"
    if _ENCRYPTION_KEY in properties:
        return f"'{_ENCRYPTION_KEY}' is {properties[_ENCRYPTION_KEY]!r}: files of an encrypted table cannot be read or written"
    for place in (metadata.location, data_folder(metadata.location, properties), properties.get("write.metadata.path", "")):
        if opens_elsewhere(place):
            return f"the location {place!r} holds '?' or '#': programs cut such a path off there, and open other files; move the table"
    main = metadata.refs.get(MAIN_BRANCH)
    named = main.snapshot_id if main else metadata.current_snapshot_id
    if named is not None and metadata.snapshot_by_id(named) is None:
        return f"the current snapshot id is {named} but the metadata holds no such snapshot: roll the table back to one that exists"
    return None


def _sequence_number(metadata: TableMetadata, snapshot: Snapshot | None) -> int:
    if snapshot is None or metadata.format_version < 2:
        return 0
    return snapshot.sequence_number or 0


def _ancestors(metadata: TableMetadata, snapshot: Snapshot | None) -> Iterator[SnapshotSummary]:
    by_id = {one.snapshot_id: one for one in metadata.snapshots}
    for _ in range(_ANCESTORS):
        if snapshot is None:
            return
        yield SnapshotSummary(
            snapshot_id=snapshot.snapshot_id,
            parent_snapshot_id=snapshot.parent_snapshot_id,
            sequence_number=snapshot.sequence_number or 0,
            timestamp_ms=snapshot.timestamp_ms,
            operation=snapshot.summary.operation.value if snapshot.summary else "",
            summary=dict(snapshot.summary.additional_properties) if snapshot.summary else {},
        )
        snapshot = by_id.get(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id is not None else None
