"""Reads keyed tables as Amoro's own reader does, in simple and slow Python.

The rules are Amoro's public ones: what a file name means (`FileNameRules`), the optimized sequence of each partition
(`MixedTableUtil`, `StatisticsFileUtil`, `MixedDataFiles`), which change files count (`MixedChangeTableScan`), which deletes meet which rows
(`BasicKeyedTableScan`, `NodeFileScanTask`), and which rows are deleted (`MixedDeleteFilter`, `DataReaderCommon`). It must not import
`compaction_pipeline`, because tests judge the product by it.
"""

from __future__ import annotations

import json
import re
import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any
from urllib.parse import unquote_plus
from uuid import UUID

from compaction_pipeline_tests.reference_reader import (
    Entry,
    Row,
    canonical,
    live_entries,
    local_path,
    located_rows,
    metadata_of,
)

Lsn = tuple[int, int]
"""The place of a row in the log of changes: its transaction, and its offset in it."""
_NAME = re.compile(r"\.?([0-9]+)-([A-Za-z0-9_]+)-([0-9]+)-([0-9]+)-([0-9]+)-.*")
_TYPES = ("B", "I", "ED", "PD", "IED", "L")
_OFFSET = {"id": 2147482645, "name": "_file_offset", "type": "long", "required": False}
_LAST_OFFSET = 2**63 - 1


@dataclass(frozen=True)
class KeyedFile:
    """A file of one of the stores. `node` is its id in the tree."""

    path: str
    partition: tuple[Any, ...]
    node: int
    type: str
    transaction: int


def amoro_rows(base: Any, change: Any) -> list[Row]:
    """The rows of a keyed table, in any order. Both stores are the path of a metadata file, or a PyIceberg table."""
    base_metadata, change_metadata = metadata_of(base), metadata_of(change)
    key = base_metadata["properties"]["mixed-format.primary-key-fields"].split(",")
    base_files = {entry.path: _base_file(entry) for entry in live_entries(base_metadata) if not entry.content}
    sequences = optimized_sequences(base_metadata)
    change_files = {
        entry.path: _change_file(entry)
        for entry in live_entries(change_metadata)
        if not entry.content and (not sequences or entry.sequence > sequences.get(_key_of(change_metadata, entry), -1))
    }
    # A file that both stores list counts once, as a change.
    files = {**base_files, **change_files}
    rows: dict[str, list[tuple[Lsn, Row]]] = defaultdict(list)
    for located in located_rows(base):
        if located.entry.path not in change_files:
            file = base_files[located.entry.path]
            offset = _LAST_OFFSET
            rows[file.path].append(((file.transaction, offset), located.row))
    for located in located_rows(change, extra_fields=[_OFFSET]):
        if located.entry.path in change_files:
            file = change_files[located.entry.path]
            offset = _LAST_OFFSET if file.type == "B" else located.row.pop("_file_offset")
            located.row.pop("_file_offset", None)
            rows[file.path].append(((file.transaction, offset), located.row))
    return [row for data in files.values() if data.type in ("B", "I") for row in _living(data, files.values(), rows, key)]


def _living(data: KeyedFile, files: Iterable[KeyedFile], rows: Mapping[str, Sequence[tuple[Lsn, Row]]], key: Sequence[str]) -> list[Row]:
    """The rows of a data file that no delete file of a related node deletes."""
    newest: dict[Any, Lsn] = {}
    for delete in files:
        if delete.type == "ED" and delete.partition == data.partition and _related(delete.node, data.node):
            for lsn, row in rows.get(delete.path, ()):
                deleted = _values(row, key)
                newest[deleted] = max(newest.get(deleted, lsn), lsn)
    return [row for lsn, row in rows.get(data.path, ()) if not newest.get(_values(row, key), lsn) > lsn]


def _values(row: Row, key: Sequence[str]) -> Any:
    return tuple(canonical(row[name]) for name in key)


# ---- names and nodes -------------------------------------------------------------------------------------------------


def _parsed(path: str) -> tuple[int, str, int] | None:
    """(Node id, type, transaction) of a file name that follows the rules."""
    found = _NAME.fullmatch(path.rsplit("/", 1)[-1])
    return (int(found[1]), found[2], int(found[3])) if found and found[2] in _TYPES else None


def _base_file(entry: Entry) -> KeyedFile:
    node, kind, transaction = _parsed(entry.path) or (1, "B", 0)
    return KeyedFile(entry.path, entry.partition, node, "B" if kind == "I" else kind, transaction)


def _change_file(entry: Entry) -> KeyedFile:
    node, kind, transaction = _parsed(entry.path) or (1, "I", 0)
    return KeyedFile(entry.path, entry.partition, node, kind, transaction or entry.sequence)


def _related(one: int, other: int) -> bool:
    """Whether a row may be in both nodes. The bits of an id below its highest one are the index, and their number is the depth."""
    deep = min(one.bit_length(), other.bit_length()) - 1
    return one & ((1 << deep) - 1) == other & ((1 << deep) - 1)


# ---- the optimized sequence ------------------------------------------------------------------------------------------


def optimized_sequences(metadata: Mapping[str, Any]) -> dict[tuple[Any, ...], int]:
    """The optimized sequence of each partition (the canonical values of its record) at the head of a base store."""
    snapshots = {snapshot["snapshot-id"]: snapshot for snapshot in metadata.get("snapshots", [])}
    snapshot = snapshots.get(metadata.get("current-snapshot-id"))
    while snapshot is not None and "optimized-sequence.exist" not in snapshot["summary"]:
        snapshot = snapshots.get(snapshot.get("parent-snapshot-id"))
    if snapshot is None:
        legacy = json.loads(metadata["properties"].get("table.partition-properties", "{}"))
        numbers = {path: int(values["max-txId"]) for path, values in legacy.items() if "max-txId" in values}
    else:
        numbers = json.loads(_only_blob(metadata, snapshot["snapshot-id"]))
    fields = next(spec["fields"] for spec in metadata["partition-specs"] if spec["spec-id"] == metadata["default-spec-id"])
    types = {item["id"]: item["type"] for schema in metadata["schemas"] for item in schema["fields"]}
    if all(item["transform"] == "void" for item in fields):
        return dict.fromkeys([()], *numbers.values()) if numbers else {}
    return {_partition(path, fields, types): number for path, number in numbers.items()}


def _key_of(metadata: Mapping[str, Any], entry: Entry) -> tuple[Any, ...]:
    fields = next(spec["fields"] for spec in metadata["partition-specs"] if spec["spec-id"] == entry.spec_id)
    return () if all(item["transform"] == "void" for item in fields) else entry.partition


def _only_blob(metadata: Mapping[str, Any], snapshot_id: int) -> bytes:
    kind = "optimized-sequence"
    (file,) = [
        file
        for file in metadata.get("statistics", [])
        if file["snapshot-id"] == snapshot_id and any(blob["type"] == kind for blob in file["blob-metadata"])
    ]
    with open(local_path(file["statistics-path"]), "rb") as source:
        content = source.read()
    (length,) = struct.unpack("<i", content[-12:-8])
    (blob,) = [blob for blob in json.loads(content[-12 - length : -12])["blobs"] if blob["type"] == kind]
    return content[blob["offset"] : blob["offset"] + blob["length"]]


def _partition(path: str, fields: Sequence[Mapping[str, Any]], types: Mapping[int, str]) -> tuple[Any, ...]:
    values = []
    for part, item in zip(path.split("/"), fields, strict=True):
        text = part.partition("=")[2]
        known = text != "null" and unquote_plus(text) != "__HIVE_DEFAULT_PARTITION__"
        values.append(canonical(_value(unquote_plus(text), item["transform"], types[item["source-id"]]) if known else None))
    return tuple(values)


def _value(text: str, transform: str, kind: str) -> Any:
    """The value of a partition field, as fastavro reads it from a manifest."""
    if transform == "month":
        year, month = map(int, text.split("-"))
        return (year - 1970) * 12 + month - 1
    if transform == "hour":
        moment = datetime.strptime(text, "%Y-%m-%d-%H").replace(tzinfo=timezone.utc)
        return int(moment.timestamp()) // 3600
    if transform.startswith("bucket") or transform == "year":
        return int(text)
    if transform == "day" or kind == "date":
        return date.fromisoformat(text)
    if kind in ("int", "long"):
        return int(text)
    if kind in ("timestamp", "timestamptz"):
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    if kind == "boolean":
        return text.lower() == "true"
    if kind in ("float", "double"):
        return float(text)
    if kind.startswith("decimal"):
        return Decimal(text)
    return UUID(text) if kind == "uuid" else text
