"""Row ids of format v3: inherited as the specification says, written out when a file moves to another manifest, and never given twice."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pytest
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.iceberg.manifests import written_entries
from compaction_pipeline.iceberg.manifests.entries import ManifestWriter, entry_of, read_entries
from compaction_pipeline.iceberg.manifests.entry_digest import EntryDigest
from compaction_pipeline.iceberg.manifests.lists import read_manifests, write_manifests
from compaction_pipeline.iceberg.manifests.row_ids import FIRST_ROW_ID_SLOT, first_row_id_of, with_row_ids
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable

ROWS = (3, 1, 2)


@pytest.fixture
def t(lake: Lake) -> LakeTable:
    """A table of three files in one manifest, and a delete file. Spark writes manifests of v2 like it in a table that becomes v3."""
    table = lake.table()
    for number, rows in enumerate(ROWS):
        table.ids(*range(number * 10, number * 10 + rows))
    table.delete_ids(99)
    return table


def as_v3(t: LakeTable, next_row_id: int = 100) -> TableMetadata:
    said = json.loads(t.table.refresh().metadata.model_dump_json())
    return TableMetadataV3.model_validate({**said, "format-version": 3, "next-row-id": next_row_id})


def listed(t: LakeTable, content: ManifestContent, first_row_id: int | None = None) -> list[ManifestFile]:
    snapshot = t.table.refresh().current_snapshot()
    assert snapshot is not None
    found = [one for one in snapshot.manifests(t.table.io) if one.content == content]
    return [ManifestFile(*[one[slot] for slot in range(FIRST_ROW_ID_SLOT)], first_row_id) for one in found]


def data_entries(t: LakeTable) -> list[ManifestEntry]:
    return [entry for one in listed(t, ManifestContent.DATA) for entry in read_entries(t.table.io, one)]


def moved(entries: list[ManifestEntry], *row_ids: int | None) -> list[ManifestEntry]:
    """The entries, each with a first row id that it has inherited."""
    return [
        entry_of(
            ManifestEntryStatus.EXISTING,
            entry.snapshot_id,
            entry.sequence_number,
            entry.file_sequence_number,
            entry.data_file._replace(first_row_id=row_id),  # type: ignore[attr-defined]
        )
        for entry, row_id in zip(entries, row_ids, strict=True)
    ]


def written(t: LakeTable, metadata: TableMetadata, entries: list[ManifestEntry], **options: Any) -> ManifestFile:
    path = f"{metadata.location}/metadata/new-m0.avro"
    (made,) = ManifestWriter(t.table.io, metadata, 7, 9, lambda: path).write_parts(ManifestContent.DATA, 0, entries, **options)
    return made


def ids(t: LakeTable, manifest: ManifestFile, first: int | None) -> list[int | None]:
    given = ManifestFile(*[manifest[slot] for slot in range(FIRST_ROW_ID_SLOT)], first)
    files: list[Any] = [entry.data_file for entry in read_entries(t.table.io, given)]
    return [file.first_row_id for file in files]


def test_files_without_an_id_take_ids_in_their_order_and_others_keep_theirs(t: LakeTable) -> None:
    metadata = as_v3(t)
    made = written(t, metadata, moved(sorted(data_entries(t), key=lambda one: one.sequence_number or 0), None, 50, None))
    assert ids(t, made, 200) == [200, 50, 203]
    assert ids(t, made, None) == [None, None, None], "where the list gives no id, a stored one does not count"


def test_a_manifest_that_was_written_in_v2_gives_ids_too(t: LakeTable) -> None:
    assert [ids(t, one, 10) for one in listed(t, ManifestContent.DATA)] == [[10], [10], [10]]
    assert [ids(t, one, 10) for one in listed(t, ManifestContent.DELETES)] == [[None]]


def test_removed_files_take_no_ids(t: LakeTable) -> None:
    entries = moved(sorted(data_entries(t), key=lambda one: one.sequence_number or 0), None, None, None)
    entries[0] = entry_of(ManifestEntryStatus.DELETED, 7, 1, 1, entries[0].data_file)
    assert ids(t, written(t, as_v3(t), entries), 200) == [200, 201]


def test_another_decoder_reads_the_ids_that_are_written_out(t: LakeTable) -> None:
    made = written(t, as_v3(t), moved(data_entries(t), 11, None, 13))
    with t.table.io.new_input(made.manifest_path).open() as stream:
        said = [entry["data_file"]["first_row_id"] for entry in fastavro.reader(stream)]  # type: ignore[index, call-overload]
    assert said == [11, None, 13]


def test_a_manifest_with_another_id_than_was_inherited_is_never_written(t: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any, file: Any) -> bytes:
        return bytes(file.raw + b"\x00" * 3)

    monkeypatch.setattr(written_entries.FileCarrier, "carried", wrong)
    with pytest.raises(TableRefused, match="another value of field id 142"):
        written(t, as_v3(t), moved(data_entries(t), 11, 12, 13))


def test_a_digest_sees_an_id_that_is_another(t: LakeTable) -> None:
    metadata = as_v3(t)
    entries = moved(data_entries(t), 11, 12, 13)
    before, same, other = EntryDigest(metadata), EntryDigest(metadata), EntryDigest(metadata)
    before.add(entries)
    written(t, metadata, entries, read_back=same.add)
    other.add(moved(data_entries(t), 11, 12, 14))
    assert before == same
    assert before != other


def test_new_manifests_take_ids_for_all_their_rows_and_delete_manifests_none(t: LakeTable) -> None:
    data, deletes = listed(t, ManifestContent.DATA), listed(t, ManifestContent.DELETES)
    kept = listed(t, ManifestContent.DATA, first_row_id=4)[0]
    # Six rows of existing files, then those of files that were added.
    made = written(t, as_v3(t), moved(data_entries(t), 11, 12, 13))
    given, behind = with_row_ids([made, *data, *deletes, kept], 100)
    rows = [one.added_rows_count or 0 for one in data]
    assert [first_row_id_of(one) for one in given] == [100, 106, 106 + rows[0], 106 + rows[0] + rows[1], None, 4]
    assert behind == 106 + sum(rows) == 112


def test_a_list_of_v3_gives_back_what_was_written(t: LakeTable) -> None:
    metadata = as_v3(t)
    given, behind = with_row_ids([*listed(t, ManifestContent.DATA), *listed(t, ManifestContent.DELETES)], 100)
    path = f"{metadata.location}/metadata/snap-7-1-x.avro"
    snapshot = Snapshot(
        snapshot_id=7,
        parent_snapshot_id=metadata.current_snapshot_id,
        sequence_number=9,
        timestamp_ms=1,
        manifest_list=path,
        summary=Summary(Operation.REPLACE),
        schema_id=0,
        first_row_id=100,
        added_rows=behind - 100,
    )
    write_manifests(t.table.io, metadata, snapshot, given)
    read = read_manifests(t.table.io, snapshot)
    assert [first_row_id_of(one) for one in read] == [first_row_id_of(one) for one in given]
    assert [repr(one) for one in read] == [repr(one) for one in given]
    with t.table.io.new_input(path).open() as stream:
        header = fastavro.reader(stream).metadata
    assert (header["format-version"], header["first-row-id"], header["sequence-number"]) == ("3", "100", "9")
