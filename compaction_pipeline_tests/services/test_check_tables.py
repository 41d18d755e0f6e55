"""The checks on a table that is written to all the time, while the program works and while it does not."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

import pytest

from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.fragmentation.verdict import NodeState
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.services.house import House


def write(table: LakeTable, first: int, files: int = 12) -> None:
    """Commit small files with one row each."""
    row_delta(table.table, [table.data_file([{"id": one, "name": "more"}]) for one in range(first, first + files)])


def tick(house: House) -> None:
    """What the sensors and a draining run do in half a minute."""
    work = house.services.tick_tables
    work.sweep(None, timedelta(seconds=20))
    work.plan_due(house.services.plan_tables.worth_planning(), timedelta(seconds=20))
    work.drain(until=lambda: False, linger=timedelta(0))
    house.pass_time(30)


def failing(house: House) -> Mapping[str, str]:
    """The failed checks and their texts, without a look at the table."""
    results = house.services.check_tables.check(refresh=False).results
    return {result.check.name: result.judgement.text for result in results if not result.passed}


def test_no_check_ever_fails_while_writers_and_the_program_are_busy(house: House) -> None:
    table = house.fragmented()
    seen: set[str] = set()
    for turn in range(5):
        write(table, 100 * (turn + 1))
        work = house.services.tick_tables
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
    house.services.compact_table.refresh(table.identifier)
    assert failing(house) == {}
    house.pass_time(5 * 60)
    assert set(failing(house)) == {"small_files_left"}
    house.pass_time(60 * 60)
    said = failing(house)
    assert set(said) == {"small_files_left", "due_work_on_time"}
    assert "due work has waited for 1 h 5 min, and 1 h are allowed" in said["due_work_on_time"]


def test_work_that_waits_in_a_queue_that_nobody_drains_is_late_although_it_is_planned(house: House) -> None:
    table = house.fragmented()
    house.services.compact_table.refresh(table.identifier)
    assert house.services.plan_tables.plan(table.identifier).tasks
    house.pass_time(2 * 60 * 60)
    assert set(failing(house)) == {"due_work_on_time", "queue_keeps_up"}


def test_a_table_that_was_fragmented_before_anybody_looked_at_it_is_late_at_once(house: House) -> None:
    house.fragmented()
    house.pass_time(2 * 60 * 60)
    results = house.services.check_tables.check().results
    assert [result.check.name for result in results if not result.passed] == ["due_work_on_time"]


def test_after_a_compaction_every_check_passes(house: House) -> None:
    table = house.fragmented()
    house.pass_time(2 * 60 * 60)
    assert house.services.compact_table.compact(table.identifier).committed
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


# ---- the facts behind the checks


def only_node(house: House, table: LakeTable) -> NodeState:
    [state] = house.services.stores.tables.nodes(table.identifier)
    return state


def test_small_files_count_from_the_commit_that_brought_enough_of_them(house: House) -> None:
    table = house.fragmented(files=3)
    house.services.compact_table.refresh(table.identifier)
    assert only_node(house, table).small_since is None
    house.pass_time(-60)  # The commit comes after the look.
    write(table, 100)
    committed = datetime.fromtimestamp(table.head().ancestors[0].timestamp_ms / 1000, timezone.utc)
    house.pass_time(60 * 60)
    house.services.compact_table.refresh(table.identifier)
    since = only_node(house, table).small_since
    assert since == committed
    write(table, 200)
    house.services.compact_table.refresh(table.identifier)
    assert only_node(house, table).small_since == since
    assert house.services.compact_table.compact(table.identifier).committed
    house.services.compact_table.look_again(table.identifier)
    assert only_node(house, table).small_since is None


def test_work_that_plans_find_again_and_again_is_due_since_the_first(house: House) -> None:
    table = house.fragmented()
    house.services.compact_table.refresh(table.identifier)
    planned_at = house.now
    for _ in range(3):
        house.services.plan_tables.plan(table.identifier)
        verdict = only_node(house, table).verdict
        assert verdict is not None
        assert verdict.since == planned_at
        house.pass_time(61)
    tick(house)
    house.services.compact_table.look_again(table.identifier)
    verdict = only_node(house, table).verdict
    assert verdict is not None
    assert verdict.since is None
