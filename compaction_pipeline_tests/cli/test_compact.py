"""`plan` and `compact`, end to end on real tables and a real state database."""

from __future__ import annotations

import io
import logging
import os
import re
import shutil
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.iceberg.commit.committer import IcebergCommitter
from compaction_pipeline.storage.tasks import SqlTaskStore
from compaction_pipeline_tests.cli.conftest import TABLE, Desk
from compaction_pipeline_tests.cli.records import KEYS
from compaction_pipeline_tests.held_leases import HeldForAMoment
from compaction_pipeline_tests.opened import opened

OUT_OF_BOUNDS = (
    "lake.shop.orders: 'self-optimizing.fragment-ratio' is 1 but must be ≥ 2 and < 2^31; "
    "the table sets it: ALTER TABLE shop.orders SET TBLPROPERTIES ('self-optimizing.fragment-ratio' = '…')"
)


def test_compact_merges_what_is_due_and_answers_one_object(desk: Desk) -> None:
    table = desk.table(files=12)
    desk.delete(table, bucket=0, row_id=10)
    desk.add_catalog()

    answer = desk.json("compact", TABLE)

    assert set(answer) >= KEYS
    assert (answer["table"], answer["tasks"], answer["committed"], answer["conflicts"]) == (TABLE, 2, 2, 0)
    assert (answer["files_before"], answer["files_after"]) == (24, 2)
    assert (answer["delete_files_before"], answer["delete_files_after"]) == (1, 0)
    assert answer["bytes_after"] < answer["bytes_before"]
    assert (answer["rows"], answer["rows_deleted"], answer["reason"]) == (23, 1, None)
    head = table.refresh().current_snapshot()
    assert head is not None
    assert answer["snapshot_after"] == head.snapshot_id
    assert answer["snapshot_before"] == head.parent_snapshot_id
    assert desk.ids(table) == sorted({number * 10 + bucket for number in range(12) for bucket in (0, 1)} - {10})


def test_nothing_to_do_is_success_with_a_reason(desk: Desk) -> None:
    desk.table(files=2)
    desk.add_catalog()
    answer = desk.json("compact", TABLE)
    assert (answer["tasks"], answer["committed"]) == (0, 0)
    assert answer["snapshot_before"] == answer["snapshot_after"] is not None
    assert answer["files_before"] == answer["files_after"] == 4
    assert answer["reason"]


def test_people_see_the_record(desk: Desk) -> None:
    desk.table(files=12)
    desk.add_catalog()
    result = desk.type("compact", TABLE)
    assert result.exit_code == 0
    assert "2 committed of 2" in result.stdout
    assert "24 → 2" in result.stdout


def test_a_type_ignores_thresholds_and_where_limits_it(desk: Desk) -> None:
    table = desk.table(files=3)
    desk.add_catalog()
    answer = desk.json("compact", TABLE, "--type", "full", "--where", "bucket=1")
    assert (answer["tasks"], answer["committed"]) == (1, 1)
    assert (answer["files_before"], answer["files_after"]) == (6, 4)
    assert len(desk.ids(table)) == 6


def test_where_that_fits_nothing_is_bad_input_and_lists_the_partitions(desk: Desk) -> None:
    desk.table(files=1)
    desk.add_catalog()
    unknown = desk.type("compact", TABLE, "--where", "day=2024-01-01")
    assert unknown.exit_code == 2
    assert "the partition fields are bucket" in unknown.stderr
    none = desk.json("compact", TABLE, "--where", "bucket=9", code=2)
    assert "bucket=0, bucket=1" in none["error"]


def test_a_table_that_another_process_merges_gives_nothing_to_do_and_its_own_code(desk: Desk) -> None:
    desk.table(files=12)
    desk.add_catalog()
    services = opened()
    services.one_table.plan_nodes(TableIdentifier.parse(TABLE), PlanRequest())
    taken = []
    while task := services.stores.tasks.poll(None, "process 7 on elsewhere#1", services.clock(), timedelta(minutes=1)):
        taken.append(task.task_id)
    services.close()
    answer = desk.json("compact", TABLE)
    assert (answer["reason_code"], answer["tasks"]) == ("FILES_IN_USE", 0)
    who = rf"process 7 on elsewhere is merging 2 tasks of {TABLE} \(its lease ends at [0-9:]{{8}} UTC unless renewed\)"
    assert re.fullmatch(f"{who}; 2 nodes are held by tasks {', '.join(sorted(taken))}; run again after that", answer["reason"])
    assert answer["held"] == answer["reason"]


def test_a_compaction_beside_another_process_says_which_nodes_it_left(desk: Desk) -> None:
    table = desk.table(files=12)
    desk.add_catalog()
    services = opened()
    services.one_table.plan_nodes(TableIdentifier.parse(TABLE), PlanRequest())
    task = services.stores.tasks.poll(None, "process 7 on elsewhere#1", services.clock(), timedelta(minutes=1))
    services.close()
    assert task is not None
    held = f"1 node is held by task {task.task_id}; run again after that"
    answer = desk.json("compact", TABLE, "--type", "full")
    assert (answer["tasks"], answer["committed"], answer["reason"]) == (1, 1, None)
    assert answer["held"].endswith(held)
    assert "process 7 on elsewhere is merging 1 task" in answer["held"]
    desk.append(table, 2, (0, 1), first=100)
    said = " ".join(desk.type("compact", TABLE, "--type", "full").stdout.split())
    assert "committed of" in said
    assert held in said


def test_a_compaction_without_others_says_nothing_of_them(desk: Desk) -> None:
    desk.table(files=12)
    desk.add_catalog()
    assert desk.json("compact", TABLE)["held"] is None


@pytest.mark.parametrize("what", ["plan", "refresh", "commit"])
def test_a_lease_that_a_sensor_holds_for_a_moment_is_waited_for(desk: Desk, what: str) -> None:
    desk.table(files=12)
    desk.add_catalog()
    held = HeldForAMoment(f"{what}:{TABLE}")
    desk.hold("leases", held)
    answer = desk.json("compact", TABLE)
    assert (answer["tasks"], answer["committed"]) == (2, 2)
    assert held.refused == [f"{what}:{TABLE}"]


def test_a_dry_run_changes_nothing(desk: Desk) -> None:
    table = desk.table(files=12)
    desk.add_catalog()
    before = table.refresh().metadata_location
    answer = desk.json("compact", TABLE, "--dry-run")
    assert answer["dry_run"]
    assert (answer["tasks"], answer["committed"]) == (2, 0)
    assert answer["files_before"] == answer["files_after"] == 24
    assert {**answer["plan"], "observe": False, "paused": False} == desk.json("plan", TABLE)
    assert [task["predicted_files"] for task in answer["plan"]["tasks"]] == [1, 1]
    assert table.refresh().metadata_location == before
    assert desk.json("record", "list") == []
    assert desk.json("status")["queue"]["pending"] == 0


def test_plan_shows_the_tasks_and_why_the_others_are_left_alone(desk: Desk) -> None:
    table = desk.table(files=12, buckets=(0,))
    desk.append(table, 2, buckets=(1,), first=20)
    desk.add_catalog()
    answer = desk.json("plan", TABLE)
    assert [task["node"] for task in answer["tasks"]] == ["bucket=0"]
    alone = {node["node"]: node["reason"] for node in answer["nodes"] if not node["planned"]}
    assert set(alone) == {"bucket=1"}
    assert "2" in alone["bucket=1"]
    people = desk.type("plan", TABLE)
    assert people.exit_code == 0
    assert "left alone" in people.stdout
    assert "bucket=1" in people.stdout


def test_an_observed_catalog_is_planned_and_never_compacted(desk: Desk) -> None:
    table = desk.table(files=12)
    desk.add_catalog("--observe")
    before = table.refresh().metadata_location
    plan = desk.json("plan", TABLE)
    assert plan["tasks"]
    assert (plan["paused"], plan["observe"]) == (False, True)
    shown = desk.type("plan", TABLE).stdout
    assert shown.startswith("catalog lake is only observed: `compact` does nothing before `catalog change lake --no-observe`\n")
    assert desk.json("compact", TABLE, "--dry-run")["tasks"] == 2
    answer = desk.json("compact", TABLE, code=4)
    assert "only observed" in answer["reason"]
    assert answer["error"] == answer["reason"]
    assert (answer["committed"], answer["exit_code"]) == (0, 4)
    assert desk.json("compact", TABLE, "--type", "full", code=4)["committed"] == 0
    assert table.refresh().metadata_location == before


def test_a_paused_table_waits_for_resume(desk: Desk) -> None:
    desk.table(files=12)
    desk.add_catalog()
    assert desk.type("pause", TABLE).exit_code == 0
    answer = desk.json("compact", TABLE, code=4)
    assert "paused" in answer["reason"]
    assert (answer["paused"], answer["reason_code"]) == (True, "PAUSED")
    assert f"{TABLE} is paused: `compact` does nothing before `resume`\n" in desk.type("plan", TABLE).stdout
    assert f"{TABLE} (paused)" in desk.type("table", "show", TABLE).stdout
    assert desk.type("resume", TABLE).exit_code == 0
    answer = desk.json("compact", TABLE)
    assert (answer["committed"], answer["paused"]) == (2, False)


def test_a_refused_table_says_why(desk: Desk) -> None:
    desk.table(files=12, **{"table-format": "MIXED_ICEBERG"})
    desk.add_catalog()
    answer = desk.json("compact", TABLE, code=4)
    assert answer["reason"]
    assert answer["error"] == answer["reason"]
    assert answer["committed"] == 0
    assert desk.json("table", "show", TABLE)["health"] == "REFUSED"
    assert "not read yet" not in desk.type("table", "list").stderr
    assert desk.type("plan", TABLE).exit_code == 4


def test_a_property_out_of_bounds_is_bad_input_and_stops_that_table_only(desk: Desk) -> None:
    desk.table(files=12, **{"self-optimizing.fragment-ratio": "1"})
    desk.table(files=12, name="devices")
    desk.add_catalog()
    answer = desk.json("compact", TABLE, code=2)
    assert answer["reason"] == answer["error"] == OUT_OF_BOUNDS
    assert desk.json("compact", "lake.shop.devices")["committed"] == 2


def test_a_property_out_of_bounds_of_the_catalog_keeps_it_from_being_added(desk: Desk) -> None:
    refused = desk.add_catalog("-p", "table.self-optimizing.fragment-ratio=1")
    assert refused.exit_code == 2
    assert "'table.self-optimizing.fragment-ratio' is 1 but must be ≥ 2 and < 2^31" in refused.stderr
    assert desk.json("catalog", "list") == []


def test_a_missing_data_file_fails_at_once_and_says_which(desk: Desk) -> None:
    table = desk.table(files=12)
    desk.add_catalog()
    gone = next(
        Path(file["file_path"].removeprefix("file://"))
        for file in table.refresh().inspect.files().to_pylist()
        if "-0.p" in file["file_path"]
    )
    gone.unlink()
    answer = desk.json("compact", TABLE, code=3)
    assert gone.name in answer["reason"]
    assert answer["committed"] == 1
    assert len(answer["failed"]) == 1
    assert answer["error"] == answer["reason"]
    people = desk.type("compact", TABLE, "--type", "full", "--where", "bucket=0")
    assert "tried again" not in people.stderr
    assert people.stderr.count(gone.name) == 1
    only_bad = desk.json("compact", TABLE, "--type", "full", "--where", "bucket=0", code=1)
    assert only_bad["committed"] == 0
    assert gone.name in only_bad["reason"]


@pytest.mark.parametrize("table", ["lake.shop.nope", "nowhere.shop.orders", "orders", "lake..orders"])
def test_a_table_that_is_not_there_is_bad_input(desk: Desk, table: str) -> None:
    desk.add_catalog()
    assert desk.json("compact", table, code=2)["error"]
    assert desk.json("plan", table, code=2)["exit_code"] == 2


def test_a_catalog_that_is_gone_fails_in_one_sentence(desk: Desk) -> None:
    desk.table(files=1)
    desk.add_catalog()
    (desk.folder / "catalog.db").unlink()
    shutil.rmtree(desk.folder / "warehouse")
    result = desk.type("compact", TABLE)
    assert result.exit_code == 2
    assert desk.type("plan", TABLE).exit_code == desk.type("table", "list", "--refresh").exit_code == 2
    assert desk.type("check", TABLE).exit_code == desk.type("check").exit_code == 1  # A table that cannot be read fails a check.
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.output


def test_an_error_that_ends_it_has_a_code_for_programs(desk: Desk) -> None:
    table = desk.table(files=2)
    desk.add_catalog()
    answer = desk.json("compact", "lake.shop.nothing", code=2)
    assert (answer["reason_code"], answer["exit_code"], answer["table"]) == ("NOT_FOUND", 2, "lake.shop.nothing")
    os.remove(table.metadata_location.removeprefix("file://"))
    assert desk.json("compact", TABLE, code=1)["reason_code"] == "UNAVAILABLE"


# ---- interrupts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_reported_and_leaves_the_table_free_for_the_next(desk: Desk, number: int) -> None:
    table = desk.table(files=12)
    desk.add_catalog()
    with desk.meanwhile(lambda: signal.raise_signal(number)):
        people = desk.type("compact", TABLE, "--quiet")
    assert people.exit_code == 130
    assert (people.stdout, people.stderr) == ("", "error: interrupted; nothing was committed; run the command again\n")
    with desk.meanwhile(lambda: signal.raise_signal(number)):
        answer = desk.json("compact", TABLE, code=130)
    assert (answer["error"], answer["exit_code"]) == ("interrupted; nothing was committed; run the command again", 130)
    assert answer["reason_code"] == "INTERRUPTED"
    assert (answer["tasks"], answer["committed"], answer["files_after"]) == (2, 0, 24)
    assert desk.json("compact", TABLE)["committed"] == 2
    assert len(desk.ids(table)) == 24


def test_an_interrupt_reports_merged_work_that_is_kept_and_the_next_command_commits_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    table = desk.table(files=12)
    desk.add_catalog()
    complete = SqlTaskStore.complete

    def landed(*arguments: Any) -> object:
        complete(*arguments)
        return signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(SqlTaskStore, "complete", landed)
        answer = desk.json("compact", TABLE, code=130)
    kept = "1 merged task is kept: the next `compact` or tick commits it"
    assert answer["error"] == f"interrupted; nothing was committed; {kept}; run the command again"
    assert desk.json("compact", TABLE)["committed"] == 2
    assert len(desk.ids(table)) == 24


def test_the_command_after_an_interrupt_distinguishes_merged_work_that_it_found_from_its_own(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = desk.table(files=12)
    desk.add_catalog()
    complete = SqlTaskStore.complete

    def landed(*arguments: Any) -> object:
        complete(*arguments)
        return signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(SqlTaskStore, "complete", landed)
        assert desk.type("compact", TABLE, "--type", "full").exit_code == 130
    told = desk.type("compact", TABLE, "--type", "full").stdout
    newest, oldest = (record["record_id"] for record in desk.json("record", "list"))
    before, of_this = told.split(f"record {newest}")
    assert f"record {oldest} commits 1 task, merged before this command began:" in before
    assert "1 committed of 1" in before
    assert "1 committed of 1" in of_this
    assert "merged before" not in of_this
    assert len(desk.ids(table)) == 24


def test_a_commit_that_is_cut_before_the_table_changes_says_where_its_tasks_went(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    table = desk.table(files=12)
    desk.add_catalog()

    def cut(*arguments: Any) -> object:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("was not cut")

    with monkeypatch.context() as patch:
        patch.setattr(IcebergCommitter, "commit", cut)
        assert desk.type("compact", TABLE, "--type", "full").exit_code == 130
    told = desk.type("compact", TABLE, "--type", "full").stdout
    newest, oldest = desk.json("record", "list")
    assert (newest["status"], len(newest["committed_task_ids"])) == ("COMMITTED", 2)
    assert oldest["status"] == "FAILED"
    assert oldest["reason"].startswith("cut off before the table was changed (")
    assert oldest["reason"].endswith("; what it would have committed goes into a later record")
    assert f"record {newest['record_id']} commits 2 tasks, merged before this command began:" in told
    assert f"record {oldest['record_id']}" not in told
    assert len(desk.ids(table)) == 24


def test_an_interrupt_lets_a_commit_end_and_reports_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    table = desk.table(files=12)
    desk.add_catalog()
    commit = IcebergCommitter.commit

    def interrupted(*arguments: Any) -> object:
        signal.raise_signal(signal.SIGINT)
        return commit(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(IcebergCommitter, "commit", interrupted)
        answer = desk.json("compact", TABLE, code=130)
    [record] = desk.json("record", "list")
    assert (record["status"], record["ended_at"] is not None) == ("COMMITTED", True)
    assert answer["error"] == f"interrupted; nothing more was committed after {record['record_id']}; run the command again"
    assert (answer["committed"], answer["files_before"], answer["files_after"]) == (2, 24, 2)
    assert len(desk.ids(table)) == 24


def test_a_commit_that_a_second_interrupt_cuts_off_is_settled_by_the_next_command(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    table = desk.table(files=12)
    desk.add_catalog()
    commit = IcebergCommitter.commit

    def cut(*arguments: Any) -> object:
        signal.raise_signal(signal.SIGINT)
        commit(*arguments)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("was not cut")

    with monkeypatch.context() as patch:
        patch.setattr(IcebergCommitter, "commit", cut)
        answer = desk.json("compact", TABLE, code=130)
    assert "it reads the table to find out how that ended" in answer["error"]
    assert (answer["snapshot_after"], answer["files_after"]) == (None, None)
    assert desk.json("compact", TABLE)["files_after"] == 2
    assert [record["status"] for record in desk.json("record", "list")] == ["COMMITTED"]
    assert len(desk.ids(table)) == 24


def test_an_interrupt_of_any_command_is_one_sentence(desk: Desk) -> None:
    desk.hold("read_status", lambda status: status.instead(status=lambda: signal.raise_signal(signal.SIGINT)))
    result = desk.type("status")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "error: interrupted; run the command again\n")
    interrupted = {"error": "interrupted; run the command again", "exit_code": 130, "reason_code": "INTERRUPTED"}
    assert desk.json("status", code=130) == interrupted


def test_an_interrupt_during_a_call_of_java_shows_no_stack_of_py4j(desk: Desk) -> None:
    root, handler = logging.getLogger(), logging.StreamHandler()
    root.addHandler(handler)
    try:
        for flags, lines in (((), 0), (("--verbose",), 1)):
            handler.setStream(io.StringIO())
            desk.type("status", *flags)
            root.error("KeyboardInterrupt while sending command.")
            root.error("another")
            assert len(handler.stream.getvalue().splitlines()) == lines + 1
    finally:
        root.removeHandler(handler)


# ---- messages and logs -----------------------------------------------------------------------------------------------


def test_each_step_is_logged(desk: Desk) -> None:
    desk.table(files=12)
    desk.add_catalog()
    assert desk.type("compact", TABLE).stderr.splitlines() == [
        f"{TABLE}: 2 tasks planned",
        "task 1 of 2 merged (bucket=0)",
        "task 2 of 2 merged (bucket=1)",
    ]


def test_an_unparsable_spark_address_is_bad_input_and_plans_nothing(desk: Desk) -> None:
    desk.table(files=12)
    desk.add_catalog()
    bogus = {"COMPACTION_MERGE_ENGINE": "spark", "COMPACTION_SPARK_MASTER": "bogus://x"}
    result = desk.type("compact", TABLE, **bogus)
    assert result.exit_code == 2
    (said,) = result.stderr.splitlines()
    assert said.startswith("error: COMPACTION_SPARK_MASTER is 'bogus://x' but must be local[*], ")
    doctor = desk.type("doctor", **bogus)
    assert (doctor.exit_code, doctor.stderr.splitlines()) == (2, [said])
    assert desk.json("status")["queue"] | {"canceled": 0} == dict.fromkeys(
        ("pending", "paused", "executing", "prepared", "committed", "failed", "canceled", "retrying", "replaced"), 0
    )
    assert desk.json("compact", TABLE)["committed"] == 2


def test_a_compacted_table_is_healthy_at_once(desk: Desk) -> None:
    desk.table(files=12)
    desk.add_catalog()
    desk.json("compact", TABLE)
    now = desk.json("status")
    assert now["due"] == 0
    assert [node["health"] for node in now["worst_nodes"]] == ["HEALTHY", "HEALTHY"]
    assert (now["tables"][0]["health"], now["tables"][0]["data_files"]) == ("HEALTHY", 2)


def test_nodes_that_were_not_asked_for_are_one_line(desk: Desk) -> None:
    desk.table(files=12, buckets=(0, 1, 2, 3))
    desk.add_catalog()
    people = desk.type("plan", TABLE, "--where", "bucket=1").stdout
    assert "after it in the nodes asked for: 1 data file, 0 delete files" in people
    assert "not asked for" not in people.replace("other nodes not asked for", "")
    assert "does not name" not in people
    assert "bucket=2" not in people


def test_a_failure_shows_on_its_node_though_no_sensor_runs(desk: Desk) -> None:
    table = desk.table(files=12)
    desk.add_catalog()
    damaged = next(row["file_path"] for row in table.inspect.files().to_pylist() if row["partition"]["bucket"] == 0)
    Path(damaged.removeprefix("file://")).write_bytes(b"PAR1 this is no Parquet file PAR1")
    answer = desk.json("compact", TABLE, code=3)
    assert (answer["committed"], len(answer["failed"])) == (1, 1)
    worst = desk.json("status")["worst_nodes"][0]
    assert (worst["health"], worst["node"]) == ("FAILING", "bucket=0")
    assert damaged.rsplit("/", 1)[1] in worst["reason"]


def test_a_dry_run_of_a_paused_table_says_that_it_is_paused(desk: Desk) -> None:
    desk.table()
    desk.add_catalog()
    desk.type("pause", TABLE)
    answer = desk.json("compact", TABLE, "--dry-run")
    assert (answer["paused"], answer["dry_run"], answer["tasks"] > 0) == (True, True, True)
    assert "the table is paused: `compact` does nothing before `resume`" in answer["reason"]
    assert f"{TABLE} is paused" in desk.type("compact", TABLE, "--dry-run").stdout
    desk.type("resume", TABLE)
    assert not desk.json("compact", TABLE, "--dry-run")["paused"]


def test_adding_a_catalog_prints_how_many_tables_and_namespaces_it_has(desk: Desk) -> None:
    desk.table()
    assert "1 table in 1 namespace" in desk.add_catalog().stdout


def test_snapshot_properties_go_into_the_snapshots_of_the_commit(desk: Desk) -> None:
    table = desk.table()
    desk.add_catalog()
    desk.json("compact", TABLE, "--snapshot-property", "requested-by=nightly", "--snapshot-property", "ticket=4=2")
    snapshot = table.refresh().metadata.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert (snapshot.summary["requested-by"], snapshot.summary["ticket"]) == ("nightly", "4=2")
    assert snapshot.summary["compaction-pipeline.record-id"]


def test_snapshot_properties_stay_with_merged_work_that_another_command_commits(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    table = desk.table()
    desk.add_catalog()
    with monkeypatch.context() as away:
        away.setattr(IcebergCommitter, "commit", _raising(StorageUnavailable("the catalog is away")))
        assert desk.type("compact", TABLE, "--snapshot-property", "requested-by=nightly").exit_code == 1
    assert desk.json("compact", TABLE)["committed"] == 2
    snapshot = table.refresh().metadata.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["requested-by"] == "nightly"


def _raising(error: Exception) -> Callable[..., object]:
    def fail(*arguments: object) -> object:
        raise error

    return fail


def test_a_reserved_snapshot_property_is_bad_input_and_nothing_is_done(desk: Desk) -> None:
    table = desk.table()
    desk.add_catalog()
    before = table.refresh().metadata.current_snapshot_id
    answer = desk.json("compact", TABLE, "--snapshot-property", "total-records=7", code=2)
    assert "snapshot property 'total-records' is '7' but keys that begin with 'total-' are reserved" in answer["reason"]
    assert table.refresh().metadata.current_snapshot_id == before


@pytest.mark.parametrize("command", [("compact", TABLE), ("compact", TABLE, "--dry-run"), ("plan", TABLE)])
def test_a_property_out_of_bounds_is_an_error_on_stderr_for_people(desk: Desk, command: tuple[str, ...]) -> None:
    desk.table(**{"self-optimizing.fragment-ratio": "1"})
    desk.add_catalog()
    result = desk.type(*command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"error: {OUT_OF_BOUNDS}\n"


def test_the_record_of_a_partly_failed_compaction_shows_what_failed(desk: Desk) -> None:
    table = desk.table(files=12)
    desk.add_catalog()
    damaged = next(row["file_path"] for row in table.inspect.files().to_pylist() if row["partition"]["bucket"] == 0)
    Path(damaged.removeprefix("file://")).write_bytes(b"PAR1 this is no Parquet file PAR1")
    answer = desk.json("compact", TABLE, code=3)
    [failed] = answer["failed"]
    name = damaged.rsplit("/", 1)[1]
    [record] = answer["records"]
    shown = desk.json("record", "show", record)
    assert (len(shown["committed_task_ids"]), list(shown["failed"])) == (1, [failed])
    assert name in shown["failed"][failed]
    people = desk.type("record", "show", record).stdout
    assert "1 committed of 2, 0 conflicts, 1 failed" in people
    assert f"failed {failed}" in people
    listed = " ".join(desk.type("record", "list").stdout.split())
    assert "1/2" in listed
    assert "1 task(s) failed" in listed


def test_status_says_that_a_table_changed_since_it_was_found_to_need_nothing(desk: Desk) -> None:
    table = desk.table(files=12, buckets=(0,))
    desk.add_catalog()
    desk.json("compact", TABLE)
    assert desk.json("status")["tables"][0]["health"] == "HEALTHY"
    for number in range(12):
        desk.delete(table, 0, 1_000 + number)
    desk.json("table", "list", "--refresh")
    now = desk.json("status")
    assert (now["tables"][0]["health"], now["worst_nodes"][0]["health"]) == ("WAITING", "WAITING")
    for reason in (now["tables"][0]["reason"], now["worst_nodes"][0]["reason"]):
        assert "; its files changed since, and `plan`, or the next tick, says what is due now" in reason
        assert "no node has 12" not in reason
