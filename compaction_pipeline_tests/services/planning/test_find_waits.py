"""Which partitions wait, as ticks of a real table tell, and what a person gets all the same."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, TimestampType

from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.core.fragmentation.verdict import NodeHistory, PlanReasonCode
from compaction_pipeline.core.tables.node import Place
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.services.planning.find_waits import FindWaits
from compaction_pipeline_tests.builders import NOW, TABLE, node, properties
from compaction_pipeline_tests.keyed import program
from compaction_pipeline_tests.keyed.change_logs import row
from compaction_pipeline_tests.services.house import House

DAYS = timedelta(days=1).total_seconds()
SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "ts", TimestampType()))
BY_DAY = PartitionSpec(PartitionField(2, 1000, DayTransform(), "ts_day"), spec_id=0)


class Scan:
    """Every table has a commit of the first moment that is asked for."""

    def commits_since(self, table: TableIdentifier, since: Any) -> Mapping[int, Any]:
        return {7: since}


def test_only_a_table_that_asks_for_it_is_looked_at() -> None:
    def not_ready(table: TableIdentifier, places: Collection[Place]) -> Mapping[Place, str]:
        raise AssertionError("nobody asked")

    found = FindWaits(Scan(), not_ready).find(TABLE, properties(full_interval=timedelta(days=1)), [node(1)], NodeHistory(), NOW)  # type: ignore[arg-type]
    assert (found.not_ready, found.commits) == ({}, {})


def test_what_cannot_be_told_waits_and_says_why() -> None:
    def not_ready(table: TableIdentifier, places: Collection[Place]) -> Mapping[Place, str]:
        raise StorageUnavailable("the catalog is silent")

    rules = properties(full_interval=timedelta(days=1), full_when_ready=True, major_cold_after=timedelta(hours=1))
    history = NodeHistory(first_seen={node(1): NOW - timedelta(days=2)})
    found = FindWaits(Scan(), not_ready).find(TABLE, rules, [node(1)], history, NOW)  # type: ignore[arg-type]
    assert found.full(node(1)) == "it waits until its partition is ready: whether it is ready cannot be told: the catalog is silent"
    assert found.commits == {7: NOW - timedelta(hours=1)}


@pytest.mark.parametrize(("asks", "by_person"), [(False, False), (True, False), (True, True)])
def test_a_full_of_a_day_waits_for_the_watermark_and_a_person_does_not(house: House, asks: bool, by_person: bool) -> None:
    rules = {"self-optimizing.full.trigger.interval": "86400000", "self-optimizing.minor.trigger.interval": "9000000000"}
    table = house.lake.table("t", SCHEMA, BY_DAY, properties={**rules, **({"compaction.full.when-ready": "true"} if asks else {})})
    services, day = house.services, 20_454  # 2026-01-01
    for number in (1, 2):
        table.insert({"id": number, "ts": None}, partition=Record(day))
    services.explore_catalogs.explore()
    services.refresh_files.refresh(table.identifier)
    house.pass_time(2 * DAYS)
    first = services.plan_tables.plan(table.identifier, unlimited=by_person)
    if by_person or not asks:
        assert [task.work.type for task in first.tasks] == [CompactionType.FULL]
        return
    assert (first.tasks, first.plan.reason.code) == ((), PlanReasonCode.NOT_READY)
    assert "the table has no watermark" in first.plan.reason.text
    row_delta(table.table, properties={"watermark": "1767312000000"})  # 2026-01-02T00:00Z
    services.refresh_files.refresh(table.identifier)
    house.pass_time(120)
    assert [task.work.type for task in services.plan_tables.plan(table.identifier).tasks] == [CompactionType.FULL]


def test_a_major_of_a_keyed_table_waits_until_nobody_has_written_changes_for_some_time(tmp_path: Path) -> None:
    """Writers of a keyed table write to its change store, and its base store says how long to wait for them."""
    written = program.Program(tmp_path, delta_rewrite=True)
    services, (base, _) = written.services, written.keyed.stores()
    # No change file is small, and two of a node make a MAJOR due.
    sizes = {"self-optimizing.target-size": "8192", "self-optimizing.fragment-ratio": "16", "self-optimizing.minor.trigger.file-count": "2"}
    with base.transaction() as transaction:
        transaction.set_properties({**sizes, "compaction.major.cold-after": "1h"})
    for _ in range(2):
        written.upsert(row(1))
    services.explore_catalogs.explore()
    services.refresh_files.refresh(program.TABLE)
    first = services.plan_tables.plan(program.TABLE)
    assert (first.tasks, first.plan.reason.code) == ((), PlanReasonCode.NOT_READY)
    assert "it waits until no file was added for 1 h" in first.plan.reason.text
    # The writers' commits have the clock of the machine, which went on since the program's was set.
    written.pass_time(2 * 3600)
    assert {task.work.type for task in services.plan_tables.plan(program.TABLE).tasks} == {CompactionType.MAJOR}
    services.close()
