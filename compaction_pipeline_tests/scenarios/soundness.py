"""Checks a table's metadata beyond the rows that the reference reader finds.

Engines skip files by their counts and bounds. Wrong ones lose rows or skip deletes silently, so they are compared with the files.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.parquet as pq

from compaction_pipeline_tests.reference_reader import (
    DATA,
    EQUALITY_DELETES,
    POSITION_DELETES,
    Entry,
    entries_of,
    local_path,
    manifests_of,
    metadata_of,
)


def faults(table: Any) -> list[str]:
    """The faults in the metadata of a table's head, in words. The list is empty for a sound table."""
    metadata = metadata_of(table)
    head = next((one for one in metadata.get("snapshots", ()) if one["snapshot-id"] == metadata.get("current-snapshot-id")), None)
    if head is None:
        return []
    found: list[str] = []
    entries: list[Entry] = []
    for manifest in manifests_of(head):
        members = entries_of(manifest)
        entries += members
        found += _manifest_faults(manifest, members)
    for path, times in Counter(entry.path for entry in entries).items():
        if times > 1:
            found.append(f"{path} is listed {times} times")
    by_path = {entry.path: entry for entry in entries if entry.content == DATA}
    for entry in entries:
        found += _file_faults(entry, by_path)
    return found + _total_faults(head.get("summary", {}), entries)


def _manifest_faults(manifest: Mapping[str, Any], members: Sequence[Entry]) -> list[str]:
    found = []
    lowest = manifest.get("min_sequence_number") or 0
    if any(entry.sequence < lowest for entry in members):
        found.append(f"{manifest['manifest_path']} holds a file older than its min_sequence_number {lowest}")
    kinds = {entry.content == DATA for entry in members}
    if len(kinds) > 1 or (kinds and kinds != {not manifest.get("content")}):
        found.append(f"{manifest['manifest_path']} mixes data and delete files")
    if os.path.getsize(local_path(manifest["manifest_path"])) != manifest["manifest_length"]:
        found.append(f"{manifest['manifest_path']} is not of its stated length")
    return found


def _file_faults(entry: Entry, data: Mapping[str, Entry]) -> list[str]:
    path = local_path(entry.path)
    if not os.path.exists(path):
        return [f"live file {entry.path} is not there"]
    found = []
    if os.path.getsize(path) != entry.file["file_size_in_bytes"]:
        found.append(f"{entry.path} is not of its stated size")
    if _rows(path) != entry.file["record_count"]:
        found.append(f"{entry.path} does not hold its stated {entry.file['record_count']} rows")
    if entry.content == EQUALITY_DELETES and not entry.file.get("equality_ids"):
        found.append(f"{entry.path} has no equality ids")
    referenced = data.get(entry.file.get("referenced_data_file") or "")
    here = (entry.spec_id, entry.partition)
    if entry.content == POSITION_DELETES and referenced is not None and here != (referenced.spec_id, referenced.partition):
        found.append(f"{entry.path} stands in another partition than the file that it deletes from")
    return found


def _rows(path: str) -> int:
    return int(pq.read_metadata(path).num_rows)


def _total_faults(summary: Mapping[str, str], entries: Sequence[Entry]) -> list[str]:
    kinds = Counter(entry.content for entry in entries)
    rows: Counter[int] = Counter()
    for entry in entries:
        rows[entry.content] += entry.file["record_count"]
    actual = {
        "total-data-files": kinds[DATA],
        "total-delete-files": kinds[POSITION_DELETES] + kinds[EQUALITY_DELETES],
        "total-records": rows[DATA],
        "total-position-deletes": rows[POSITION_DELETES],
        "total-equality-deletes": rows[EQUALITY_DELETES],
        "total-files-size": sum(entry.file["file_size_in_bytes"] for entry in entries),
    }
    return [
        f"{key} is {summary[key]} but should be {value}" for key, value in actual.items() if key in summary and int(summary[key]) != value
    ]
