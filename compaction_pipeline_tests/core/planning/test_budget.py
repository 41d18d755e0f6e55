"""How much work of a table may be planned at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compaction_pipeline.core.fragmentation.verdict import NodeVerdict, PlanReason, PlanReasonCode
from compaction_pipeline.core.planning.budget import (
    LARGE_TASKS,
    is_held_back,
    large_tasks,
    may_refill,
    most_tasks,
    table_budget,
    within_budget,
)
from compaction_pipeline.core.planning.plan import Budget
from compaction_pipeline.core.queue.group import CompactionQueue, QueueRoom, ResourceGroup
from compaction_pipeline.core.queue.open_work import PlannedWork
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.work import Work
from compaction_pipeline_tests.behaviours.example_tasks import example
from compaction_pipeline_tests.builders import node

SIZE = TableProperties().max_task_size_bytes


def verdict(code: PlanReasonCode, kind: CompactionType | None = CompactionType.MINOR) -> NodeVerdict:
    return NodeVerdict(node(), kind, PlanReason(code, "why"), NodeMetrics())


def test_a_table_may_have_tasks_for_the_slots_that_it_is_entitled_to_and_many_small_ones() -> None:
    assert large_tasks(TableProperties(quota=0.5), 1_000) == 2_000
    assert large_tasks(TableProperties(quota=0.0001), 1_000) == LARGE_TASKS
    assert large_tasks(TableProperties(quota=20.1), 1) == 81
    assert most_tasks(TableProperties(quota=0.5), 4) == 512


def test_waiting_and_running_tasks_use_the_budget_by_number_and_by_bytes() -> None:
    rules = TableProperties(quota=0.5)
    assert table_budget(rules, 4, PlannedWork()) == Budget(512, LARGE_TASKS * SIZE)
    assert table_budget(rules, 4, PlannedWork(511, 5)) == Budget(1, LARGE_TASKS * SIZE - 5)
    assert table_budget(rules, 4, PlannedWork(513, 10**15)) == Budget(0, 0)


def test_nodes_over_the_budget_are_planned_again_when_a_tenth_is_free() -> None:
    left_out, done = [verdict(PlanReasonCode.OVER_BUDGET)], [verdict(PlanReasonCode.PLANNED)]
    assert may_refill(left_out, Budget(50, 1), 500)
    assert not may_refill(left_out, Budget(49, 1), 500)
    assert not may_refill(left_out, Budget(50, 0), 500)
    assert not may_refill(left_out, Budget(50, 1, room(9)), 500)
    assert not may_refill(done, Budget(500, 1), 500)
    assert may_refill(left_out, Budget(1, 1), 1)


def room(taken: int, capacity: int = 10, *, by_person: bool = False, first: bool = False) -> QueueRoom:
    return ResourceGroup("g", queue=CompactionQueue(capacity)).room(taken, by_person=by_person, first=first)


def works(count: int, group: str = "", kind: CompactionType = CompactionType.MINOR, **at: int) -> list[Work]:
    return [replace(example(f"{group}{kind}{at}{number}", kind=kind, node=node(**at)).work, group=group) for number in range(count)]


def test_ticks_leave_the_last_tenth_of_a_queue_to_people() -> None:
    assert (room(5).free, room(9).free, room(20).free, room(9, by_person=True).free) == (4, 0, 0, 1)
    assert room(0, 1).free == 1
    assert [room(taken, 100).is_open for taken in (0, 80, 81)] == [True, True, False]


def test_a_plan_takes_no_more_than_the_queue_has_room_for() -> None:
    tasks = works(6)
    assert within_budget(tasks, Budget(100, 10**9, room(5)), {}) == tasks[:4]
    assert within_budget(tasks, Budget(100, 10**9, room(9)), {}) == []
    assert within_budget(tasks, Budget(100, 10**9, room(5, by_person=True)), {}) == tasks[:5]
    assert within_budget(tasks, Budget(2, 10**9, room(5)), {}) == tasks[:2]


@pytest.mark.parametrize("unit", [works(5, "conversion"), works(5, kind=CompactionType.FULL)])
def test_work_that_belongs_together_is_not_cut_and_smaller_work_goes_before_it(unit: list[Work]) -> None:
    small = works(1, day=2)
    assert within_budget([*unit, *small], Budget(100, 10**9, room(4)), {unit[0].node: 9}) == [*unit]
    assert within_budget([*unit, *small], Budget(100, 10**9, room(5)), {unit[0].node: 9}) == small
    assert within_budget([*unit, *small], Budget(3, 10**9), {unit[0].node: 9}) == [*unit]


def test_work_that_does_not_fit_is_taken_by_the_first_in_line_only() -> None:
    unit = works(11, "conversion")
    assert within_budget(unit, Budget(100, 10**9, room(0)), {}) == []
    assert within_budget(unit, Budget(100, 10**9, room(8, first=True)), {}) == unit
    assert within_budget(unit, Budget(100, 10**9, room(9, first=True)), {}) == []
    # Work that fits into an empty queue has its turn in the same way: smaller work of others would take each free place before.
    assert within_budget(unit[:9], Budget(100, 10**9, room(8)), {}) == []
    assert within_budget(unit[:9], Budget(100, 10**9, room(8, first=True)), {}) == unit[:9]


def test_a_node_is_held_back_when_it_is_due_and_waits_for_tasks() -> None:
    assert is_held_back(verdict(PlanReasonCode.FILES_IN_USE))
    assert not is_held_back(verdict(PlanReasonCode.FILES_IN_USE, None))
    assert not is_held_back(verdict(PlanReasonCode.OVER_BUDGET))
