"""Whoever judges again and again loads only the metadata of tables that changed. A gate always loads it."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from compaction_pipeline.core.tables.ports.scan import TableScan
from compaction_pipeline.core.tables.table import TableHead, TableIdentifier
from compaction_pipeline.services.insight.compare_tables import CompareTables
from compaction_pipeline.services.insight.judge_compaction import JudgeCompaction, JudgedWork
from compaction_pipeline_tests.services.house import House


class CountingScan:
    """Loads the metadata of tables for a house, and remembers of which."""

    def __init__(self, house: House) -> None:
        self._house = house
        self.loaded: list[str] = []

    def head(self, table: TableIdentifier) -> TableHead:
        self.loaded.append(table.name)
        return self._house.services._scan.head(table)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


@pytest.fixture
def scan(house: House) -> CountingScan:
    return CountingScan(house)


@pytest.fixture
def judge(house: House, scan: CountingScan) -> JudgeCompaction:
    return new_judge(house, scan)


def new_judge(house: House, scan: CountingScan) -> JudgeCompaction:
    """A judge as another process has one: it knows only what is stored."""
    stores = house.services.stores
    of_scan = cast(TableScan, scan)
    return JudgeCompaction(
        stores.catalogs,
        stores.tables,
        stores.tasks,
        JudgedWork(stores.queues, stores.groups, stores.teams, stores.costs),
        CompareTables(stores.records, stores.history, of_scan),
        house.services._key_reader,
        lambda: house.now,
    )


def contradicted(judge: JudgeCompaction, *, only_changed: bool) -> int:
    """How many tables contradict their records."""
    results = judge.judge(only_changed=only_changed)
    [failures] = [result.judgement.failures for result in results if result.check.name == "record_matches_table"]
    return len(failures)


def test_only_tables_with_a_new_read_or_a_new_record_are_loaded_again(house: House, scan: CountingScan, judge: JudgeCompaction) -> None:
    first, second = house.fragmented("first"), house.fragmented("second")
    for table in (first, second):
        assert house.services.compact_tables.compact(table.identifier).committed
    assert contradicted(judge, only_changed=True) == 0
    for table in (first, second):
        house.services.one_table.refresh(table.identifier)
    assert scan.loaded == ["first", "second"]
    for each in (judge, judge, new_judge(house, scan)):
        assert contradicted(each, only_changed=True) == 0
    assert scan.loaded == ["first", "second"]
    second.table.transaction().set_properties(note="new metadata").commit_transaction()
    house.services.one_table.refresh(second.identifier)
    assert contradicted(judge, only_changed=True) == 0
    assert scan.loaded == ["first", "second", "second"]


def test_a_contradiction_stays_until_the_table_changes_and_a_gate_finds_one_at_once(
    house: House, scan: CountingScan, judge: JudgeCompaction
) -> None:
    table = house.fragmented()
    before = table.head().snapshot_id
    assert before is not None
    house.pass_time(60)  # The commit comes after the snapshot that the table is rolled back to.
    assert house.services.compact_tables.compact(table.identifier).committed
    house.services.one_table.refresh(table.identifier)
    assert contradicted(judge, only_changed=True) == 0
    table.table.refresh().manage_snapshots().rollback_to_snapshot(before).commit()
    assert contradicted(judge, only_changed=True) == 0, "nobody has read the table since it was rolled back"
    assert contradicted(judge, only_changed=False) == 1
    house.services.one_table.refresh(table.identifier)
    loaded = len(scan.loaded)
    for each in (judge, new_judge(house, scan)):
        assert contradicted(each, only_changed=True) == 1
    assert len(scan.loaded) == loaded, "the gate has compared this metadata already"
