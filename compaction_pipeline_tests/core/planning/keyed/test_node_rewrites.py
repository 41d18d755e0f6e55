"""The plan of a keyed table with delta-rewrite: what a MINOR does in each node, and when a MAJOR takes a partition."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from compaction_pipeline.core.fragmentation.verdict import NodeHistory, PlanReasonCode
from compaction_pipeline.core.planning.keyed.in_work import InWork, in_work
from compaction_pipeline.core.planning.keyed.planner import plan_keyed
from compaction_pipeline.core.planning.plan import Budget, Circumstances, CompactionPlan, PlanRequest
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.keyed.keyed_files import KeyedContent
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.core.work.work import ChangeSpan
from compaction_pipeline_tests.builders import NOW, PLENTY, data
from compaction_pipeline_tests.builders import task as task_builder
from compaction_pipeline_tests.core.planning.keyed.simulation import PARTITIONS, SimRow, SimTable
from compaction_pipeline_tests.works import task_work

_RULES = TableProperties(
    target_size_bytes=64,
    fragment_ratio=4,
    max_task_size_bytes=64,
    minor_file_count=3,
    minor_total_size_bytes=1_000,
    amoros_switch=False,
    delta_rewrite=True,
)
_BUCKETS = {"base.file-index.hash-bucket": "2"}
_ROW = SimRow(0, 0, 0, 0)
_MINOR, _MAJOR, _FULL = CompactionType.MINOR, CompactionType.MAJOR, CompactionType.FULL


def add(table: SimTable, kind: str, *, size: int = 2, partition: int = 0, node: tuple[int, int] = (0, 0), rows: int = 1) -> str:
    """A change file in a transaction of its own."""
    table.head += 1
    content = [_ROW._replace(transaction=table.head)] * rows
    file = table.new_file(PARTITIONS[partition], node, kind, table.head, content, table.head, size=size, named=0)
    return file.live.path


def base(table: SimTable, *, size: int, rows: int) -> None:
    content = [_ROW._replace(transaction=0)] * rows
    table.new_file(PARTITIONS[0], (0, 0), "B", 0, content, 0, size=size)


def planned(
    table: SimTable,
    request: PlanRequest | None = None,
    *,
    work: InWork | None = None,
    held_by_sinks: frozenset[str] = frozenset(),
    rules: TableProperties = _RULES,
    history: NodeHistory | None = None,
    budget: Budget = PLENTY,
) -> CompactionPlan:
    content = KeyedContent(table.files(), (), held_by_sinks)
    of = Circumstances(rules, request or PlanRequest(), history or NodeHistory(), NOW)
    return plan_keyed(content, _BUCKETS, work or InWork(), of, budget)


def actions(plan: CompactionPlan) -> list[TaskAction]:
    return [work.action for work in plan.tasks]


def busy(kind: str, count: int = 3, **place: int) -> SimTable:
    """A table with so many change files of one kind in one node."""
    table = SimTable()
    for _ in range(count):
        add(table, kind, **place)
    return table


# ---- MINOR


def test_a_minor_merges_the_files_of_a_node_and_predicts_what_is_left() -> None:
    table = busy("I")
    for _ in range(4):
        add(table, "ED")
    add(table, "I", node=(1, 1))
    plan = planned(table)
    (work,) = plan.tasks
    assert (work.action, work.type, work.predicted_files, len(work.inputs)) == (TaskAction.REWRITE_CHANGES, _MINOR, 2, 7)
    assert (plan.predicted_files, plan.predicted_delete_files) == (2, 1)
    reasons = {verdict.node.tree.id: (verdict.type, verdict.reason.code) for verdict in plan.verdicts}
    assert reasons == {1: (_MINOR, PlanReasonCode.PLANNED), 3: (None, PlanReasonCode.NOT_FRAGMENTED)}


def test_a_partition_whose_base_files_are_merged_with_each_other_is_busy() -> None:
    work = task_work(TableNode(0), _FULL, TaskAction.TO_BASE, (data("a"),), (), 0, 1, 1, changes=ChangeSpan((), (), 3, 3, 7, (), 1))
    assert not work.change_files
    assert in_work([task_builder(work=work, status=TaskStatus.EXECUTING)], by_person=False).busy == {work.node.place}


def test_files_of_open_tasks_and_of_sinks_are_left_alone() -> None:
    table = busy("I", 4)
    (work,) = planned(table).tasks
    for status in (TaskStatus.PENDING, TaskStatus.EXECUTING, TaskStatus.PREPARED):
        held = in_work([task_builder(work=work, status=status)], by_person=False)
        assert held.busy == frozenset()
        plan = planned(table, work=held)
        assert (plan.tasks, plan.reason.code) == ((), PlanReasonCode.FILES_IN_USE)
    assert planned(table, work=in_work([task_builder(work=work, status=TaskStatus.COMMITTED)], by_person=False)).tasks == (work,)
    paths = frozenset(file.path for file in work.inputs)
    assert planned(table, held_by_sinks=paths).tasks == ()
    # A merge into the base store takes them all the same.
    (major,) = planned(table, PlanRequest((_MAJOR,), force=True), held_by_sinks=paths, work=InWork(change_files=paths)).tasks
    assert {file.path for file in major.change_files} == paths


def test_while_changes_are_merged_into_the_base_store_newer_ones_are_merged_with_each_other() -> None:
    table = busy("I", 4)
    (major,) = planned(table, PlanRequest((_MAJOR,), force=True)).tasks
    work = in_work([task_builder(work=major, status=TaskStatus.EXECUTING)], by_person=False)
    assert planned(table, work=work).tasks == ()
    newer = {add(table, "I") for _ in range(3)}
    (minor,) = planned(table, work=work).tasks
    assert {file.path for file in minor.inputs} == newer


def test_also_where_a_major_is_due_and_has_to_wait_for_another_one() -> None:
    table = busy("I", 4)
    (major,) = planned(table, PlanRequest((_MAJOR,), force=True)).tasks
    work = in_work([task_builder(work=major, status=TaskStatus.EXECUTING)], by_person=False)
    for _ in range(3):
        add(table, "ED", size=40)
    newer = {add(table, "I") for _ in range(3)}
    plan = planned(table, work=work)
    assert [{file.path for file in each.inputs} for each in plan.tasks] == [newer]
    (verdict,) = plan.verdicts
    assert (verdict.type, verdict.reason.code) == (_MINOR, PlanReasonCode.PLANNED)


def test_a_request_for_one_node_leaves_the_others_as_they_are() -> None:
    table = busy("I")
    for _ in range(3):
        add(table, "I", node=(1, 1))
    nodes = {verdict.node.tree.id: verdict.node for verdict in planned(table).verdicts}
    plan = planned(table, PlanRequest((_MINOR,), frozenset([nodes[3]]), force=True))
    assert [work.node for work in plan.tasks] == [nodes[3]]


def test_a_tree_node_below_the_buckets_counts_in_its_bucket() -> None:
    table = SimTable()
    for _ in range(3):
        add(table, "I", node=(3, 3))
    plan = planned(table)
    assert [work.node.tree.id for work in plan.tasks] == [7]
    assert [(verdict.node.tree.id, verdict.reason.code) for verdict in plan.verdicts] == [(3, PlanReasonCode.PLANNED)]


def test_a_type_that_is_not_asked_for_is_not_planned() -> None:
    assert planned(busy("I", 4), PlanRequest((_MAJOR,))).tasks == ()
    assert actions(planned(busy("I", 4), PlanRequest((_MINOR,)))) == [TaskAction.REWRITE_CHANGES]


def test_a_switched_off_table_is_not_planned() -> None:
    plan = planned(busy("I", 4), rules=replace(_RULES, switched_on=False))
    assert (plan.tasks, plan.reason.code, plan.reason.text) == ((), PlanReasonCode.DISABLED, "'compaction.enabled' is false")


def test_a_plan_that_is_too_early_or_too_large_waits() -> None:
    table = busy("I")
    early = planned(table, history=NodeHistory(last_planned_at=NOW - timedelta(seconds=1)))
    assert (early.tasks, early.reason.code) == ((), PlanReasonCode.MIN_PLAN_INTERVAL)
    assert "3 small data files, and 3 make a MINOR due" in early.reason.text
    for _ in range(4):
        add(table, "I", node=(1, 1))
    cut = planned(table, budget=Budget(1, 1_000))
    # The node that gains more goes first.
    assert [len(work.inputs) for work in cut.tasks] == [4]
    codes = {verdict.node.tree.id: (verdict.type, verdict.reason.code) for verdict in cut.verdicts}
    assert codes == {1: (_MINOR, PlanReasonCode.OVER_BUDGET), 3: (_MINOR, PlanReasonCode.PLANNED)}


# ---- MAJOR


@pytest.mark.parametrize("kind", ["I", "ED"])
def test_a_major_is_due_when_enough_change_files_are_large(kind: str) -> None:
    table = SimTable()
    for _ in range(2):
        add(table, kind, size=17)
    assert planned(table).tasks == ()
    add(table, kind, size=17)
    plan = planned(table)
    assert set(actions(plan)) == {TaskAction.TO_BASE}
    assert f"3 large {'insert' if kind == 'I' else 'delete'} files, and 3 make a MAJOR due" in plan.reason.text


def test_a_major_is_due_when_large_change_files_have_enough_bytes() -> None:
    table = SimTable()
    add(table, "I", size=999)
    assert planned(table).tasks == ()
    add(table, "I", size=17)
    plan = planned(table)
    assert set(actions(plan)) == {TaskAction.TO_BASE}
    assert "make a MAJOR due" in plan.reason.text


@pytest.mark.parametrize(("size", "deletes", "due"), [(17, 9, False), (17, 10, True), (16, 90, False)])
def test_a_major_is_due_when_deletes_reach_enough_rows_of_large_base_files(size: int, deletes: int, due: bool) -> None:
    table = SimTable()
    base(table, size=size, rows=100)
    add(table, "ED", rows=deletes)
    plan = planned(table)
    assert set(actions(plan)) == ({TaskAction.TO_BASE} if due else set())
    assert ("a share of 0.1 makes a MAJOR due" in plan.reason.text) is due


def test_a_partition_that_a_major_takes_has_no_minor() -> None:
    table = busy("I", 4)
    for _ in range(3):
        add(table, "I", size=17)
    for _ in range(3):
        add(table, "I", partition=1)
    plan = planned(table)
    by_place = {
        work.node.partition: {each.action for each in plan.tasks if each.node.partition == work.node.partition} for work in plan.tasks
    }
    assert by_place == {PARTITIONS[0]: {TaskAction.TO_BASE}, PARTITIONS[1]: {TaskAction.REWRITE_CHANGES}}
