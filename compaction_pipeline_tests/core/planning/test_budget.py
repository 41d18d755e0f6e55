"""How much work of a table may be planned at a time."""

from __future__ import annotations

from compaction_pipeline.core.fragmentation.verdict import NodeVerdict, PlanReason, PlanReasonCode
from compaction_pipeline.core.planning.budget import LARGE_TASKS, is_held_back, may_refill, table_budget, table_slots
from compaction_pipeline.core.planning.plan import Budget
from compaction_pipeline.core.queue.open_work import PlannedWork
from compaction_pipeline.core.queue.task import CompactionType
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline_tests.builders import node

SIZE = TableProperties().max_task_size_bytes


def verdict(code: PlanReasonCode, kind: CompactionType | None = CompactionType.MINOR) -> NodeVerdict:
    return NodeVerdict(node(), kind, PlanReason(code, "why"), NodeMetrics())


def test_a_quota_up_to_one_is_a_share_of_the_group_and_above_it_a_number() -> None:
    assert table_slots(TableProperties(quota=0.5), 1_000) == 500
    assert table_slots(TableProperties(quota=0.0001), 1_000) == 1
    assert table_slots(TableProperties(quota=7), 1_000) == 7


def test_waiting_and_running_tasks_use_the_budget_by_number_and_by_bytes() -> None:
    rules = TableProperties(quota=0.5)
    assert table_budget(rules, 1_000, PlannedWork()) == Budget(500, LARGE_TASKS * SIZE)
    assert table_budget(rules, 1_000, PlannedWork(499, 5)) == Budget(1, LARGE_TASKS * SIZE - 5)
    assert table_budget(rules, 1_000, PlannedWork(501, 10**15)) == Budget(0, 0)


def test_nodes_over_the_budget_are_planned_again_when_a_tenth_is_free() -> None:
    left_out, done = [verdict(PlanReasonCode.OVER_BUDGET)], [verdict(PlanReasonCode.PLANNED)]
    assert may_refill(left_out, Budget(50, 1), 500)
    assert not may_refill(left_out, Budget(49, 1), 500)
    assert not may_refill(left_out, Budget(50, 0), 500)
    assert not may_refill(done, Budget(500, 1), 500)
    assert may_refill(left_out, Budget(1, 1), 1)


def test_a_node_is_held_back_when_it_is_due_and_waits_for_tasks() -> None:
    assert is_held_back(verdict(PlanReasonCode.FILES_IN_USE))
    assert not is_held_back(verdict(PlanReasonCode.FILES_IN_USE, None))
    assert not is_held_back(verdict(PlanReasonCode.OVER_BUDGET))
