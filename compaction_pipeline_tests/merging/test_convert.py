"""Conversion writes the positions that the converted deletes delete, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.core.work.kinds import TaskAction
from compaction_pipeline_tests.merging.files import Table, long, rows_of, text


def test_each_data_file_gets_one_file_of_all_its_positions(tmp_path: Path) -> None:
    table = Table(tmp_path)
    first = table.append([{"id": index, "name": f"n{index}"} for index in range(10)])
    second = table.append([{"id": index, "name": f"n{index}"} for index in range(5, 15)])
    third = table.append([{"id": 100, "name": "other"}])
    equal = table.delete_equal([{"id": 7}, {"id": 2}], [long(1, "id")])
    named = table.delete_equal([{"name": "n14"}], [text(2, "name")])
    positions = table.delete_positions([(first.path, 9), (first.path, 2), (first.path, 500)])
    kept = table.delete_positions([(first.path, 0)])
    result = table.merge(action=TaskAction.CONVERT, converts=[equal, named, positions])
    assert result.error is None
    by_file = {output.referenced_data_file: output for output in result.outputs}
    assert set(by_file) == {first.path, second.path}
    assert third.path not in by_file
    assert kept.path not in by_file
    assert [(row["file_path"], row["pos"]) for row in rows_of([by_file[first.path]])] == [(first.path, 2), (first.path, 7), (first.path, 9)]
    assert [row["pos"] for row in rows_of([by_file[second.path]])] == [2, 9]
    assert result.rows_written == 5
    assert result.digest_read == result.digest_written
    output = by_file[first.path]
    assert output.content is FileContent.POSITION_DELETES
    assert bytes.fromhex(output.lower_bounds[2147483546]).decode() == first.path == bytes.fromhex(output.upper_bounds[2147483546]).decode()
    schema = pq.read_schema(output.path)
    assert [field.metadata[b"PARQUET:field_id"] for field in schema] == [b"2147483546", b"2147483545"]


def test_deletes_of_a_later_file_convert_nothing(tmp_path: Path) -> None:
    table = Table(tmp_path)
    delete = table.delete_equal([{"id": 1}], [long(1, "id")])
    table.append([{"id": 1, "name": "newer"}])
    result = table.merge(action=TaskAction.CONVERT, converts=[delete])
    assert result.error is None
    assert result.outputs == ()


def test_a_conversion_larger_than_memory_finds_the_same_positions(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.append([{"id": index, "name": ""} for index in range(20_000)])
    delete = table.delete_equal([{"id": index} for index in range(0, 40_000, 3)], [long(1, "id")])
    result = table.merge(action=TaskAction.CONVERT, converts=[delete], memory=1 << 20)
    assert result.error is None
    assert [row["pos"] for row in rows_of(result.outputs)] == list(range(0, 20_000, 3))
