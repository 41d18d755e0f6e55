"""Merging changes into the base store changes no row that a reader finds, now or after later changes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IcebergType, LongType, NestedField, StringType

from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.core.tables.keyed.file_names import KeyedFileType, base_file, parse_name
from compaction_pipeline.core.tables.keyed.tree import ROOT, DataTreeNode
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.merging import convert
from compaction_pipeline.merging.keyed import to_base
from compaction_pipeline_tests.keyed.base_merges import MIB, Choices, compact, figures, names_of, opened_by, run, small_batches, task_of
from compaction_pipeline_tests.keyed.change_logs import ChangeLog, row
from compaction_pipeline_tests.keyed.keys import KEYS, by, node_of
from compaction_pipeline_tests.merging.broken_writer import write_otherwise
from compaction_pipeline_tests.reference_reader import bag_difference, canonical

ONE_BUCKET = {"base__file-index__hash-bucket": "1"}


@pytest.fixture
def log(tmp_path: Path) -> ChangeLog:
    return ChangeLog(tmp_path)


def named(result: MergeResult) -> list[tuple[int, str, int]]:
    """(Node id, type, transaction) of each file that was written."""
    parsed = [parse_name(output.path) for output in result.outputs]
    return sorted((each.node.id, each.type.value, each.transaction_id) for each in parsed if each is not None)


# ---- which rows die


def test_an_insert_before_its_delete_in_one_transaction_dies(log: ChangeLog) -> None:
    merged = log.commit(log.changes(1, "I", 0, [(row(1), 1), (row(2), 3)]), log.changes(1, "ED", 0, [(row(1), 2)]))
    (result,) = compact(log, merged)
    assert figures(result) == {
        "rows_read": 2, "rows_deleted_by_position": 0, "rows_deleted_by_equality": 1, "rows_written": 1, "rows_kept": 0
    }  # fmt: skip
    log.check([row(2)])


def test_interleaved_updates_of_two_keys_leave_the_last_row_of_each(log: ChangeLog) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1, v="a0"), 1), (row(2, v="b0"), 2)]))
    # Both rows before come first. The row after an update has the newest offset, which is that of the other key's row before.
    merged = log.commit(
        log.changes(1, "ED", 0, [(row(1, v="a0"), 1), (row(2, v="b0"), 2)]),
        log.changes(1, "I", 0, [(row(1, v="a1"), 2), (row(2, v="b1"), 2)]),
    )
    compact(log, merged)
    log.check([row(1, v="a1"), row(2, v="b1")])


def test_only_the_end_of_a_chain_of_updates_stays(log: ChangeLog) -> None:
    log.commit_base(log.base_rows(1, 0, [row(1, v="0"), row(2)]))
    for number in range(1, 6):
        merged = log.commit(log.changes(1, "ED", 0, [(row(1, v=str(number - 1)), 7)]), log.changes(1, "I", 0, [(row(1, v=str(number)), 7)]))
        log.check([row(1, v=str(number)), row(2)])
    compact(log, merged)
    log.check([row(1, v="5"), row(2)])


def test_a_delete_in_the_transaction_of_a_base_file_leaves_its_rows(log: ChangeLog) -> None:
    transaction = log.begin()
    log.commit_base(log.base_rows(1, transaction, [row(1), row(2)]))
    log.commit(log.changes(1, "ED", transaction, [(row(1), 99)]))
    merged = log.commit(log.changes(1, "ED", 0, [(row(2), 1)]))
    compact(log, merged)
    log.check([row(1)])


def test_two_inserts_of_a_key_without_a_delete_both_stay(log: ChangeLog) -> None:
    merged = log.commit(log.changes(1, "I", 0, [(row(1, v="a"), 1), (row(1, v="b"), 2)]))
    compact(log, merged)
    log.check([row(1, v="a"), row(1, v="b")])


def test_deletes_of_keys_that_never_were_delete_nothing_and_name_the_files(log: ChangeLog) -> None:
    log.commit_base(log.base_rows(1, 1, [row(1)]))
    log.commit(log.changes(1, "ED", 0, [(row(2), 1)]))
    merged = log.commit(log.changes(1, "ED", 0, [(row(3), 1)]))
    (result,) = compact(log, merged, **ONE_BUCKET)
    assert named(result) == [(1, "B", 2)]
    log.check([row(1)])


def test_a_node_with_deletes_only_has_no_output(log: ChangeLog) -> None:
    merged = log.commit(log.changes(node_of(1, 4), "ED", 0, [(row(1), 1)]))
    (result,) = compact(log, merged)
    assert result.outputs == ()
    log.check([])


def test_when_every_row_is_deleted_no_file_is_written(log: ChangeLog) -> None:
    log.commit_base(log.base_rows(1, 0, [row(number) for number in range(9)]))
    log.commit(log.changes(1, "I", 0, [(row(9), 1)]))
    merged = log.commit(log.changes(1, "ED", 0, [(row(number), number) for number in range(10)]))
    (result,) = compact(log, merged)
    assert result.outputs == ()
    assert (result.rows_read, result.rows_deleted_by_equality, result.rows_written) == (10, 10, 0)
    assert not log.base_files()
    log.check([])


def test_a_null_in_the_key_is_a_value_like_others(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path, key=("id", "v"))
    log.commit_base(log.base_rows(1, 0, [row(1), row(1, v="a"), row(2)]))
    merged = log.commit(log.changes(1, "I", 0, [(row(2, v="b"), 1)]), log.changes(1, "ED", 0, [(row(1), 2), (row(2, v="b"), 3)]))
    compact(log, merged)
    log.check([row(1, v="a"), row(2)])


@pytest.mark.parametrize(("kind", "values"), KEYS, ids=[str(kind) for kind, _ in KEYS])
def test_every_type_of_key_is_compared_and_hashed_as_java_does(kind: IcebergType, values: list[Any], tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "n", LongType(), required=True), NestedField(2, "k", kind), NestedField(3, "v", StringType()))
    log = ChangeLog(tmp_path, schema, key=("n", "k"))
    keys = [{"n": number, "k": value} for number in (1, 2) for value in [*values, None]]
    in_base, in_changes = keys[: len(values)], keys[len(values) :]
    log.commit_base(log.base_rows(1, 0, [{**key, "v": "base"} for key in in_base]))
    log.commit(log.changes(1, "I", 0, [({**key, "v": "new"}, place) for place, key in enumerate(in_changes)]))
    deleted = keys[::2]
    merged = log.commit(log.changes(1, "ED", 0, [({**key, "v": None}, place) for place, key in enumerate(deleted)]))
    left = {canonical(key): {**key, "v": "base" if key in in_base else "new"} for key in [*in_base, *in_changes]}
    for key in deleted:
        left.pop(canonical(key), None)
    results = compact(log, merged, Choices(mask=3))
    log.check(list(left.values()))
    # A second merge checks each key against the node that its file is named by.
    assert sum(result.rows_written for result in results) == len(left)
    compact(log, merged, Choices(mask=7))
    log.check(list(left.values()))


# ---- Iceberg's own deletes


def test_position_deletes_of_the_base_store_come_first_and_are_counted_apart(log: ChangeLog) -> None:
    first = log.base_rows(1, 0, [row(1), row(2), row(3), row(4)])
    log.commit_base(first)
    log.commit_base(deleted={first.path: [1, 2]})
    merged = log.commit(log.changes(1, "ED", 0, [(row(2), 1), (row(1), 2)]))
    (result,) = compact(log, merged)
    assert (result.rows_read, result.rows_deleted_by_position, result.rows_deleted_by_equality, result.rows_written) == (4, 2, 1, 1)
    log.check([row(4)])


# ---- marked files


def test_a_marked_file_stays_and_gets_positions_of_the_rows_that_die_now(log: ChangeLog) -> None:
    large, small = log.base_rows(1, 3, [row(number) for number in range(6)]), log.base_rows(1, 0, [row(10), row(11)])
    log.commit_base(large, small)
    log.commit_base(deleted={large.path: [1, 2]})
    for _ in range(3):
        log.begin()
    merged = log.commit(log.changes(1, "ED", 0, [(row(5), 1), (row(2), 2), (row(0), 3), (row(10), 4)]))
    (result,) = compact(log, merged, Choices(marked=[large.path]), **ONE_BUCKET)
    assert named(result) == [(1, "B", merged), (1, "PD", merged)]
    positions = next(output for output in result.outputs if output.content is FileContent.POSITION_DELETES)
    assert positions.referenced_data_file == large.path
    written = pq.read_table(positions.path).to_pylist()
    # It has the positions of the file that the table had already, and takes its place.
    assert [(each["file_path"], each["pos"]) for each in written] == [(large.path, 0), (large.path, 1), (large.path, 2), (large.path, 5)]
    assert [file.path for file in log.base_files() if not file.is_data] == [positions.path]
    assert figures(result) == {
        "rows_read": 8, "rows_deleted_by_position": 2, "rows_deleted_by_equality": 3, "rows_written": 1, "rows_kept": 2
    }  # fmt: skip
    assert large.path in [file.path for file in log.base_files()]
    assert small.path not in [file.path for file in log.base_files()]
    log.check([row(3), row(4), row(11)])


def test_a_marked_file_that_loses_no_row_gets_no_positions(log: ChangeLog) -> None:
    large = log.base_rows(1, 0, [row(1), row(2)])
    log.commit_base(large)
    merged = log.commit(log.changes(1, "I", 0, [(row(3), 1)]), log.changes(1, "ED", 0, [(row(9), 1)]))
    (result,) = compact(log, merged, Choices(marked=[large.path]), **ONE_BUCKET)
    assert named(result) == [(1, "B", merged)]
    log.check([row(1), row(2), row(3)])


def test_positions_of_several_files_of_a_marked_file_become_one(log: ChangeLog) -> None:
    large, other = (log.base_rows(1, 0, [row(number) for number in range(first, first + 6)]) for first in (0, 10))
    log.commit_base(large, other)
    for deleted in ({large.path: [1]}, {large.path: [3]}, {large.path: [4], other.path: [0]}, {other.path: [2]}):
        log.commit_base(deleted=deleted)
    before = {file.path: file.referenced_data_file for file in log.base_files() if not file.is_data}
    merged = log.commit(log.changes(1, "ED", 0, [(row(5), 1), (row(3), 2)]))
    (result,) = compact(log, merged, Choices(marked=[large.path, other.path]), **ONE_BUCKET)
    (output,) = result.outputs
    assert (output.referenced_data_file, output.record_count) == (large.path, 4)
    # A file that names two base files stays, and so does that of a base file whose rows all live on.
    kept = {path for path, data in before.items() if data != large.path}
    assert {file.path for file in log.base_files() if not file.is_data} == {output.path, *kept}
    log.check([row(number) for number in (0, 2, 11, 13, 14, 15)])


@pytest.mark.parametrize("dying", [[0], [9], [0, 5, 9], [4]])
@pytest.mark.parametrize("before", [[], [[1]], [[1, 6], [8]]])
def test_a_marked_file_is_read_in_several_batches(
    dying: list[int], before: list[list[int]], log: ChangeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_batches(monkeypatch)
    large = log.base_rows(1, 0, [row(number) for number in range(10)])
    log.commit_base(large)
    for positions in before:
        log.commit_base(deleted={large.path: positions})
    merged = log.commit(log.changes(1, "ED", 0, [(row(number), 1) for number in dying]))
    (result,) = compact(log, merged, Choices(marked=[large.path]), **ONE_BUCKET)
    gone = {*dying, *(position for positions in before for position in positions)}
    (output,) = result.outputs
    assert (output.record_count, result.rows_kept) == (len(gone), 10 - len(gone))
    log.check([row(number) for number in range(10) if number not in gone])


@pytest.mark.parametrize("lost", ["the last position", "all positions"])
def test_rows_that_die_and_are_not_marked_end_the_attempt(lost: str, log: ChangeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    until = -1 if lost == "the last position" else 0
    forgetful = SimpleNamespace(flatnonzero=lambda mask: np.flatnonzero(mask)[:until], concatenate=np.concatenate, int64=np.int64)
    monkeypatch.setattr(to_base, "np", forgetful)
    large = log.base_rows(1, 0, [row(number) for number in range(5)])
    log.commit_base(large)
    merged = log.commit(log.changes(1, "ED", 0, [(row(1), 1), (row(2), 2)]))
    with pytest.raises(AssertionError, match=r"2 rows of base files that stay die now, but new position deletes hold [01] of them"):
        compact(log, merged, Choices(marked=[large.path]), **ONE_BUCKET)


def test_a_marked_file_that_loses_no_row_keeps_its_positions(log: ChangeLog) -> None:
    large = log.base_rows(1, 0, [row(1), row(2), row(3)])
    log.commit_base(large)
    log.commit_base(deleted={large.path: [1]})
    # The key of the change is that of a row that is deleted already.
    merged = log.commit(log.changes(1, "ED", 0, [(row(2), 1)]))
    (result,) = compact(log, merged, Choices(marked=[large.path]), **ONE_BUCKET)
    assert result.outputs == ()
    log.check([row(1), row(3)])


def test_later_deletes_reach_rows_of_marked_and_of_rewritten_files(log: ChangeLog) -> None:
    marked, rewritten = log.base_rows(1, 0, [row(1), row(2)]), log.base_rows(1, 1, [row(3), row(4)])
    log.commit_base(marked, rewritten)
    log.begin()
    merged = log.commit(log.changes(1, "I", 0, [(row(5), 1), (row(6), 2)]))
    compact(log, merged, Choices(marked=[marked.path]))
    log.commit(log.changes(1, "ED", 0, [(row(number), number) for number in (1, 3, 5)]))
    log.check([row(2), row(4), row(6)])


# ---- transactions and names


def test_a_file_of_several_transactions_is_cut_between_its_rows(log: ChangeLog) -> None:
    for number in range(4):
        log.commit(log.changes(1, "I", 0, [(row(10 + number), 1)]))
    # Sequence 5: rows of the transactions 1 to 5. Those up to 1 are in the base store, and those up to 3 are merged now.
    log.commit(
        log.changes(1, "I", 0, [(row(number, v=f"tx {number}"), 1, number) for number in range(1, 6)]),
        log.changes(1, "ED", 0, [(row(10), 9, 2), (row(11), 2, 3), (row(2), 2, 4), (row(12), 2, 5)]),
    )
    log.commit_base(log.base_rows(1, 1, [row(1), row(10)]), sequences={"": 1})
    before = log.scanned()
    assert bag_difference(before, [row(1), row(13), *(row(number, v=f"tx {number}") for number in (3, 4, 5))]) == ""
    (result,) = compact(log, 3, **ONE_BUCKET)
    # The name is 3 and not 5. Else the base row would be later than the delete of transaction 4, which is not merged yet.
    assert named(result) == [(1, "B", 3)]
    assert (result.rows_read, result.rows_written) == (2 + 2 + 2, 4)
    assert bag_difference(log.scanned(), before) == ""


def test_names_tell_the_highest_transaction_that_was_applied_and_not_a_sequence_number(log: ChangeLog) -> None:
    first = log.begin()
    log.begin()
    merged = log.commit(log.changes(1, "I", first, [(row(1), 1)]))
    assert merged == 3
    (result,) = compact(log, merged, **ONE_BUCKET)
    assert named(result) == [(1, "B", first)]


@pytest.mark.parametrize("newest", ["ED", "I"])
def test_deletes_and_inserts_both_count_for_the_name(log: ChangeLog, newest: str) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1), 1)]))
    log.commit(log.changes(1, "I" if newest == "ED" else "ED", 0, [(row(2), 1)]))
    # The rows of the last file are of the transactions 1 and 3, and its sequence number is 4.
    log.begin()
    log.commit(log.changes(1, newest, 0, [(row(3), 1, 3), (row(4), 1, 1)]))
    (result,) = compact(log, log.sequence, **ONE_BUCKET)
    assert named(result) == [(1, "B", 3)]


def test_a_task_that_applies_nothing_keeps_the_highest_name_of_its_files(log: ChangeLog) -> None:
    log.begin()
    log.begin()
    log.commit_base(log.base_rows(1, 2, [row(1)]), log.base_rows(1, 1, [row(2)]))
    (result,) = compact(log, 2, **ONE_BUCKET)
    assert named(result) == [(1, "B", 2)]
    log.check([row(1), row(2)])


def test_a_late_transaction_is_merged_as_readers_see_it_and_names_do_not_sink(log: ChangeLog) -> None:
    late, later = log.begin(), log.begin()
    merged = log.commit(log.changes(1, "I", 0, [(row(1), 1)]))
    compact(log, merged, **ONE_BUCKET)
    log.commit(log.changes(1, "I", late, [(row(2), 1)]), log.changes(1, "ED", late, [(row(1), 9)]))
    log.check([row(1), row(2)])
    (result,) = compact(log, log.sequence, **ONE_BUCKET)
    assert named(result) == [(1, "B", merged)]
    # Row 1 came in transaction 3. So the delete of transaction 2, which arrives even later, does not reach it.
    log.commit(log.changes(1, "ED", later, [(row(1), 9)]))
    log.check([row(1), row(2)])


def test_an_empty_transaction_is_merged_to_nothing(log: ChangeLog) -> None:
    merged = log.commit(log.changes(1, "I", 0, [(row(1), 1)]))
    compact(log, merged)
    log.begin()
    compact(log, log.sequence)
    log.check([row(1)])


def test_names_hold_the_ids_of_attempt_and_task_and_no_run_uses_a_name_again(log: ChangeLog) -> None:
    merged = log.commit(log.changes(1, "I", 0, [(row(number), number) for number in range(20)]))
    task = task_of(log, merged)
    first, second = run(log, task), run(log, task)
    names = names_of([first, second])
    assert len(set(names)) == len(names) == 8
    for output in first.outputs:
        folder, _, name = output.path.rpartition("/")
        assert folder == f"{log.base.location()}/data"
        assert "-ab12cd34-plan7-00003-" in name
        parsed = parse_name(output.path)
        assert parsed is not None
        assert (parsed.type, parsed.transaction_id) == (KeyedFileType.BASE, merged)


# ---- nodes


def test_rows_go_to_the_nodes_of_their_keys(log: ChangeLog) -> None:
    log.commit_base(log.base_rows(1, 0, [row(number) for number in range(40)], name="00000-0-hive"))
    merged = log.commit(log.changes(1, "I", 0, [(row(number), number) for number in range(40, 80)]))
    (result,) = compact(log, merged)
    assert {base_file(output.path).node.mask for output in result.outputs} == {3}
    for output in result.outputs:
        ids = pq.read_table(output.path)["id"].to_pylist()
        assert {node_of(number, 4) for number in ids} == {base_file(output.path).node.id}
    log.check([row(number) for number in range(80)])


def test_a_deep_node_applies_its_own_changes_only(log: ChangeLog) -> None:
    keys = list(range(60))
    log.commit_base(*(log.base_rows(node, 0, [row(key) for key in keys if node_of(key, 8) == node]) for node in range(8, 16)))
    merged = log.commit(
        log.changes(1, "ED", 0, [(row(key), key) for key in keys[::3]]),
        log.changes(1, "I", 0, [(row(key, v="new"), key) for key in keys[::3]]),
    )
    results = compact(log, merged, Choices(mask=7))
    assert len(results) == 8
    for result in results:
        assert len({base_file(output.path).node for output in result.outputs}) == 1
    assert sum(result.rows_read for result in results) == 80
    log.check([row(key, v="new" if key % 3 == 0 else None) for key in keys])


def test_a_name_does_not_tell_a_transaction_of_another_node(log: ChangeLog) -> None:
    log.commit(log.changes(1, "I", 0, [(row(number), number) for number in range(20)]))
    merged = log.commit(log.changes(1, "I", 0, [(row(100), 1)]))
    own = DataTreeNode.of_id(node_of(100, 4))
    found = {result.outputs and named(result)[0] for result in compact(log, merged, Choices(mask=3))}
    assert found == {(node, "B", merged if node == own.id else merged - 1) for node in range(4, 8)}


def test_few_buckets_and_a_deep_node_give_files_of_the_deep_node(log: ChangeLog) -> None:
    keys = [key for key in range(100) if node_of(key, 32) == 40]
    merged = log.commit(log.changes(40, "I", 0, [(row(key), key) for key in keys]))
    result = run(log, task_of(log, merged, DataTreeNode.of_id(40)))
    assert named(result) == [(40, "B", merged)]


@pytest.mark.parametrize("place", ["inserts", "deletes", "base"])
def test_a_file_in_whose_node_a_key_does_not_lie_is_refused(log: ChangeLog, place: str) -> None:
    wrong = 4 + (node_of(1, 4) - 3) % 4
    # In the task a delete and a row of one key meet, whatever their files are called. In a reader they do not meet.
    nodes = {each: wrong if each == place else 1 for each in ("inserts", "deletes", "base")}
    log.commit_base(log.base_rows(nodes["base"], 0, [row(1)]))
    merged = log.commit(
        log.changes(nodes["inserts"], "I", 0, [(row(1), 2)]),
        log.changes(nodes["deletes"], "ED", 0, [(row(1), 1)]),
    )
    result = run(log, task_of(log, merged))
    assert result.end_reason is EndReason.REFUSED
    assert f"belongs to the tree node {wrong} by its name" in str(result.error)


def test_nodes_without_shared_rows_are_checked_when_all_new_files_are_of_the_root(log: ChangeLog) -> None:
    right, wrong = (2 + (node_of(1, 2) + away) % 2 for away in (0, 1))
    merged = log.commit(log.changes(right, "I", 0, [(row(1), 1)]), log.changes(wrong, "ED", 0, [(row(1), 2)]))
    log.check([row(1)])
    result = run(log, task_of(log, merged), **ONE_BUCKET)
    assert f"belongs to the tree node {wrong} by its name" in str(result.error)


# ---- memory, order and files


def test_deletes_that_do_not_fit_in_memory_delete_the_same_rows(log: ChangeLog) -> None:
    marked = log.base_rows(1, 0, [row(number) for number in range(0, 4000, 2)])
    log.commit_base(marked, log.base_rows(1, 0, [row(number) for number in range(4001, 6000, 2)]))
    log.commit(log.changes(1, "I", 0, [(row(number, v="new"), number) for number in range(1, 4000, 2)]))
    merged = log.commit(
        log.changes(1, "ED", 0, [(row(number), number) for number in range(0, 6000, 3)]),
        log.changes(1, "I", 0, [(row(number, v="again"), number) for number in range(0, 90, 9)]),
    )
    before = log.judged()
    choices = Choices(marked=[marked.path], memory_bytes=MIB // 2)
    opened = opened_by(log, task_of(log, merged, choices=choices))
    assert opened.count(marked.path) > 4, "it is read once for each of more than three parts of the deletes, and once to be marked"
    compact(log, merged, choices)
    log.check(before)


def test_files_are_rolled_at_the_target_size(log: ChangeLog) -> None:
    merged = log.commit(log.changes(1, "I", 0, [(row(number, v=f"{number * 7919 % 100003:030d}"), number) for number in range(40_000)]))
    (result,) = compact(log, merged, Choices(target_bytes=100_000, memory_bytes=8 * MIB), **ONE_BUCKET)
    assert len(result.outputs) >= 3
    assert all(output.file_size_bytes < 150_000 for output in result.outputs)
    assert log.scanned() != []
    assert len({name[-13:] for name in names_of([result])}) == len(result.outputs)


def test_rows_have_the_order_of_the_table(log: ChangeLog) -> None:
    log.commit_base(log.base_rows(1, 0, [row(number) for number in (3, 1, 2, 9)]))
    merged = log.commit(log.changes(1, "I", 0, [(row(number), number) for number in (5, 8, 4, 30, 12)]))
    with log.base.refresh().update_sort_order() as update:
        update.desc("id", IdentityTransform(), NullOrder.NULLS_LAST)
    (result,) = compact(log, merged, Choices(type=CompactionType.FULL))
    for output in result.outputs:
        ids = pq.read_table(output.path)["id"].to_pylist()
        assert ids == sorted(ids, reverse=True)
        assert output.sort_order_id == log.base.metadata.default_sort_order_id
    log.check([row(number) for number in (3, 1, 2, 9, 5, 8, 4, 30, 12)])


def test_base_files_have_the_columns_of_the_table_and_bounds(log: ChangeLog) -> None:
    merged = log.commit(log.changes(1, "I", 0, [(row(7, "eu", "x"), 1, 1), (row(9, "us", "y"), 1, 1)]))
    (result,) = compact(log, merged, **ONE_BUCKET)
    (output,) = result.outputs
    schema = pq.read_schema(output.path)
    assert schema.names == ["id", "region", "ts", "v"]
    assert [field.metadata[b"PARQUET:field_id"] for field in schema] == [b"1", b"2", b"3", b"4"]
    assert (output.lower_bounds[1], output.upper_bounds[1]) == ("0700000000000000", "0900000000000000")
    assert output.null_value_counts[3] == 2


def test_a_change_that_was_written_before_a_column_came_has_null_there(log: ChangeLog) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1, v="a"), 1)]))
    for store in (log.base, log.change):
        with store.refresh().update_schema() as update:
            update.add_column("extra", StringType())
            update.rename_column("v", "w")
    log.base.refresh()
    log.change.refresh()
    renamed = {"id": 2, "region": None, "ts": None, "w": "b", "extra": "e"}
    merged = log.commit(log.changes(1, "I", 0, [(renamed, 1)]))
    compact(log, merged)
    log.check([{"id": 1, "region": None, "ts": None, "w": "a", "extra": None}, renamed])


def test_rows_stay_in_their_partition(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path, spec=by("region", IdentityTransform()), key=("id", "region"))
    regions = [None, "eu", "l'été", "a~b/*"]
    log.commit_base(*(log.base_rows(1, 0, [row(1, region), row(2, region)]) for region in regions[:3]))
    log.commit(*(log.changes(1, "I", 0, [(row(3, region), 1)]) for region in regions))
    merged = log.commit(*(log.changes(1, "ED", 0, [(row(2, region), 1), (row(3, region), 2)]) for region in regions[1:]))
    results = compact(log, merged)
    folders = {output.path.removeprefix(f"{log.base.location()}/data/").rpartition("/")[0] for each in results for output in each.outputs}
    assert folders == {"region=null", "region=eu", "region=l%27%C3%A9t%C3%A9"}
    log.check([row(1, None), row(2, None), row(3, None), row(1, "eu"), row(1, "l'été")])


# ---- refused


def test_a_task_with_files_of_another_partition_is_not_merged(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path, spec=by("region", IdentityTransform()), key=("id", "region"))
    merged = log.commit(log.changes(1, "I", 0, [(row(1, "eu"), 1)]), log.changes(1, "I", 0, [(row(1, "us"), 1)]))
    files = log.change_files()
    result = run(log, task_of(log, merged, ROOT, files[0].partition, inserts=files))
    assert result.end_reason is EndReason.FAILED
    assert "but the task merges partition" in str(result.error)


def test_a_base_file_above_the_node_of_a_task_is_not_merged(log: ChangeLog) -> None:
    log.commit_base(log.base_rows(1, 0, [row(1)]))
    merged = log.commit(log.changes(1, "ED", 0, [(row(1), 1)]))
    data = [file for file in log.base_files() if file.is_data]
    result = run(log, task_of(log, merged, DataTreeNode(3, 0), inputs=data))
    assert "so deletes of other nodes would miss their rows" in str(result.error)


def test_deletes_among_the_inserts_are_refused(log: ChangeLog) -> None:
    merged = log.commit(log.changes(1, "I", 0, [(row(1), 1)]), log.changes(1, "ED", 0, [(row(1), 2)]))
    result = run(log, task_of(log, merged, inserts=log.change_files(), deletes=()))
    assert result.end_reason is EndReason.REFUSED
    assert "is called a file of type ED, but the task needs one of type I there" in str(result.error)


def test_a_file_in_both_stores_is_refused(log: ChangeLog) -> None:
    merged = log.commit(log.changes(1, "I", 0, [(row(1), 1)]))
    (file,) = log.change_files()
    result = run(log, task_of(log, merged, inputs=[file]))
    assert result.end_reason is EndReason.REFUSED
    assert "its rows would appear twice" in str(result.error)


def test_a_base_file_of_a_transaction_that_is_not_merged_yet_stays_where_it_is(log: ChangeLog) -> None:
    for number in range(3):
        log.commit(log.changes(1, "I", 0, [(row(number), 1)]))
    file = log.base_rows(1, 3, [row(9)])
    log.commit_base(file)
    result = run(log, task_of(log, 2))
    assert result.end_reason is EndReason.REFUSED
    assert "tells the transaction 3 by its name, but changes are merged up to 2 only" in str(result.error)
    before = log.judged()
    compact(log, 2, Choices(marked=[file.path]))
    log.check(before)


def test_a_change_whose_name_is_later_than_its_commit_is_refused(log: ChangeLog) -> None:
    log.commit(log.changes(1, "I", 7, [(row(1), 1)]))
    result = run(log, task_of(log, 1))
    assert result.end_reason is EndReason.REFUSED
    assert "but its name tells the later transaction 7" in str(result.error)


def test_a_column_that_only_the_change_store_has_is_not_lost(log: ChangeLog) -> None:
    with log.change.update_schema() as update:
        update.add_column("extra", StringType())
    log.change.refresh()
    merged = log.commit(log.changes(1, "I", 0, [({**row(1), "extra": "e"}, 1)]))
    result = run(log, task_of(log, merged))
    assert "the change store has a column with the field id 5" in str(result.error)


def test_buckets_that_are_no_power_of_two_are_refused(log: ChangeLog) -> None:
    merged = log.commit(log.changes(1, "I", 0, [(row(1), 1)]))
    result = run(log, task_of(log, merged), **{"base__file-index__hash-bucket": "5"})
    assert result.end_reason is EndReason.REFUSED
    assert "must be a power of two" in str(result.error)


# ---- proofs


def test_a_row_that_is_lost_on_its_way_shows(log: ChangeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    merged = log.commit(log.changes(1, "I", 0, [(row(number), number) for number in range(30)]))
    write_otherwise(monkeypatch, lambda batch: [batch.slice(1)])
    result = run(log, task_of(log, merged), **ONE_BUCKET)
    assert result.end_reason is EndReason.DIGEST_MISMATCH
    assert "30 must be written, but 29 were" in str(result.error)
    assert not list(Path(log.base.location().removeprefix("file://")).rglob("*.parquet"))


def test_a_row_that_is_changed_on_its_way_shows(log: ChangeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    merged = log.commit(log.changes(1, "I", 0, [(row(number, v="a"), number) for number in range(30)]))
    write_otherwise(monkeypatch, lambda batch: [batch.take([1, *range(1, batch.num_rows)])])
    result = run(log, task_of(log, merged), **ONE_BUCKET)
    assert result.end_reason is EndReason.DIGEST_MISMATCH
    assert "the rows written are not the rows read" in str(result.error)


def test_a_position_that_is_written_wrongly_shows(log: ChangeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    large = log.base_rows(1, 0, [row(1), row(2), row(3)])
    log.commit_base(large)
    merged = log.commit(log.changes(1, "ED", 0, [(row(2), 1)]))
    real = convert.PositionDeleteWriter.write
    monkeypatch.setattr(
        convert.PositionDeleteWriter, "write", lambda self, path, data, positions: real(self, path, data, positions + 1)
    )  # fmt: skip
    result = run(log, task_of(log, merged, ROOT, (), Choices(marked=[large.path])))
    assert result.end_reason is EndReason.DIGEST_MISMATCH
    assert "the positions written are not the positions found" in str(result.error)
