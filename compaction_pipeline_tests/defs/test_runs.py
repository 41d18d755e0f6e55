"""Runs on a real table: launched partitions, the draining job, commits, checks and housekeeping."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._core.loader import LoadingContextForTest
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.commit.ports import CommitOutcome
from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.definitions import defs
from compaction_pipeline.defs import report
from compaction_pipeline.defs.checks import CHECKS, check_keys
from compaction_pipeline.defs.draining import pool_wanted_by
from compaction_pipeline.defs.names import MACHINE_TAGS
from compaction_pipeline.defs.report import RunReport
from compaction_pipeline.defs.retire import carried_keys
from compaction_pipeline.defs.runs import is_followed
from compaction_pipeline.foundations import utc_now
from compaction_pipeline_tests.defs.executed import events, failure, launch, materializations, run
from compaction_pipeline_tests.defs.in_hand import in_hand, prepared
from compaction_pipeline_tests.defs.lake import Lake, key, node
from compaction_pipeline_tests.held_leases import HeldForAMoment
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.plain_names import (
    COMPACTED_FILES,
    COMPACTION_CAPACITY,
    COMPACTION_QUEUES,
    COMPACTION_RECORDS,
    NAMES,
    TABLE_HEALTH,
)
from compaction_pipeline_tests.services.in_hand import InHand, take_in_hand
from compaction_pipeline_tests.statements import statements

PACE = re.compile(r", [0-9.]+ k?B/s$")
"""A run tells its pace when merges have taken long enough to have one, as on a busy machine."""

# ---- launched by a person ----------------------------------------------------------------------------------------------


def test_launching_a_node_compacts_it_at_once_with_one_event(lake: Lake, instance: dg.DagsterInstance) -> None:
    before = lake.rows()
    assert launch(instance, COMPACTED_FILES, key(1)).success
    assert lake.files() == 6
    assert lake.rows() == before
    (event,) = events(instance, COMPACTED_FILES)
    assert event.partition == key(1)
    assert (event.metadata["merged_files_count"].value, event.metadata["written_files_count"].value) == (4, 1)
    (record,) = events(instance, COMPACTION_RECORDS)
    assert record.partition == "lake.shop.orders"
    assert record.metadata["files_after_count"].value == 6


@pytest.mark.parametrize("asset", [COMPACTED_FILES, COMPACTION_RECORDS])
def test_a_run_that_names_no_partition_fails_in_words_before_it_waits_for_the_pool(
    asset: dg.AssetKey, lake: Lake, instance: dg.DagsterInstance
) -> None:
    before = lake.files()
    job = defs.resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(instance=instance, asset_selection=[asset], raise_on_error=False)
    assert not result.success
    (said,) = lines(instance, result)
    assert said.startswith(f"the run is to materialize {asset.path[-1]}, but names no partition: launch it again for partitions")
    assert not any(event.is_step_start for event in result.all_events)
    assert lake.files() == before


def lines(instance: dg.DagsterInstance, result: dg.ExecuteInProcessResult) -> list[str]:
    """What the run's log said by itself, beside the events."""
    return [entry.user_message for entry in instance.all_logs(result.run_id) if entry.dagster_event is None]


def test_the_log_of_a_run_says_what_it_does_from_the_beginning(lake: Lake, instance: dg.DagsterInstance) -> None:
    result = launch(instance, COMPACTED_FILES, key(1), key(2))
    opening, *said = lines(instance, result)
    assert opening == "opening the state database"
    assert said[0] == "lake.shop.orders: reading its newest snapshot, then planning"
    assert said[1].startswith("lake.shop.orders: 2 tasks planned; ")
    assert said[2].startswith("merging lake.shop.orders day=2026-01-0")
    assert PACE.sub("", said[3]).endswith("1 of 2 tasks of this run")
    assert PACE.sub("", said[4]).endswith("2 of 2 tasks of this run")
    assert said[5] == "all 2 tasks merged; committing lake.shop.orders: 2 merged tasks"
    assert "committed as snapshot" in said[6]
    assert ": 8 data files → 2; the table 9 data files → 3, record " in said[6]
    (record,) = events(instance, COMPACTION_RECORDS)
    assert said[6].endswith(f"; it {record.metadata['waited'].value}")


def test_a_failure_is_said_once(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.corrupt_a_file(1)
    lake.orders.transaction().set_properties({"self-optimizing.execute.num-retries": "0"}).commit_transaction()
    result = launch(instance, COMPACTED_FILES, key(1))
    why = failure(result).split(": ", 2)[2]
    assert [line for line in lines(instance, result) if why[:60] in line] == []
    assert any("the end of this run says why" in line for line in lines(instance, result))


@pytest.mark.parametrize("broken", [False, True])
def test_each_check_is_judged_once_whether_the_run_fails_or_not(
    lake: Lake, services: Services, instance: dg.DagsterInstance, broken: bool
) -> None:
    services.one_table.refresh(Lake.identifier)
    services.plan_tables.judge(Lake.identifier)
    if broken:
        lake.corrupt_a_file(1)
    instance.add_dynamic_partitions("table_nodes", [key(1)])
    job = dg.define_asset_job("launched", dg.AssetSelection.assets(COMPACTED_FILES), executor_def=dg.in_process_executor)
    launched = dg.Definitions.merge(defs, dg.Definitions(jobs=[job])).resolve_job_def("launched")
    result = launched.execute_in_process(instance=instance, partition_key=key(1), raise_on_error=False)
    assert result.success is not broken
    steps = {event.step_key for event in result.all_events if event.event_type_value == "STEP_SKIPPED"}
    assert steps == set()
    about_files = {check.name for check in CHECKS if dg.AssetCheckKey(COMPACTED_FILES, check.name) in CHECK_KEYS}
    stored = instance.get_records_for_run(result.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION).records
    judged = [record.event_log_entry.get_dagster_event().asset_check_evaluation_data.check_name for record in stored]
    assert sorted(judged) == sorted(about_files)


def test_a_range_of_nodes_is_one_run_one_record_and_an_event_each(lake: Lake, instance: dg.DagsterInstance) -> None:
    assert launch(instance, COMPACTED_FILES, key(1), key(2)).success
    assert [event.partition for event in events(instance, COMPACTED_FILES)] == [key(1), key(2)]
    assert len(events(instance, COMPACTION_RECORDS)) == 1


def test_a_run_asks_for_the_partitions_once_however_many_tables_it_commits(
    lake: Lake, services: Services, instance: dg.DagsterInstance
) -> None:
    for name in ("shop.returns", "shop.refunds"):
        lake.create(name)
        lake.append_small_files(1, 4, table=name)
    with statements() as asked:
        result = run(instance, "compact_job", tables=["lake.shop.orders", "lake.shop.returns", "lake.shop.refunds"])
    assert result.success
    assert len({event.partition for event in events(instance, COMPACTION_RECORDS)}) == 3
    reads = [each for each in asked if "FROM dynamic_partitions" in each]
    # Dagster itself looks for the keys that it adds.
    adds = [each for each in reads if "dynamic_partitions.partition IN" in each]
    assert len(adds) == len([each for each in asked if each.startswith("INSERT INTO dynamic_partitions")])
    assert sorted(each.rpartition(" ")[2] for each in reads if each not in adds) == ["('table_nodes',)", "('tables',)"]
    assert set(instance.get_dynamic_partitions("tables")) == {"lake.shop.orders", "lake.shop.returns", "lake.shop.refunds"}
    assert {key(1), key(1, "returns"), key(1, "refunds")} <= set(instance.get_dynamic_partitions("table_nodes"))


def test_a_node_without_gain_is_green_with_0_files_and_the_reason(lake: Lake, instance: dg.DagsterInstance) -> None:
    assert launch(instance, COMPACTED_FILES, key(3)).success
    (event,) = events(instance, COMPACTED_FILES)
    assert event.metadata["merged_files_count"].value == 0
    assert event.metadata["reason"].value
    assert lake.files() == 9


def test_a_bad_node_fails_the_run_by_name_and_a_good_node_is_still_committed(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.corrupt_a_file(1)
    result = launch(instance, COMPACTED_FILES, key(1), key(2))
    assert not result.success
    assert key(1) in failure(result)
    assert "the rest is committed" in failure(result)
    assert [event.partition for event in events(instance, COMPACTED_FILES)] == [key(2)]
    assert instance.get_materialized_partitions(COMPACTED_FILES) == {key(2)}


def test_a_node_that_no_table_holds_fails_with_its_name(lake: Lake, instance: dg.DagsterInstance) -> None:
    result = launch(instance, COMPACTED_FILES, key(9))
    assert not result.success
    assert key(9) in failure(result)


def test_a_table_that_cannot_be_read_does_not_stop_another_one(lake: Lake, services: Services, instance: dg.DagsterInstance) -> None:
    other = Lake(lake.folder.parent / "other", name="other")
    other.create_orders()
    other.append_small_files(1, 4)
    services.explore_catalogs.register(CatalogEntry("other", other.properties))
    # The table of the second catalog was not read yet. The first catalog's table of that name has the short key.
    gone, good = key(1), "other.shop.orders/0/day=2026-01-01/0-0"
    services.one_table.refresh(Lake.identifier)
    (lake.folder / "catalog.db").unlink()
    result = launch(instance, COMPACTED_FILES, gone, good)
    assert not result.success
    assert gone in failure(result)
    assert instance.get_materialized_partitions(COMPACTED_FILES) == {good}
    assert other.files() == 1


def test_a_paused_table_is_not_compacted_and_says_who_can_change_that(
    lake: Lake, services: OpenedServices, instance: dg.DagsterInstance
) -> None:
    services.stores.switches.pause(Lake.identifier, True)
    result = launch(instance, COMPACTED_FILES, key(1))
    assert not result.success
    assert "paused" in failure(result)
    assert lake.files() == 9


@pytest.mark.parametrize("what", ["plan", "refresh", "commit"])
def test_a_launch_waits_for_a_lease_that_a_sensor_holds_for_a_moment(lake: Lake, instance: dg.DagsterInstance, what: str) -> None:
    held = HeldForAMoment(f"{what}:lake.shop.orders")
    assert launch(instance, COMPACTED_FILES, key(1), resources=in_hand("leases", held)).success
    assert held.refused == [f"{what}:lake.shop.orders"]
    (event,) = events(instance, COMPACTED_FILES)
    assert (event.partition, event.metadata["written_files_count"].value) == (key(1), 1)


@pytest.mark.parametrize("what", ["plan", "refresh", "commit"])
def test_a_run_of_named_nodes_waits_for_a_lease_that_a_sensor_holds_for_a_moment(
    lake: Lake, instance: dg.DagsterInstance, what: str
) -> None:
    held = HeldForAMoment(f"{what}:lake.shop.orders")
    assert run(instance, "compact_job", node_keys=[key(1)], resources=in_hand("leases", held)).success
    assert held.refused == [f"{what}:lake.shop.orders"]
    (event,) = events(instance, COMPACTED_FILES)
    assert (event.partition, event.metadata["written_files_count"].value) == (key(1), 1)


def test_a_launched_node_that_another_process_merges_is_green_and_says_who(
    lake: Lake, services: OpenedServices, instance: dg.DagsterInstance
) -> None:
    services.one_table.refresh(lake.identifier)
    nodes = [state.node for state in services.stores.tables.nodes() if state.key == key(1)]
    services.one_table.plan_nodes(lake.identifier, PlanRequest(nodes=frozenset(nodes), force=True))
    assert services.stores.tasks.poll(None, "process 7 on elsewhere#1", services.clock(), timedelta(minutes=1)) is not None
    assert launch(instance, COMPACTED_FILES, key(1)).success
    (event,) = events(instance, COMPACTED_FILES)
    assert event.metadata["written_files_count"].value == 0
    assert "process 7 on elsewhere is merging 1 task of lake.shop.orders" in str(event.metadata)


def test_a_person_commits_what_is_prepared_now(lake: Lake, services: Services, instance: dg.DagsterInstance) -> None:
    services.one_table.refresh(Lake.identifier)
    services.plan_tables.plan(Lake.identifier)
    services.work_on_queue.drain("test")
    assert launch(instance, COMPACTION_RECORDS, "lake.shop.orders").success
    assert len(events(instance, COMPACTION_RECORDS)) == 1
    assert {event.partition for event in events(instance, COMPACTED_FILES)} == {key(1), key(2)}


def test_with_nothing_prepared_no_record_is_made_and_the_run_is_green(lake: Lake, instance: dg.DagsterInstance) -> None:
    assert launch(instance, COMPACTION_RECORDS, "lake.shop.orders").success
    assert events(instance, COMPACTION_RECORDS) == []


def nodes_that_the_run_materialized(instance: dg.DagsterInstance, result: dg.ExecuteInProcessResult) -> list[str | None]:
    """The partitions that Dagster counts for a run of a backfill."""
    records = instance.fetch_materializations(COMPACTED_FILES, limit=100).records
    return sorted(str(record.partition_key) for record in records if record.run_id == result.run_id)


def test_a_node_that_was_not_launched_does_not_count_for_the_run_that_commits_it(
    lake: Lake, services: Services, instance: dg.DagsterInstance
) -> None:
    # A terminated run leaves a merged task of day 1. The next launch of the table commits it.
    services.one_table.refresh(Lake.identifier)
    services.one_table.plan_nodes(Lake.identifier, PlanRequest(nodes=frozenset({node(1)}), force=True))
    services.work_on_queue.drain("terminated")
    result = launch(instance, COMPACTED_FILES, key(2))
    assert result.success
    assert nodes_that_the_run_materialized(instance, result) == [key(2)]
    assert instance.get_materialized_partitions(COMPACTED_FILES) == {key(1), key(2)}
    assert lake.files() == 3


def test_a_commit_that_ends_while_the_run_is_terminated_counts_for_the_run(lake: Lake, instance: dg.DagsterInstance) -> None:
    def take(committer: InHand) -> None:
        def terminated(*arguments: Any) -> CommitOutcome:
            outcome = committer.real.commit(*arguments)
            signal.raise_signal(signal.SIGTERM)
            return outcome

        committer.instead(commit=terminated)

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        assert not launch(instance, COMPACTED_FILES, key(1), resources=in_hand("_committer", take)).success
    finally:
        signal.signal(signal.SIGTERM, before)
    (record,) = instance.fetch_materializations(COMPACTED_FILES, limit=100).records
    (run,) = instance.get_runs()
    assert (record.partition_key, record.run_id) == (key(1), run.run_id)
    assert lake.files() == 6


def test_a_node_whose_merge_was_cut_off_is_not_materialized(lake: Lake, services: Services, instance: dg.DagsterInstance) -> None:
    def take(queue: InHand) -> None:
        def interrupted(*arguments: Any) -> TaskStatus:
            # The second merge is cut off. The first is merged then, but not committed.
            queue.instead(poll=interrupt)
            status: TaskStatus = queue.real.complete(*arguments)
            return status

        queue.instead(complete=interrupted)

    def interrupt(*arguments: Any) -> None:
        raise KeyboardInterrupt

    assert not launch(instance, COMPACTED_FILES, key(1), key(2), resources=in_hand("serve_tasks", take)).success
    assert instance.get_materialized_partitions(COMPACTED_FILES) == set()
    assert (services.read_tasks.queue_counts().prepared, services.read_tasks.queue_counts().pending) == (1, 0)
    assert lake.files() == 9


# ---- machines' work ----------------------------------------------------------------------------------------------------


def test_one_run_drains_what_the_sensors_planned_and_commits_it(lake: Lake, services: OpenedServices, instance: dg.DagsterInstance) -> None:
    services.one_table.refresh(Lake.identifier)
    services.plan_tables.plan(Lake.identifier)
    before = lake.rows()
    assert run(instance, "compact_job").success
    assert lake.files() == 3
    assert lake.rows() == before
    assert {event.partition for event in events(instance, COMPACTED_FILES)} == {key(1), key(2)}
    assert services.stores.records.unmirrored(10) == ()
    assert services.read_records.records()[0].run_id is not None


def test_without_node_keys_a_run_plans_nothing(lake: Lake, instance: dg.DagsterInstance) -> None:
    assert run(instance, "compact_job").success
    assert lake.files() == 9


def test_named_nodes_are_planned_and_others_left_alone(lake: Lake, instance: dg.DagsterInstance) -> None:
    assert run(instance, "compact_job", node_keys=[key(2)], type="FULL", force=True).success
    assert [event.partition for event in events(instance, COMPACTED_FILES)] == [key(2)]
    assert lake.files() == 6


def test_a_named_table_is_planned_by_its_thresholds(lake: Lake, instance: dg.DagsterInstance) -> None:
    assert run(instance, "compact_job", tables=["lake.shop.orders"]).success
    assert {event.partition for event in events(instance, COMPACTED_FILES)} == {key(1), key(2)}
    assert lake.files() == 3


@pytest.mark.parametrize("dry_run", [False, True])
def test_names_that_fit_nothing_fail_a_run_of_compact_job(lake: Lake, instance: dg.DagsterInstance, dry_run: bool) -> None:
    result = run(instance, "compact_job", tables=["orders", "lake.shop.nowhere"], node_keys=["nothing"], dry_run=dry_run)
    assert not result.success
    assert failure(result).startswith("3 failed")
    assert lake.files() == 9


def test_a_launch_keeps_its_tasks_when_a_sensor_plans_meanwhile(lake: Lake, services: OpenedServices, instance: dg.DagsterInstance) -> None:
    planned: list[Any] = []

    def take(queue: InHand) -> None:
        def planning(task: CompactionTask, result: MergeResult) -> TaskStatus:
            # A writer and a sensor come in while the first of two launched nodes is merged.
            if not planned:
                day = 3 - int(str(task.work.node)[-1])
                lake.append_small_files(day, 4)
                services.one_table.refresh(Lake.identifier)
                planned.append(services.plan_tables.plan(Lake.identifier).plan.replaces)
            status: TaskStatus = queue.real.complete(task, result)
            return status

        queue.instead(complete=planning)

    assert launch(instance, COMPACTED_FILES, key(1), key(2), resources=in_hand("serve_tasks", take)).success
    assert [len(replaced) for replaced in planned] == [0]
    assert {event.partition for event in events(instance, COMPACTED_FILES)} == {key(1), key(2)}
    # Two merged files, one of the third node, and the four new ones, which the sensor's task will merge.
    assert lake.files() == 2 + 1 + 4


def test_a_dry_run_shows_the_plan_and_does_nothing(lake: Lake, services: Services, instance: dg.DagsterInstance) -> None:
    result = run(instance, "compact_job", node_keys=[key(1)], dry_run=True)
    assert result.success
    output = next(event for event in result.all_events if event.is_successful_output)
    metadata = output.step_output_data.metadata
    assert metadata["lake.shop.orders"].value.records[0].data["files"] == 4  # type: ignore[union-attr]
    assert "dry run, lake.shop.orders: after it in the nodes asked for: 1 data file, 0 delete files" in lines(instance, result)
    assert lake.files() == 9
    assert services.read_tasks.queue_counts().open == 0


@pytest.mark.parametrize("config", [{"node_keys": ["nothing"]}, {"node_keys": [""]}, {"tables": ["orders"]}])
def test_a_run_whose_names_are_all_unknown_does_no_other_work(
    lake: Lake, services: Services, instance: dg.DagsterInstance, config: Mapping[str, Any]
) -> None:
    services.one_table.refresh(Lake.identifier)
    services.plan_tables.plan(Lake.identifier)
    result = run(instance, "compact_job", **config)
    assert not result.success
    assert "1 failed, and nothing is planned; " in failure(result)
    assert ": : " not in failure(result)
    assert services.read_tasks.queue_counts().pending == 2
    assert lake.files() == 9


def test_a_bad_name_beside_a_good_one_is_told_before_the_others_are_merged(
    lake: Lake, services: Services, instance: dg.DagsterInstance, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not run(instance, "compact_job", tables=[str(Lake.identifier), "orders"]).success
    log = capsys.readouterr().err
    assert 0 < log.index("the run will fail for this name") < log.index("lake.shop.orders committed as snapshot")
    assert lake.files() == 3


def test_a_failing_task_fails_the_run_after_the_others_were_committed(
    lake: Lake, services: OpenedServices, instance: dg.DagsterInstance
) -> None:
    services.one_table.refresh(Lake.identifier)
    services.plan_tables.plan(Lake.identifier)
    lake.corrupt_a_file(1)
    result = run(instance, "compact_job")
    assert not result.success
    assert "the rest is committed" in failure(result)
    assert {event.partition for event in events(instance, COMPACTED_FILES)} == {key(2)}
    assert [task.status for task in services.stores.tasks.tasks(statuses=(TaskStatus.FAILED,))] == [TaskStatus.FAILED]


def test_a_task_that_is_tried_again_later_is_a_warning_and_fails_no_run(
    lake: Lake, services: OpenedServices, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COMPACTION_RETRY_INTERVAL_SECONDS", "60")
    services.one_table.refresh(Lake.identifier)
    services.plan_tables.plan(Lake.identifier)
    lake.corrupt_a_file(1)
    assert run(instance, "compact_job").success
    assert "attempt 1 of 4 failed, tried again later: " in capsys.readouterr().err
    (task,) = services.stores.tasks.tasks(statuses=(TaskStatus.FAILED,))
    assert (task.waits_for_retry, task.failures) == (True, 1)
    assert services.read_tasks.queue_counts().retrying == 1


def test_commit_job_commits_every_due_table_in_one_run(lake: Lake, services: Services, instance: dg.DagsterInstance) -> None:
    services.one_table.refresh(Lake.identifier)
    services.plan_tables.plan(Lake.identifier)
    services.work_on_queue.drain("test")
    assert run(instance, "commit_job").success
    assert len(events(instance, COMPACTION_RECORDS)) == 1
    assert lake.files() == 3


def test_a_queued_run_that_wants_the_pool_is_seen(instance: dg.DagsterInstance) -> None:
    job = defs.resolve_job_def("compact_job")
    queued: dict[str, Any] = {"status": dg.DagsterRunStatus.QUEUED, "remote_job_origin": _origin(job.name)}
    waiting = instance.create_run_for_job(job, **queued)
    assert pool_wanted_by(instance, "the draining run") == waiting.run_id
    assert pool_wanted_by(instance, waiting.run_id) is None
    instance.delete_run(waiting.run_id)
    instance.create_run_for_job(defs.resolve_job_def("commit_job"), **queued)  # needs no slot of the pool
    assert pool_wanted_by(instance, "the draining run") is None


def test_a_sensor_s_run_merges_before_it_ends_for_the_run_of_another_sensor(
    lake: Lake, services: Services, instance: dg.DagsterInstance
) -> None:
    # Another set of definitions shares the pool. When both end for each other at once, neither merges anything.
    services.one_table.refresh(Lake.identifier)
    services.plan_tables.plan(Lake.identifier)
    job = defs.resolve_job_def("compact_job")
    queued: dict[str, Any] = {"status": dg.DagsterRunStatus.QUEUED, "remote_job_origin": _origin(job.name), "tags": MACHINE_TAGS}
    waiting = instance.create_run_for_job(job, **queued)
    assert pool_wanted_by(instance, "the draining run", by_sensors=False) is None
    assert pool_wanted_by(instance, "the draining run") == waiting.run_id
    assert job.execute_in_process(instance=instance, tags=MACHINE_TAGS).success
    assert lake.files() == 3


@pytest.mark.parametrize(("tags", "config", "left"), [(MACHINE_TAGS, {}, 2), ({}, {}, 0), ({}, {"node_keys": [key(1)], "force": True}, 1)])
def test_a_machine_s_run_ends_for_a_queued_run_and_a_person_s_run_first_does_what_was_asked_for(
    lake: Lake, services: Services, instance: dg.DagsterInstance, tags: Mapping[str, str], config: Mapping[str, Any], left: int
) -> None:
    services.one_table.refresh(Lake.identifier)
    services.plan_tables.plan(Lake.identifier)
    job = defs.resolve_job_def("compact_job")
    queued = instance.create_run_for_job(job, status=dg.DagsterRunStatus.QUEUED, remote_job_origin=_origin(job.name))
    run_config = {"ops": {"compact": {"config": config}}}
    result = job.execute_in_process(instance=instance, run_config=run_config, tags=tags)
    assert services.read_tasks.queue_counts().pending == left
    logged = [record.user_message for record in instance.all_logs(result.run_id)]
    ends = next(line for line in logged if line.startswith("ends: "))
    assert (f"run {queued.run_id[:8]} waits for pool 'spark_merge'" in ends) is (left > 0 or not config)


def _origin(job: str) -> RemoteJobOrigin:
    return RemoteJobOrigin(RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("compaction_pipeline"), "__repository__"), job)


# ---- checks and housekeeping -------------------------------------------------------------------------------------------


def history(instance: dg.DagsterInstance, check: dg.AssetCheckKey) -> Sequence[AssetCheckExecutionRecord]:
    """Every evaluation of a check that Dagster keeps for ever, newest first. They belong to no run."""
    return [record for record in instance.event_log_storage.get_asset_check_execution_history(check, limit=100) if not record.run_id]


CHECK_KEYS = OFTEN_JUDGED = check_keys(NAMES)
"""The checks that runs and sensors judge after commits: all of them, because no table has keys to read."""


def stored_checks(instance: dg.DagsterInstance) -> Mapping[str, AssetCheckExecutionRecord]:
    """The newest evaluation of each check that Dagster has stored."""
    found = instance.event_log_storage.get_latest_asset_check_execution_by_key(CHECK_KEYS)
    return {record.key.name: record for record in found.values() if record is not None}


def not_evaluated(instance: dg.DagsterInstance) -> list[str]:
    """The checks that a page shows as not evaluated, because their assets have newer materializations."""

    def is_current(found: AssetCheckExecutionRecord) -> bool:
        return asyncio.run(found.targets_latest_materialization(LoadingContextForTest(instance)))

    return [name for name, found in stored_checks(instance).items() if not is_current(found)]


@pytest.fixture
def two_hours_later() -> Mapping[str, Any]:
    """The resources of runs that read a clock that is two hours ahead."""

    def later(services: Services) -> None:
        services.clock = lambda: utc_now() + timedelta(hours=2)

    return prepared(later)


def test_the_checks_job_runs_all_and_shows_why_one_fails(
    lake: Lake, services: Services, instance: dg.DagsterInstance, two_hours_later: Mapping[str, Any]
) -> None:
    services.one_table.refresh(Lake.identifier)
    result = run(instance, "compaction_checks_job", resources=two_hours_later)
    judged = {name: found.evaluation for name, found in stored_checks(instance).items() if found.run_id == result.run_id}
    assert set(judged) == {check.name for check in CHECKS}
    small = judged["small_files_left"]
    assert small is not None
    assert not small.passed
    assert "2 of 3 nodes fail" in (small.description or "")
    assert [row.data["node"] for row in small.metadata["failing"].value.records] == ["day=2026-01-01", "day=2026-01-02"]
    assert judged["rows_preserved"].passed
    assert not result.success
    assert failure(result).startswith("due_work_on_time (ERROR): 2 of 2 nodes fail; lake.shop.orders day=2026-01-0")
    assert judged["due_work_on_time"].metadata["oldest_due_seconds"].value > 7_000


def test_the_checks_job_fails_when_an_error_check_fails_and_stores_every_evaluation(lake: Lake, instance: dg.DagsterInstance) -> None:
    assert run(instance, "compaction_checks_job").success
    assert launch(instance, COMPACTED_FILES, key(1)).success
    lake.orders.manage_snapshots().set_current_snapshot(lake.orders.snapshots()[0].snapshot_id).commit()
    result = run(instance, "compaction_checks_job")
    assert not result.success
    assert failure(result).startswith("record_matches_table (ERROR): 1 of 1 tables fail; lake.shop.orders: snapshot")
    assert {name: found.run_id for name, found in stored_checks(instance).items()} == {check.name: result.run_id for check in CHECKS}


@pytest.mark.parametrize(
    ("job", "op", "config", "said"),
    [
        ("compaction_checks_job", "judge", {"tables": ["lake.shop.nowhere"]}, "lake.shop.nowhere"),
        ("change_group_job", "change_group", {"group": "heavy"}, "heavy"),
    ],
)
def test_a_known_error_fails_a_run_in_words_and_without_the_errors_that_led_to_it(
    lake: Lake, instance: dg.DagsterInstance, job: str, op: str, config: Mapping[str, Any], said: str
) -> None:
    run_config = {"ops": {op: {"config": dict(config)}}}
    result = defs.resolve_job_def(job).execute_in_process(instance=instance, run_config=run_config, raise_on_error=False)
    (event,) = (event for event in result.all_events if event.is_step_failure)
    assert said in failure(result)
    error = event.step_failure_data.error
    assert error is not None
    assert (error.cls_name, error.cause, error.context) == ("Failure", None, None)


def test_a_run_whose_settings_break_a_rule_fails_in_words(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPACTION_TASK_SLOTS", "none")
    result = run(instance, "compact_job")
    (event,) = (event for event in result.all_events if event.is_step_failure)
    assert "COMPACTION_TASK_SLOTS" in failure(result)
    assert event.step_failure_data.error is not None
    assert event.step_failure_data.error.cause is None


def test_the_checks_job_judges_what_its_config_names(
    lake: Lake, services: Services, instance: dg.DagsterInstance, two_hours_later: Mapping[str, Any]
) -> None:
    services.one_table.refresh(Lake.identifier)

    def judged(**config: Any) -> dg.ExecuteInProcessResult:
        run_config = {"ops": {"judge": {"config": config}}}
        return defs.resolve_job_def("compaction_checks_job").execute_in_process(
            instance=instance, run_config=run_config, raise_on_error=False, resources=two_hours_later
        )

    assert "small_files_left (WARN): 2 of 3 nodes fail" in failure(judged(fail_on="WARN"))
    assert "small_files_left" not in failure(judged(fail_on="ERROR"))
    lake.create("shop.returns")
    assert judged(fail_on="WARN", tables=["lake.shop.returns"]).success


def test_the_checks_job_as_of_now_fails_for_a_due_node_and_stores_nothing_for_a_check_without_an_answer(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    def judged(**config: Any) -> dg.ExecuteInProcessResult:
        run_config = {"ops": {"judge": {"config": config}}}
        return defs.resolve_job_def("compaction_checks_job").execute_in_process(
            instance=instance, run_config=run_config, raise_on_error=False
        )

    assert judged().success
    # These two judge how long work has waited. Nobody waits for a watermark, so the third of this kind has an answer.
    answered = {check.name for check in CHECKS} - {"small_files_left", "due_work_on_time"}
    assert set(stored_checks(instance)) == answered
    assert failure(judged(strict=True)).startswith("small_files_left is not evaluated: lake.shop.orders day=2026-01-01 ")
    said = failure(judged(as_of_now=True))
    assert said == "due_now (ERROR): 2 of 3 nodes fail; lake.shop.orders day=2026-01-01: MINOR: 4 small data files, and 3 make a MINOR due"
    assert set(stored_checks(instance)) == answered
    assert "leave one of them out" in failure(judged(as_of_now=True, refresh=False))


def test_a_check_without_an_answer_that_a_person_evaluates_stores_nothing(
    lake: Lake, services: Services, instance: dg.DagsterInstance
) -> None:
    services.one_table.refresh(Lake.identifier)
    job = dg.define_asset_job("one", selection=dg.AssetSelection.checks(*[key for key in CHECK_KEYS if key.name == "due_work_on_time"]))
    with_job = dg.Definitions.merge(defs, dg.Definitions(jobs=[job]))
    assert with_job.resolve_job_def("one").execute_in_process(instance=instance).success
    [stored] = stored_checks(instance).values()
    assert stored.status.value == "PLANNED"


def test_the_checks_job_fails_when_a_table_cannot_be_read(lake: Lake, instance: dg.DagsterInstance) -> None:
    (lake.folder / "catalog.db").unlink()
    assert "could not be read" in failure(run(instance, "compaction_checks_job"))


def test_a_run_ends_with_the_checks_and_the_state_of_everything(lake: Lake, instance: dg.DagsterInstance) -> None:
    assert launch(instance, COMPACTED_FILES, key(1), key(2)).success
    latest = stored_checks(instance)
    assert set(latest) == {key.name for key in OFTEN_JUDGED}
    assert [name for name, found in latest.items() if found.status.value != "SUCCEEDED"] == []
    assert instance.fetch_materializations(TABLE_HEALTH, limit=1).records


def test_a_long_run_evaluates_the_checks_after_its_commits_not_only_at_its_end(lake: Lake, instance: dg.DagsterInstance) -> None:
    done, judged = dg.DagsterEventType.ASSET_MATERIALIZATION, dg.DagsterEventType.ASSET_CHECK_EVALUATION
    result = launch(instance, COMPACTED_FILES, key(1), key(2))
    assert result.success
    found = [(record.timestamp, done) for asset in (COMPACTED_FILES, COMPACTION_RECORDS) for record in materializations(instance, asset)]
    found += [(record.event.timestamp, judged) for check in CHECK_KEYS for record in history(instance, check) if record.event]
    told = [kind for _, kind in sorted(found, key=lambda each: each[0])]
    assert told[0] is done
    assert told[-1] is judged
    assert told.count(judged) == 2 * len(OFTEN_JUDGED)


def test_each_judgement_of_a_run_stays_in_the_history_and_the_last_is_current(lake: Lake, instance: dg.DagsterInstance) -> None:
    run_id = launch(instance, COMPACTED_FILES, key(1), key(2)).run_id
    for check in OFTEN_JUDGED:
        records = history(instance, check)
        assert len(records) == 2
        for record in records:
            assert record.evaluation is not None
            assert record.evaluation.metadata["run"].value == run_id
            if check.asset_key in (COMPACTION_QUEUES, COMPACTION_CAPACITY):
                # Only `queue_sensor` materializes these assets.
                continue
            newest = materializations(instance, check.asset_key)[0].storage_id
            assert record.evaluation.target_materialization_data is not None
            assert record.evaluation.target_materialization_data.storage_id == newest


def test_no_commit_of_a_run_leaves_the_checks_not_evaluated_until_the_next_judgement(
    lake: Lake, services: OpenedServices, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create("shop.returns", **{"self-optimizing.minor.trigger.file-count": "3", "self-optimizing.commit.interval": "0"})
    lake.append_small_files(1, 4, table="shop.returns")
    for table in (Lake.identifier, TableIdentifier("lake", ("shop",), "returns")):
        services.one_table.refresh(table)
        services.plan_tables.plan(table)
    services.work_on_queue.drain("test")
    found: list[tuple[str, list[str]]] = []

    def take(services: Services) -> None:
        for part, verb in (("_committer", "commit"), ("judge_compaction", "judge")):
            take_in_hand(services, part, partial(look_before, verb))

    def look_before(verb: str, part: InHand) -> None:
        def looked_at(*arguments: Any, **named: Any) -> Any:
            found.append((verb, not_evaluated(instance)))
            return getattr(part.real, verb)(*arguments, **named)

        part.instead(**{verb: looked_at})

    # Judging takes a second. The second commit comes so soon after it that the run may not judge again.
    monkeypatch.setattr(report, "time", SimpleNamespace(monotonic=partial(next, count(100))))
    assert run(instance, "commit_job", resources=prepared(take)).success
    assert found == [("commit", []), ("judge", []), ("commit", []), ("judge", [])]
    assert not_evaluated(instance) == []
    assert {event.partition for event in events(instance, COMPACTION_RECORDS)} == {"lake.shop.orders", "lake.shop.returns"}
    assert services.stores.records.unmirrored(10) == ()


def test_checks_that_cannot_be_judged_after_a_commit_end_no_merge_and_are_judged_later(
    lake: Lake, services: OpenedServices, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    services.one_table.refresh(Lake.identifier)
    services.plan_tables.plan(Lake.identifier)
    calls = count()

    def take(judging: InHand) -> None:
        def unavailable_once(*arguments: Any, **named: Any) -> Any:
            if next(calls) == 0:
                raise StorageUnavailable("the state database does not answer")
            return judging.real.judge(*arguments, **named)

        judging.instead(judge=unavailable_once)

    assert run(instance, "compact_job", resources=in_hand("judge_compaction", take)).success
    assert next(calls) >= 2
    assert {event.partition for event in events(instance, COMPACTED_FILES)} == {key(1), key(2)}
    assert not_evaluated(instance) == []
    assert services.stores.records.unmirrored(10) == ()


def test_no_check_that_a_launch_announced_is_left_without_an_outcome(lake: Lake, instance: dg.DagsterInstance) -> None:
    assert launch(instance, COMPACTED_FILES, key(1)).success
    for check in OFTEN_JUDGED:
        records = instance.event_log_storage.get_asset_check_execution_history(check, limit=100)
        assert {record.status.value for record in records} == {"SUCCEEDED"}
        assert records[0].run_id == ""  # It is the newest, and judges what the run left behind.


def test_housekeeping_retires_quiet_partitions_and_tables_that_are_gone(
    lake: Lake, services: Services, instance: dg.DagsterInstance
) -> None:
    services.one_table.refresh(Lake.identifier)
    services.plan_tables.plan(Lake.identifier)
    instance.add_dynamic_partitions("table_nodes", [key(1), key(3), key(9)])
    instance.add_dynamic_partitions("tables", ["lake.shop.orders", "lake.shop.gone"])
    assert run(instance, "compaction_retire_job").success
    assert instance.get_dynamic_partitions("table_nodes") == [key(1)]
    assert instance.get_dynamic_partitions("tables") == ["lake.shop.orders"]


@pytest.mark.parametrize(
    "started",
    [
        {"tags": {"dagster/partition": "b"}},
        {"tags": {"dagster/asset_partition_range_start": "b", "dagster/asset_partition_range_end": "b"}},
        {"run_config": {"ops": {"compact": {"config": {"node_keys": ["b"]}}}}},
    ],
    ids=["partition", "range", "node_keys"],
)
def test_a_key_that_a_running_run_carries_is_known(started: dict[str, Any], instance: dg.DagsterInstance) -> None:
    instance.create_run_for_job(defs.resolve_job_def("compact_job"), status=dg.DagsterRunStatus.STARTED, **started)
    assert carried_keys(instance, ["a", "b", "c"]) == {"b"}


# ---- backfills ---------------------------------------------------------------------------------------------------------


def of_backfill(name: str, run_id: str, status: dg.DagsterRunStatus) -> dg.DagsterRun:
    return dg.DagsterRun("__ASSET_JOB", run_id=run_id, status=status, tags={"dagster/backfill": name})


def test_the_newest_unfinished_run_of_a_backfill_and_any_that_ends_after_it_judge(instance: dg.DagsterInstance) -> None:
    first, second, third = (of_backfill("b", f"{number}" * 8, dg.DagsterRunStatus.STARTED) for number in (1, 2, 3))
    other = of_backfill("other", "4" * 8, dg.DagsterRunStatus.STARTED)
    for each in (first, second, third, other, dg.DagsterRun("__ASSET_JOB", run_id="5" * 8, status=dg.DagsterRunStatus.STARTED)):
        instance.add_run(each)
    assert [is_followed(instance, each) for each in (first, second, third, other)] == [True, True, False, False]
    instance.report_run_canceled(third)
    assert [is_followed(instance, each) for each in (first, second)] == [True, False]
    alone = instance.get_run_by_id("5" * 8)
    assert alone is not None
    assert not is_followed(instance, alone)


def test_a_backfill_judges_its_checks_once(lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[int] = []
    init = RunReport.__init__

    def take(judging: InHand) -> None:
        def counted(checks: Any = CHECKS, *others: Any, **named: Any) -> Any:
            judged.append(len(checks))
            return judging.real.judge(checks, *others, **named)

        judging.instead(judge=counted)

    def followed(self: RunReport, *arguments: Any) -> None:
        # The backfill has made its next run meanwhile.
        instance.add_run(of_backfill("b", "f" * 8, dg.DagsterRunStatus.NOT_STARTED))
        init(self, *arguments)

    held = in_hand("judge_compaction", take)
    instance.add_dynamic_partitions("table_nodes", [key(1), key(2)])
    job = dg.define_asset_job("launched", dg.AssetSelection.assets(COMPACTED_FILES), executor_def=dg.in_process_executor)
    launched = dg.Definitions.merge(defs, dg.Definitions(jobs=[job])).resolve_job_def("launched")

    def launch_one(number: int) -> dg.ExecuteInProcessResult:
        tags = {"dagster/backfill": "b"}
        return launched.execute_in_process(instance=instance, partition_key=key(number), tags=tags, resources=held)

    with monkeypatch.context() as patched:
        patched.setattr(RunReport, "__init__", followed)
        first = launch_one(1)
    assert first.success
    assert (judged, materializations(instance, COMPACTION_RECORDS) != []) == ([], True)
    assert [event for event in first.all_events if event.event_type_value == "ASSET_CHECK_EVALUATION"] == []
    instance.report_run_canceled(next(iter(instance.get_runs(filters=dg.RunsFilter(statuses=[dg.DagsterRunStatus.NOT_STARTED])))))
    assert launch_one(2).success
    assert judged == [len(CHECKS)]
    for check in OFTEN_JUDGED:
        assert instance.event_log_storage.get_asset_check_execution_history(check, limit=100)[0].status.value == "SUCCEEDED"
