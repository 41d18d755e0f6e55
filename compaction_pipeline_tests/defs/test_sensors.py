"""Sensors on a real table find changes, plan, request one run and mirror records. Otherwise they say with numbers why not."""

from __future__ import annotations

import json
import sqlite3
import tarfile
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState
from compaction_pipeline.core.tables.commit_report import CommitReport
from compaction_pipeline.definitions import defs
from compaction_pipeline.defs.markdown import is_shown_at_once
from compaction_pipeline_tests.defs.lake import Lake, key
from compaction_pipeline_tests.defs.ticks import Tick, reason
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.plain_names import COMPACTED_FILES, COMPACTION_RECORDS, DELTA_FILES, TABLE_FIGURES, TABLE_HEALTH

SENSORS = ("snapshot_sensor", "fragmentation_sensor", "commit_sensor", "catalog_sensor")


@pytest.mark.parametrize("name", SENSORS)
def test_without_a_catalog_a_sensor_says_how_to_add_one(name: str, tick: Tick, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPACTION_HOME", str(tmp_path))
    assert reason(tick(name)) == "no catalog is registered: run `compaction-pipeline catalog add`"


def test_new_snapshots_become_materializations_partitions_and_a_plan(
    lake: Lake, services: Services, tick: Tick, instance: dg.DagsterInstance
) -> None:
    result = tick("snapshot_sensor")
    assert not result.run_requests
    assert "looked at 1 table: 3 nodes changed in 1, 2 tasks planned" in reason(result)
    assert set(instance.get_dynamic_partitions("table_nodes")) == {key(1), key(2)}  # day 3 needs no care
    assert instance.get_dynamic_partitions("tables") == []  # the table has no record yet
    told = {str(event.partition): event for event in result.asset_events}
    assert set(told) == {key(1), key(2)}
    assert {event.asset_key for event in told.values()} == {DELTA_FILES}
    assert told[key(1)].metadata["small_files_count"].value == 4
    assert services.read_tasks.queue_counts().pending == 2


def test_snapshot_sensor_answers_the_reports_that_a_server_has_stored(lake: Lake, services: OpenedServices, tick: Tick) -> None:
    services.take_reports.take(CommitReport(Lake.identifier, 1, 1))
    assert "3 nodes changed in 1" in reason(tick("snapshot_sensor"))
    assert services.stores.reports.reported() == ()


def test_the_data_version_of_a_node_is_the_snapshot_that_changed_it(lake: Lake, tick: Tick) -> None:
    result = tick("snapshot_sensor")
    event = next(event for event in result.asset_events if event.partition == key(2))
    assert event.tags is not None
    assert event.tags["dagster/data_version"] == str(lake.orders.current_snapshot().snapshot_id)  # type: ignore[union-attr]


def test_an_unchanged_table_is_not_told_again(lake: Lake, tick: Tick) -> None:
    first = tick("snapshot_sensor")
    again = tick("snapshot_sensor", first.cursor)
    assert again.asset_events == []
    assert "0 nodes changed" in reason(again)


def materialized(instance: dg.DagsterInstance) -> set[str]:
    return instance.get_materialized_partitions(DELTA_FILES)


def test_a_node_that_another_process_read_is_told_as_soon_as_it_is_a_partition(
    lake: Lake, services: Services, tick: Tick, instance: dg.DagsterInstance
) -> None:
    services.one_table.refresh(Lake.identifier)
    services.plan_tables.plan(Lake.identifier)
    assert tick("snapshot_sensor").asset_events == []
    tick("fragmentation_sensor")
    assert materialized(instance) == {key(1), key(2)}
    instance.add_dynamic_partitions("table_nodes", [key(3)])
    tick("fragmentation_sensor")
    assert materialized(instance) == {key(1), key(2), key(3)}


def test_more_nodes_than_one_tick_may_tell_are_told_by_the_next_ticks(
    lake: Lake, tick: Tick, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compaction_pipeline.defs.file_events.MOST_EVENTS", 1)
    tick("snapshot_sensor")
    assert len(materialized(instance)) == 1
    first = tick("fragmentation_sensor")
    second = tick("fragmentation_sensor", first.cursor)
    assert materialized(instance) == {key(1), key(2)}
    third = tick("fragmentation_sensor", second.cursor)
    assert third.asset_events == []


def test_for_waiting_tasks_one_run_of_low_priority_is_requested(lake: Lake, tick: Tick) -> None:
    tick("snapshot_sensor")
    result = tick("fragmentation_sensor")
    assert [(request.tags or {})["dagster/priority"] for request in result.run_requests or ()] == ["-1"]


def test_no_second_run_is_requested_while_one_serves_the_queue(lake: Lake, tick: Tick, instance: dg.DagsterInstance) -> None:
    tick("snapshot_sensor")
    run = instance.create_run_for_job(defs.resolve_job_def("compact_job"), status=dg.DagsterRunStatus.STARTED)
    result = tick("fragmentation_sensor")
    assert not result.run_requests
    assert reason(result) == f"2 tasks wait; run {run.run_id[:8]} serves the queue"


def test_with_nothing_due_the_reason_names_the_worst_candidate_with_numbers(lake: Lake, services: Services, tick: Tick) -> None:
    lake.orders.transaction().set_properties({"self-optimizing.minor.trigger.file-count": "50"}).commit_transaction()
    tick("snapshot_sensor")
    said = reason(tick("fragmentation_sensor"))
    assert "nothing is due on 1 table with 3 nodes; worst lake.shop.orders day=2026-01-0" in said
    assert "4 small of 4 files" in said


def test_table_health_is_told_only_when_something_changed(lake: Lake, tick: Tick) -> None:
    tick("snapshot_sensor")
    first = tick("fragmentation_sensor")
    again = tick("fragmentation_sensor", first.cursor)
    assert [event.asset_key for event in first.asset_events] == [TABLE_HEALTH, TABLE_FIGURES]
    assert isinstance(first.asset_events[0], dg.AssetMaterialization)
    assert again.asset_events == []
    rows = first.asset_events[0].metadata["worst_nodes"].value.records
    assert rows[0].data["partition_key"] in {key(1), key(2)}


def test_table_health_opens_with_pictures_and_every_event_is_small(lake: Lake, tick: Tick) -> None:
    tick("snapshot_sensor")
    (health, figures) = tick("fragmentation_sensor").asset_events
    names = list(health.metadata)
    assert names[:4] == ["files_over_time", "worst_tables", "running_now", "worst_now"]
    assert list(health.metadata["worst_nodes"].value.schema.columns)[1].name == "reason"
    for name in names[:4]:
        assert is_shown_at_once(health.metadata[name].value), name
    assert "day=2026-01-0" in health.metadata["worst_now"].value
    for event in (health, figures):
        assert len(dg.serialize_value(event)) < 100_000
    assert figures.metadata["all tables files_count"].value == 9
    assert figures.metadata["all tables without_us_files_count"].value == 9
    assert figures.metadata["lake.shop.orders small_files_count"].value == 9


def test_figures_over_time_begin_when_the_first_table_was_read(lake: Lake, tick: Tick) -> None:
    first = tick("fragmentation_sensor")
    assert TABLE_FIGURES not in [event.asset_key for event in first.asset_events]
    tick("snapshot_sensor")
    second = tick("fragmentation_sensor", first.cursor)
    assert TABLE_FIGURES in [event.asset_key for event in second.asset_events]


def test_figures_over_time_get_a_point_every_five_minutes_at_most(lake: Lake, tick: Tick) -> None:
    tick("snapshot_sensor")
    first = tick("fragmentation_sensor")
    lake.append_small_files(2, 3)
    tick("snapshot_sensor")
    second = tick("fragmentation_sensor", first.cursor)
    assert second.asset_events == []
    cursor = json.loads(second.cursor or "")
    later = tick("fragmentation_sensor", json.dumps({**cursor, "figures_at": cursor["figures_at"] - 301}))
    assert [event.asset_key for event in later.asset_events] == [TABLE_FIGURES]
    assert later.asset_events[0].metadata["lake.shop.orders files_count"].value == 12


def test_a_commit_made_outside_dagster_is_mirrored_once(lake: Lake, services: Services, tick: Tick, instance: dg.DagsterInstance) -> None:
    outcome = services.compact_tables.compact(Lake.identifier)
    assert outcome.committed
    first = tick("commit_sensor")
    told = [(event.asset_key, event.partition) for event in first.asset_events if isinstance(event, dg.AssetMaterialization)]
    assert told == [(COMPACTED_FILES, key(1)), (COMPACTED_FILES, key(2)), (COMPACTION_RECORDS, "lake.shop.orders")]
    assert {event.check_name for event in first.asset_events if isinstance(event, dg.AssetCheckEvaluation)} == {
        "rows_preserved",
        "small_files_left",
        "due_work_on_time",
        "target_file_size",
        "tables_healthy",
        "queue_keeps_up",
        "jobs_start",
        "nothing_missed",
        "no_job_alerts",
        "within_budget",
        "low_use_share",
        "commits_on_time",
        "watermarks_move",
        "record_matches_table",
        "unique_keys",
    }
    assert set(instance.get_dynamic_partitions("table_nodes")) == {key(1), key(2)}
    assert instance.get_dynamic_partitions("tables") == ["lake.shop.orders"]
    # After a crash before the cursor was stored, the record is mirrored again. With the stored cursor it is not.
    assert len(tick("commit_sensor").asset_events) == len(first.asset_events)
    assert tick("commit_sensor", first.cursor).asset_events == []


def test_for_a_due_table_one_commit_run_is_requested(lake: Lake, services: Services, tick: Tick, instance: dg.DagsterInstance) -> None:
    services.one_table.refresh(Lake.identifier)
    services.plan_tables.plan(Lake.identifier)
    services.work_on_queue.drain("test")
    result = tick("commit_sensor")
    assert len(result.run_requests or ()) == 1
    instance.create_run_for_job(defs.resolve_job_def("compact_job"), status=dg.DagsterRunStatus.STARTED)
    served = tick("commit_sensor")
    assert not served.run_requests
    assert "1 table due for a commit; run" in reason(served)


def test_new_tables_are_found_when_their_catalog_is_listed(lake: Lake, services: Services, tick: Tick) -> None:
    lake.create("shop.returns")
    assert reason(tick("catalog_sensor")) == "1 new table, 0 dropped tables"
    assert [str(table) for table in services.read_tables.names()] == ["lake.shop.orders", "lake.shop.returns"]


def test_partitions_of_a_dropped_table_leave_with_it_and_those_that_a_run_has_stay(
    lake: Lake, services: Services, tick: Tick, instance: dg.DagsterInstance
) -> None:
    lake.create("shop.returns")
    tick("catalog_sensor")
    services.one_table.refresh(Lake.identifier)
    nodes = [node.key for node in services.read_status.nodes()]
    carried = "shop.returns/day=2"
    instance.add_dynamic_partitions("table_nodes", [*nodes, "shop.returns/day=1", carried, "shop.returnsold"])
    instance.add_dynamic_partitions("tables", ["lake.shop.orders", "lake.shop.returns"])
    instance.create_run_for_job(
        defs.resolve_job_def("compact_job"), status=dg.DagsterRunStatus.STARTED, tags={"dagster/partition": carried}
    )
    lake.drop("shop.returns")
    assert reason(tick("catalog_sensor")) == "0 new tables, 1 dropped table"
    assert set(instance.get_dynamic_partitions("table_nodes")) == {*nodes, carried, "shop.returnsold"}
    assert set(instance.get_dynamic_partitions("tables")) == {"lake.shop.orders"}


def test_partitions_of_tables_without_a_record_are_removed_once(
    lake: Lake, services: Services, tick: Tick, instance: dg.DagsterInstance
) -> None:
    # Versions before 2026-11-24 made a partition of every table.
    instance.add_dynamic_partitions("tables", ["lake.shop.orders", "lake.shop.told", "lake.shop.quiet", "lake.shop.running"])
    instance.report_runless_asset_event(dg.AssetMaterialization(COMPACTION_RECORDS, partition="lake.shop.told"))
    carried = {"dagster/partition": "lake.shop.running"}
    instance.create_run_for_job(defs.resolve_job_def("compact_job"), status=dg.DagsterRunStatus.STARTED, tags=carried)
    assert services.compact_tables.compact(Lake.identifier).committed
    first = tick("commit_sensor")
    left = {"lake.shop.orders", "lake.shop.told", "lake.shop.running"}
    assert set(instance.get_dynamic_partitions("tables")) == left
    instance.add_dynamic_partitions("tables", ["lake.shop.named"])
    tick("commit_sensor", first.cursor)
    assert set(instance.get_dynamic_partitions("tables")) == {*left, "lake.shop.named"}


def test_the_file_of_catalogs_is_applied_by_a_tick_and_what_is_wrong_in_it_is_told(
    lake: Lake, services: Services, tick: Tick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "catalogs.yaml"
    path.write_text("catalogs:\n- {name: lake, table_filter: nothing}\n- {name: a/b, type: rset}\n")
    monkeypatch.setenv("COMPACTION_CATALOGS_FILE", str(path))
    told = reason(tick("catalog_sensor"))
    assert "the file of COMPACTION_CATALOGS_FILE: catalog 'a/b': 'name' is 'a/b' but must be 1 to 100 letters" in told
    assert "'type' is 'rset' but must be one of" in told
    [entry] = services.explore_catalogs.entries()
    assert (entry.name, entry.properties["table-filter"], entry.held) == ("lake", "nothing", {"table-filter": "file"})


def test_a_catalog_that_does_not_answer_is_named_and_harms_nothing(lake: Lake, tick: Tick) -> None:
    (lake.folder / "catalog.db").unlink()
    assert "1 catalog could not be listed, e.g. lake: " in reason(tick("catalog_sensor"))


def test_the_keeper_returns_lost_attempts(lake: Lake, services: OpenedServices, tick: Tick) -> None:
    services.one_table.refresh(Lake.identifier)
    services.plan_tables.plan(Lake.identifier)
    services.stores.tasks.poll(None, "gone", services.clock() - timedelta(hours=1), timedelta(seconds=60))
    assert reason(tick("keeper_sensor")) == "1 lost attempt returned, 0 commits settled"
    assert services.read_tasks.queue_counts().pending == 2


def test_the_keeper_marks_silent_optimizers_as_lost(lake: Lake, services: OpenedServices, tick: Tick) -> None:
    then = services.clock() - timedelta(hours=1)
    services.stores.optimizers.add(Optimizer("silent", "default", "host", "1", "1.0", 1, then, then))
    assert reason(tick("keeper_sensor")) == "0 lost attempts returned, 0 commits settled, 1 silent optimizer lost"
    silent = services.stores.optimizers.optimizer("silent")
    assert silent is not None
    assert silent.state is OptimizerState.LOST


def test_cursors_are_small_texts(lake: Lake, tick: Tick) -> None:
    for name in SENSORS[:3]:
        cursor = tick(name).cursor
        assert cursor is not None
        assert len(cursor) < 500
        json.loads(cursor)


def test_after_a_tick_that_ran_out_of_time_the_next_but_one_begins_with_the_first_table(lake: Lake, tick: Tick) -> None:
    lake.create("shop.early")
    tick("catalog_sensor")
    cut_off = json.dumps({"table": "lake.shop.orders"})
    rest = tick("snapshot_sensor", cut_off)
    assert "looked at 1 table" in reason(rest)
    # Dagster's daemon keeps the cursor of before in place of an empty one.
    assert rest.cursor
    assert "looked at 2 tables" in reason(tick("snapshot_sensor", rest.cursor))


def test_a_bare_name_that_an_older_release_left_as_its_cursor_keeps_no_table_waiting(lake: Lake, tick: Tick) -> None:
    lake.create("shop.early")
    tick("catalog_sensor")
    assert "looked at 2 tables" in reason(tick("snapshot_sensor", "lake.shop.orders"))


OLDER_CURSORS = Path(__file__).parents[1] / "scenarios" / "examples" / "compaction-demo-77fcefb.tar.xz"


def test_every_sensor_goes_on_from_the_cursor_of_an_older_release(lake: Lake, tick: Tick, tmp_path: Path) -> None:
    """The cursors are those of Dagster's storage in the folder that a demo of release 77fcefb left."""
    member = "compaction-demo-77fcefb/dagster_home/schedules/schedules.db"
    with tarfile.open(OLDER_CURSORS) as archive:
        stored = archive.extractfile(member)
        assert stored is not None
        (tmp_path / "schedules.db").write_bytes(stored.read())
    with closing(sqlite3.connect(tmp_path / "schedules.db")) as connection:
        states = [json.loads(body) for (body,) in connection.execute("SELECT instigator_body FROM instigators")]
    cursors = {one["origin"]["job_name"]: (one["job_specific_data"] or {}).get("cursor") for one in states}
    sensors = {sensor.name for sensor in defs.get_repository_def().sensor_defs}
    known = {name: cursor for name, cursor in cursors.items() if name in sensors and cursor}
    assert "fragmentation_sensor" in known
    for name, cursor in known.items():
        tick(name, cursor)
