"""Finds the rows that a reader of an Iceberg table must see, without any code of the product or of PyIceberg.

It reads metadata as JSON and Avro, and rows as plain Python values. Each rule of the spec ("Scan Planning", "Column Projection")
is written out once, in simple and slow code. It reads only Parquet tables of local files, of format v1 and v2. It must not import
`compaction_pipeline`, because tests judge the product by it.
"""

from __future__ import annotations

import json
import os
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from functools import lru_cache
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

_FILE_PATH_ID, _POS_ID = 2147483546, 2147483545
DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2
_DELETED = 2

Row = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """A live manifest entry. `file` is the data file as read from Avro, and inherited sequence numbers are filled in."""

    file: Mapping[str, Any]
    spec_id: int
    sequence: int
    manifest: str

    @property
    def path(self) -> str:
        return str(self.file["file_path"])

    @property
    def content(self) -> int:
        return int(self.file.get("content") or 0)

    @property
    def partition(self) -> tuple[Any, ...]:
        return tuple(canonical(value) for value in self.file["partition"].values())


@dataclass(frozen=True)
class LocatedRow:
    """A live row and its place. `position` counts the rows of the whole file from 0."""

    entry: Entry
    position: int
    row: Row


@dataclass
class Column:
    """A column of a data file: its Iceberg field id (None when unknown), its name, and the columns inside it."""

    id: int | None
    name: str
    children: list[Column] = field(default_factory=list)


def metadata_of(table: Any) -> dict[str, Any]:
    """The metadata JSON of a metadata file's path, or of a PyIceberg table (as it was loaded; the newest is not fetched)."""
    location = table if isinstance(table, str) else table.metadata_location
    with open(local_path(location), encoding="utf-8") as source:
        return dict(json.load(source))


def reference_rows(table: Any, snapshot_id: int | None = None) -> list[Row]:
    """The rows of the current (or the given) snapshot by column name, in any order. `table` is as in `metadata_of`."""
    return [located.row for located in located_rows(table, snapshot_id)]


def located_rows(table: Any, snapshot_id: int | None = None, extra_fields: Sequence[Mapping[str, Any]] = ()) -> list[LocatedRow]:
    """The rows of `reference_rows`, each with the entry of its data file and its position in that file.

    `extra_fields` are fields that files may have and the schema lacks, as JSON of the schema.
    """
    metadata = metadata_of(table)
    schema = _schema(metadata, metadata["current-schema-id"]) if "schemas" in metadata else metadata["schema"]
    schema = {**schema, "fields": [*schema["fields"], *extra_fields]}
    entries = live_entries(metadata, snapshot_id)
    deletes = _Deletes(metadata, entries)
    return [located for entry in entries if entry.content == DATA for located in _rows_of_file(metadata, schema, entry, deletes)]


def row_bag(rows: Iterable[Mapping[str, Any]]) -> Counter[Any]:
    """The rows as a bag (multiset). NULL, NaN, 0.0, −0.0 and values of different types differ from each other."""
    return Counter(canonical(dict(row)) for row in rows)


def bag_difference(actual: Iterable[Mapping[str, Any]], expected: Iterable[Mapping[str, Any]]) -> str:
    """The rows that are missing and those that are there too often, as a message for a failing test. Empty when the bags are equal."""
    left, right = row_bag(actual), row_bag(expected)
    if left == right:
        return ""
    lost, extra = right - left, left - right
    return f"{sum(lost.values())} rows lost, e.g. {list(lost)[:3]}; {sum(extra.values())} rows too many, e.g. {list(extra)[:3]}"


_PLAIN = {kind: kind.__name__ for kind in (type(None), bool, str, int, date, datetime)}
"""The names of the types of most values. `canonical` finds the same names, more slowly."""


def canonical(value: Any) -> Any:
    """A hashable form of a value. Two forms are equal exactly when Iceberg's values are: NaN equals NaN, −0.0 differs from 0.0."""
    plain = _PLAIN.get(type(value))
    if plain is not None:
        return (plain, value)
    if value is None or isinstance(value, (bool, str, date)):
        # datetime is a date; an aware and a naive one never compare equal.
        return (type(value).__name__, value)
    if isinstance(value, int):
        return ("int", value)
    if isinstance(value, float):
        return ("float", "NaN" if value != value else struct.pack(">d", value))
    if isinstance(value, UUID):
        return ("bytes", value.bytes)
    if isinstance(value, (bytes, bytearray)):
        return ("bytes", bytes(value))
    if isinstance(value, (dict, Mapping)):
        return ("struct", tuple(sorted((key, canonical(item)) for key, item in value.items())))
    if isinstance(value, (list, tuple)):
        return ("list", tuple(canonical(item) for item in value))
    if isinstance(value, frozenset):
        return ("map", frozenset(value))
    return (type(value).__name__, value)


MOUNTS: dict[str, str] = {}
"""Object stores whose objects are local files: maps the start of their URIs to a folder."""


def local_path(uri: str) -> str:
    """The local path of a file's URI or path, or of an object in one of `MOUNTS`."""
    for prefix, folder in MOUNTS.items():
        if uri.startswith(prefix):
            return f"{folder}/{uri.removeprefix(prefix)}"
    if not uri.startswith("file:"):
        return uri
    path = uri.removeprefix("file:")
    path = path[2:] if path.startswith("//") else path
    return path if os.path.exists(path) else unquote(path)


# ---- metadata --------------------------------------------------------------------------------------------------------


def _schema(metadata: Mapping[str, Any], schema_id: int) -> dict[str, Any]:
    return dict(next(schema for schema in metadata["schemas"] if schema["schema-id"] == schema_id))


def _spec_fields(metadata: Mapping[str, Any], spec_id: int) -> list[dict[str, Any]]:
    if "partition-specs" not in metadata:
        return list(metadata["partition-spec"])
    return list(next(spec for spec in metadata["partition-specs"] if spec["spec-id"] == spec_id)["fields"])


def _is_unpartitioned(metadata: Mapping[str, Any], spec_id: int) -> bool:
    return all(item["transform"] == "void" for item in _spec_fields(metadata, spec_id))


def _snapshot(metadata: Mapping[str, Any], snapshot_id: int | None) -> Mapping[str, Any] | None:
    wanted = metadata.get("current-snapshot-id") if snapshot_id is None else snapshot_id
    if wanted in (None, -1):
        return None
    return dict(next(snapshot for snapshot in metadata["snapshots"] if snapshot["snapshot-id"] == wanted))


def live_entries(metadata: Mapping[str, Any], snapshot_id: int | None = None) -> list[Entry]:
    """Every live file of a snapshot, data and delete files."""
    snapshot = _snapshot(metadata, snapshot_id)
    return [] if snapshot is None else [entry for manifest in manifests_of(snapshot) for entry in entries_of(manifest)]


def manifests_of(snapshot: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The manifests of a snapshot. Snapshots of format v1 may name them without a manifest list."""
    if "manifest-list" not in snapshot:
        return [{"manifest_path": path, "partition_spec_id": 0, "sequence_number": 0} for path in snapshot["manifests"]]
    return _avro(*_stamp(snapshot["manifest-list"]))


def entries_of(manifest: Mapping[str, Any]) -> list[Entry]:
    """The live entries of a manifest. They inherit sequence numbers as the spec says ("Sequence Number Inheritance")."""
    entries = []
    for raw in _avro(*_stamp(manifest["manifest_path"])):
        if raw["status"] == _DELETED:
            continue
        sequence = raw.get("sequence_number")
        if sequence is None:
            sequence = manifest.get("sequence_number") or 0
        entries.append(Entry(raw["data_file"], int(manifest["partition_spec_id"]), int(sequence), str(manifest["manifest_path"])))
    return entries


def _stamp(uri: str) -> tuple[str, int, int]:
    # Files should be immutable. By this stamp the cache notices a file that was overwritten nevertheless.
    path = local_path(uri)
    status = os.stat(path)
    return path, status.st_mtime_ns, status.st_size


@lru_cache(maxsize=4096)
def _avro(path: str, _modified: int, _size: int) -> Sequence[Mapping[str, Any]]:
    with open(path, "rb") as source:
        return [record for record in fastavro.reader(source) if isinstance(record, dict)]


# ---- deletes ---------------------------------------------------------------------------------------------------------


class _Deletes:
    """Finds the deleted rows of a data file."""

    def __init__(self, metadata: Mapping[str, Any], entries: Sequence[Entry]) -> None:
        self._metadata = metadata
        self._deletes = [entry for entry in entries if entry.content != DATA]
        self._found: dict[tuple[str, tuple[int, ...]], frozenset[Any]] = {}
        self.types = _types_by_id(metadata)

    def positions(self, data: Entry) -> frozenset[int]:
        """The positions of the rows that position deletes delete."""
        found: set[int] = set()
        for delete in self._deletes:
            same_partition = (delete.spec_id, delete.partition) == (data.spec_id, data.partition)
            if delete.content != POSITION_DELETES or delete.sequence < data.sequence or not same_partition:
                continue
            referenced = delete.file.get("referenced_data_file")
            if referenced is None or referenced == data.path:
                found.update(position for path, position in _position_pairs(*_stamp(delete.path)) if path == data.path)
        return frozenset(found)

    def equalities(self, data: Entry) -> list[tuple[tuple[int, ...], frozenset[Any]]]:
        """(field ids, keys of deleted rows) of each equality delete that applies to the data file."""
        found = []
        for delete in self._deletes:
            if delete.content != EQUALITY_DELETES or data.sequence >= delete.sequence:
                continue
            same_partition = (delete.spec_id, delete.partition) == (data.spec_id, data.partition)
            if same_partition or _is_unpartitioned(self._metadata, delete.spec_id):
                ids = tuple(delete.file["equality_ids"])
                found.append((ids, self._keys(delete, ids)))
        return found

    def _keys(self, delete: Entry, ids: tuple[int, ...]) -> frozenset[Any]:
        if (delete.path, ids) not in self._found:
            columns, rows = _parquet(self._metadata, delete)
            places = _places(columns, ids)
            self._found[delete.path, ids] = frozenset(_key(row, places, self.types, {}) for row in rows)
        return self._found[delete.path, ids]


@lru_cache(maxsize=1024)
def _position_pairs(path: str, _modified: int, _size: int) -> list[tuple[str, int]]:
    table = pq.read_table(path, partitioning=None)
    ids = {int(item.metadata[b"PARQUET:field_id"]): item.name for item in table.schema if item.metadata}
    paths, positions = ids.get(_FILE_PATH_ID, "file_path"), ids.get(_POS_ID, "pos")
    return list(zip(table[paths].to_pylist(), table[positions].to_pylist(), strict=True))


Places = Sequence[tuple[int, list[str] | None]]
"""The ids of primitive columns, which may be inside structs, with the names that lead to each; None where a file lacks the column."""


def _places(columns: Sequence[Column], ids: Sequence[int]) -> Places:
    return [(wanted, _steps(columns, wanted)) for wanted in ids]


def _key(row: Mapping[str, Any], places: Places, types: Mapping[int, Any], constants: Mapping[int, Any]) -> tuple[Any, ...]:
    return tuple(canonical(_value_at(row, wanted, steps, types, constants)) for wanted, steps in places)


def _value_at(row: Mapping[str, Any], wanted: int, steps: list[str] | None, types: Mapping[int, Any], constants: Mapping[int, Any]) -> Any:
    """The value of a column. When the file lacks the column: its constant, its default or NULL."""
    if steps is None:
        return constants.get(wanted, _default(types.get(wanted)))
    value: Any = row
    for name in steps:
        if value is None:
            return None
        value = value[name]
    return _converted(value, types[wanted]["type"])


def _steps(columns: Sequence[Column], wanted: int) -> list[str] | None:
    for column in columns:
        if column.id == wanted:
            return [column.name]
        inside = _steps(column.children, wanted)
        if inside is not None:
            return [column.name, *inside]
    return None


def _default(item: Mapping[str, Any] | None) -> Any:
    return None if item is None else item.get("initial-default")


def _types_by_id(metadata: Mapping[str, Any]) -> dict[int, Any]:
    """Every field that any schema of the table ever had. The type of the current schema wins, because it is the promoted one."""
    found: dict[int, Any] = {}
    schemas = metadata.get("schemas") or [metadata["schema"]]
    current = metadata.get("current-schema-id", 0)
    for schema in sorted(schemas, key=lambda item: (item.get("schema-id", 0) == current, item.get("schema-id", 0))):
        _collect(schema, found)
    return found


def _collect(kind: Any, found: dict[int, Any]) -> None:
    if isinstance(kind, str):
        return
    if kind["type"] == "struct":
        for item in kind["fields"]:
            found[item["id"]] = item
            _collect(item["type"], found)
    elif kind["type"] == "list":
        _collect(kind["element"], found)
    else:
        _collect(kind["key"], found)
        _collect(kind["value"], found)


# ---- rows ------------------------------------------------------------------------------------------------------------


def _rows_of_file(metadata: Mapping[str, Any], schema: Mapping[str, Any], entry: Entry, deletes: _Deletes) -> list[LocatedRow]:
    columns, rows = _parquet(metadata, entry)
    constants = _partition_constants(metadata, entry)
    positions = deletes.positions(entry)
    equalities = [(_places(columns, ids), keys) for ids, keys in deletes.equalities(entry)]
    by_id = _by_id(columns)
    kept = []
    for position, row in enumerate(rows):
        if position in positions:
            continue
        if any(_key(row, places, deletes.types, constants) in keys for places, keys in equalities):
            continue
        kept.append(LocatedRow(entry, position, _projected(row, by_id, schema["fields"], constants)))
    return kept


def _partition_constants(metadata: Mapping[str, Any], entry: Entry) -> dict[int, Any]:
    """The values of identity-partitioned columns, for files that lack the column (spec: "Column Projection")."""
    values = list(entry.file["partition"].values())
    fields = _spec_fields(metadata, entry.spec_id)
    return {item["source-id"]: value for item, value in zip(fields, values, strict=True) if item["transform"] == "identity"}


def _parquet(metadata: Mapping[str, Any], entry: Entry) -> tuple[list[Column], list[Row]]:
    if str(entry.file["file_format"]).upper() != "PARQUET":
        raise ValueError(f"{entry.path} is {entry.file['file_format']}; the reference reader reads Parquet only")
    mapping = metadata.get("properties", {}).get("schema.name-mapping.default", "[]")
    return _parquet_rows(*_stamp(entry.path), mapping)


@lru_cache(maxsize=1024)
def _parquet_rows(path: str, _modified: int, _size: int, name_mapping: str) -> tuple[list[Column], list[Row]]:
    with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as source:
        table = source.read()
    columns = [_column(item) for item in table.schema]
    if not _has_ids(columns):
        mapping = json.loads(name_mapping)
        if not mapping:
            raise ValueError(f"{path} has no field ids and the table has no name mapping")
        _assign(columns, mapping)
    return columns, table.to_pylist()


def _column(item: pa.Field) -> Column:
    metadata = item.metadata or {}
    number = metadata.get(b"PARQUET:field_id")
    kind = item.type
    children: list[Column] = []
    if pa.types.is_struct(kind):
        children = [_column(kind.field(index)) for index in range(kind.num_fields)]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = _column(kind.value_field)
        element.name = "element"
        children = [element]
    elif pa.types.is_map(kind):
        key, value = _column(kind.key_field), _column(kind.item_field)
        key.name, value.name = "key", "value"
        children = [key, value]
    return Column(None if number is None else int(number), item.name, children)


def _has_ids(columns: Sequence[Column]) -> bool:
    return any(column.id is not None or _has_ids(column.children) for column in columns)


def _assign(columns: Sequence[Column], mapping: Sequence[Mapping[str, Any]]) -> None:
    for column in columns:
        match = next((item for item in mapping if column.name in item["names"]), None)
        if match is not None:
            column.id = match.get("field-id")
            _assign(column.children, match.get("fields", []))


def _by_id(columns: Sequence[Column]) -> dict[int, Column]:
    return {column.id: column for column in columns if column.id is not None}


def _projected(row: Row, by_id: Mapping[int, Column], fields: Sequence[Mapping[str, Any]], constants: Mapping[int, Any]) -> Row:
    out: Row = {}
    for item in fields:
        column = by_id.get(item["id"])
        if column is None:
            out[item["name"]] = _converted(constants.get(item["id"], _default(item)), item["type"])
        else:
            out[item["name"]] = _value(row[column.name], column, item["type"])
    return out


def _value(value: Any, column: Column, kind: Any) -> Any:
    if value is None or isinstance(kind, str):
        return _converted(value, kind)
    if kind["type"] == "struct":
        return _projected(value, _by_id(column.children), kind["fields"], {})
    if kind["type"] == "list":
        return [_value(item, column.children[0], kind["element"]) for item in value]
    key, item = column.children
    # The entries of a map have no order, so they become a frozenset.
    return frozenset((canonical(_value(k, key, kind["key"])), canonical(_value(v, item, kind["value"]))) for k, v in value)


def _converted(value: Any, kind: Any) -> Any:
    """A file's value in the table's type. This covers promotions, and bytes that Arrow reads as another type than Iceberg."""
    if value is None or not isinstance(kind, str):
        return value
    if kind in ("float", "double"):
        return float(value)
    if isinstance(value, datetime):
        if kind == "timestamptz":
            return (value if value.tzinfo else value.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
        return value.replace(tzinfo=None)
    if kind == "string" and isinstance(value, bytes):
        return value.decode()
    return value
