"""What the manifests of a snapshot say, read by fastavro, which shares no code with the product's decoder.

Fields go by their ids, because writers name the parts of maps and lists differently.
"""

from __future__ import annotations

import io
from collections import Counter
from typing import Any

import fastavro
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

_DATA_FILE, _STATUS, _DELETED = 2, 0, 2
_NUMBERS = {1: "added_snapshot_id", 3: "sequence_number", 4: "sequence_number"}
"""The fields of an entry that are inherited from the manifest, and where the manifest has them."""
# Of these two, v1 requires one and v2 the other; where they lack they have these values.
_DEFAULTS = {105: 64 << 20, 134: 0}


def live_entries(table: Table) -> Counter[str]:
    """Every live entry of the head of a table, with all that it says and inherits, whatever manifest it stands in."""
    snapshot = table.current_snapshot()
    found: Counter[str] = Counter()
    for manifest in snapshot.manifests(table.io) if snapshot is not None else ():
        found.update(entries_of(table, manifest))
    return found


def entries_of(table: Table, manifest: ManifestFile) -> list[str]:
    """The live entries of one manifest."""
    with table.io.new_input(manifest.manifest_path).open() as stream:
        reader = fastavro.reader(io.BytesIO(stream.read()))
        schema: Any = reader.writer_schema
        return [repr(_said(schema, entry, manifest)) for entry in reader if entry["status"] != _DELETED]  # type: ignore[index, call-overload]


def _said(schema: Any, entry: Any, manifest: ManifestFile) -> list[tuple[int, Any]]:
    fields = {field["field-id"]: (field["type"], entry[field["name"]]) for field in schema["fields"]}
    numbers = {number: fields.get(number, (None, None))[1] for number in _NUMBERS}
    for number, attribute in _NUMBERS.items():
        if numbers[number] is None and (number == 1 or fields[_STATUS][1] == 1 or manifest.sequence_number == 0):
            numbers[number] = getattr(manifest, attribute)
    kind, file = fields[_DATA_FILE]
    said = {**_DEFAULTS, **{field["field-id"]: _plain(field["type"], file[field["name"]]) for field in kind["fields"]}}
    filled = sorted((number, value) for number, value in said.items() if value is not None)
    return [(-1, manifest.partition_spec_id), (-2, int(manifest.content)), *sorted(numbers.items()), *filled]


def _plain(kind: Any, value: Any) -> Any:
    """A value without the names that its schema gives to the parts of maps, lists and records."""
    if isinstance(value, dict):
        record = kind if isinstance(kind, dict) else next(each for each in kind if isinstance(each, dict))
        return [(field["field-id"], repr(value[field["name"]])) for field in record["fields"]]
    if isinstance(value, list):
        return [tuple(each.values()) if isinstance(each, dict) else each for each in value]
    return value
