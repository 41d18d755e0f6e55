"""The merge kernel on small real files, in this process."""

from __future__ import annotations

from pathlib import Path

from compaction_pipeline_tests.merging.files import SIMPLE, Table, long


def test_files_become_one_with_every_row(tmp_path: Path) -> None:
    table = Table(tmp_path)
    for start in (0, 10, 20):
        table.append([{"id": start + index, "name": f"n{start + index}"} for index in range(10)])
    result = table.merge()
    assert result.error is None
    assert len(result.outputs) == 1
    assert result.outputs[0].record_count == result.rows_read == result.rows_written == 30
    assert result.digest_read == result.digest_written
    assert [row["id"] for row in table.merged_rows()] == list(range(30))


def test_deletes_apply_by_sequence(tmp_path: Path) -> None:
    table = Table(tmp_path)
    first = table.append([{"id": index, "name": "old"} for index in range(6)])
    table.delete_equal([{"id": 1}, {"id": None}], [long(1, "id")])
    table.append([{"id": 1, "name": "new"}, {"id": None, "name": "null"}])
    table.delete_positions([(first.path, 3), (first.path, 99)])
    result = table.merge()
    assert result.error is None
    assert (result.rows_read, result.rows_deleted_by_position, result.rows_deleted_by_equality, result.rows_written) == (8, 1, 1, 6)
    assert [(row["id"], row["name"]) for row in table.merged_rows()] == [
        (0, "old"),
        (2, "old"),
        (4, "old"),
        (5, "old"),
        (1, "new"),
        (None, "null"),
    ]


def test_all_deleted_leaves_no_file(tmp_path: Path) -> None:
    table = Table(tmp_path, [SIMPLE])
    table.append([{"id": 1, "name": "a"}])
    table.delete_equal([{"id": 1}], [long(1, "id")])
    result = table.merge()
    assert result.error is None
    assert result.outputs == ()
    assert result.rows_deleted_by_equality == 1
