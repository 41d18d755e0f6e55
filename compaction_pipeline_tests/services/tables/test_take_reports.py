"""Reports of commits: their tables are looked at first, and nothing is believed that the table does not show."""

from __future__ import annotations

from datetime import timedelta

import pytest

from compaction_pipeline.core.catalogs.change import CatalogChange
from compaction_pipeline.core.dependencies.answers import Answer
from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.tables.commit_report import TOGETHER, CommitReport
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.statements import statements

BUDGET = timedelta(seconds=20)


def report_of(table: LakeTable, files: int = 1) -> CommitReport:
    """What an honest writer reports of the newest commit."""
    head = table.head()
    assert head.snapshot_id is not None
    return CommitReport(table.identifier, head.snapshot_id, head.sequence_number, {"": files})


def waiting(house: House) -> list[str]:
    return [one.table.name for one in house.services.stores.reports.reported()]


def test_a_known_snapshot_and_its_ancestors_are_ignored(house: House) -> None:
    table = house.fragmented()
    services = house.services
    old = report_of(table)
    services.refresh_files.refresh(table.identifier)
    assert not services.take_reports.take(old).accepted
    table.ids(100)
    new = report_of(table)
    assert services.take_reports.take(new).accepted
    assert not services.take_reports.take(old).accepted
    services.refresh_files.refresh(table.identifier)
    assert "was read at" in services.take_reports.take(new).why


def test_a_look_without_reports_reads_the_reports_and_nothing_else(house: House) -> None:
    """It is done several times a second. To read all tables each time took half of a server with 2,000 of them."""
    house.fragmented(files=12)
    services = house.services
    services.run_ticks.tick()
    with statements() as asked:
        services.run_ticks.look_at_reported()
    selects = [one.partition(" FROM ")[2] for one in asked if one.startswith("SELECT")]
    assert selects == ["compaction_commit_report ()"], asked


def test_reports_within_a_moment_are_answered_by_one_look(house: House) -> None:
    table = house.fragmented(files=2)
    services = house.services
    services.run_ticks.tick()
    for number in range(12):
        table.ids(100 + number)
        assert services.take_reports.take(report_of(table)).accepted
    assert services.sweep_tables.sweep_reported(BUDGET) == []
    house.now += TOGETHER
    [refresh] = services.sweep_tables.sweep_reported(BUDGET)
    assert (refresh.complete, len(refresh.changed)) == (True, 1)
    assert services.sweep_tables.sweep_reported(BUDGET) == []
    assert waiting(house) == []


def test_the_look_at_reported_tables_plans_their_nodes(house: House) -> None:
    table = house.fragmented(files=12)
    services = house.services
    services.take_reports.take(report_of(table))
    house.now += TOGETHER
    services.run_ticks.look_at_reported()
    assert services.read_tasks.queue_counts().pending == 1


def test_a_false_report_plans_nothing_and_is_answered_by_one_look(house: House) -> None:
    table = house.fragmented(files=1)
    services = house.services
    services.run_ticks.tick()
    false = CommitReport(table.identifier, 42, 10**15, {"": 10**6, "day=nowhere": 5})
    assert services.take_reports.take(false).accepted
    house.now += TOGETHER
    services.run_ticks.look_at_reported()
    assert waiting(house) == []
    assert services.read_tasks.queue_counts().open == 0
    assert services.read_tables.table(table.identifier).overview.metrics.files == 1


def test_a_sweep_reads_reported_tables_before_its_turn_and_keeps_its_place(house: House) -> None:
    tables = {name: house.fragmented(name, files=1) for name in ("a", "b", "c", "d")}
    services = house.services
    assert services.take_reports.take(report_of(tables["a"], files=1)).accepted
    assert services.take_reports.take(report_of(tables["d"], files=5)).accepted
    sweep = services.sweep_tables.sweep("lake.db.b", BUDGET)
    assert [refresh.table.name for refresh in sweep.refreshed] == ["d", "a", "b", "c"]
    assert waiting(house) == []


def test_reports_keep_no_other_table_waiting_when_the_time_is_up(house: House) -> None:
    tables = {name: house.fragmented(name, files=1) for name in ("a", "b", "c", "d")}
    services = house.services
    for name in ("b", "c", "d"):
        services.take_reports.take(report_of(tables[name]))
    # The time is up at once: one reported table has its turn, and the first of the others. Neither is read to the end.
    sweep = services.sweep_tables.sweep(None, timedelta(0))
    assert [refresh.table.name for refresh in sweep.refreshed] == ["b", "a"]
    assert waiting(house) == ["b", "c", "d"]


def test_a_report_stays_while_another_process_reads_the_table(house: House) -> None:
    table = house.fragmented(files=1)
    services = house.services
    services.take_reports.take(report_of(table))
    assert services.stores.leases.acquire(f"refresh:{table.identifier}", "another", house.now, timedelta(minutes=1))
    assert services.sweep_tables.sweep(None, BUDGET).refreshed[0].busy
    assert waiting(house) == ["t"]
    services.stores.leases.release(f"refresh:{table.identifier}", "another")
    services.sweep_tables.sweep(None, BUDGET)
    assert waiting(house) == []


def test_a_table_that_is_new_in_its_catalog_is_discovered(house: House) -> None:
    house.fragmented("old", files=1)
    table = house.lake.table("new")
    table.ids(1)
    assert house.services.take_reports.take(report_of(table)).accepted
    assert table.identifier in house.services.read_tables.names()
    house.services.sweep_tables.sweep(None, BUDGET)
    assert house.services.stores.tables.state(table.identifier).whole is not None


@pytest.mark.parametrize("name", ["lake.db.nowhere", "lake.nowhere.t", "nowhere.db.t"])
def test_a_table_that_no_catalog_lists_is_not_found(house: House, name: str) -> None:
    house.fragmented(files=1)
    with pytest.raises(NotFoundError):
        house.services.take_reports.take(CommitReport(TableIdentifier.parse(name), 1, 1))
    assert waiting(house) == []


def test_the_report_of_a_dropped_table_is_answered(house: House) -> None:
    table = house.fragmented(files=1)
    services = house.services
    services.take_reports.take(report_of(table))
    house.lake.catalog.drop_table("db.t")
    services.sweep_tables.sweep(None, BUDGET)
    assert waiting(house) == []


def test_a_removed_catalog_has_no_reports(house: House) -> None:
    table = house.fragmented(files=1)
    services = house.services
    services.take_reports.take(report_of(table))
    services.explore_catalogs.remove("lake")
    services.stores.catalogs.add(CatalogEntry("lake", house.lake.properties))
    assert waiting(house) == []


def test_a_report_does_not_make_a_table_known_that_a_filter_leaves_out(house: House) -> None:
    table = house.fragmented()
    house.services.manage_catalogs.change("lake", CatalogChange({"table-filter": "none"}))
    with pytest.raises(NotFoundError, match="is not looked after: 'table-filter' of catalog lake leaves it out"):
        house.services.take_reports.take(report_of(table))
    assert house.services.stores.tables.states() == ()


def test_who_awaits_the_data_of_a_table_is_told_of_each_report_also_of_a_known_commit(house: House) -> None:
    table = house.fragmented()
    dependencies = house.services.stores.dependencies
    dependencies.save_answers(table.identifier, "u", [Answer("day=2026-01-01", "watermark", False, house.now, house.now)])
    dependencies.await_answers("u", ["day=2026-01-01"], house.now, anew=True)
    assert house.services.take_reports.take(report_of(table)).accepted
    assert [one.table for one in dependencies.take_reported(house.now)] == [table.identifier]
    house.services.refresh_files.refresh(table.identifier)
    assert not house.services.take_reports.take(report_of(table)).accepted
    assert [one.table for one in dependencies.take_reported(house.now)] == [table.identifier]
