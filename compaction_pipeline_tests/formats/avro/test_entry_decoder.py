"""Manifests are decoded without a table, and those that break the specification are refused in words.

`iceberg/test_entry_decoder.py` compares with fastavro on manifests of tables.
"""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest

from compaction_pipeline.formats.avro.entry_decoder import ManifestDecoder
from compaction_pipeline.formats.avro.values import DamagedAvro, UnknownAvro


def _manifest(entries: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    counts = {"type": "record", "name": "k", "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "long"}]}
    partition = {"type": "record", "name": "p", "fields": [{"name": "day", "type": ["null", "int"], "field-id": 1000}]}
    file = [
        {"name": "file_path", "type": "string", "field-id": 100},
        {"name": "file_format", "type": "string", "field-id": 101},
        {"name": "partition", "type": partition, "field-id": 102},
        {"name": "record_count", "type": "long", "field-id": 103},
        {"name": "file_size_in_bytes", "type": "long", "field-id": 104},
        {"name": "value_counts", "type": ["null", {"type": "array", "items": counts}], "field-id": 109},
        {"name": "equality_ids", "type": ["null", {"type": "array", "items": "int"}], "field-id": 135},
    ]
    fields = [
        {"name": "status", "type": "int", "field-id": 0},
        {"name": "snapshot_id", "type": ["null", "long"], "field-id": 1},
        {"name": "data_file", "type": {"type": "record", "name": "f", "fields": file}, "field-id": 2},
    ]
    fastavro.writer(out, {"type": "record", "name": "manifest_entry", "fields": fields}, entries, codec="deflate")
    return out.getvalue()


def _entry(path: str, **others: Any) -> dict[str, Any]:
    file = {"file_path": path, "file_format": "PARQUET", "partition": {"day": 7}, "record_count": 300, "file_size_in_bytes": 1 << 33}
    return {"status": 1, "snapshot_id": None, "data_file": {**file, "value_counts": None, "equality_ids": None, **others}}


_ENTRIES = [
    _entry("s3://lake/a"),
    _entry("s3://lake/ß", value_counts=[{"key": number, "value": 300} for number in range(200)], equality_ids=[2, 1]),
]


def test_what_planning_needs_is_decoded_and_the_counts_are_skipped() -> None:
    first, second = ManifestDecoder(_manifest(_ENTRIES)).entries()
    assert (first.path, first.record_count, first.file_size_bytes, first.snapshot_id, first.equality_ids) == (
        "s3://lake/a",
        300,
        1 << 33,
        None,
        None,
    )
    # Null stands first in the union, so 7 is its second branch and the number.
    assert first.partition == b"\x02\x0e"
    assert (second.path, second.equality_ids, second.data_file) == ("s3://lake/ß", [2, 1], None)


def test_paths_alone_are_those_of_the_entries_in_every_shape() -> None:
    entries = []
    for number in range(1000):
        counts = [{"key": key, "value": number} for key in range((0, 1, 3, 200)[number % 4])]
        entry = _entry(f"s3://lake/{'ß' * (number % 90)}{number}", value_counts=counts)
        entries.append(entry | {"status": number % 3, "snapshot_id": number if number % 5 else None})
    decoder = ManifestDecoder(_manifest(entries))
    assert list(decoder.paths()) == [(one["status"], one["data_file"]["file_path"]) for one in entries]
    assert list(decoder.paths()) == [(one.status, one.path) for one in decoder.entries()]


def test_a_manifest_that_was_cut_anywhere_is_damaged() -> None:
    content = _manifest(_ENTRIES)
    header = len(_manifest([]))
    for end in set(range(len(content))) - {header}:
        with pytest.raises(DamagedAvro):
            list(ManifestDecoder(content[:end]).entries())
        with pytest.raises(DamagedAvro):
            list(ManifestDecoder(content[:end]).paths())


def test_a_missing_field_that_the_specification_requires_is_named() -> None:
    out = io.BytesIO()
    file = {"type": "record", "name": "f", "fields": [{"name": "file_path", "type": "string", "field-id": 100}]}
    fields = [{"name": "status", "type": "int", "field-id": 0}, {"name": "data_file", "type": file, "field-id": 2}]
    fastavro.writer(out, {"type": "record", "name": "manifest_entry", "fields": fields}, [{"status": 1, "data_file": {"file_path": "p"}}])
    with pytest.raises(UnknownAvro, match="lacks format, record_count, file_size_bytes"):
        list(ManifestDecoder(out.getvalue()).entries())
