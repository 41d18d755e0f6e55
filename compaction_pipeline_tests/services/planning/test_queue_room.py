"""A full queue holds plans back. Tables wait in line for room, and a person has room that ticks leave free."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.fragmentation.verdict import PlanReasonCode
from compaction_pipeline.core.insight.listener import CompactionListener
from compaction_pipeline.core.planning.plan import CompactionPlan, PlanRequest
from compaction_pipeline.core.queue.drain import Drain, Takes
from compaction_pipeline.core.queue.group import CompactionQueue, ResourceGroup
from compaction_pipeline.core.queue.merge_version import MERGE_VERSION
from compaction_pipeline.core.queue.optimizer import Registration
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.services.planning.decide_plan import Decision
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.serving import serving

TICK = timedelta(seconds=20)
SMALL_TASKS = {"self-optimizing.target-size": "12000", "self-optimizing.max-task-size-bytes": "12000"}


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A house whose default group has room for 2 tasks. Ticks may fill one of these places."""
    house = House(tmp_path)
    house.services.manage_groups.change(ResourceGroup("default", queue=CompactionQueue(2)))
    return house


def three(house: House) -> list[TableIdentifier]:
    """Three tables of which each needs one task."""
    tables = [house.fragmented(name).identifier for name in ("a", "b", "c")]
    for table in tables:
        house.services.one_table.refresh(table)
    return tables


def plan(house: House, *tables: TableIdentifier) -> list[tuple[str, PlanReasonCode]]:
    return [(table.name, planned.plan.reason.code) for table, planned in house.services.sweep_tables.plan_due(tables, TICK)]


def waiting_since(house: House, table: TableIdentifier) -> datetime | None:
    return house.services.stores.tables.state(table).planning.queue_full_since


def partitioned(house: House, nodes: int) -> LakeTable:
    """A table with so many nodes, of which each has 12 small files."""
    table = house.lake.table("p")
    with table.table.update_spec() as update:
        update.add_field("id", IdentityTransform(), "p")
    table.table.refresh()
    for node in range(nodes):
        row_delta(table.table, [table.data_file([{"id": node, "name": f"n{one}"}], Record(node), 1) for one in range(12)])
    house.services.explore_catalogs.explore()
    return table


def test_tables_wait_in_line_for_room_and_have_their_turn_in_its_order(house: House) -> None:
    a, b, c = three(house)
    assert plan(house, a, b) == [("a", PlanReasonCode.PLANNED), ("b", PlanReasonCode.QUEUE_FULL)]
    first = house.now
    house.pass_time(5)
    assert plan(house, c, b) == [("b", PlanReasonCode.QUEUE_FULL), ("c", PlanReasonCode.QUEUE_FULL)]
    assert (waiting_since(house, a), waiting_since(house, b), waiting_since(house, c)) == (None, first, house.now)
    assert house.services.stores.tables.waiting_for_room() == {b: first, c: house.now}
    reason = house.services.stores.tables.state(b).planning.reason
    assert reason is not None
    assert "the queue of group default holds 1 task, and ticks may fill it up to 1" in reason.text
    house.services.work_on_queue.drain("worker")
    # The place is free now, although the merged task is not committed yet.
    assert plan(house, c, b, a) == [
        ("b", PlanReasonCode.PLANNED),
        ("c", PlanReasonCode.QUEUE_FULL),
        ("a", PlanReasonCode.FILES_IN_USE),
    ]
    assert waiting_since(house, b) is None


def test_a_person_has_room_when_ticks_have_none(house: House) -> None:
    a, b, c = three(house)
    plan(house, a)
    assert house.services.compact_tables.compact(b).records
    assert plan(house, c) == [("c", PlanReasonCode.QUEUE_FULL)]
    assert house.services.plan_tables.plan(c, unlimited=True).tasks
    assert house.services.stores.tasks.queue_taken("default") == 2
    row = house.fragmented("d").identifier
    compaction = house.services.compact_tables.compact(row)
    assert (compaction.records, compaction.plan.reason.code) == ((), PlanReasonCode.QUEUE_FULL)
    assert "the queue of group default holds 2 tasks, and its capacity is 2" in compaction.plan.reason.text


def test_a_person_s_compaction_of_more_tasks_than_the_queue_holds_is_done_in_rounds(house: House) -> None:
    table = partitioned(house, 5)
    before = table.live_ids()
    compaction = house.services.compact_tables.compact(table.identifier)
    assert [len(record.committed_task_ids) for record in compaction.records] == [2, 2, 1]
    assert not compaction.plan.without_room
    assert len(compaction.tasks) == 5
    assert table.live_ids() == before


def test_a_tick_s_plan_of_more_tasks_than_the_queue_holds_goes_on_when_there_is_room(house: House) -> None:
    house.services.manage_groups.change(ResourceGroup("default", queue=CompactionQueue(4)))
    table = partitioned(house, 5).identifier
    services = house.services
    services.one_table.refresh(table)
    assert len(services.plan_tables.plan(table).tasks) == 3
    assert waiting_since(house, table) == house.now
    assert not services.plan_tables.plan(table).tasks
    services.work_on_queue.drain("worker")
    # The minute between two plans does not count for a table that waited for room.
    assert len(services.plan_tables.plan(table).tasks) == 2
    assert waiting_since(house, table) is None


def test_a_paused_table_s_waiting_tasks_take_no_room(house: House) -> None:
    a, b, _ = three(house)
    plan(house, a)
    house.services.explore_catalogs.pause(a)
    assert plan(house, b) == [("b", PlanReasonCode.PLANNED)]


def test_a_full_compaction_is_done_when_all_its_tasks_of_the_node_are_committed(tmp_path: Path) -> None:
    house = House(tmp_path)
    services = house.services
    table = house.fragmented(files=24, **SMALL_TASKS).identifier
    services.one_table.refresh(table)
    tasks = services.plan_tables.plan(table, PlanRequest((CompactionType.FULL,), force=True), unlimited=True).tasks
    assert len(tasks) > 1
    [node] = services.stores.tables.nodes(table)
    assert not node.last_done
    last = tasks[-1]
    services.work_on_queue.drain("worker", Drain(Takes.only([task.task_id for task in tasks[:-1]])))
    assert services.one_table.commit_now(table).record is not None
    [node] = services.stores.tables.nodes(table)
    assert not node.last_done
    services.work_on_queue.drain("worker", Drain(Takes.only([last.task_id])))
    assert services.one_table.commit_now(table).record is not None
    [node] = services.stores.tables.nodes(table)
    assert node.last_done == {CompactionType.FULL: house.now}


def test_a_full_compaction_of_which_a_task_was_canceled_is_not_done(tmp_path: Path) -> None:
    house = House(tmp_path)
    services = house.services
    table = house.fragmented(files=24, **SMALL_TASKS).identifier
    services.one_table.refresh(table)
    tasks = services.plan_tables.plan(table, PlanRequest((CompactionType.FULL,), force=True), unlimited=True).tasks
    services.stores.tasks.cancel([tasks[0].task_id], EndReason.GIVEN_UP, "a person", house.now)
    services.work_on_queue.drain("worker")
    assert services.one_table.commit_now(table).record is not None
    [node] = services.stores.tables.nodes(table)
    assert not node.last_done


def test_a_person_s_compaction_of_a_node_with_more_tasks_than_the_queue_holds_is_done_whole(house: House) -> None:
    table = house.fragmented(files=48, **SMALL_TASKS)
    compaction = house.services.compact_tables.compact(table.identifier)
    assert len(compaction.records) > 1
    assert not house.services.compact_tables.compact(table.identifier).records
    assert table.live_ids() == list(range(48))


def test_a_table_waits_in_line_with_a_node_of_which_a_part_found_room(house: House) -> None:
    services = house.services
    table = house.fragmented(files=48, **SMALL_TASKS).identifier
    services.one_table.refresh(table)
    planned = services.plan_tables.plan(table)
    assert (len(planned.tasks), len(planned.plan.without_room)) == (1, 1)
    assert waiting_since(house, table) == house.now


def test_a_launch_of_more_nodes_than_the_queue_holds_plans_all_of_them(house: House) -> None:
    table = partitioned(house, 12).identifier
    services = house.services
    services.one_table.refresh(table)
    nodes = frozenset(state.node for state in services.stores.tables.nodes(table))
    asked = {table: PlanRequest(nodes=nodes)}
    assert services.compact_tables.carry_out(asked, serving(until=lambda: False, linger=timedelta(0))).failed == {}
    assert {task.work.node for task in services.stores.tasks.tasks(table)} == nodes


class Told(CompactionListener):
    """What a launch could not plan."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def not_planned(self, table: TableIdentifier, error: CompactionError) -> None:
        self.errors.append(str(error))


def test_a_launch_that_finds_no_room_says_so(house: House) -> None:
    a, b, c = three(house)
    for table in (a, b):
        assert house.services.plan_tables.plan(table, unlimited=True).tasks
    house.services.serve_optimizers.register(Registration("default", "host", "1", "1.0", MERGE_VERSION, 2))
    told = Told()
    house.services.compact_tables.carry_out({c: PlanRequest()}, serving(until=lambda: False, linger=timedelta(0), listener=told))
    assert told.errors == [f"the queue of {c} has no room for 1 requested node; launch it again later"]


def test_a_table_that_is_read_or_paused_between_plans_keeps_its_place(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    _, b, _ = three(house)
    plan(house, *three_names(house))
    since = waiting_since(house, b)
    assert since is not None
    for code in (PlanReasonCode.BEING_READ, PlanReasonCode.MIN_PLAN_INTERVAL):
        house.pass_time(5)
        decision = Decision(CompactionPlan.empty(code, "not now"))
        with monkeypatch.context() as patch:
            patch.setattr(house.services.plan_tables._decide_plan, "decide", lambda *_, decision=decision: decision)
            assert plan(house, b) == [("b", code)]
        assert waiting_since(house, b) == since


def three_names(house: House) -> list[TableIdentifier]:
    return [known.table for known in house.services.stores.tables.states()]


OFTEN = {"self-optimizing.commit.interval": "0", "self-optimizing.min-plan-interval": "0"}
ONLY_FULL = {
    **SMALL_TASKS,
    "self-optimizing.full.trigger.interval": "1",
    "self-optimizing.minor.trigger.file-count": "1000",
    "self-optimizing.minor.trigger.interval": "999999999999",
    "self-optimizing.minor.trigger.total-size": "100000000",
}


def ticks_until_planned(house: House, busy: dict[TableIdentifier, LakeTable], wanted: TableIdentifier, most: int = 12) -> int:
    """How many ticks pass until a table has a task. At each one worker merges the oldest task, and its table gets 12 small files again."""
    services = house.services
    for number in range(most):
        house.pass_time(30)
        services.sweep_tables.sweep(None, TICK)
        services.sweep_tables.plan_due(services.tables_in_line.worth_planning(), TICK)
        if services.stores.tasks.tasks(wanted):
            return number
        pending = services.stores.tasks.tasks(statuses=(TaskStatus.PENDING,))
        oldest = min(pending, key=lambda task: (task.created_at, task.task_id))
        services.work_on_queue.drain("worker", Drain(Takes.only([oldest.task_id])))
        assert services.one_table.commit_now(oldest.table).record is not None
        one = busy[oldest.table]
        one.table.refresh()
        row_delta(one.table, [one.data_file([{"id": each, "name": f"n{each}"}]) for each in range(12)])
    return most


def many_busy(house: House, number: int) -> dict[TableIdentifier, LakeTable]:
    return {table.identifier: table for table in (house.fragmented(f"x{one}", **OFTEN) for one in range(number))}


@pytest.mark.parametrize("capacity", [2, 4])
def test_a_full_of_several_tasks_has_its_turn_in_a_busy_queue(tmp_path: Path, capacity: int) -> None:
    house = House(tmp_path)
    services = house.services
    full = house.fragmented("full", files=24, **ONLY_FULL).identifier
    services.one_table.refresh(full)
    services.plan_tables.plan(full)
    house.pass_time(60)
    services.manage_groups.change(ResourceGroup("default", queue=CompactionQueue(capacity)))
    busy = many_busy(house, 4)
    for table in list(busy)[: max(1, capacity - 2)]:
        services.one_table.refresh(table)
        assert services.plan_tables.plan(table).tasks
    assert plan(house, full) == [("full", PlanReasonCode.QUEUE_FULL)]
    assert ticks_until_planned(house, busy, full) < 12


def test_work_that_becomes_due_by_time_while_the_queue_is_full_gets_into_line(tmp_path: Path) -> None:
    house = House(tmp_path)
    services = house.services
    quiet = house.fragmented("quiet", files=3, **{"self-optimizing.minor.trigger.interval": "600000"}).identifier
    services.one_table.refresh(quiet)
    services.plan_tables.plan(quiet)
    services.manage_groups.change(ResourceGroup("default", queue=CompactionQueue(2)))
    busy = many_busy(house, 3)
    services.sweep_tables.sweep(None, TICK)
    services.sweep_tables.plan_due(services.tables_in_line.worth_planning(), TICK)
    house.pass_time(601)
    assert ticks_until_planned(house, busy, quiet) < 12


def test_a_table_whose_work_a_person_has_done_leaves_the_line(house: House) -> None:
    a, b, _ = three(house)
    services = house.services
    assert plan(house, a, b)[1] == ("b", PlanReasonCode.QUEUE_FULL)
    assert services.compact_tables.compact(b).records
    services.one_table.look_again(b)
    assert b in services.tables_in_line.worth_planning()
    plan(house, b)
    assert waiting_since(house, b) is None
    assert b not in services.tables_in_line.worth_planning()
