"""How the files of a partition are divided into tasks."""

from __future__ import annotations

import itertools

from compaction_pipeline.core.planning.keyed.units import TaskFiles, UnitFiles, divide, units_of
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.keyed.file_names import base_file, change_file
from compaction_pipeline.core.tables.keyed.merge_on_read import KeyedInput
from compaction_pipeline.core.tables.keyed.tree import ROOT, DataTreeNode

_COUNTER = itertools.count(1)


def file(node: int, kind: str, size: int = 10) -> KeyedInput:
    """A file of the node with this id."""
    path = f"wh/{node}-{kind}-1-00000-0-{next(_COUNTER)}-00001.parquet"
    live = LiveFile(path, FileContent.DATA, 0, (), size, 1, 5)
    return KeyedInput(live, base_file(path) if kind == "B" else change_file(path, 5))


def ids(unit: UnitFiles) -> list[int]:
    return [each.named.node.id for each in unit.all]


def nodes(tasks: list[TaskFiles]) -> list[int]:
    return [task.node.id for task in tasks]


def test_nodes_that_share_no_row_are_units_of_their_own() -> None:
    units = units_of(UnitFiles(base=(file(4, "B"), file(5, "B")), inserts=(file(5, "I"),), deletes=(file(6, "ED"),)))
    assert [ids(unit) for unit in units] == [[4], [5, 5], [6]]


def test_a_file_joins_the_files_of_all_nodes_below_its_own() -> None:
    # Node 2 is above 4 and 6, and node 3 above 5 and 7.
    units = units_of(UnitFiles(inserts=(file(4, "I"), file(6, "I"), file(5, "I"), file(7, "I")), deletes=(file(2, "ED"),)))
    assert [sorted(ids(unit)) for unit in units] == [[2, 4, 6], [5], [7]]
    assert [sorted(ids(unit)) for unit in units_of(UnitFiles(inserts=(file(4, "I"), file(7, "I")), deletes=(file(1, "ED"),)))] == [
        [1, 4, 7]
    ]


def test_a_unit_that_fits_is_one_task_of_the_deepest_node_with_all_its_rows() -> None:
    unit = UnitFiles(inserts=(file(4, "I"), file(6, "I")), deletes=(file(1, "ED"),))
    assert divide(unit, 100) == [TaskFiles(DataTreeNode(1, 0), unit)]


def test_deletes_without_rows_are_no_task() -> None:
    assert divide(UnitFiles(deletes=(file(1, "ED"),)), 100) == []


def test_a_unit_that_is_too_large_is_divided_by_the_next_bit_of_the_hash() -> None:
    inserts, deletes = file(1, "I", 60), file(1, "ED", 20)
    tasks = divide(UnitFiles(inserts=(inserts,), deletes=(deletes,)), 40)
    assert nodes(tasks) == [2, 3]
    # Both tasks read both files, and each takes only the rows of its own node.
    assert all(task.files == UnitFiles(inserts=(inserts,), deletes=(deletes,)) for task in tasks)
    assert nodes(divide(UnitFiles(inserts=(inserts,), deletes=(deletes,)), 20)) == [4, 6, 5, 7]


def test_only_what_is_too_large_is_divided_further() -> None:
    tasks = divide(UnitFiles(inserts=(file(4, "I", 90), file(5, "I", 10), file(7, "I", 10))), 50)
    assert sorted(nodes(tasks)) == [3, 8, 12]


def test_a_base_file_above_the_children_leaves_the_unit_with_all_its_deletes() -> None:
    base, inserts, upper, lower = file(1, "B", 100), file(1, "I", 60), file(1, "ED", 10), file(6, "ED", 10)
    tasks = divide(UnitFiles((base,), (inserts,), (upper, lower)), 50)
    assert tasks[0] == TaskFiles(ROOT, UnitFiles(base=(base,), deletes=(upper, lower)))
    assert nodes(tasks[1:]) == [2, 3]
    assert tasks[1].files == UnitFiles(inserts=(inserts,), deletes=(upper, lower))
    assert tasks[2].files == UnitFiles(inserts=(inserts,), deletes=(upper,))


def test_small_base_files_stay_with_the_inserts_as_long_as_they_fit() -> None:
    small, large = file(4, "B", 5), file(4, "B", 90)
    inserts = file(4, "I", 10)
    tasks = divide(UnitFiles((large, small), (inserts,)), 50)
    assert tasks == [
        TaskFiles(DataTreeNode.of_id(4), UnitFiles(base=(large,))),
        TaskFiles(DataTreeNode.of_id(4), UnitFiles(base=(small,), inserts=(inserts,))),
    ]


def test_base_files_of_child_nodes_are_divided_with_them() -> None:
    left, right = file(4, "B", 30), file(6, "B", 30)
    inserts = file(2, "I", 20)
    tasks = divide(UnitFiles((left, right), (inserts,)), 50)
    assert [(task.node.id, task.files.base) for task in tasks] == [(4, (left,)), (6, (right,))]


def test_a_unit_is_divided_six_levels_deep_at_most() -> None:
    tasks = divide(UnitFiles(inserts=(file(4, "I", 1_000_000),)), 1)
    assert len(tasks) == 64
    assert {task.node.mask for task in tasks} == {255}
