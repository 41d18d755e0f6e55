"""Makes Iceberg tables of any number of files in seconds. Their metadata and manifests are real, but their data files do not exist.

They serve benchmarks that read only metadata: scans, plans and idle ticks. As a writer's manifests do, these hold the sizes, counts and
bounds of every column.
"""

from __future__ import annotations

import io
import json
import random
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import fastavro
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus, ManifestFile, write_manifest_list
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType, TimestamptzType

from compaction_pipeline.core.tables.data_file import FileContent, OutputFile
from compaction_pipeline.core.tables.keyed.creation import KeyedOptions
from compaction_pipeline.formats.avro.frames import read_frame, write_frame
from compaction_pipeline.iceberg.catalogs import SqlCatalog
from compaction_pipeline.iceberg.keyed.create import create_stores
from compaction_pipeline.iceberg.manifests.entries import ManifestWriter, data_file_of, entry_of
from compaction_pipeline.iceberg.manifests.partitions import partition_struct

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "customer", LongType(), required=False),
    NestedField(3, "price", DoubleType(), required=False),
    NestedField(4, "quantity", IntegerType(), required=False),
    NestedField(5, "status", StringType(), required=False),
    NestedField(6, "region", StringType(), required=False),
    NestedField(7, "ordered_at", TimestamptzType(), required=False),
    NestedField(8, "day", IntegerType(), required=False),
)
SPEC = PartitionSpec(PartitionField(8, 1000, IdentityTransform(), "day"))
ENTRIES_PER_MANIFEST = 20_000
"""A manifest of this many entries has about 8 MB, Iceberg's target size."""
_BUCKETS = 4

MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Fake:
    """One data file that does not exist."""

    path: str
    day: int
    file_size_bytes: int
    record_count: int


def make_catalog(folder: Path, name: str = "bench", **properties: str) -> SqlCatalog:
    """Make a SQL catalog and a warehouse below `folder`, or where `properties` say."""
    folder.mkdir(parents=True, exist_ok=True)
    own = {"uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": (folder / "warehouse").as_uri()}
    catalog = SqlCatalog(name, **{**own, **properties})
    catalog.create_namespace_if_not_exists("db")
    return catalog


def make_table(catalog: SqlCatalog, name: str, *, partitioned: bool = True, **properties: str) -> Table:
    """Create an empty table of format 2."""
    spec = SPEC if partitioned else PartitionSpec()
    return catalog.create_table(("db", name), SCHEMA, partition_spec=spec, properties={"format-version": "2", **properties})


def fakes(count: int, partitions: int, size_bytes: int, seed: int = 1) -> Iterator[Fake]:
    """Files of `size_bytes` ± 10 %. They go to all partitions in turn, so every manifest holds files of every partition."""
    drawn = random.Random(seed)
    for number in range(count):
        size = int(size_bytes * drawn.uniform(0.9, 1.1))
        day = number % partitions
        yield Fake(f"data/day={day}/{number:08d}-{drawn.getrandbits(64):016x}-00001.parquet", day, size, size // 60)


def make_keyed_table(catalog: SqlCatalog, name: str, **properties: str) -> tuple[Table, Table]:
    """Create an empty keyed table with four tree nodes in each partition. Returns its base store and its change store."""
    create_stores(catalog, ("db", name), SCHEMA, SPEC, KeyedOptions(primary_key=["id", "day"], buckets=_BUCKETS), properties)
    return catalog.load_table(("db", name)), catalog.load_table(("db", f"{name}_change_"))


def keyed_fakes(count: int, partitions: int, size_bytes: int, kind: str, seed: int = 1) -> Iterator[Fake]:
    """The same for a store of a keyed table. The files go to the tree nodes of each partition in turn. `kind` is B for files of the base
    store, and I or ED for changes."""
    for number, fake in enumerate(fakes(count, partitions, size_bytes, seed)):
        node = _BUCKETS + number // partitions % _BUCKETS
        # Transaction 0 means that no change was merged into a base file, and that a change has its sequence number as its transaction.
        yield replace(fake, path=f"data/day={fake.day}/{node}-{kind}-0-00000-{seed}-{number}-00001.parquet")


def append(
    table: Table,
    files: Iterator[Fake] | Sequence[Fake],
    *,
    parent_manifests: bool = True,
    per_manifest: int = ENTRIES_PER_MANIFEST,
) -> Table:
    """Commit one APPEND snapshot with these files. As in a fast append, they get new manifests, and the old manifests stay.

    Without `parent_manifests` the snapshot has only these files, as if it had overwritten the table.
    """
    metadata = table.metadata
    parent = metadata.current_snapshot()
    snapshot_id, sequence = random.getrandbits(62), metadata.last_sequence_number + 1
    new = _new_manifests(table, files, snapshot_id, sequence, per_manifest)
    manifests = [*new, *(parent.manifests(table.io) if parent and parent_manifests else ())]
    path = f"{metadata.location}/metadata/snap-{snapshot_id}-0-{uuid4()}.avro"
    parent_id = parent.snapshot_id if parent else None
    with write_manifest_list(2, table.io.new_output(path), snapshot_id, parent_id, sequence, "gzip") as writer:
        writer.add_manifests(manifests)
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent_id,
        sequence_number=sequence,
        timestamp_ms=metadata.last_updated_ms + 1,
        manifest_list=path,
        summary=Summary(Operation.APPEND),
        schema_id=metadata.current_schema_id,
    )
    with table.transaction() as transaction:
        transaction._apply(
            (
                AddSnapshotUpdate(snapshot=snapshot),
                SetSnapshotRefUpdate(ref_name=MAIN_BRANCH, type=SnapshotRefType.BRANCH, snapshot_id=snapshot_id),
            )
        )
    return table.refresh()


def overwrite_often(catalog: SqlCatalog, table: Table, files: Sequence[Fake], snapshots: int, per_manifest: int) -> Table:
    """Give an empty table this many snapshots at once, as if each commit had replaced all files by its own share of `files`.

    Every snapshot has a list of its own, and some follow each other with the same manifest. Writing metadata after each commit would take
    days.
    """
    lists = [_listed(table, manifest) for manifest in _new_manifests(table, files, 1, 1, per_manifest)]
    said: list[dict[str, Any]] = []
    for number in range(1, snapshots + 1):
        header, blocks = lists[(number - 1) * len(lists) // snapshots]
        path = f"{table.location()}/metadata/snap-{number}-0-{uuid4()}.avro"
        with table.io.new_output(path).create() as stream:
            stream.write(write_frame({**header, "snapshot-id": str(number), "sequence-number": str(number)}, blocks))
        one = {"snapshot-id": number, "sequence-number": number, "timestamp-ms": table.metadata.last_updated_ms + number}
        one |= {"manifest-list": path, "summary": {"operation": "overwrite"}, "schema-id": 0}
        said.append(one | ({"parent-snapshot-id": number - 1} if number > 1 else {}))
    log = [{"snapshot-id": one["snapshot-id"], "timestamp-ms": one["timestamp-ms"]} for one in said]
    newest = {"last-sequence-number": snapshots, "last-updated-ms": said[-1]["timestamp-ms"], "current-snapshot-id": snapshots}
    refs = {MAIN_BRANCH: {"snapshot-id": snapshots, "type": "branch"}}
    metadata = json.loads(table.metadata.model_dump_json()) | newest | {"snapshots": said, "snapshot-log": log, "refs": refs}
    path = f"{table.location()}/metadata/00001-{uuid4()}.metadata.json"
    with table.io.new_output(path).create() as stream:
        stream.write(json.dumps(metadata).encode())
    catalog.drop_table(table.name())
    return catalog.register_table(table.name(), path)


def _listed(table: Table, manifest: ManifestFile) -> tuple[dict[str, str], list[tuple[int, bytes]]]:
    """The header and the blocks of a list that names this manifest."""
    path = f"{table.location()}/metadata/{uuid4()}-template.avro"
    with write_manifest_list(2, table.io.new_output(path), 1, None, 1, "gzip") as writer:
        writer.add_manifests([manifest])
    with table.io.new_input(path).open() as stream:
        content = stream.read()
    table.io.delete(path)
    frame = read_frame(content)
    return {key: value.decode() for key, value in frame.meta.items()}, list(frame.contents(content))


def show_to_java(table: Table, warehouse: Path) -> str:
    """Make the table readable in a Hadoop catalog with this warehouse. Returns its name there."""
    name = f"{table.name()[-1]}_peer"
    folder = warehouse / "db" / name / "metadata"
    folder.mkdir(parents=True, exist_ok=True)
    with table.io.new_input(table.metadata_location).open() as stream:
        (folder / "v1.metadata.json").write_bytes(stream.read())
    (folder / "version-hint.text").write_text("1")
    return f"db.{name}"


def _new_manifests(
    table: Table, files: Iterator[Fake] | Sequence[Fake], snapshot_id: int, sequence: int, per_manifest: int
) -> list[ManifestFile]:
    schema, header, described = _template(table, snapshot_id, sequence)
    manifests: list[ManifestFile] = []
    batch: list[Fake] = []
    for file in files:
        batch.append(file)
        if len(batch) == per_manifest:
            manifests.append(_written(table, batch, snapshot_id, sequence, schema, header, described))
            batch = []
    if batch:
        manifests.append(_written(table, batch, snapshot_id, sequence, schema, header, described))
    return manifests


def _template(table: Table, snapshot_id: int, sequence: int) -> tuple[Any, dict[str, str], ManifestFile]:
    """The Avro schema and header of a manifest that our writer has written, and the manifest itself."""
    metadata = table.metadata
    path = f"{metadata.location}/metadata/{uuid4()}-template.avro"
    partition = partition_struct(metadata, metadata.default_spec_id)
    # The partition's values do not matter here, because only the schema is used.
    output = OutputFile("none", FileContent.DATA, metadata.default_spec_id, (), 1, 1)
    file = data_file_of(output, type(partition)())
    file._data[3] = type(file._data[3])(*[0 for _ in partition.fields])
    writer = ManifestWriter(table.io, metadata, snapshot_id, sequence, lambda: path)
    manifest = writer.write(
        ManifestContent.DATA, metadata.default_spec_id, [entry_of(ManifestEntryStatus.ADDED, snapshot_id, None, None, file)]
    )
    with table.io.new_input(path).open() as stream:
        reader = fastavro.reader(io.BytesIO(stream.read()))
    table.io.delete(path)
    header = {key: value for key, value in reader.metadata.items() if key not in ("avro.schema", "avro.codec")}
    return reader.writer_schema, header, manifest


def _written(
    table: Table, batch: Sequence[Fake], snapshot_id: int, sequence: int, schema: Any, header: dict[str, str], described: ManifestFile
) -> ManifestFile:
    location, partitioned = table.location(), bool(table.spec().fields)
    content = _avro(schema, header, [_encoded(location, file, snapshot_id, partitioned, schema) for file in batch])
    path = f"{location}/metadata/{uuid4()}-m0.avro"
    with table.io.new_output(path).create() as stream:
        stream.write(content)
    manifest = ManifestFile.from_args(
        manifest_path=path,
        manifest_length=len(content),
        partition_spec_id=table.spec().spec_id,
        content=ManifestContent.DATA,
        sequence_number=sequence,
        min_sequence_number=sequence,
        added_snapshot_id=snapshot_id,
        added_files_count=len(batch),
        existing_files_count=0,
        deleted_files_count=0,
        added_rows_count=sum(file.record_count for file in batch),
        existing_rows_count=0,
        deleted_rows_count=0,
        partitions=described.partitions,
        key_metadata=None,
    )
    if partitioned:
        days = [file.day for file in batch]
        summary = manifest.partitions[0]
        summary._data[2], summary._data[3] = struct.pack("<i", min(days)), struct.pack("<i", max(days))
    return manifest


def _avro(schema: Any, header: dict[str, str], entries: Sequence[bytes]) -> bytes:
    """An Avro file that holds the encoded records in blocks of 500."""
    content = io.BytesIO()
    fastavro.writer(content, schema, [], codec="deflate", metadata=header)
    sync = content.getvalue()[-16:]
    for start in range(0, len(entries), 500):
        block = entries[start : start + 500]
        packed = zlib.compress(b"".join(block), 6, -15)
        content.write(_long(len(block)) + _long(len(packed)) + packed + sync)
    return content.getvalue()


def _encoded(location: str, file: Fake, snapshot_id: int, partitioned: bool, schema: Any) -> bytes:
    """One encoded record.

    Encoding a whole record by the schema is slow. The bytes behind the file size are the same for all files of a day, so they are encoded
    once.
    """
    tail = _TAILS.get(file.day)
    if tail is None:
        whole = io.BytesIO()
        fastavro.schemaless_writer(whole, schema, _entry(location, file, snapshot_id, partitioned))
        front = _front(location, file, snapshot_id, partitioned)
        assert whole.getvalue().startswith(front)
        tail = _TAILS[file.day] = whole.getvalue()[len(front) :]
    return _front(location, file, snapshot_id, partitioned) + tail


_TAILS: dict[int, bytes] = {}


def _front(location: str, file: Fake, snapshot_id: int, partitioned: bool) -> bytes:
    path = f"{location}/{file.path}".encode()
    partition = b"\x02" + _long(file.day) if partitioned else b""
    return b"".join(
        (
            b"\x02\x02",
            _long(snapshot_id),
            b"\x00\x00\x00",
            _long(len(path)),
            path,
            b"\x0ePARQUET",
            partition,
            _long(file.record_count),
            _long(file.file_size_bytes),
        )
    )


def _long(value: int) -> bytes:
    """A number as Avro writes it: zigzag, seven bits in each byte."""
    value = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _entry(location: str, file: Fake, snapshot_id: int, partitioned: bool) -> dict[str, Any]:
    low, high = _bounds(file.day)
    return {
        "status": 1,
        "snapshot_id": snapshot_id,
        "sequence_number": None,
        "file_sequence_number": None,
        "data_file": {
            "content": 0,
            "file_path": f"{location}/{file.path}",
            "file_format": "PARQUET",
            "partition": {"day": file.day} if partitioned else {},
            "record_count": file.record_count,
            "file_size_in_bytes": file.file_size_bytes,
            "column_sizes": [{"key": key, "value": 1_000_000 + key} for key in range(1, 9)],
            "value_counts": [{"key": key, "value": 2_000_000} for key in range(1, 9)],
            "null_value_counts": [{"key": key, "value": 0} for key in range(1, 9)],
            "nan_value_counts": [{"key": 3, "value": 0}],
            "lower_bounds": low,
            "upper_bounds": high,
            "key_metadata": None,
            "split_offsets": [4],
            "equality_ids": None,
            "sort_order_id": 0,
            "referenced_data_file": None,
        },
    }


def _bounds(day: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    low = [
        _fixed(0),
        _fixed(0),
        struct.pack("<d", 0.5),
        struct.pack("<i", 1),
        b"DONE",
        b"region-1",
        _fixed(1_700_000_000),
        struct.pack("<i", day),
    ]
    high = [_fixed(1 << 40), _fixed(10**6), struct.pack("<d", 1e4), struct.pack("<i", 50), b"SENT", b"region-9", _fixed(1 << 50), low[7]]
    return [[{"key": key + 1, "value": value} for key, value in enumerate(side)] for side in (low, high)]  # type: ignore[return-value]


def _fixed(value: int) -> bytes:
    return struct.pack("<q", value)
