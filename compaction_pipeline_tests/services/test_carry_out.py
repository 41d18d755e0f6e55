"""Named nodes of several tables are planned, merged and committed in one drain, as `compact_job` does."""

from __future__ import annotations

from datetime import timedelta

from compaction_pipeline.core.commit.record import RecordStatus
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.services.heard import Between, Heard
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.serving import serving

NOW = timedelta(0)
NODE = PlanRequest(nodes=frozenset({TableNode(0)}))


def deleted_in_turn(table: LakeTable) -> list[object]:
    """Actions for the engine. Each one deletes a row of another input of the merge by position, so that its commit meets a conflict."""
    paths = iter([file.path for file in table.files() if file.is_data])
    return [lambda: table.delete_positions((next(paths), 0))] * 9


def test_only_the_nodes_that_a_commit_rejected_are_planned_again(house: House) -> None:
    moved, still = house.fragmented("moved", files=12), house.fragmented("still", files=12)
    house.services.engine_override = Between(deleted_in_turn(moved)[0])
    heard = Heard()
    failed = house.services.compact_tables.carry_out(
        {moved.identifier: NODE, still.identifier: NODE}, serving(until=lambda: False, linger=NOW, listener=heard)
    ).failed
    assert failed == {}
    records = [told for event, told in heard.events if event == "committed"]
    by_table = {table: [record.status for record in records if record.table == table] for table in (moved.identifier, still.identifier)}
    assert by_table == {moved.identifier: [RecordStatus.FAILED, RecordStatus.COMMITTED], still.identifier: [RecordStatus.COMMITTED]}
    assert [event for event, _ in heard.events].count("planned") == 3
    assert (len(moved.live_ids()), still.live_ids()) == (11, list(range(12)))


def test_rounds_end_when_the_table_moves_each_time(house: House) -> None:
    table = house.fragmented(files=12)
    house.services.engine_override = Between(*deleted_in_turn(table))
    heard = Heard()
    house.services.compact_tables.carry_out({table.identifier: NODE}, serving(until=lambda: False, linger=NOW, listener=heard))
    records = [told for event, told in heard.events if event == "committed"]
    assert [record.status for record in records] == [RecordStatus.FAILED] * 4
    assert len(table.live_ids()) == 8


def test_no_round_begins_when_the_time_is_up(house: House) -> None:
    table = house.fragmented(files=12)
    house.services.engine_override = Between(*deleted_in_turn(table))
    heard = Heard()
    committed = lambda: any(event == "committed" for event, _ in heard.events)  # noqa: E731
    house.services.compact_tables.carry_out({table.identifier: NODE}, serving(until=committed, linger=NOW, listener=heard))
    assert [event for event, _ in heard.events] == ["planned", "ended", "committed"]


def test_a_table_that_cannot_be_planned_is_reported_and_stops_no_other(house: House) -> None:
    table = house.fragmented(files=12)
    unknown = TableIdentifier("lake", ("db",), "nowhere")
    heard = Heard()
    house.services.compact_tables.carry_out(
        {unknown: NODE, table.identifier: NODE}, serving(until=lambda: False, linger=NOW, listener=heard)
    )
    assert [event for event, _ in heard.events] == ["not planned", "planned", "ended", "committed"]
    assert heard.events[0] == ("not planned", unknown)
    assert table.live_ids() == list(range(12))


def test_without_named_nodes_the_waiting_tasks_are_drained(house: House) -> None:
    table = house.fragmented(files=12)
    (task,) = house.services.one_table.plan_nodes(table.identifier, PlanRequest()).tasks
    heard = Heard()
    house.services.compact_tables.carry_out({}, serving(until=lambda: False, linger=NOW, listener=heard))
    assert [event for event, _ in heard.events] == ["ended", "committed"]
    assert house.services.stores.tasks.task(task.task_id).status is TaskStatus.COMMITTED


def test_named_nodes_are_committed_before_their_table_is_due_and_the_drain_ends_then(house: House) -> None:
    """A person waits for the end. The queue never gets empty here, because each merge is followed by the plan of another table."""
    named = house.fragmented("named", files=12, **{"self-optimizing__commit__interval": "3600000"})
    others = [house.fragmented(f"other{number}", files=12) for number in range(3)]
    waiting: list[CompactionTask] = []

    def plan_another() -> None:
        waiting.extend(house.services.one_table.plan_nodes(others.pop().identifier, PlanRequest()).tasks)

    house.services.engine_override = Between(lambda: None, *[plan_another] * 3)
    asked = {named.identifier: NODE}
    house.services.compact_tables.carry_out(asked, serving(until=lambda: False, linger=NOW))
    row_delta(named.table, named.one_row_files({"id": one, "name": f"n{one}"} for one in range(12, 24)))
    heard = Heard()
    house.services.compact_tables.carry_out(asked, serving(until=lambda: False, linger=timedelta(hours=1), listener=heard))
    assert [event for event, _ in heard.events] == ["planned", "ended", "committed"]
    assert [file.record_count for file in named.files()] == [24]
    assert [house.services.stores.tasks.task(task.task_id).status for task in waiting] == [TaskStatus.PENDING]
