"""A merge on an object store gives the same rows as on a disk, with few requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import LongType, NestedField

from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.work.kinds import TaskAction
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline_tests.merging.files import MIB, Table
from compaction_pipeline_tests.object_store import ObjectStore, object_store
from compaction_pipeline_tests.works import as_kind, merge_task

_ID = NestedField(1, "id", LongType(), required=False)


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with object_store() as running:
        yield running


def _moved(task: CompactionTask, store: ObjectStore) -> CompactionTask:
    """The same task, with its files on the store."""

    def move(file: LiveFile) -> LiveFile:
        key = f"t/in/{Path(file.path).name}"
        store.objects[key] = Path(file.path).read_bytes()
        return replace(file, path=store.url(key))

    work = task.work
    deletes = tuple(map(move, work.deletes))
    names = dict(zip((file.path for file in work.deletes), (file.path for file in deletes), strict=True))
    converts = tuple(names[path] for path in work.converts)
    return replace(task, work=as_kind(work, work.action, inputs=tuple(map(move, work.inputs)), deletes=deletes, converts=converts))


def _merged(table: Table, task: CompactionTask, store: ObjectStore) -> MergeResult:
    moved = _moved(task, store)
    store.counts()
    return merge_task(moved, replace(table.layout(), location=store.url("t")), store.properties)


def _rows(result: MergeResult, store: ObjectStore) -> list[dict[str, object]]:
    keys = [output.path.removeprefix(store.url("")) for output in result.outputs]
    return [row for key in keys for row in pq.read_table(pa.BufferReader(store.objects[key])).to_pylist()]


def test_small_files_are_read_once_each_and_the_output_is_one_put(tmp_path: Path, store: ObjectStore) -> None:
    table = Table(tmp_path)
    for number in range(12):
        table.append([{"id": 10 * number + each, "name": f"n{each}"} for each in range(10)])
        table.delete_equal([{"id": 10 * number}], [_ID])
    result = _merged(table, table.task(), store)
    assert result.error is None
    # The report costs one more: the law of this folder reads the footer of each new file.
    assert store.counts() == {"GET": 24 + 1, "PUT": 1}
    assert sorted(row["id"] for row in _rows(result, store)) == [each for each in range(120) if each % 10]


def test_a_conversion_reads_each_file_once(tmp_path: Path, store: ObjectStore) -> None:
    table = Table(tmp_path)
    for number in range(3):
        table.append([{"id": 10 * number + each, "name": f"n{each}"} for each in range(10)])
    delete = table.delete_equal([{"id": 0}, {"id": 15}], [_ID])
    result = _merged(table, table.task(action=TaskAction.CONVERT, converts=[delete]), store)
    assert result.error is None
    assert store.counts() == {"GET": 4 + 2, "PUT": 2}
    assert sorted(row["pos"] for row in _rows(result, store)) == [0, 5]


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("groups", [1, 4])
def test_a_large_file_is_read_by_its_footer_and_a_range_per_row_group(
    tmp_path: Path, store: ObjectStore, groups: int, deleted: bool
) -> None:
    table = Table(tmp_path)
    rows = 300_000
    source = pa.table({"id": pa.array(range(rows), pa.int64()), "name": pa.array([f"{7919 * each % rows:032d}" for each in range(rows)])})
    table.append(source.cast(_with_ids()), row_group_size=rows // groups, compression="none", use_dictionary=False)
    if deleted:
        table.delete_equal([{"id": 3}], [_ID])
    # A sixteenth of the memory is for reading ahead, and a small file has at most an eighth of that.
    result = _merged(table, table.task(memory=160 * MIB), store)
    assert result.error is None
    counted = store.counts()
    # The footer is read twice, because the first input's footer also tells which columns are never NULL. With a delete, each row group is
    # read once more to look for its keys.
    assert counted["GET"] <= 2 + groups * (2 if deleted else 1) + deleted + len(result.outputs)
    assert "HEAD" not in counted
    assert sorted(row["id"] for row in _rows(result, store)) == [each for each in range(rows) if not (deleted and each == 3)]


def _with_ids() -> pa.Schema:
    return pa.schema(
        [
            pa.field("id", pa.int64(), metadata={b"PARQUET:field_id": b"1"}),
            pa.field("name", pa.string(), metadata={b"PARQUET:field_id": b"2"}),
        ]
    )


def test_a_wrong_size_in_the_manifest_does_not_make_a_file_broken(tmp_path: Path, store: ObjectStore) -> None:
    table = Table(tmp_path)
    file = table.append([{"id": 1, "name": "a"}])
    for size in (file.file_size_bytes - 1, file.file_size_bytes + 1):
        table.inputs = [replace(file, file_size_bytes=size)]
        result = _merged(table, table.task(), store)
        assert result.error is None
        assert _rows(result, store) == [{"id": 1, "name": "a"}]
