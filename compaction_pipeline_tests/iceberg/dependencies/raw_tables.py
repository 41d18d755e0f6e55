"""Metadata of tables as the Iceberg specification writes it, also of tables that PyIceberg or this program refuses."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any
from uuid import uuid4

HOUR = 3_600_000
UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
FIRST, HEAD, TAGGED = 3051729675574597004, 3055729675574597004, 77

_V2: dict[str, Any] = {
    "format-version": 2,
    "table-uuid": UUID,
    "location": "s3://bucket/shop/orders",
    "last-sequence-number": 3,
    "last-updated-ms": 2 * HOUR,
    "last-column-id": 4,
    "current-schema-id": 1,
    "schemas": [
        {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": True, "type": "long"}]},
        {
            "type": "struct",
            "schema-id": 1,
            "identifier-field-ids": [1],
            "fields": [
                {"id": 1, "name": "id", "required": True, "type": "long"},
                {"id": 2, "name": "at", "required": False, "type": "timestamptz"},
                {"id": 3, "name": "place", "required": False, "type": {
                    "type": "struct", "fields": [{"id": 4, "name": "town", "required": False, "type": "string"}]}},
            ],
        },
    ],
    "default-spec-id": 1,
    "partition-specs": [
        {"spec-id": 0, "fields": []},
        {"spec-id": 1, "fields": [
            {"name": "at_day", "transform": "day", "source-id": 2, "field-id": 1000},
            {"name": "town_bucket", "transform": "bucket[16]", "source-id": 4, "field-id": 1001}]},
    ],
    "last-partition-id": 1001,
    "default-sort-order-id": 0,
    "sort-orders": [{"order-id": 0, "fields": []}],
    "properties": {"watermark.table": "7200000", "write.format.default": "parquet"},
    "current-snapshot-id": HEAD,
    "refs": {
        "main": {"snapshot-id": HEAD, "type": "branch"},
        "audit": {"snapshot-id": TAGGED, "type": "tag", "max-ref-age-ms": 9 * HOUR},
    },
    "snapshots": [
        {"snapshot-id": FIRST, "timestamp-ms": HOUR, "sequence-number": 1, "schema-id": 0,
         "summary": {"operation": "append", "flink.watermark": "3600000"}, "manifest-list": "s3://bucket/a.avro"},
        {"snapshot-id": HEAD, "parent-snapshot-id": FIRST, "timestamp-ms": 2 * HOUR, "sequence-number": 2, "schema-id": 1,
         "summary": {"operation": "replace"}, "manifest-list": "s3://bucket/b.avro"},
        {"snapshot-id": TAGGED, "parent-snapshot-id": FIRST, "timestamp-ms": 2 * HOUR, "sequence-number": 3, "schema-id": 1,
         "summary": {"operation": "append"}, "manifest-list": "s3://bucket/c.avro"},
    ],
    "statistics": [],
    "snapshot-log": [{"snapshot-id": FIRST, "timestamp-ms": HOUR}, {"snapshot-id": HEAD, "timestamp-ms": 2 * HOUR}],
    "metadata-log": [],
}  # fmt: skip


def metadata(**changes: Any) -> dict[str, Any]:
    """Metadata of format v2 with three snapshots, the oldest of which has a watermark, and two partition specs. None takes a key away."""
    made = {**deepcopy(_V2), **{key.replace("_", "-"): value for key, value in changes.items()}}
    return {key: value for key, value in made.items() if value is not None}


def v3(**changes: Any) -> dict[str, Any]:
    """The same in format v3."""
    made = metadata(format_version=3, next_row_id=100, **changes)
    for one in made["snapshots"]:
        one |= {"first-row-id": 0, "added-rows": 10}
    return made


def with_column(kind: Any, **more: Any) -> dict[str, Any]:
    made = v3()
    made["schemas"][1]["fields"].append({"id": 5, "name": "new", "required": False, "type": kind, **more})
    return made


def with_transform(**field: Any) -> dict[str, Any]:
    made = v3()
    made["partition-specs"][1]["fields"].append({"name": "new", "field-id": 1002, **field})
    return made


def _encrypted() -> dict[str, Any]:
    made = v3(encryption_keys=[{"key-id": "k1", "encrypted-key-metadata": "AAECAw==", "encrypted-by-id": "k0"}])
    made["properties"]["encryption.key-id"] = "keyA"
    for one in made["snapshots"]:
        one["key-id"] = "k1"
    return made


def _v4() -> dict[str, Any]:
    """Paths are relative to the table's location, which the catalog knows."""
    made = metadata(format_version=4, location=None, next_row_id=0, content_root="data")
    for one in made["snapshots"]:
        one["manifest-list"] = "metadata/root.parquet"
    return made


def _v1() -> dict[str, Any]:
    """As Iceberg 0.7 wrote it: one schema, one spec without ids, no uuid, no refs, and manifests in the snapshot."""
    made = metadata(format_version=1, table_uuid=None, refs=None, schemas=None, current_schema_id=None, partition_specs=None)
    made["schema"] = _V2["schemas"][1]
    made["partition-spec"] = [{"name": "at_day", "transform": "day", "source-id": 2}]
    for key in ("default-spec-id", "last-sequence-number", "last-partition-id", "default-sort-order-id", "sort-orders"):
        del made[key]
    for one in made["snapshots"]:
        for key in ("sequence-number", "schema-id", "manifest-list"):
            del one[key]
        one["manifests"] = ["s3://bucket/m.avro"]
    return made


KINDS: Mapping[str, dict[str, Any]] = {
    "variant": with_column("variant"),
    "geometry": with_column("geometry(srid:4326)"),
    "geography": with_column("geography(srid:4326, spherical)"),
    "unknown type": with_column("interval(day)"),
    "struct default": with_column({"type": "struct", "fields": []}, **{"initial-default": {}, "write-default": {}}),
    "unknown transform": with_transform(transform="zorder", **{"source-id": 1}),
    "transform of several columns": with_transform(transform="bucketV2[4]", **{"source-ids": [1, 4]}),
    "encrypted": _encrypted(),
    "v4": _v4(),
    "v1": _v1(),
    "ORC": metadata(properties={"write.format.default": "orc"}),
    "paused": metadata(properties={"self-optimizing.enabled": "false", "compaction.enabled": "false"}),
    "location with a question mark": metadata(location="s3://bucket/shop/or?ders"),
    "statistics of an unknown blob": metadata(statistics=[{
        "snapshot-id": HEAD, "statistics-path": "s3://bucket/s.puffin", "file-size-in-bytes": 4, "file-footer-size-in-bytes": 4,
        "blob-metadata": [{"type": "strange", "snapshot-id": HEAD, "sequence-number": 1, "fields": []}]}]),
    "store of an unknown kind": metadata(properties={"table-format": "MIXED_HIVE"}),
    "snapshot without an operation": metadata(refs=None, snapshots=[{
        "snapshot-id": HEAD, "timestamp-ms": HOUR, "manifest-list": "s3://bucket/b.avro", "summary": {"flink.watermark": "3600000"}}]),
}  # fmt: skip


def written(folder: Path, said: Mapping[str, Any], *, packed: bool = False) -> str:
    """Write metadata into a file as engines name it. The result is its path."""
    path = folder / f"00001-{uuid4()}{'.gz' if packed else ''}.metadata.json"
    content = json.dumps(said).encode()
    path.write_bytes(gzip.compress(content) if packed else content)
    return f"file://{path}"
