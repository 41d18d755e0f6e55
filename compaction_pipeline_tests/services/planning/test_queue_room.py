"""A full queue holds plans back. Tables wait in line for room, and a person has room that ticks leave free."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from compaction_pipeline.core.fragmentation.verdict import PlanReasonCode
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.group import CompactionQueue, ResourceGroup
from compaction_pipeline.core.queue.task import CompactionType, EndReason
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.services.house import House

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
        house.services.compact_table.refresh(table)
    return tables


def plan(house: House, *tables: TableIdentifier) -> list[tuple[str, PlanReasonCode]]:
    return [(table.name, planned.plan.reason.code) for table, planned in house.services.tick_tables.plan_due(tables, TICK)]


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
    assert house.services.compact_table.compact(b).records
    assert plan(house, c) == [("c", PlanReasonCode.QUEUE_FULL)]
    assert house.services.plan_tables.plan(c, unlimited=True).tasks
    assert house.services.stores.tasks.queue_taken("default") == 2
    row = house.fragmented("d").identifier
    compaction = house.services.compact_table.compact(row)
    assert (compaction.records, compaction.plan.reason.code) == ((), PlanReasonCode.QUEUE_FULL)
    assert "the queue of group default holds 2 tasks, and its capacity is 2" in compaction.plan.reason.text


def test_a_person_s_compaction_of_more_tasks_than_the_queue_holds_is_done_in_rounds(house: House) -> None:
    table = partitioned(house, 5)
    before = table.live_ids()
    compaction = house.services.compact_table.compact(table.identifier)
    assert [len(record.committed_task_ids) for record in compaction.records] == [2, 2, 1]
    assert not compaction.plan.without_room
    assert len(compaction.tasks) == 5
    assert table.live_ids() == before


def test_a_tick_s_plan_of_more_tasks_than_the_queue_holds_goes_on_when_there_is_room(house: House) -> None:
    house.services.manage_groups.change(ResourceGroup("default", queue=CompactionQueue(4)))
    table = partitioned(house, 5).identifier
    services = house.services
    services.compact_table.refresh(table)
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
    house.services.pause_tables.pause(a)
    assert plan(house, b) == [("b", PlanReasonCode.PLANNED)]


def test_a_full_compaction_is_done_when_all_its_tasks_of_the_node_are_committed(tmp_path: Path) -> None:
    house = House(tmp_path)
    services = house.services
    table = house.fragmented(files=24, **SMALL_TASKS).identifier
    services.compact_table.refresh(table)
    tasks = services.plan_tables.plan(table, PlanRequest((CompactionType.FULL,), force=True), unlimited=True).tasks
    assert len(tasks) > 1
    [node] = services.stores.tables.nodes(table)
    assert not node.last_done
    last = tasks[-1]
    services.work_on_queue.drain("worker", task_ids=[task.task_id for task in tasks[:-1]])
    assert services.compact_table.commit_now(table).record is not None
    [node] = services.stores.tables.nodes(table)
    assert not node.last_done
    services.work_on_queue.drain("worker", task_ids=[last.task_id])
    assert services.compact_table.commit_now(table).record is not None
    [node] = services.stores.tables.nodes(table)
    assert node.last_done == {CompactionType.FULL: house.now}


def test_a_full_compaction_of_which_a_task_was_canceled_is_not_done(tmp_path: Path) -> None:
    house = House(tmp_path)
    services = house.services
    table = house.fragmented(files=24, **SMALL_TASKS).identifier
    services.compact_table.refresh(table)
    tasks = services.plan_tables.plan(table, PlanRequest((CompactionType.FULL,), force=True), unlimited=True).tasks
    services.stores.tasks.cancel([tasks[0].task_id], EndReason.GIVEN_UP, "a person", house.now)
    services.work_on_queue.drain("worker")
    assert services.compact_table.commit_now(table).record is not None
    [node] = services.stores.tables.nodes(table)
    assert not node.last_done
