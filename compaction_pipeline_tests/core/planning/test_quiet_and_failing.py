"""Which nodes a tick leaves alone: unchanged nodes, nodes whose verdict is still right, and nodes that keep failing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from compaction_pipeline.core.fragmentation.verdict import NodeState, NodeVerdict, PlanReason, PlanReasonCode
from compaction_pipeline.core.planning.failing import FAILING_PAUSE, failing_nodes, without_failing
from compaction_pipeline.core.planning.plan import CompactionPlan
from compaction_pipeline.core.planning.quiet import are_told, nodes_to_look_at, what_waits
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.node_keys import short_key
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.core.work.work import Work
from compaction_pipeline_tests.builders import NOW, TABLE, data, node, task
from compaction_pipeline_tests.works import task_work


def judged(day: int, code: PlanReasonCode, small: int = 0) -> NodeState:
    metrics = NodeMetrics(data_files=5, small_data_files=small)
    verdict = NodeVerdict(node(day), None, PlanReason(code, f"because {day}"), metrics)
    return NodeState(TABLE, node(day), short_key(TABLE, node(day)), metrics, verdict, failing=verdict.failing)


def work(day: int, group: str = "") -> Work:
    return task_work(node(day), CompactionType.MINOR, TaskAction.MERGE, (data(f"f{day}", day=day),), (), 0, 10**6, 10**5, group=group)


def ended(day: int, reason: EndReason = EndReason.FAILED, status: TaskStatus = TaskStatus.FAILED) -> CompactionTask:
    return task(f"t{day}", work=work(day), status=status, end_reason=reason, ended_at=NOW, attempt=4, reason="no memory")


def test_a_tick_plans_changed_nodes_and_nodes_that_tasks_held() -> None:
    still, worked, unjudged = judged(1, PlanReasonCode.NOT_FRAGMENTED), judged(2, PlanReasonCode.NO_GAIN), judged(3, PlanReasonCode.NO_GAIN)
    unjudged = replace(unjudged, metrics=NodeMetrics(data_files=6))
    looked_at = nodes_to_look_at([still, worked, unjudged], {worked.node}, TableProperties(), global_deletes=False)
    assert looked_at == [worked, unjudged]


def test_nothing_is_left_to_judge_when_every_verdict_fits_files_and_failures() -> None:
    failing = judged(1, PlanReasonCode.FAILING)
    assert are_told([failing], {failing.node})
    assert not are_told([failing], ())
    assert not are_told([judged(2, PlanReasonCode.OVER_BUDGET)], {node(2)})
    assert not are_told([replace(judged(2, PlanReasonCode.OVER_BUDGET), metrics=NodeMetrics())], ())


def test_the_widest_reason_to_wait_comes_first() -> None:
    assert what_waits([judged(1, PlanReasonCode.NO_GAIN)]) is None
    nodes = [judged(1, PlanReasonCode.FAILING), judged(2, PlanReasonCode.PLANNED), judged(3, PlanReasonCode.PLANNED)]
    assert what_waits(nodes) == PlanReason(PlanReasonCode.FILES_IN_USE, f"2 nodes held back; {node(2)}: because 2")


def test_a_node_that_was_planned_counts_among_those_whose_files_tasks_hold() -> None:
    nodes = [judged(1, PlanReasonCode.PLANNED), judged(2, PlanReasonCode.FILES_IN_USE)]
    assert what_waits(nodes) == PlanReason(PlanReasonCode.FILES_IN_USE, f"2 nodes held back; {node(1)}: because 1")
    assert what_waits([*nodes, judged(3, PlanReasonCode.OVER_BUDGET)]) == PlanReason(
        PlanReasonCode.OVER_BUDGET, f"1 node held back; {node(3)}: because 3"
    )


def test_a_node_fails_by_its_newest_task_for_an_hour_unless_that_met_a_conflict() -> None:
    committed = ended(1, status=TaskStatus.COMMITTED)
    assert failing_nodes([committed, ended(1)], NOW) == {}
    assert failing_nodes([ended(1, EndReason.CONFLICT)], NOW) == {}
    assert failing_nodes([ended(1)], NOW + FAILING_PAUSE) == {}
    [reason] = failing_nodes([ended(1), committed], NOW + FAILING_PAUSE - timedelta(seconds=1)).values()
    assert reason.code is PlanReasonCode.FAILING
    assert "task t1 failed 4 time(s): no memory; the node is planned again after 2024-05-01 13:00 UTC" in reason.text
    [refused] = failing_nodes([ended(1, EndReason.REFUSED)], NOW).values()
    assert "no further attempt can merge it as it is" in refused.text


def test_a_plan_loses_failing_nodes_with_their_whole_groups() -> None:
    verdicts = tuple(
        NodeVerdict(node(day), CompactionType.MINOR, PlanReason(PlanReasonCode.PLANNED, "due"), NodeMetrics()) for day in (1, 2, 3)
    )
    plan = CompactionPlan((work(1, "g"), work(2, "g"), work(3)), PlanReason(PlanReasonCode.PLANNED, "3 tasks"), verdicts)
    failing = {node(1): PlanReason(PlanReasonCode.FAILING, "no memory")}
    left = without_failing(plan, failing)
    assert [one.node for one in left.tasks] == [node(3)]
    assert [(one.type, one.reason.code) for one in left.verdicts][:2] == [
        (None, PlanReasonCode.FAILING),
        (CompactionType.MINOR, PlanReasonCode.PLANNED),
    ]
    assert left.reason == plan.reason
    assert without_failing(replace(plan, tasks=(work(1),)), failing).reason.code is PlanReasonCode.FAILING
    assert without_failing(plan, {}) == plan
