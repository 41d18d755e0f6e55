"""Tasks of a worker share sets of deleted keys. Sharing never changes which rows a task deletes."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform

from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.node import Partition, PartitionValue
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.merging.deletes import deletes
from compaction_pipeline.merging.deletes.keys import KeySet
from compaction_pipeline.merging.deletes.shared_deletes import DeleteFile, KeyFiles, SharedDeletes
from compaction_pipeline.merging.memory import PeakMemory
from compaction_pipeline_tests.merging.counting_io import COUNTING, CountingIO
from compaction_pipeline_tests.merging.files import MIB, Table, long, rows_of, text
from compaction_pipeline_tests.works import merge_task

_SCHEMA = Schema(long(1, "id"), text(2, "name"), text(3, "p"))
_PARTITIONED = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "p"), spec_id=1)
_FIELDS = {"id": _SCHEMA.fields[0], "name": _SCHEMA.fields[1]}


def _in(p: str) -> Partition:
    return (PartitionValue("p", "string", p),)


def _task(table: Table, inputs: Sequence[LiveFile], deletes: Sequence[LiveFile], memory: int = 256 * MIB) -> CompactionTask:
    task = table.task(memory=memory)
    return replace(task, work=replace(task.work, inputs=tuple(inputs), deletes=tuple(deletes), output_spec_id=inputs[0].spec_id))


# ---- any table, any tasks


@dataclass(frozen=True)
class _Deleted:
    """An equality delete in the terms of the specification: its columns, its keys, and the partition `where` (None means everywhere)."""

    file: LiveFile
    columns: tuple[str, ...]
    keys: frozenset[tuple[Any, ...]]
    where: str | None


@dataclass
class _World:
    table: Table
    rows: dict[str, tuple[str, list[dict[str, Any]]]] = field(default_factory=dict)
    equal: list[_Deleted] = field(default_factory=list)
    positional: list[tuple[LiveFile, list[tuple[str, int]]]] = field(default_factory=list)

    def stays(self, file: LiveFile, row: Mapping[str, Any], position: int, known: set[str]) -> bool:
        sequence, p = file.data_sequence_number, self.rows[file.path][0]
        for delete, named in self.positional:
            if delete.path in known and sequence <= delete.data_sequence_number and (file.path, position) in named:
                return False
        return not any(
            each.file.path in known
            and sequence < each.file.data_sequence_number
            and each.where in (None, p)
            and tuple(row[column] for column in each.columns) in each.keys
            for each in self.equal
        )


_KEYS = st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 7)), st.sampled_from([None, "x", "y"])), min_size=1, max_size=6)
_PLACES = st.sampled_from(["a", "b"])
_APPEND = st.tuples(st.just("append"), _PLACES, _KEYS)
_EQUAL = st.tuples(
    st.just("equal"), st.sampled_from(["a", "b", None]), _KEYS, st.sampled_from([("id",), ("name",), ("id", "name"), ("name", "id")])
)
_POSITIONAL = st.tuples(st.just("positions"), _PLACES, st.lists(st.tuples(st.integers(0, 9), st.integers(0, 6)), min_size=1, max_size=6))
_STEPS = st.lists(st.tuples(st.booleans(), st.one_of(_APPEND, _EQUAL, _POSITIONAL)), min_size=3, max_size=10)
_TASKS = st.lists(
    st.tuples(_PLACES, st.integers(0, 2**10 - 1), st.integers(0, 10), st.sampled_from([256 * MIB, MIB // 64])), min_size=2, max_size=6
)


@settings(max_examples=40, deadline=None)
@given(steps=_STEPS, tasks=_TASKS, many=st.sampled_from([0, 2, 100]))
def test_tasks_that_share_delete_the_rows_of_the_specification(steps: list[Any], tasks: list[Any], many: int) -> None:
    with tempfile.TemporaryDirectory() as folder, patch.object(deletes, "_MANY_KEYS", many):
        world = _written(Path(folder), steps)
        shared = SharedDeletes()
        for place, chosen, snapshot, memory in tasks:
            inputs = [file for file in world.table.inputs if world.rows[file.path][0] == place]
            inputs = [file for number, file in enumerate(inputs) if chosen >> number & 1]
            known = world.table.deletes[:snapshot]
            if not inputs:
                continue
            result = merge_task(_task(world.table, inputs, known, memory), world.table.layout(), {}, shared)
            assert result.error is None
            paths = {delete.path for delete in known}
            expected = [
                row for file in inputs for position, row in enumerate(world.rows[file.path][1]) if world.stays(file, row, position, paths)
            ]
            assert rows_of(result.outputs) == expected


def _written(folder: Path, steps: list[Any]) -> _World:
    table = Table(folder, [_SCHEMA], [PartitionSpec(spec_id=0), _PARTITIONED])
    world = _World(table)
    sequence = 1
    for next_commit, (kind, place, *rest) in steps:
        sequence += next_commit
        if kind == "append":
            rows = [{"id": one, "name": name, "p": place} for one, name in rest[0]]
            file = table.append(rows, partition=_in(place), spec_id=1, sequence=sequence)
            world.rows[file.path] = (place, rows)
        elif kind == "equal":
            keys, columns = rest
            values = [dict(zip(("id", "name"), key, strict=True)) for key in keys]
            where: dict[str, Any] = {} if place is None else {"partition": _in(place), "spec_id": 1}
            rows = [{column: value[column] for column in columns} for value in values]
            delete = table.delete_equal(rows, [_FIELDS[column] for column in columns], sequence=sequence, **where)
            world.equal.append(_Deleted(delete, columns, frozenset(tuple(row.values()) for row in rows), place))
        else:
            files = [path for path, (p, _) in world.rows.items() if p == place] or ["elsewhere.parquet"]
            named = [(files[number % len(files)], position) for number, position in rest[0]]
            delete = table.delete_positions(named, partition=_in(place), spec_id=1, sequence=sequence)
            world.positional.append((delete, named))
    return world


# ---- shared sets


def _opened(table: Table) -> list[str]:
    """The path of each delete file that was read since the table was made, once each time."""
    paths = {delete.path for delete in table.deletes}
    return [path for path in CountingIO.opened if path in paths]


def _merged(table: Table, shared: SharedDeletes, *inputs: LiveFile, **options: Any) -> MergeResult:
    result = merge_task(_task(table, inputs, table.deletes, **options), table.layout(), COUNTING, shared)
    assert result.error is None
    return result


def test_a_delete_file_is_read_once_for_all_tasks(tmp_path: Path) -> None:
    table = Table(tmp_path)
    files = [table.append([{"id": 10 * number + index, "name": ""} for index in range(4)]) for number in range(3)]
    table.delete_equal([{"id": 1}, {"id": 21}], [long(1, "id")])
    table.delete_positions([(file.path, 3) for file in files])
    shared = SharedDeletes()
    results = [_merged(table, shared, file) for file in files]
    assert [[row["id"] for row in rows_of(result.outputs)] for result in results] == [[0, 2], [10, 11, 12], [20, 22]]
    assert sorted(_opened(table)) == sorted(delete.path for delete in table.deletes)


def test_a_set_serves_a_task_whose_inputs_are_newer_than_some_of_its_files(tmp_path: Path) -> None:
    table = Table(tmp_path)
    old = table.append([{"id": 1, "name": "old"}, {"id": 2, "name": "old"}])
    first = table.delete_equal([{"id": 1}], [long(1, "id")])
    new = table.append([{"id": 1, "name": "new"}, {"id": 2, "name": "new"}])
    second = table.delete_equal([{"id": 2}], [long(1, "id")])
    shared = SharedDeletes()
    assert _merged(table, shared, old).rows_written == 0
    assert [row["id"] for row in rows_of(_merged(table, shared, new).outputs)] == [1]
    assert _opened(table) == [first.path, second.path]


def test_a_set_does_not_serve_a_task_of_an_older_snapshot(tmp_path: Path) -> None:
    table = Table(tmp_path)
    file = table.append([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    table.delete_equal([{"id": 1}], [long(1, "id")])
    newer = table.delete_equal([{"id": 2}], [long(1, "id")])
    shared = SharedDeletes()
    assert _merged(table, shared, file).rows_written == 0
    table.deletes.remove(newer)
    assert [row["id"] for row in rows_of(_merged(table, shared, file).outputs)] == [2]


def test_keys_that_are_many_for_one_task_are_held_once_a_second_task_asks_for_them(tmp_path: Path) -> None:
    table = Table(tmp_path)
    files = [table.append([{"id": number, "name": ""}, {"id": -1, "name": ""}]) for number in range(4)]
    table.delete_equal([{"id": index} for index in range(70_000)], [long(1, "id")])
    shared = SharedDeletes()
    assert [_merged(table, shared, file).rows_deleted_by_equality for file in files] == [1, 1, 1, 1]
    # The file is read once beside the rows of the first task, and once for the set.
    assert len(_opened(table)) == 2


def test_sets_that_a_task_cannot_use_are_freed_before_it_reads(tmp_path: Path) -> None:
    table, other = Table(tmp_path / "one"), Table(tmp_path / "other")
    for each in (table, other):
        each.append([{"id": 1, "name": "a"}])
    table.delete_equal([{"id": index} for index in range(50_000)], [long(1, "id")])
    shared = SharedDeletes()
    _merged(table, shared, *table.inputs)
    held = shared.nbytes
    assert held > 50_000 * 8
    assert _merged(table, shared, *table.inputs).peak_memory_bytes >= held
    _merged(other, shared, *other.inputs)
    assert shared.nbytes == 0


def test_a_set_that_does_not_fit_the_next_tasks_memory_is_freed(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.append([{"id": index, "name": "a"} for index in range(20_000)])
    table.delete_equal([{"id": index} for index in range(0, 20_000, 2)], [long(1, "id")])
    shared = SharedDeletes()
    _merged(table, shared, *table.inputs)
    assert shared.nbytes > 0
    assert _merged(table, shared, *table.inputs, memory=MIB // 8).rows_deleted_by_equality == 10_000
    assert shared.nbytes == 0


def test_a_failed_task_shares_nothing(tmp_path: Path) -> None:
    table = Table(tmp_path)
    file = table.append([{"id": 1, "name": "a"}])
    table.delete_equal([{"id": 1}], [long(1, "id")])
    shared = SharedDeletes()
    _merged(table, shared, file)
    Path(file.path).unlink()
    assert merge_task(_task(table, [file], table.deletes), table.layout(), {}, shared).error is not None
    assert shared.nbytes == 0


@pytest.mark.parametrize(("extra", "oldest", "served"), [(3, 3, True), (3, 4, True), (4, 3, False)])
def test_files_too_old_for_the_inputs_may_be_in_the_set(extra: int, oldest: int, served: bool) -> None:
    own, other = DeleteFile("own", 1, 1, 5), DeleteFile("other", 1, 1, extra)
    wanted = KeyFiles("kind", frozenset({own}), oldest)
    assert wanted.served_by(frozenset({own, other})) is served
    assert not wanted.served_by(frozenset({other}))


# ---- position deletes of many data files


@pytest.mark.parametrize("damaged", [(), (0, 2), (1,)])
def test_of_a_large_position_delete_only_row_groups_that_may_name_an_input_are_read(tmp_path: Path, damaged: Sequence[int]) -> None:
    table = Table(tmp_path)
    files = [table.append([{"id": 100 * number + index, "name": ""} for index in range(12)]) for number in range(8)]
    order = sorted(files, key=lambda each: each.path)
    # These positions are too many to be kept for other tasks.
    delete = table.delete_positions([(file.path, position) for file in order for position in range(10)])
    _rewrite_in_groups(delete, 20)
    for group in damaged:
        _damage(delete, group)
    inputs = order[2], order[3], order[7]
    result = merge_task(_task(table, inputs, table.deletes, memory=MIB // 256), table.layout(), {}, SharedDeletes())
    assert (result.error is None) is (1 not in damaged), result.error
    assert [row["id"] % 100 for row in rows_of(result.outputs)] == [10, 11] * 3 * (1 not in damaged)


def _rewrite_in_groups(delete: LiveFile, rows: int) -> None:
    """Rewrite the delete file with row groups of this many rows."""
    content = pa.parquet.read_table(delete.path)
    pa.parquet.write_table(content, delete.path, row_group_size=rows, store_schema=False)


def _damage(delete: LiveFile, group: int) -> None:
    """Overwrite the pages of a row group. Its footer stays as it is."""
    found = pa.parquet.read_metadata(delete.path).row_group(group)
    with Path(delete.path).open("r+b") as file:
        for column in (found.column(number) for number in range(found.num_columns)):
            file.seek(column.dictionary_page_offset or column.data_page_offset)
            file.write(b"\xff" * column.total_compressed_size)


# ---- memory


def test_the_size_that_a_set_reports_is_the_memory_that_it_takes() -> None:
    count = 1_000_000
    keys = pa.array(np.arange(count, dtype=np.int64))
    memory = PeakMemory()
    keyset = KeySet([keys], np.full(count, 5, dtype=np.int64))
    # While the set is built it takes more memory, but less than was estimated before.
    assert count * 24 < keyset.nbytes < memory.peak_bytes() < count * 120
