"""Laws that hold for every plan, on random tables."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from compaction_pipeline.core.fragmentation.verdict import PlanReasonCode
from compaction_pipeline.core.planning.plain.prediction import predicted
from compaction_pipeline.core.planning.plan import CompactionPlan, PlanRequest
from compaction_pipeline.core.queue.open_work import InUse
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.deletes.applies import DeleteIndex
from compaction_pipeline.core.tables.live_files import TableFiles
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline_tests import builders, strategies
from compaction_pipeline_tests.builders import PLENTY, planned
from compaction_pipeline_tests.core.planning.committed import committed, triple


@st.composite
def situations(draw: st.DrawFn) -> tuple[TableFiles, InUse, TableProperties, PlanRequest]:
    files = draw(strategies.live_files())
    return files, draw(strategies.in_use(files)), draw(strategies.table_properties()), draw(strategies.requests)


Situation = tuple[TableFiles, InUse, TableProperties, PlanRequest]


def plan_of(situation: Situation) -> CompactionPlan:
    files, in_use, rules, request = situation
    return planned(files, request, rules=rules, in_use=in_use)


def index_of(files: TableFiles) -> DeleteIndex:
    return DeleteIndex((file for file in files.files if not file.is_data), files.unpartitioned_spec_ids)


@given(situations())
def test_a_data_file_is_in_at_most_one_task(situation: Situation) -> None:
    inputs = [file.path for work in plan_of(situation).tasks for file in work.inputs]
    assert len(inputs) == len(set(inputs))


@given(situations())
def test_no_file_in_use_is_planned_and_pending_ones_only_by_replacing_their_tasks(situation: Situation) -> None:
    in_use = situation[1]
    plan = plan_of(situation)
    for work in plan.tasks:
        assert work.node not in in_use.exclusive_nodes
        for file in work.inputs:
            assert file.path not in in_use.paths
            assert in_use.pending.get(file.path) in (None, *plan.replaces)


@given(situations())
def test_no_bin_of_two_or_more_files_is_over_its_size(situation: Situation) -> None:
    for work in plan_of(situation).tasks:
        assert len(work.inputs) < 2 or work.input_bytes <= situation[2].task_size_bytes


@given(situations())
def test_every_delete_that_reaches_an_input_is_in_its_task_and_no_other(situation: Situation) -> None:
    index = index_of(situation[0])
    for work in plan_of(situation).tasks:
        if work.action is TaskAction.DROP_DELETES:
            continue
        reaching = {delete.path for file in work.inputs for delete in index.of(file)}
        assert {delete.path for delete in work.deletes} == reaching
        assert set(work.converts) <= reaching


@given(situations())
def test_all_inputs_of_a_task_are_of_its_node_and_only_a_full_moves_the_spec(situation: Situation) -> None:
    for work in plan_of(situation).tasks:
        assert all(file.node == work.node for file in work.inputs)
        assert work.type is CompactionType.FULL or work.output_spec_id == work.node.spec_id


@given(situations())
def test_a_converted_delete_reaches_only_data_files_of_its_group(situation: Situation) -> None:
    files = situation[0]
    plan = plan_of(situation)
    index = index_of(files)
    groups = {file.path: (work.group or number) for number, work in enumerate(plan.tasks) for file in work.inputs}
    converting = {file.path: set(work.converts) for work in plan.tasks if work.action is TaskAction.CONVERT for file in work.inputs}
    for number, work in enumerate(plan.tasks):
        for path in work.converts:
            reached = [file for file in files.files if file.is_data and any(delete.path == path for delete in index.of(file))]
            assert {groups.get(file.path) for file in reached} == {work.group or number}
            assert all(path in converting[file.path] for file in reached if file.path in converting)


@given(situations())
def test_the_same_arguments_give_the_same_plan_in_whatever_order_files_come(situation: Situation) -> None:
    files, in_use, rules, request = situation
    turned = replace(files, files=tuple(reversed(files.files)))

    def contents(plan: CompactionPlan) -> list[tuple[TableNode, frozenset[str], tuple[str, ...]]]:
        return sorted(((work.node, frozenset(file.path for file in work.inputs), work.converts) for work in plan.tasks), key=repr)

    assert plan_of(situation) == plan_of(situation)
    if not any(work.action is TaskAction.DROP_DELETES for work in plan_of(situation).tasks):
        assert contents(plan_of(situation)) == contents(planned(turned, request, rules=rules, in_use=in_use))


@given(situations())
def test_every_node_gets_one_verdict_that_a_person_can_read(situation: Situation) -> None:
    plan = plan_of(situation)
    assert [verdict.node for verdict in plan.verdicts] == list(dict.fromkeys(file.node for file in situation[0].files))
    assert plan.reason.text
    assert all(verdict.reason.text for verdict in plan.verdicts)


def held_alive_by_a_segment() -> Situation:
    """A position delete leaves with the segment `large`, so the fragment `alone` must lose it in the same plan."""
    sizes = {"alone": (309, 6), "large": (700, 1), "a": (323, 1), "b": (369, 1), **{f"c{number}": (1, 1) for number in range(8)}}
    files = [builders.data(path, kb, sequence, rows=1) for path, (kb, sequence) in sizes.items()]
    rules = builders.properties(task_kb=1000, minor_file_count=2, fragment_ratio=2, min_target_size_ratio=0.5, major_duplicate_ratio=0.05)
    return builders.table_files(*files, builders.position("x", 6), sequence=7), InUse(), rules, PlanRequest(force=True)


def held_alive_by_joined_segments() -> Situation:
    """A position delete leaves with segments that are only joined, so the fragment `alone` must lose it in the same plan."""
    old = {"alone": (124, 1), "a": (200, 5), "b": (700, 1), "c": (200, 1), "d": (200, 300)}
    newer = {"e": (60, 300, 4), "f": (750, 1, 3), "g": (900, 5, 4), "h": (750, 5, 2)}
    files = [builders.data(path, kb, 1, rows=rows) for path, (kb, rows) in old.items()]
    files += [builders.data(path, kb, sequence, rows=rows) for path, (kb, rows, sequence) in newer.items()]
    deletes = builders.position("x0", 2, of="h"), builders.position("x1", 1)
    rules = builders.properties(task_kb=2000, minor_file_count=3, fragment_ratio=8, min_target_size_ratio=1.0, major_duplicate_ratio=0.1)
    request = PlanRequest((CompactionType.MAJOR,), force=True)
    return builders.table_files(*files, *deletes, sequence=7), InUse(), rules, request


@given(situations())
@example(held_alive_by_a_segment())
@example(held_alive_by_joined_segments())
def test_planning_again_on_the_predicted_outputs_yields_nothing(situation: Situation) -> None:
    files, in_use, rules, request = situation
    # Files of the old spec are left out. Only the kernel knows to which partitions their rows move.
    files = replace(files, files=tuple(file for file in files.files if file.spec_id != 1))
    first = planned(files, request, rules=rules, in_use=in_use)
    after = predicted(files, first.tasks)
    left = InUse(in_use.paths, in_use.exclusive_nodes, {path: task for path, task in in_use.pending.items() if task not in first.replaces})
    again = planned(after, request, rules=rules, in_use=left)
    assert again.tasks == ()
    assert (first.predicted_files, first.predicted_delete_files) == (
        sum(1 for file in after.files if file.is_data),
        sum(1 for file in after.files if not file.is_data),
    )


@given(situations(), st.data())
def test_each_further_minor_or_major_strictly_lowers_the_triple_with_actual_outputs(situation: Situation, data: st.DataObject) -> None:
    files, _, rules, request = situation
    if request.types is None or CompactionType.FULL in request.types:
        request = PlanRequest((CompactionType.MINOR, CompactionType.MAJOR), force=request.force)
    held = held_paths(files, data)
    for _ in range(4):
        plan = planned(files, request, rules=rules)
        if not plan.tasks:
            return
        after = committed(
            files, plan.tasks, held, lambda: data.draw(st.sampled_from([0.0, 0.3, 0.9, 1.0])), lambda: data.draw(st.booleans())
        )
        assert triple(after) < triple(files)
        files = after


def held_paths(files: TableFiles, data: st.DataObject) -> dict[str, frozenset[str]]:
    """For each position delete of many files: the paths that it really names, drawn from those that it may name."""
    index = index_of(files)
    may_hold: dict[str, list[LiveFile]] = {}
    for file in files.files:
        if file.is_data:
            for delete in index.of(file):
                if delete.content is FileContent.POSITION_DELETES and delete.referenced_data_file is None:
                    may_hold.setdefault(delete.path, []).append(file)
    return {path: frozenset(data.draw(st.sets(st.sampled_from([file.path for file in reached])))) for path, reached in may_hold.items()}


@given(situations(), st.data())
def test_any_subset_of_the_tasks_with_groups_whole_lowers_the_triple(situation: Situation, data: st.DataObject) -> None:
    files, in_use, rules, _ = situation
    plan = planned(files, PlanRequest((CompactionType.MINOR, CompactionType.MAJOR), force=True), rules=rules, in_use=in_use)
    units = sorted({work.group or f"#{number}" for number, work in enumerate(plan.tasks)})
    if not units:
        return
    chosen = data.draw(st.sets(st.sampled_from(units), min_size=1))
    tasks = [work for number, work in enumerate(plan.tasks) if (work.group or f"#{number}") in chosen]
    after = committed(files, tasks, {}, lambda: data.draw(st.sampled_from([0.0, 0.5, 1.0])), lambda: data.draw(st.booleans()))
    assert triple(after) < triple(files)


@given(strategies.live_files())
def test_after_a_full_of_a_whole_table_no_delete_file_is_live(files: TableFiles) -> None:
    plan = planned(files, PlanRequest((CompactionType.FULL,), force=True))
    after = committed(files, plan.tasks, {}, lambda: 0.5, lambda: True) if plan.tasks else files
    assert [file for file in after.files if not file.is_data] == []


@given(situations())
def test_a_budget_of_nothing_plans_nothing_and_says_so(situation: Situation) -> None:
    files, in_use, rules, request = situation
    whole = plan_of(situation)
    cut = planned(files, request, rules=rules, in_use=in_use, budget=replace(PLENTY, task_slots=0))
    assert cut.tasks == ()
    assert not whole.tasks or cut.reason.code is PlanReasonCode.OVER_BUDGET


@given(strategies.live_files(max_deletes=0), strategies.table_properties(), st.data())
def test_a_full_leaves_no_file_out_of_order_or_oversized_and_the_next_one_finds_nothing(
    files: TableFiles, rules: TableProperties, data: st.DataObject
) -> None:
    orders = st.sampled_from([None, 0, 2, 3])
    given_files = tuple(replace(file, sort_order_id=data.draw(orders)) for file in files.files if file.spec_id != 1)
    files = replace(files, files=given_files, sort_order_id=data.draw(st.sampled_from([0, 3])))
    request = PlanRequest((CompactionType.FULL,), force=True)
    first = planned(files, request, rules=rules)
    after = committed(files, first.tasks, {}, lambda: 1.0, lambda: True)
    if files.sort_order_id:
        assert [file for file in after.files if file.sort_order_id != files.sort_order_id] == []
    written = {file.path for file in after.files} - {file.path for file in files.files}
    assert [file for file in after.files if file.path in written and file.file_size_bytes > rules.oversized_bytes] == []
    assert planned(after, request, rules=rules).tasks == ()


@given(st.integers(2, 50), st.integers(181, 1500), strategies.table_properties())
def test_a_full_splits_a_file_of_more_than_1_8_times_the_target(rows: int, percent: int, rules: TableProperties) -> None:
    size_kb = percent * rules.target_size_bytes / 100 / 1000
    files = builders.table_files(builders.data("big", size_kb, rows=rows))
    (task,) = planned(files, PlanRequest((CompactionType.FULL,), force=True), rules=rules).tasks
    assert task.predicted_files >= 2
    assert planned(files, PlanRequest((CompactionType.MAJOR,), force=True), rules=rules).tasks == ()


def test_one_row_is_never_split() -> None:
    files = builders.table_files(builders.data("big", 5000, rows=1))
    assert planned(files, PlanRequest((CompactionType.FULL,), force=True)).tasks == ()


@given(situations())
def test_without_conversions_no_delete_file_is_written(situation: Situation) -> None:
    files, in_use, rules, request = situation
    plan = planned(files, request, rules=replace(rules, conversions_enabled=False), in_use=in_use)
    assert [work for work in plan.tasks if work.action is TaskAction.CONVERT] == []
