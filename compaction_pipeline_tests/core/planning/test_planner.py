"""Plans of small tables, one rule each. The target is 1,000 kB, small is ≤ 125 kB, undersized is ≤ 750 kB, a MINOR needs 12 small files."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from compaction_pipeline.core.fragmentation.health import HealthStatus, node_health
from compaction_pipeline.core.fragmentation.verdict import NodeHistory, PlanReasonCode
from compaction_pipeline.core.planning.plain.prediction import predicted
from compaction_pipeline.core.planning.plan import Budget, CompactionPlan, PlanRequest
from compaction_pipeline.core.queue.open_work import InUse
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.words import moment_text
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.core.work.work import Work
from compaction_pipeline_tests.builders import (
    NOW,
    data,
    equality,
    forced,
    global_equality,
    node,
    planned,
    position,
    properties,
    table_files,
)

MINOR, MAJOR, FULL = CompactionType.MINOR, CompactionType.MAJOR, CompactionType.FULL
MERGE, CONVERT, DROP = TaskAction.MERGE, TaskAction.CONVERT, TaskAction.DROP_DELETES


def small(count: int, day: int = 1, kb: float = 10, seq: int = 1, name: str = "f") -> list[LiveFile]:
    return [data(f"{name}{day}-{number:03}", kb, seq, day=day) for number in range(count)]


def shape(plan: CompactionPlan) -> list[tuple[CompactionType, TaskAction, list[str]]]:
    return [(work.type, work.action, sorted(file.path for file in work.inputs)) for work in plan.tasks]


def only(plan: CompactionPlan) -> Work:
    (work,) = plan.tasks
    return work


def test_twelve_small_files_make_a_minor_and_eleven_do_not() -> None:
    work = only(planned(table_files(*small(12))))
    assert (work.type, work.action, len(work.inputs), work.predicted_files) == (MINOR, MERGE, 12, 1)
    idle = planned(table_files(*small(11)))
    assert idle.tasks == ()
    assert idle.reason.text == "no node has 12 small files; the highest number is 11, in dt=1"
    assert idle.verdicts[0].reason.text == "11 small data files of 12 needed; 110 kB of 1.0 MB"


def test_small_data_and_small_delete_files_are_counted_apart() -> None:
    eleven = [equality(f"e{number:02}", 2) for number in range(11)]
    assert planned(table_files(*small(11), *eleven)).tasks == ()
    assert len(only(planned(table_files(*small(2), *eleven, equality("e11", 2)))).deletes) == 12


def test_the_bytes_of_small_files_make_a_minor_due() -> None:
    assert planned(table_files(*small(8, kb=124))).tasks == ()
    assert len(planned(table_files(*small(9, kb=124))).tasks) == 1


def test_a_file_at_the_border_is_small_and_one_above_it_is_left_to_major() -> None:
    assert "border" in [file.path for file in only(planned(table_files(*small(11), data("border", 125)))).inputs]
    twelve = planned(table_files(*small(12), data("above", 125.001)), PlanRequest((MINOR,)))
    assert "above" not in [file.path for file in only(twelve).inputs]


def test_the_interval_counts_from_the_last_minor_or_from_first_sight_and_needs_two_small_files() -> None:
    files = table_files(*small(2))
    hour = timedelta(hours=1)
    assert planned(files, history=NodeHistory(first_seen={node(): NOW - hour})).tasks
    recent = NodeHistory(first_seen={node(): NOW - hour}, last_done={(node(), MINOR): NOW - hour / 2})
    assert planned(files, history=recent).tasks == ()
    assert planned(table_files(*small(1)), history=NodeHistory(first_seen={node(): NOW - hour})).tasks == ()
    one_each = table_files(data("a"), equality("e"))
    assert len(only(planned(one_each, history=NodeHistory(first_seen={node(): NOW - hour}))).deletes) == 1


def test_ten_percent_of_deleted_rows_make_a_major() -> None:
    segment = data("s", 800, rows=100)
    assert shape(planned(table_files(segment, position("p", of="s", rows=10)))) == [(MAJOR, MERGE, ["s"])]
    assert planned(table_files(segment, position("p", of="s", rows=9))).tasks == ()


def test_undersized_segments_are_joined_when_that_saves_a_file() -> None:
    assert shape(planned(table_files(data("a", 400), data("b", 500)))) == [(MAJOR, MERGE, ["a", "b"])]
    assert planned(table_files(data("a", 700), data("b", 700))).tasks == ()


def test_a_minor_that_would_make_a_major_due_is_planned_as_that_major() -> None:
    files = table_files(data("segment", 300), *small(12, kb=20))
    assert len(only(planned(files)).inputs) == 13
    assert only(planned(files)).type is MAJOR
    assert len(only(planned(files, PlanRequest((MINOR,)))).inputs) == 12


def test_a_full_runs_by_its_interval_and_rewrites_everything_that_gains() -> None:
    files = table_files(data("a", 900), data("b", 50))
    rules = properties(full_interval=timedelta(days=1))
    seen = NodeHistory(first_seen={node(): NOW - timedelta(days=1)})
    assert shape(planned(files, rules=rules, history=seen)) == [(FULL, MERGE, ["a", "b"])]
    assert planned(files, history=seen).tasks == ()


def test_a_full_rewrites_every_file_where_the_table_wants_it() -> None:
    """Neither a file of the right size nor one that stays alone is left out, also when the node is larger than a task."""
    files = table_files(data("a", 900), data("b", 900), data("c", 50))
    wanted, unwanted = properties(full_rewrites_all=True), properties()
    taken = [path for _, _, paths in shape(planned(files, forced(FULL), rules=wanted)) for path in paths]
    assert sorted(taken) == ["a", "b", "c"]
    assert [work.predicted_files for work in planned(table_files(data("a", 900)), forced(FULL), rules=wanted).tasks] == [1]
    assert [path for _, _, paths in shape(planned(files, forced(FULL), rules=unwanted)) for path in paths] == ["a", "c"]
    for kind in (MINOR, MAJOR):
        assert planned(files, forced(kind), rules=wanted).tasks == planned(files, forced(kind), rules=unwanted).tasks


def test_forced_work_still_needs_a_gain() -> None:
    for kind in CompactionType:
        plan = planned(table_files(data("a", 900)), forced(kind))
        assert plan.tasks == ()
        assert plan.reason.code is PlanReasonCode.NO_GAIN


def test_a_single_file_whose_deletes_go_is_a_gain() -> None:
    for kind in CompactionType:
        assert len(only(planned(table_files(data("a", 10), equality("e")), forced(kind))).deletes) == 1


def test_a_full_with_only_dangling_deletes_drops_them() -> None:
    work = only(planned(table_files(data("a", 900, seq=5), equality("e", 3)), forced(FULL)))
    assert (work.action, work.inputs, [file.path for file in work.deletes], work.predicted_files) == (DROP, (), ["e"], 0)


def test_a_node_of_delete_files_only_has_nothing_to_merge() -> None:
    work = only(planned(table_files(equality("e", 3)), forced(FULL)))
    assert work.action is DROP


def test_equality_deletes_of_segments_are_converted_in_a_group_with_the_fragments_that_share_them() -> None:
    deletes = [equality(f"e{number:02}", 2) for number in range(12)]
    plan = planned(table_files(data("s", 900, rows=9000), data("t", 900, rows=9000), *small(2), *deletes))
    merge, *conversions = plan.tasks
    assert (merge.action, len(merge.inputs)) == (MERGE, 2)
    assert sorted(file.path for work in conversions for file in work.inputs) == ["s", "t"]
    assert all(work.action is CONVERT and len(work.converts) == 12 for work in conversions)
    assert {work.group for work in plan.tasks} == {merge.group}
    assert merge.group
    assert (plan.predicted_files, plan.predicted_delete_files) == (3, 2)
    assert plan.files_after(PlanRequest()) == "after it: 3 data files, 2 delete files"


def test_two_position_delete_files_on_a_segment_become_one() -> None:
    work = only(planned(table_files(data("s", 900), position("p", of="s"), position("q", of="s")), forced(MINOR)))
    assert (work.action, work.converts, work.group) == (CONVERT, ("p", "q"), "")
    assert planned(table_files(data("s", 900), position("p", of="s")), forced(MINOR)).tasks == ()


def test_a_lone_fragment_that_shares_a_converted_delete_is_merged_in_its_group() -> None:
    # The writer that added `f` wrote `shared` in the same commit. Merging only `f` would gain nothing, because `s` keeps `shared` alive.
    files = table_files(data("s", 900, seq=1), data("f", 10, seq=6), position("own", 3, of="s"), position("shared", 6), sequence=7)
    plan = planned(files, forced(MINOR))
    assert shape(plan) == [(MINOR, MERGE, ["f"]), (MINOR, CONVERT, ["s"])]
    merge, conversion = plan.tasks
    assert [delete.path for delete in merge.deletes] == ["shared"]
    assert conversion.converts == ("own", "shared")
    assert merge.group == conversion.group != ""
    assert plan.predicted_delete_files == 1
    assert planned(predicted(files, plan.tasks), forced(MINOR)).tasks == ()


def test_a_lone_fragment_is_merged_together_with_all_tasks_that_remove_its_deletes() -> None:
    # Only `f` has two deletes. If it were merged alone, both deletes would stay. They have the sequence number of the merged file, so they
    # would seem to reach it for ever.
    low, high = position("p", 7, bounds=("a", "f")), position("q", 7, bounds=("f", "s"))
    files = table_files(data("a", 900), data("s", 900), data("f", 10, seq=7), low, high, sequence=7)
    plan = planned(files, forced(MINOR))
    assert sorted((work.action, work.inputs[0].path, work.converts) for work in plan.tasks) == [
        (CONVERT, "a", ("p",)),
        (CONVERT, "s", ("q",)),
        (MERGE, "f", ()),
    ]
    assert len({work.group for work in plan.tasks}) == 1
    assert planned(predicted(files, plan.tasks), forced(MINOR)).tasks == ()


def test_a_lone_fragment_joins_the_group_of_merged_segments_that_share_its_deletes() -> None:
    deletes = [position("p", 7), position("q", 7)]
    files = table_files(data("s", 995), data("f", 10, seq=7), *deletes, sequence=7)
    plan = planned(files, forced())
    assert shape(plan) == [(MAJOR, MERGE, ["s"]), (MAJOR, MERGE, ["f"])]
    assert len({work.group for work in plan.tasks} - {""}) == 1
    assert plan.predicted_delete_files == 0
    assert planned(predicted(files, plan.tasks), forced()).tasks == ()


def test_a_delete_is_not_converted_while_a_data_file_that_it_reaches_is_in_use() -> None:
    files = table_files(data("s", 900, rows=9000), data("busy", 900, rows=9000), equality("e"))
    assert [work.action for work in planned(files, forced(MINOR)).tasks] == [CONVERT, CONVERT]
    plan = planned(files, forced(MINOR), in_use=InUse(frozenset({"busy"})))
    assert plan.tasks == ()
    assert plan.reason.code is PlanReasonCode.FILES_IN_USE


def test_a_global_delete_is_converted_only_with_the_data_files_of_all_nodes() -> None:
    files = table_files(data("s", 900, rows=9000, day=1), data("t", 900, rows=9000, day=2), global_equality("g"))
    assert planned(files, forced(MINOR, nodes=[node(1)])).tasks == ()
    both = planned(files, forced(MINOR)).tasks
    assert [work.converts for work in both] == [("g",), ("g",)]
    assert len({work.group for work in both}) == 1


def test_small_global_deletes_make_the_nodes_that_they_reach_due() -> None:
    globals_ = [global_equality(f"g{number:02}") for number in range(12)]
    assert len(only(planned(table_files(*small(2), *globals_))).deletes) == 12


def test_a_delete_in_use_elsewhere_is_still_applied() -> None:
    plan = planned(table_files(*small(13), equality("e")), in_use=InUse(frozenset({"f1-000"})))
    assert [file.path for file in only(plan).deletes] == ["e"]
    assert len(only(plan).inputs) == 12


def test_a_node_with_a_running_major_is_skipped_whole() -> None:
    plan = planned(table_files(*small(12), *small(12, day=2)), in_use=InUse(exclusive_nodes=frozenset({node(1)})))
    assert only(plan).node == node(2)
    assert plan.verdicts[0].reason.code is PlanReasonCode.FILES_IN_USE


def test_pending_tasks_wait_until_new_files_are_due_and_are_then_replaced_with_their_group() -> None:
    first, second = small(12), small(12, name="g")
    waiting = InUse(pending={file.path: "t1" for file in first}, pending_groups={"t1": "g", "t2": "g", "t3": "h"})
    assert planned(table_files(*first, *second[:11]), in_use=waiting).tasks == ()
    plan = planned(table_files(*first, *second), in_use=waiting)
    assert len(only(plan).inputs) == 24
    assert plan.replaces == ("t1", "t2")
    assert planned(table_files(*first), forced(MINOR), in_use=waiting).replaces == ("t1", "t2")


def test_a_full_moves_rows_to_the_current_spec_only_after_a_quiet_interval_and_says_so() -> None:
    files = table_files(data("old", 900), default_spec=1)
    work = only(planned(files, forced(FULL)))
    assert (work.node.spec_id, work.output_spec_id) == (0, 1)
    noisy = NodeHistory(last_old_spec_delete_at=NOW - timedelta(hours=2))
    held = planned(table_files(data("old", 900), data("b", 50), default_spec=1), forced(FULL), history=noisy)
    assert only(held).output_spec_id == 0
    assert "2 h ago the spec changed, or a delete file of an old spec was committed" in held.verdicts[0].reason.text
    assert "rows move when neither has happened for 1 d" in held.verdicts[0].reason.text
    assert planned(table_files(*small(12), default_spec=1)).tasks[0].output_spec_id == 0


def test_a_budget_takes_the_node_with_the_highest_gain_and_names_the_rest() -> None:
    files = table_files(*small(12, day=1), *small(40, day=2))
    plan = planned(files, budget=Budget(1, 10**9))
    assert only(plan).node == node(2)
    assert [verdict.reason.code for verdict in plan.verdicts] == [PlanReasonCode.OVER_BUDGET, PlanReasonCode.PLANNED]
    assert "; it waits: the table's quota leaves 1 task slot, and nodes that gain more take them" in plan.verdicts[0].reason.text


@pytest.mark.parametrize(
    ("budget", "limit"),
    [
        (Budget(0, 10**18), "the table's tasks use up its quota"),
        (Budget(9, 0), "the table's tasks already read as many bytes as they may read together"),
        (Budget(9, 450_000), "the table's tasks may read 450 kB more, and nodes that gain more take that"),
        (Budget(1, 10**18), "the table's quota leaves 1 task slot, and nodes that gain more take them"),
    ],
)
def test_a_node_that_waits_names_the_limit_that_keeps_it_out(budget: Budget, limit: str) -> None:
    waiting = planned(table_files(*small(12, day=1), *small(40, day=2)), budget=budget).verdicts[0].reason
    assert waiting.code is PlanReasonCode.OVER_BUDGET
    assert waiting.text.endswith(f"; it waits: {limit}")


def test_a_plan_soon_after_the_last_makes_nothing_unless_forced() -> None:
    soon = NodeHistory(last_planned_at=NOW - timedelta(seconds=59))
    plan = planned(table_files(*small(12)), history=soon)
    assert (plan.tasks, plan.reason.code) == ((), PlanReasonCode.MIN_PLAN_INTERVAL)
    at, again = moment_text(NOW - timedelta(seconds=59), NOW), moment_text(NOW + timedelta(seconds=1), NOW)
    assert plan.verdicts[0].reason.text.endswith(f"; the table was planned at {at}; the next plan may come from {again}")
    assert planned(table_files(*small(12)), forced(MINOR), history=soon).tasks


def test_a_disabled_table_is_measured_and_never_planned() -> None:
    plan = planned(table_files(*small(12)), forced(FULL), rules=properties(switched_on=False))
    assert (plan.tasks, plan.reason.code) == ((), PlanReasonCode.DISABLED)
    assert plan.verdicts[0].metrics.small_data_files == 12


def test_a_table_without_files_says_so() -> None:
    assert planned(table_files()).reason.code is PlanReasonCode.EMPTY_TABLE


def test_nodes_that_were_not_asked_for_are_left_alone() -> None:
    plan = planned(table_files(*small(12, day=1), *small(12, day=2)), forced(MINOR, nodes=[node(2)]))
    assert [verdict.reason.code for verdict in plan.verdicts] == [PlanReasonCode.NOT_REQUESTED, PlanReasonCode.PLANNED]


def test_a_large_node_gets_several_tasks_of_at_most_the_task_size() -> None:
    plan = planned(table_files(*small(50, kb=100)))
    assert [work.input_bytes for work in plan.tasks] == [1_000_000] * 5


def test_a_task_larger_than_the_target_writes_files_of_even_size() -> None:
    work = only(planned(table_files(*small(26, kb=100)), rules=properties(task_kb=10_000)))
    assert (work.predicted_files, work.target_size_bytes) == (3, 866_667)


def test_a_prediction_drops_the_deletes_that_nothing_needs_and_keeps_the_others() -> None:
    files = table_files(*small(12), data("s", 900, rows=90_000), equality("e"), position("p", of="f1-000"), data("u", 900, day=2))
    after = predicted(files, planned(files, in_use=InUse(frozenset({"s"}))).tasks)
    assert sorted(file.path for file in after.files) == ["e", "predicted/2-0-0", "s", "u"]


def test_a_v1_table_is_merged_with_sequence_zero() -> None:
    files = table_files(*[data(f"f{number}", seq=0) for number in range(12)], version=1)
    assert only(planned(files)).deletes == ()


def test_a_data_file_that_is_live_twice_is_left_alone() -> None:
    files = small(13)
    plan = planned(table_files(*files, files[0]))
    assert sorted(file.path for file in only(plan).inputs) == [file.path for file in files[1:]]
    assert "1 data file(s) are live more than once and left alone" in plan.verdicts[0].reason.text


@pytest.mark.parametrize("request_", [PlanRequest(), forced(MINOR)], ids=["a tick", "a person"])
def test_a_node_whose_files_are_live_twice_names_a_path_and_its_manifests(request_: PlanRequest) -> None:
    files = [replace(file, manifest_path=manifest) for file in small(13) for manifest in ("m-1", "m-2")]
    plan = planned(table_files(*files), request_)
    assert (plan.tasks, plan.reason.code, plan.verdicts[0].reason.code) == ((), PlanReasonCode.LIVE_TWICE, PlanReasonCode.LIVE_TWICE)
    for text in (plan.reason.text, plan.verdicts[0].reason.text):
        assert (
            f"13 data file(s) are live more than once and left alone, as a rewrite could not tell the copies apart: {files[0].path}" in text
        )
        assert "is in m-1 and in m-2; readers get its rows 2 times" in text
        assert "running or waiting" not in text
    assert node_health(plan.verdicts[0]).status is HealthStatus.REFUSED


def test_a_file_that_is_live_twice_in_one_manifest_or_in_another_node_is_named() -> None:
    (file,) = small(1)
    text = planned(table_files(file, file, file), forced(MINOR)).reason.text
    assert f"is in {file.manifest_path} and in {file.manifest_path} and in {file.manifest_path}; readers get its rows 3 times" in text
    there = replace(data(file.path, day=2), manifest_path="m-2")
    plan = planned(table_files(file, there), forced(MINOR))
    assert {verdict.reason.code for verdict in plan.verdicts} == {PlanReasonCode.LIVE_TWICE}
    assert plan.reason.text.startswith("2 nodes left alone; ")
    assert f"is in {file.manifest_path} and in m-2" in plan.reason.text


@pytest.mark.parametrize("sequences", [(3, 3), (3, 4)])
@pytest.mark.parametrize("request_", [PlanRequest(), forced(MINOR)])
def test_data_files_under_a_delete_file_that_is_live_twice_are_left_alone(sequences: tuple[int, int], request_: PlanRequest) -> None:
    # A commit rejects tasks that applied such a delete file. If it were planned, the work would be merged and rejected again and again.
    copies = [replace(equality("e/twice", seq=sequence), manifest_path=f"m-{number}") for number, sequence in enumerate(sequences, 1)]
    plan = planned(table_files(*small(13), *copies), request_)
    assert (plan.tasks, plan.reason.code) == ((), PlanReasonCode.LIVE_TWICE)
    assert "e/twice is in m-1 and in m-2; remove the path from the table and add it once" in plan.verdicts[0].reason.text
    younger = [replace(file, path=f"y/{file.path}", data_sequence_number=9) for file in small(13)]
    assert [len(work.inputs) for work in planned(table_files(*small(1), *younger, *copies), request_).tasks] == [13]


def test_a_dangling_delete_file_that_is_live_twice_is_not_dropped() -> None:
    copies = [equality("e/twice", seq=sequence) for sequence in (3, 4)]
    assert planned(table_files(replace(data("a", 500), data_sequence_number=5), *copies), forced()).tasks == ()
    assert planned(table_files(replace(data("a", 500), data_sequence_number=5), copies[0]), forced()).tasks


def test_files_in_tasks_are_counted_apart_from_those_that_are_live_twice() -> None:
    files = small(13)
    plan = planned(table_files(*files, files[0]), in_use=InUse(frozenset(file.path for file in files[1:])))
    (verdict,) = plan.verdicts
    assert verdict.reason.code is PlanReasonCode.FILES_IN_USE
    assert verdict.reason.text.startswith("12 of 14 data files are in running or waiting tasks; for the others: ")
    assert "; 1 data file(s) are live more than once" in verdict.reason.text


def test_a_file_that_is_live_twice_in_a_node_that_is_not_due_changes_nothing() -> None:
    files = small(3)
    plan = planned(table_files(*files, files[0]))
    assert plan.reason.code is PlanReasonCode.NOT_FRAGMENTED


def test_a_merge_is_expected_to_write_the_bytes_of_the_rows_that_no_delete_deletes() -> None:
    files = [data("old", 300, 1, rows=300), data("new", 100, 3, rows=100)]
    # 90 of the 300 old rows go by the first delete. The second names more rows than there are.
    some = only(planned(table_files(*files, equality("e", 2, rows=90)), forced(MAJOR)))
    assert (some.predicted_bytes, some.input_bytes) == (round(300_000 * 0.7) + 100_000, 400_000)
    every = only(planned(table_files(*files, equality("e", 2, rows=900)), forced(MAJOR)))
    assert every.predicted_bytes == 100_000
    plan = planned(table_files(*files, equality("e", 2, rows=90)), forced(MAJOR))
    assert (plan.predicted_files, plan.predicted_delete_files, plan.predicted_bytes) == (1, 0, some.predicted_bytes)
    # Packing goes by the bytes of the files, so that a plan of the predicted files finds nothing.
    assert [file.file_size_bytes for file in predicted(table_files(*files, equality("e", 2, rows=90)), plan.tasks).files] == [400_000]
