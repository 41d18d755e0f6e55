"""Small files are a fault only when a plan could have taken them by now."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from compaction_pipeline.core.fragmentation.verdict import NodeState, PlanReasonCode
from compaction_pipeline.core.insight.checks.small_files import planning_time, small_files_left
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.core.insight.checks.judged import judged_node, verdict
from compaction_pipeline_tests.defs.values import NOW, ago, node_state

RULES = TableProperties(min_plan_interval=timedelta(minutes=4))
LIMIT = timedelta(minutes=10)


def fragmented(**changes: object) -> NodeState:
    """A node that has had enough small files for a day, and that no plan has looked at."""
    old = replace(node_state(1, small_data_files=40), small_since=ago(days=1), first_seen=ago(days=2))
    return replace(old, **changes)  # type: ignore[arg-type]


def test_small_files_that_lie_for_a_day_are_a_fault() -> None:
    judged = small_files_left([judged_node(fragmented(), RULES)], NOW)
    assert judged.text.endswith(
        "40 small data files, and 12 make a MINOR due; no plan has looked at these files yet: see that `snapshot_sensor` is on"
    )


@pytest.mark.parametrize("moment", ["small_since", "first_seen", "last_done"])
def test_the_sensors_have_their_time_after_the_files_came_the_node_was_seen_or_work_was_done(moment: str) -> None:
    def passes(age: timedelta) -> bool:
        at = NOW - age
        value: object = {CompactionType.MINOR: at} if moment == "last_done" else at
        return small_files_left([judged_node(fragmented(**{moment: value}), RULES)], NOW).passed

    assert planning_time(RULES) == LIMIT
    assert passes(LIMIT)
    assert not passes(LIMIT + timedelta(seconds=1))


def test_a_node_in_work_is_no_fault_however_long_it_takes() -> None:
    assert small_files_left([judged_node(fragmented(), open_tasks=True)], NOW).passed


@pytest.mark.parametrize("code", [PlanReasonCode.OVER_BUDGET, PlanReasonCode.FILES_IN_USE])
def test_a_node_that_waits_for_other_tasks_of_its_table_is_no_fault_while_there_are_some(code: PlanReasonCode) -> None:
    node = fragmented()
    waiting = replace(node, verdict=verdict(node, code, CompactionType.MINOR))
    assert small_files_left([judged_node(waiting, busy=True)], NOW).passed
    assert not small_files_left([judged_node(waiting)], NOW).passed


@pytest.mark.parametrize("code", [PlanReasonCode.NO_GAIN, PlanReasonCode.LIVE_TWICE])
def test_small_files_that_no_merge_would_better_are_no_fault_until_they_change(code: PlanReasonCode) -> None:
    node = fragmented()
    judged = replace(node, verdict=verdict(node, code, CompactionType.MINOR))
    assert small_files_left([judged_node(judged)], NOW).passed
    older = replace(node, verdict=verdict(node, code, CompactionType.MINOR, metrics=NodeMetrics(small_data_files=39)))
    assert not small_files_left([judged_node(older)], NOW).passed


def test_a_node_whose_work_failed_fails_at_once() -> None:
    node = fragmented(small_since=NOW, failing="task t1 failed")
    assert small_files_left([judged_node(node)], NOW).text.endswith("; task t1 failed")
    assert small_files_left([judged_node(node, open_tasks=True)], NOW).passed


def test_the_reason_says_what_keeps_the_node_from_being_planned() -> None:
    node = fragmented()
    late = replace(node, verdict=verdict(node, PlanReasonCode.OVER_BUDGET, CompactionType.MINOR))
    assert "said OVER_BUDGET" in small_files_left([judged_node(late)], NOW).text
    assert "task t1 failed" in small_files_left([judged_node(replace(late, failing="task t1 failed"))], NOW).text
    assert "no answer" in small_files_left([judged_node(late, problem="no answer")], NOW).text


def test_a_node_below_the_threshold_never_fails() -> None:
    node = replace(node_state(1, small_data_files=11), first_seen=ago(days=9))
    assert small_files_left([judged_node(node)], NOW).text == "the only node passes"
