"""`check` on real tables: its exit codes, its answer, and what it does when a table cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as XML

import pytest

from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.core.insight.checks.every_check import CHECKS
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.services.tables.refresh_files import Refresh
from compaction_pipeline_tests.cli.conftest import TABLE, Desk
from compaction_pipeline_tests.services.in_hand import InHand


@pytest.fixture
def lake(desk: Desk) -> Desk:
    desk.table(files=2)
    desk.add_catalog()
    return desk


def test_a_healthy_table_passes(lake: Desk) -> None:
    answer = lake.json("check", TABLE, "--fail-on", "warn")
    assert answer["passed"] is True
    assert answer["exit_code"] == 0
    assert [check["check"] for check in answer["checks"]] == [check.name for check in CHECKS]
    assert answer["tables"] == [TABLE]
    assert answer["reason"] == f"all {len(CHECKS)} checks pass"


def test_on_a_new_state_database_small_files_have_no_answer_until_somebody_asks_for_the_table_as_it_is_now(desk: Desk) -> None:
    desk.table(files=12, buckets=(0,))
    desk.add_catalog()
    answer = desk.json("check", TABLE)
    assert [check["check"] for check in answer["checks"] if check["passed"] is None] == ["small_files_left", "due_work_on_time"]
    assert "check --as-of-now" in answer["reason"]
    assert "not evaluated" in desk.type("check", TABLE).stdout
    assert desk.json("check", TABLE, "--strict", code=1)["passed"] is False
    now = desk.json("check", TABLE, "--as-of-now", "--strict", code=1)
    assert [check["check"] for check in now["checks"] if check["passed"] is not True] == ["due_now"]
    assert now["reason"] == f"due_now (ERROR): 1 of 1 nodes fail; {TABLE} bucket=0: MINOR: 12 small data files, and 12 make a MINOR due"
    assert desk.type("compact", TABLE).exit_code == 0
    assert desk.json("check", TABLE, "--as-of-now", "--strict")["reason"] == "all 10 checks pass"


def test_a_catalog_that_is_only_observed_is_judged_as_of_now(desk: Desk) -> None:
    desk.table(files=12)
    desk.add_catalog("--observe")
    assert desk.json("check")["left_alone"] == {TABLE: "catalog lake is only observed"}
    assert desk.json("check", "--as-of-now", code=1)["left_alone"] == {}


def test_a_strict_gate_does_not_pass_over_a_table_that_only_a_look_as_of_now_judges(desk: Desk, tmp_path: Path) -> None:
    desk.table(files=12)
    desk.add_catalog("--observe")
    why = "catalog lake is only observed; --as-of-now judges it"
    answer = desk.json("check", TABLE, "--strict", "--junit", str(tmp_path / "junit.xml"), code=1)
    assert (answer["passed"], answer["unjudged"]) == (False, {TABLE: why})
    assert f"{TABLE} not judged: {why}" in answer["reason"]
    errors = [
        (case.get("name"), error.get("message"))
        for case in XML.parse(tmp_path / "junit.xml").iter("testcase")
        for error in case.iter("error")
    ]
    assert errors == [(f"{TABLE} is judged", why)]
    assert desk.json("check", TABLE, "--as-of-now", "--strict", code=1)["unjudged"] == {}
    assert desk.json("check", TABLE)["unjudged"] == {}


def test_a_strict_gate_does_not_pass_where_there_is_no_table(desk: Desk) -> None:
    desk.add_catalog()
    for words in (("--strict",), ("--strict", "--as-of-now")):
        assert desk.json("check", *words, code=1)["reason"].startswith("catalogs lake not judged: they hold no table; ")
    assert desk.json("check")["passed"] is True


def test_a_path_with_brackets_is_no_markup(lake: Desk) -> None:
    def fails(table: TableIdentifier) -> Refresh:
        raise StorageUnavailable("file /we[/ird]/[errno 2] is away")

    lake.hold("one_table", lambda one_table: one_table.instead(refresh=fails))
    said = lake.type("check", TABLE)
    assert said.exit_code == 1
    assert f"{TABLE} could not be read: file /we[/ird]/[errno 2] is away" in said.stdout


def test_as_of_now_without_a_look_at_the_tables_is_bad_input(lake: Desk) -> None:
    assert "leave out one of the two" in lake.json("check", "--as-of-now", "--no-refresh", code=2)["error"]


def test_a_table_that_was_rolled_back_fails_and_the_answer_says_why(lake: Desk) -> None:
    table = lake.table(name="returns")
    assert lake.type("compact", "lake.shop.returns").exit_code == 0
    before = table.refresh().snapshots()[0].snapshot_id
    table.manage_snapshots().set_current_snapshot(before).commit()
    answer = lake.json("check", code=1)
    (failed,) = [check for check in answer["checks"] if not check["passed"] and check["severity"] == "ERROR"]
    assert failed["check"] == "record_matches_table"
    assert failed["failures"][0]["table"] == "lake.shop.returns"
    assert "not in the history of main" in failed["text"]
    assert answer["reason"].startswith("record_matches_table (ERROR): 1 of 1 tables fail; lake.shop.returns: ")
    assert lake.json("check", TABLE)["passed"] is True


def test_people_see_each_check_and_the_nodes_that_fail(lake: Desk) -> None:
    result = lake.type("check")
    assert result.exit_code == 0
    assert "record_matches_table" in result.stdout
    assert f"all {len(CHECKS)} checks pass" in result.stdout


def test_a_table_that_cannot_be_read_fails_and_the_others_are_judged(lake: Desk) -> None:
    table = lake.table(name="returns")
    Path(table.metadata_location.removeprefix("file://")).unlink()
    answer = lake.json("check", code=1)
    assert list(answer["unread"]) == ["lake.shop.returns"]
    assert "lake.shop.returns could not be read: " in answer["reason"]
    assert lake.json("check", TABLE)["unread"] == {}


def test_without_refresh_only_the_state_database_is_read(lake: Desk) -> None:
    lake.json("check")
    table = lake.lake.load_table("shop.orders")
    Path(table.metadata_location.removeprefix("file://")).unlink()
    assert lake.json("check", "--no-refresh")["passed"] is True


def test_a_table_that_is_left_alone_is_named(lake: Desk) -> None:
    lake.type("table", "list")
    lake.type("pause", TABLE)
    assert lake.json("check")["left_alone"] == {TABLE: "paused"}
    assert f"{TABLE} is left alone: paused" in lake.type("check").stdout


def test_without_a_catalog_no_pipeline_passes(desk: Desk) -> None:
    answer = desk.json("check", code=2)
    assert "no catalog is registered" in answer["error"]


def test_a_table_that_does_not_exist_is_bad_input(lake: Desk) -> None:
    assert lake.json("check", "lake.shop.nothing", code=2)["reason_code"] == "NOT_FOUND"
    assert "nowhere" in lake.json("check", "nowhere.shop.orders", code=2)["error"]


@pytest.mark.parametrize("wrong", ["nowhere.shop.orders", "lake.shop.nothing"])
def test_a_mistyped_name_is_found_before_any_table_is_read(lake: Desk, wrong: str) -> None:
    lake.type("table", "list")
    refreshed: list[str] = []

    def take(one_table: InHand) -> None:
        def noted(table: TableIdentifier) -> Refresh:
            refreshed.append(str(table))
            refresh: Refresh = one_table.real.refresh(table)
            return refresh

        one_table.instead(refresh=noted)

    lake.hold("one_table", take)
    assert wrong in lake.json("check", TABLE, wrong, code=2)["error"]
    assert TABLE not in refreshed


def test_a_junit_report_is_written(lake: Desk, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    lake.json("check", "--junit", str(report))
    cases = [case.get("name") for case in XML.parse(report).getroot().iter("testcase")]
    assert cases == [check.name for check in CHECKS]


def test_a_wrong_file_of_addresses_is_an_error_and_an_unknown_owner_a_warning(lake: Desk, tmp_path: Path) -> None:
    file = tmp_path / "notices.yaml"
    file.write_text("administrator: json://user:secret@host")
    file.chmod(0o640)
    refused = lake.type("check", TABLE, COMPACTION_NOTICES_FILE=str(file))
    assert refused.exit_code == 2
    assert "did you mean 'administrators'?" in " ".join(refused.stderr.split())
    assert "secret" not in refused.stderr
    file.write_text("ann: json://user:secret@host")
    passed = lake.type("check", TABLE, COMPACTION_NOTICES_FILE=str(file))
    assert passed.exit_code == 0
    assert "warning: 'ann' of" in passed.stderr
    doctor = json.loads(lake.type("doctor", "--json", COMPACTION_NOTICES_FILE=str(file)).stdout)
    (found,) = [each["found"] for each in doctor["findings"] if each["subject"] == "notices file"]
    assert "'ann' of" in found
    assert file.stat().st_mode & 0o777 == 0o640, "another user than the server's may run a command"
    assert "secret" not in found
