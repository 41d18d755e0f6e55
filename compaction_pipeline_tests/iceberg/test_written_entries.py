"""No block of entries is written in which another decoder would find other files, or the same files at other places."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.formats.avro.records_at_once import RecordsAtOnce, Walked
from compaction_pipeline.iceberg.manifests import written_entries
from compaction_pipeline.iceberg.manifests.entries import ManifestWriter, entry_of, read_entries
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable


@pytest.fixture
def t(lake: Lake) -> LakeTable:
    table = lake.table()
    for number in range(3):
        table.ids(number)
    return table


def carried(t: LakeTable) -> list[ManifestEntry]:
    snapshot = t.table.refresh().current_snapshot()
    assert snapshot is not None
    return [entry for one in snapshot.manifests(t.table.io) for entry in read_entries(t.table.io, one)]


def wrong(entry: ManifestEntry, **changes: Any) -> ManifestEntry:
    file: Any = entry.data_file
    numbers = (entry.snapshot_id, entry.sequence_number, entry.file_sequence_number)
    return entry_of(ManifestEntryStatus.EXISTING, *numbers, file._replace(**changes))


def write(t: LakeTable, entries: list[ManifestEntry]) -> list[str]:
    """The paths that are read back."""
    path = f"{t.table.location()}/metadata/new-m0.avro"
    made = ManifestWriter(t.table.io, t.table.metadata, 7, 9, lambda: path).write(ManifestContent.DATA, 0, entries)
    return [entry.data_file.file_path for entry in read_entries(t.table.io, made)]


def test_entries_are_read_back_in_their_order(t: LakeTable) -> None:
    entries = carried(t)[::-1]
    assert write(t, entries) == [entry.data_file.file_path for entry in entries]


@pytest.mark.parametrize("place", [1, 2])
@pytest.mark.parametrize("what", ["the bytes of another file", "bytes that were cut", "a byte too many", "another count", "another size"])
def test_bytes_that_say_something_else_are_never_written(t: LakeTable, what: str, place: int) -> None:
    entries = carried(t)
    file: Any = entries[place].data_file
    first: Any = entries[0].data_file
    changes = {
        "the bytes of another file": {"raw": first.raw},
        "bytes that were cut": {"raw": file.raw[:-1]},
        "a byte too many": {"raw": file.raw + b"\x00"},
        "another count": {"record_count": file.record_count + 1},
        "another size": {"file_size_in_bytes": file.file_size_in_bytes + 1},
    }[what]
    entries[place] = wrong(entries[place], **changes)
    with pytest.raises(TableRefused, match=r"another value of field id 10|another decoder finds its end|cannot be written again"):
        write(t, entries)


def test_fastavro_reads_entries_that_the_second_decoder_finds_odd(t: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    walk = RecordsAtOnce.walk

    def all_odd(self: RecordsAtOnce, content: bytes, starts: list[int]) -> Walked:
        return walk(self, content, starts)._replace(odd=[True] * len(starts), ends=[0] * len(starts))

    monkeypatch.setattr(written_entries.RecordsAtOnce, "walk", all_odd)
    entries = carried(t)
    assert len(write(t, entries)) == 3
    file: Any = entries[0].data_file
    entries[2] = wrong(entries[2], raw=file.raw)
    with pytest.raises(TableRefused, match="another value of field id 100"):
        write(t, entries)


def test_blocks_are_walked_through_in_parts(t: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written_entries, "_WALKED_BYTES", 1)
    entries = carried(t)
    assert len(write(t, entries)) == 3
    entries[2] = wrong(entries[2], record_count=77)
    with pytest.raises(TableRefused, match="another value of field id 103"):
        write(t, entries)
