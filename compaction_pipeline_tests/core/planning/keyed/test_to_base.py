"""Which tasks merge the changes of a partition into the base store, or why none does."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone

import pytest

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.fragmentation.verdict import PlanReasonCode
from compaction_pipeline.core.planning.keyed.cut import LateChanges
from compaction_pipeline.core.planning.keyed.to_base import PartitionPlan, ToBaseOptions, plan_to_base
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.keyed.keyed_files import KeyedFiles, TransactionSpan
from compaction_pipeline.core.tables.keyed.optimized_sequence import OptimizedSequences
from compaction_pipeline.core.tables.keyed.partition_paths import PathField, key_of
from compaction_pipeline.core.tables.keyed.transactions import BegunTransaction
from compaction_pipeline.core.tables.node import Partition, PartitionValue
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.core.work.work import ChangeSpan, Work

_FIELDS = (PathField("region", "identity", "string"),)
_COUNTER = itertools.count(1)
_MAJOR, _FULL = CompactionType.MAJOR, CompactionType.FULL
_PROPERTIES = TableProperties(target_size_bytes=1000, fragment_ratio=8, max_task_size_bytes=4000)
"""A fragment has at most 125 bytes."""


def region(value: str | None) -> Partition:
    return (PartitionValue("region", "string", value),)


EU = region("eu")


def file(
    kind: str, transaction: int, sequence: int = 1, *, node: int = 1, size: int = 10, rows: int = 100, at: Partition = EU, name: str = ""
) -> LiveFile:
    path = f"wh/{name or f'{node}-{kind}-{transaction}-00000-0-{next(_COUNTER)}-00001'}.parquet"
    return LiveFile(path, FileContent.DATA, 0, at, size, rows, sequence)


def positions(of: LiveFile, rows: int = 5) -> LiveFile:
    path = f"wh/1-PD-0-00000-0-{next(_COUNTER)}-00001.parquet"
    return LiveFile(path, FileContent.POSITION_DELETES, 0, of.partition, 5, rows, 9, referenced_data_file=of.path)


def files(base: Sequence[LiveFile], changes: Sequence[LiveFile], above: int | None = None, at: Partition = EU) -> KeyedFiles:
    numbers = {} if above is None else {key_of(at, _FIELDS): above}
    return KeyedFiles(tuple(base), tuple(changes), OptimizedSequences(_FIELDS, numbers), 77)


def planned(of: KeyedFiles, kind: CompactionType = _MAJOR, **options: object) -> PartitionPlan:
    """The plan of the only partition."""
    (plan,) = plan_to_base(of, replace(ToBaseOptions(kind, _PROPERTIES), **options))  # type: ignore[arg-type]
    return plan


def span(work: Work) -> ChangeSpan:
    assert work.changes is not None
    return work.changes


def only(plan: PartitionPlan) -> Work:
    (work,) = plan.tasks
    return work


def test_a_task_says_which_changes_it_merges() -> None:
    insert, delete, old = file("I", 0, 8), file("ED", 0, 9), file("B", 5)
    plan = planned(files([old], [insert, delete], above=5))
    work = only(plan)
    assert (work.action, work.type, work.inputs, work.output_spec_id) == (TaskAction.TO_BASE, _MAJOR, (old,), 0)
    assert work.changes == ChangeSpan((insert,), (delete,), above=5, up_to=9, change_snapshot_id=77)
    assert (work.fragment_size_bytes, work.target_size_bytes, work.predicted_files) == (125, 1000, 1)
    assert (plan.reason.code, plan.above) == (PlanReasonCode.PLANNED, 5)


def test_all_tasks_of_a_partition_are_one_group_and_partitions_have_their_own() -> None:
    us = region("us")
    changes = [file("I", 0, 8, node=node, at=at) for node in (4, 5) for at in (EU, us)]
    plans = plan_to_base(files([], changes), ToBaseOptions(_MAJOR, _PROPERTIES))
    assert [len(plan.tasks) for plan in plans] == [2, 2]
    assert [len({work.group for work in plan.tasks}) for plan in plans] == [1, 1]
    assert len({work.group for plan in plans for work in plan.tasks} - {""}) == 2


@pytest.mark.parametrize("kind", [_MAJOR, _FULL])
def test_a_partition_without_changes_and_without_a_gain_has_no_task_and_a_reason(kind: CompactionType) -> None:
    base = [file("B", 5, node=4), file("B", 5, node=5), file("B", 5, node=6, size=900)]
    plan = planned(files(base, [file("I", 0, 4)], above=5), kind)
    assert (plan.tasks, plan.reason.code) == ((), PlanReasonCode.NOT_FRAGMENTED)


def test_a_full_merges_the_base_files_of_a_partition_without_changes() -> None:
    one, other, clean, marked = file("B", 5), file("B", 3), file("B", 5, size=900, node=4), file("B", 4, size=900, node=5)
    delete = positions(marked)
    plan = planned(files([one, other], [file("I", 0, 5)], above=5), _FULL)
    assert only(plan).inputs == (one, other)
    assert only(plan).changes == ChangeSpan((), (), above=5, up_to=5, change_snapshot_id=77)
    assert plan.reason.code is PlanReasonCode.PLANNED
    assert "2 base files with 0 delete files of the base store are merged with each other" in plan.reason.text
    plan = planned(files([clean, marked, delete], [], above=5), _FULL)
    assert (only(plan).inputs, only(plan).deletes) == ((marked,), (delete,))


def test_a_major_joins_small_base_files_of_a_partition_without_changes() -> None:
    large, small = file("B", 5, size=900), [file("B", 5), file("B", 4)]
    work = only(planned(files([large, positions(large), *small], [], above=5)))
    assert (set(work.inputs), work.deletes, span(work).up_to) == (set(small), (), 5)


def test_a_partition_that_has_no_optimized_sequence_keeps_it_that_way() -> None:
    old = [file("B", 0), file("B", 0)]
    # A file that is named after a transaction stays: without a number nobody knows which changes are in it.
    work = only(planned(files([*old, file("B", 5)], []), _FULL))
    assert (set(work.inputs), span(work).above, span(work).up_to) == (set(old), None, 0)


def test_files_without_changes_wait_while_a_transaction_holds_the_changes_back() -> None:
    begun = (BegunTransaction(2, datetime(2026, 1, 1, tzinfo=timezone.utc)),)
    plan = planned(files([file("B", 1), file("B", 1)], [file("I", 0, 8)], above=1), _FULL, open_transactions=begun)
    assert (plan.tasks, plan.reason.code) == ((), PlanReasonCode.FILES_IN_USE)


def test_files_without_changes_wait_for_a_transaction_that_is_open_below_their_number() -> None:
    begun = (BegunTransaction(3, datetime(2026, 1, 1, tzinfo=timezone.utc)),)
    table = files([file("B", 1), file("B", 4)], [], above=4)
    plan = planned(table, _FULL, open_transactions=begun)
    assert (plan.tasks, plan.reason.code) == ((), PlanReasonCode.FILES_IN_USE)
    assert "transaction 3 began at" in plan.reason.text
    assert planned(table, _FULL, open_transactions=(replace(begun[0], transaction_id=5),)).tasks


def test_a_task_that_would_write_as_many_files_again_is_left_out() -> None:
    base = [file("B", 5, size=900) for _ in range(10)]
    plan = planned(files(base, [], above=5), _FULL, task_bytes=4000)
    assert (plan.tasks, plan.reason.code) == ((), PlanReasonCode.NOT_FRAGMENTED)


def test_a_large_base_file_with_few_deleted_rows_stays_and_is_marked() -> None:
    large = file("B", 5, size=900, rows=1000)
    work = only(planned(files([large], [file("ED", 0, 8, rows=100)], above=5)))
    assert (work.inputs, span(work).marked, work.predicted_files) == ((large,), (large.path,), 1)


@pytest.mark.parametrize(
    ("base", "deletes", "before"),
    [
        (file("B", 5, size=900, rows=1000), 101, 0),
        (file("B", 5, size=125, rows=1000), 1, 0),
        (file("B", 5, size=900, rows=1000), 50, 51),
    ],
    ids=["many deletes", "small", "many deletes with those of before"],
)
def test_other_base_files_that_deletes_may_reach_are_rewritten(base: LiveFile, deletes: int, before: int) -> None:
    own = [positions(base, before)] if before else []
    work = only(planned(files([base, *own], [file("ED", 0, 8, rows=deletes)], above=5)))
    assert (work.inputs, span(work).marked, work.deletes) == ((base,), (), tuple(own))


def test_the_estimate_shares_deletes_among_the_base_files_that_they_may_reach() -> None:
    pair = [file("B", 5, size=900, rows=1000) for _ in range(2)]
    work = only(planned(files(pair, [file("ED", 0, 8, rows=150)], above=5)))
    assert set(span(work).marked) == {each.path for each in pair}


def test_base_files_that_no_delete_may_reach_are_left_alone() -> None:
    later, elsewhere = file("B", 8, size=900), file("B", 1, size=900, node=5)
    work = only(planned(files([later, elsewhere], [file("ED", 0, 8, node=4), file("I", 0, 8, node=4)], above=5)))
    assert work.inputs == ()


def test_small_base_files_are_joined_with_inserts_of_their_unit_only() -> None:
    here, elsewhere = file("B", 5, node=4, size=100), file("B", 5, node=5, size=100)
    work = only(planned(files([here, elsewhere], [file("I", 0, 8, node=4)], above=5)))
    assert work.inputs == (here,)


def test_a_small_base_file_is_not_rewritten_alone() -> None:
    small, large = file("B", 8, size=100), file("B", 5, size=900, rows=5000)
    work = only(planned(files([small, large], [file("ED", 0, 8, rows=1)], above=5)))
    assert work.inputs == (large,)


def test_a_small_base_file_above_the_cut_is_not_joined() -> None:
    below, above = file("B", 8, size=100), file("B", 9, size=100)
    opened = (BegunTransaction(9, datetime(2026, 1, 1, tzinfo=timezone.utc)),)
    work = only(planned(files([below, above], [file("I", 0, 8)], above=5), open_transactions=opened))
    assert (work.inputs, span(work).up_to) == ((below,), 8)


def test_a_full_rewrites_all_base_files_but_those_above_the_cut() -> None:
    base = [file("B", 5, size=900, rows=5000), file("B", 2, size=900)]
    above = file("B", 30, size=900)
    work = only(planned(files([*base, above], [file("ED", 0, 8, rows=1)], above=5), _FULL))
    assert (work.inputs, span(work).marked) == (tuple(base), ())


def test_a_full_takes_units_without_changes_only_for_a_gain() -> None:
    alone, pair, deleted = file("B", 5, node=4, size=900), [file("B", 5, node=5) for _ in range(2)], file("B", 5, node=6, size=900)
    plan = planned(files([alone, *pair, deleted, positions(deleted)], [file("I", 0, 8, node=7)], above=5), _FULL)
    assert [work.inputs for work in plan.tasks] == [tuple(pair), (deleted,), ()]


def test_a_full_takes_every_base_file_where_the_table_wants_it() -> None:
    alone, other = file("B", 5, node=4, size=900), file("B", 5, node=5, size=900)
    wanted = replace(_PROPERTIES, full_rewrites_all=True)
    plan = planned(files([alone, other], [], above=5), _FULL, properties=wanted)
    assert [(work.inputs, work.predicted_files) for work in plan.tasks] == [((alone,), 1), ((other,), 1)]
    assert planned(files([alone, other], [], above=5), _FULL).tasks == ()
    assert planned(files([alone, other], [], above=5), _MAJOR, properties=wanted).tasks == ()


def test_deletes_of_the_base_store_that_apply_are_part_of_the_task() -> None:
    one, other = file("B", 5, node=4), file("B", 5, node=5)
    of_one, of_other = positions(one), positions(other)
    changes = [file("ED", 0, 8, node=4), file("I", 0, 8, node=4)]
    work = only(planned(files([one, other, of_one, of_other], changes, above=5)))
    assert (work.inputs, work.deletes) == ((one,), (of_one,))


def test_position_deletes_of_single_marked_files_are_converted() -> None:
    stays, rewritten = file("B", 5, size=900, rows=1000), file("B", 5, rows=1000)
    of_one, of_both = positions(stays), replace(positions(stays), referenced_data_file=None)
    work = only(planned(files([stays, rewritten, of_one, of_both, positions(rewritten)], [file("ED", 0, 8, rows=50)], above=5)))
    assert (work.inputs, span(work).marked) == ((stays, rewritten), (stays.path,))
    assert (len(work.deletes), work.converts) == (3, (of_one.path,))


def test_deletes_that_meet_no_row_are_in_a_task_without_rows() -> None:
    delete = file("ED", 0, 8, node=4)
    work = only(planned(files([], [delete], above=5)))
    assert (work.inputs, span(work).inserts, span(work).deletes, work.predicted_files) == ((), (), (delete,), 0)


def test_a_unit_larger_than_a_task_is_divided() -> None:
    changes = [file("I", 0, 8, size=6000), file("ED", 0, 8, size=1000)]
    assert [work.node.tree.id for work in planned(files([], changes)).tasks] == [2, 3]
    assert [work.node.tree.id for work in planned(files([], changes), task_bytes=2000).tasks] == [4, 6, 5, 7]
    assert [work.predicted_bytes for work in planned(files([], changes), task_bytes=2000).tasks] == [1500] * 4


def test_a_file_above_the_cut_is_read_for_its_rows_below() -> None:
    several = file("I", 0, 15)
    spanned = replace(files([], [several]), row_spans={several.path: TransactionSpan(5, 15)})
    work = only(planned(spanned, open_transactions=(BegunTransaction(13, datetime(2026, 1, 1, tzinfo=timezone.utc)),)))
    assert (span(work).inserts, span(work).up_to) == ((several,), 12)


def test_late_changes_are_counted_and_merged() -> None:
    late = file("I", 3, 8, rows=40)
    plan = planned(files([], [late], above=5))
    assert (plan.late, span(only(plan)).inserts) == (LateChanges(1, 40), (late,))


def test_a_partition_waits_for_the_task_that_holds_a_base_file_that_must_change() -> None:
    held, small = file("B", 5, size=900), file("B", 5, node=5)
    changes = [file("ED", 0, 8, node=4), file("I", 0, 8, node=4)]
    plan = planned(files([held], changes, above=5), held=frozenset({held.path}))
    assert (plan.tasks, plan.reason.code) == ((), PlanReasonCode.FILES_IN_USE)
    assert plan.reason.text == f"another task holds base file {held.path}, and the changes of a partition are merged all or none"
    # A small file that need not change is left to the task that holds it.
    joined = [file("I", 0, 8, node=5)]
    assert only(planned(files([small], joined, above=5), held=frozenset({small.path}))).inputs == ()


def test_a_partition_whose_changes_are_being_merged_waits() -> None:
    plan = planned(files([], [file("I", 0, 8)]), busy=frozenset({(0, EU)}))
    assert (plan.tasks, plan.reason.code) == ((), PlanReasonCode.FILES_IN_USE)
    assert plan.reason.text == "tasks of the partition wait or are merged, and its changes are merged all or none"


def test_partitions_whose_paths_are_one_text_are_refused() -> None:
    changes = [file("I", 0, 8, at=region(value)) for value in (None, "null", "eu")]
    null, text, other = plan_to_base(files([], changes), ToBaseOptions(_MAJOR, _PROPERTIES))
    assert (null.reason.code, text.reason.code) == (PlanReasonCode.REFUSED, PlanReasonCode.REFUSED)
    assert "'region=null' is the path of two partitions, NULL and a text" in null.reason.text
    assert other.tasks
    assert not (*null.tasks, *text.tasks)


def test_a_file_that_is_live_twice_in_a_store_stops_its_partition() -> None:
    base, insert = file("B", 5), file("I", 0, 8)
    for twice in (files([base, base], [insert]), files([], [insert, insert]), files([base, *[positions(base)] * 2], [insert])):
        plan = planned(twice)
        assert (plan.tasks, plan.reason.code) == ((), PlanReasonCode.LIVE_TWICE)
        assert "is live more than once" in plan.reason.text


def test_a_change_file_that_moved_into_the_base_store_is_no_copy() -> None:
    moved = file("I", 3, 4)
    work = only(planned(files([moved], [moved, file("I", 0, 8)], above=5)))
    assert work.inputs == (moved,)


def test_files_of_several_partition_specs_are_refused() -> None:
    with pytest.raises(TableRefused, match="partition specs 0, 1"):
        planned(files([replace(file("B", 1), spec_id=1)], [file("I", 0, 8)]))
