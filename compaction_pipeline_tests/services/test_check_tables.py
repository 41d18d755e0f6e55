"""The checks on a table that is written to all the time, while the program works and while it does not."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.fragmentation.verdict import NodeState
from compaction_pipeline.core.insight.checks.gate import Checked
from compaction_pipeline.core.insight.checks.judgement import Severity
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.serving import serving


def write(table: LakeTable, first: int, files: int = 12) -> None:
    """Commit small files with one row each."""
    row_delta(table.table, table.one_row_files({"id": one, "name": "more"} for one in range(first, first + files)))


def tick(house: House) -> None:
    """What the sensors and a draining run do in half a minute."""
    work = house.services.sweep_tables
    work.sweep(None, timedelta(seconds=20))
    work.plan_due(house.services.tables_in_line.worth_planning(), timedelta(seconds=20))
    house.services.compact_tables.carry_out({}, serving(until=lambda: False, linger=timedelta(0)))
    house.pass_time(30)


def failing(house: House) -> Mapping[str, str]:
    """The failed checks and their texts, without a look at the table."""
    results = house.services.check_tables.check(refresh=False).results
    return {result.check.name: result.judgement.text for result in results if result.failed}


def test_no_check_ever_fails_while_writers_and_the_program_are_busy(house: House) -> None:
    table = house.fragmented()
    seen: set[str] = set()
    for turn in range(5):
        write(table, 100 * (turn + 1))
        work = house.services.sweep_tables
        work.sweep(None, timedelta(seconds=20))
        [state] = house.services.stores.tables.nodes(table.identifier)
        seen.add("due" if state.small_since is not None else "not due")
        assert failing(house) == {}
        tick(house)
        assert failing(house) == {}
    assert seen == {"due"}
    assert house.services.read_records.newest()


def test_when_nothing_plans_any_more_the_small_files_warn_first_and_then_the_work_is_late(house: House) -> None:
    table = house.fragmented()
    tick(house)
    write(table, 100)
    house.services.one_table.refresh(table.identifier)
    assert failing(house) == {}
    house.pass_time(5 * 60)
    assert set(failing(house)) == {"small_files_left"}
    house.pass_time(60 * 60)
    said = failing(house)
    assert set(said) == {"small_files_left", "due_work_on_time"}
    assert "due work has waited for 1 h 5 min, and 1 h are allowed" in said["due_work_on_time"]


def test_work_that_waits_in_a_queue_that_nobody_drains_is_late_although_it_is_planned(house: House) -> None:
    table = house.fragmented()
    house.services.one_table.refresh(table.identifier)
    assert house.services.plan_tables.plan(table.identifier).tasks
    house.pass_time(2 * 60 * 60)
    assert set(failing(house)) == {"due_work_on_time", "queue_keeps_up"}


def test_a_table_that_was_fragmented_before_anybody_looked_at_it_is_late_at_once(house: House) -> None:
    house.fragmented()
    house.pass_time(2 * 60 * 60)
    results = house.services.check_tables.check().results
    assert [result.check.name for result in results if result.failed] == ["due_work_on_time"]


def test_after_a_compaction_every_check_passes(house: House) -> None:
    table = house.fragmented()
    house.pass_time(2 * 60 * 60)
    assert house.services.compact_tables.compact(table.identifier).committed
    found = house.services.check_tables.check([table.identifier])
    assert {result.check.name: result.judgement.text for result in found.results if not result.passed} == {}
    assert (found.unread, found.left_alone) == ({}, {})


def test_tables_that_nobody_compacts_are_named_and_not_judged(house: House) -> None:
    table = house.fragmented(self_optimizing__enabled="false")
    house.pass_time(2 * 60 * 60)
    found = house.services.check_tables.check()
    assert found.left_alone == {table.identifier: "'self-optimizing.enabled' is false"}
    assert all(result.passed for result in found.results)


def test_a_question_about_nothing_is_an_error(house: House) -> None:
    with pytest.raises(NotFoundError):
        house.services.check_tables.check([TableIdentifier("lake", ("db",), "nothing")])
    house.services.stores.catalogs.remove("lake")
    with pytest.raises(ConfigError, match="no catalog is registered"):
        house.services.check_tables.check()


# ---- a new state database, as a CI runner has


def answers(checked: Checked) -> Mapping[str, str]:
    """What the checks that judge small files say, in a word."""
    return {
        result.check.name: "not evaluated" if not result.evaluated else "passes" if result.passed else "fails"
        for result in checked.results
        if result.check.name in ("small_files_left", "due_work_on_time", "due_now")
    }


def test_without_a_history_nobody_says_that_small_files_lie_there_for_a_short_time(house: House) -> None:
    house.fragmented(files=50)
    found = house.services.check_tables.check()
    assert answers(found) == {"small_files_left": "not evaluated", "due_work_on_time": "not evaluated"}
    assert found.passes(Severity.WARN)
    said = "no check fails, and 13 of 15 checks pass; not evaluated: small_files_left, due_work_on_time (lake.db.t unpartitioned: "
    assert found.text(Severity.ERROR).startswith(said)
    assert "check --as-of-now" in found.text(Severity.ERROR)
    strict = house.services.check_tables.check(strict=True)
    assert not strict.passes(Severity.ERROR)
    assert "due_work_on_time is not evaluated: lake.db.t " in strict.text(Severity.ERROR)


def test_without_a_history_healthy_tables_pass_because_there_is_nothing_to_judge(house: House) -> None:
    house.fragmented(files=2)
    found = house.services.check_tables.check(strict=True)
    assert answers(found) == {"small_files_left": "passes", "due_work_on_time": "passes"}
    assert found.passes(Severity.WARN)


def test_as_of_now_a_due_node_fails_at_once_and_a_healthy_one_passes(house: House) -> None:
    table = house.fragmented(files=50)
    found = house.services.check_tables.check([table.identifier], as_of_now=True, strict=True)
    assert answers(found) == {"due_now": "fails"}
    assert found.text(Severity.ERROR) == (
        "due_now (ERROR): 1 of 1 nodes fail; lake.db.t unpartitioned: MINOR: 50 small data files, and 12 make a MINOR due"
    )
    assert house.services.stores.tasks.tasks() == ()
    assert house.services.compact_tables.compact(table.identifier).committed
    found = house.services.check_tables.check([table.identifier], as_of_now=True, strict=True)
    assert answers(found) == {"due_now": "passes"}
    assert found.passes(Severity.WARN)


def test_as_of_now_deleted_rows_count_and_intervals_do_not(house: House) -> None:
    house.fragmented("by_interval", files=2, self_optimizing__minor__trigger__interval="1")
    house.pass_time(60 * 60)
    house.services.check_tables.check()
    house.pass_time(60 * 60)
    assert answers(house.services.check_tables.check(as_of_now=True)) == {"due_now": "passes"}
    table = house.fragmented("by_deletes", files=3, self_optimizing__minor__trigger__file_count="4")
    for deleted in (0, 0, 1, 1):
        assert answers(house.services.check_tables.check([table.identifier], as_of_now=True)) == {"due_now": "passes"}
        table.delete_ids(deleted)
    assert answers(house.services.check_tables.check([table.identifier], as_of_now=True)) == {"due_now": "fails"}


def test_as_of_now_neither_open_tasks_nor_a_missing_group_nor_observing_hide_a_due_node(tmp_path: Path) -> None:
    (tmp_path / "observed").mkdir()
    (tmp_path / "busy").mkdir()
    house = House(tmp_path / "observed", observe=True)
    table = house.fragmented(self_optimizing__group="elsewhere")
    found = house.services.check_tables.check([table.identifier], as_of_now=True)
    assert (answers(found), found.left_alone) == ({"due_now": "fails"}, {})
    house.services.close()
    busy = House(tmp_path / "busy")
    table = busy.fragmented()
    busy.services.one_table.refresh(table.identifier)
    assert busy.services.plan_tables.plan(table.identifier).tasks
    assert answers(busy.services.check_tables.check(as_of_now=True)) == {"due_now": "fails"}
    busy.services.close()


def test_as_of_now_a_table_that_is_left_alone_is_not_judged_and_one_that_cannot_be_read_has_no_answer(house: House) -> None:
    paused, broken = house.fragmented("paused"), house.fragmented("broken")
    house.services.explore_catalogs.pause(paused.identifier)
    Path(broken.table.metadata_location.removeprefix("file://")).unlink()
    found = house.services.check_tables.check(as_of_now=True)
    assert answers(found) == {"due_now": "not evaluated"}
    assert found.left_alone == {paused.identifier: "paused"}
    assert list(found.unread) == ["lake.db.broken"]
    assert not found.passes(Severity.ERROR)


def test_a_look_at_the_tables_as_they_are_now_needs_a_look_at_the_tables(house: House) -> None:
    with pytest.raises(ConfigError, match="leave one of them out"):
        house.services.check_tables.check(refresh=False, as_of_now=True)


# ---- the facts behind the checks


def only_node(house: House, table: LakeTable) -> NodeState:
    [state] = house.services.stores.tables.nodes(table.identifier)
    return state


def test_small_files_count_from_the_commit_that_brought_enough_of_them(house: House) -> None:
    table = house.fragmented(files=3)
    house.services.one_table.refresh(table.identifier)
    assert only_node(house, table).small_since is None
    house.pass_time(-60)  # The commit comes after the look.
    write(table, 100)
    committed = datetime.fromtimestamp(table.head().ancestors[0].timestamp_ms / 1000, timezone.utc)
    house.pass_time(60 * 60)
    house.services.one_table.refresh(table.identifier)
    since = only_node(house, table).small_since
    assert since == committed
    write(table, 200)
    house.services.one_table.refresh(table.identifier)
    assert only_node(house, table).small_since == since
    assert house.services.compact_tables.compact(table.identifier).committed
    house.services.one_table.look_again(table.identifier)
    assert only_node(house, table).small_since is None


def test_work_that_plans_find_again_and_again_is_due_since_the_first(house: House) -> None:
    table = house.fragmented()
    house.services.one_table.refresh(table.identifier)
    planned_at = house.now
    for _ in range(3):
        house.services.plan_tables.plan(table.identifier)
        verdict = only_node(house, table).verdict
        assert verdict is not None
        assert verdict.since == planned_at
        house.pass_time(61)
    tick(house)
    house.services.one_table.look_again(table.identifier)
    verdict = only_node(house, table).verdict
    assert verdict is not None
    assert verdict.since is None
