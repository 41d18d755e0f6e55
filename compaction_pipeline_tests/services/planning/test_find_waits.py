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
from compaction_pipeline.core.fragmentation.verdict import NodeHistory, PlanReason, PlanReasonCode
from compaction_pipeline.core.insight.checks.every_check import CHECKS
from compaction_pipeline.core.tables.node import Place
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.services.planning.find_waits import FindWaits
from compaction_pipeline_tests.builders import NOW, TABLE, node, properties
from compaction_pipeline_tests.keyed import program
from compaction_pipeline_tests.keyed.change_logs import row
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.in_hand import ServicesInHand

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
    text = "it waits until its partition is ready: whether it is ready cannot be told: the catalog is silent"
    assert found.full(node(1)) == PlanReason(PlanReasonCode.NOT_READY, text)
    assert found.commits == {7: NOW - timedelta(hours=1)}


def test_a_full_waits_for_its_window(house: House) -> None:
    opens, closes = (house.now + timedelta(days=2, hours=hours) for hours in (1, 2))
    rules = {"self-optimizing.full.trigger.interval": "86400000", "self-optimizing.minor.trigger.interval": "9000000000"}
    table = house.lake.table("t", SCHEMA, BY_DAY, properties={**rules, "compaction.full.window": f"{opens:%H:%M}-{closes:%H:%M} UTC"})
    services = house.services
    for number in (1, 2):
        table.insert({"id": number, "ts": None}, partition=Record(20_454))
    services.explore_catalogs.explore()
    services.refresh_files.refresh(table.identifier)
    house.pass_time(2 * DAYS)
    held = services.plan_tables.plan(table.identifier)
    assert (held.tasks, held.plan.reason.code) == ((), PlanReasonCode.OUTSIDE_WINDOW)
    assert f"it waits for its window {opens:%H:%M}-{closes:%H:%M} UTC, which opens at " in held.plan.reason.text
    house.pass_time(3_700)
    assert [task.work.type for task in services.plan_tables.plan(table.identifier).tasks] == [CompactionType.FULL]


def test_a_person_waits_for_no_window(house: House) -> None:
    rules = {"self-optimizing.full.trigger.interval": "86400000", "self-optimizing.minor.trigger.interval": "9000000000"}
    table = house.lake.table("t", SCHEMA, BY_DAY, properties={**rules, "compaction.full.window": "00:00-00:01 UTC"})
    services = house.services
    for number in (1, 2):
        table.insert({"id": number, "ts": None}, partition=Record(20_454))
    services.explore_catalogs.explore()
    services.refresh_files.refresh(table.identifier)
    house.pass_time(2 * DAYS)
    assert [task.work.type for task in services.plan_tables.plan(table.identifier, unlimited=True).tasks] == [CompactionType.FULL]


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


# No file of these tests is small, and two of a node make a MAJOR due.
SIZES = {"self-optimizing.target-size": "8192", "self-optimizing.fragment-ratio": "16", "self-optimizing.minor.trigger.file-count": "2"}
# The writers' commits have the clock of the machine, which went on since the program's was set. So the times here leave room.
WAITS = [
    ({"compaction.major.cold-after": "1h"}, "it waits until no file was added for 1 h", 0.9, 1.2),
    ({"compaction.major.cold-after": "400d", "compaction.major.cold-at-most": "3h"}, "it waits until no file was added for 400 d", 2.99, 3),
]


def asked_for(services: ServicesInHand | OpenedServices, table: TableIdentifier) -> tuple[set[CompactionType], str]:
    """The work that a plan makes now, and its reason. A plan without work waits."""
    services.refresh_files.refresh(table)
    made = services.plan_tables.plan(table)
    assert made.tasks or made.plan.reason.code is PlanReasonCode.NOT_READY
    return {task.work.type for task in made.tasks}, made.plan.reason.text


@pytest.mark.parametrize(("rules", "told", "not_yet", "then"), WAITS)
def test_a_major_waits_and_then_runs(house: House, rules: Mapping[str, str], told: str, not_yet: float, then: float) -> None:
    table = house.lake.table("t", properties={**SIZES, **rules})
    services, start = house.services, house.now
    written = [table.ids(1), table.ids(2)]
    services.explore_catalogs.explore()
    planned, reason = asked_for(services, table.identifier)
    assert (planned, told in reason) == (set(), True)
    house.now = start + timedelta(hours=not_yet)
    assert asked_for(services, table.identifier)[0] == set()
    if "compaction.major.cold-at-most" in rules:
        # It waits no longer, although writers go on.
        written.append(table.ids(3))
    house.now = start + timedelta(hours=then)
    assert asked_for(services, table.identifier)[0] == {CompactionType.MAJOR}
    services.work_on_queue.drain("worker")
    assert services.one_table.commit_now(table.identifier).record is not None
    assert table.live_ids() == [1, 2, 3][: len(written)]
    assert len(table.files()) == 1
    if "compaction.major.cold-at-most" in rules:
        # What comes after it waits anew.
        table.ids(4)
        table.ids(5)
        house.pass_time(120)
        assert asked_for(services, table.identifier)[0] == set()


@pytest.mark.parametrize(("rules", "told", "not_yet", "then"), WAITS)
def test_a_major_of_a_keyed_table_waits_and_then_runs(
    tmp_path: Path, rules: Mapping[str, str], told: str, not_yet: float, then: float
) -> None:
    """Writers of a keyed table write to its change store, and its base store says how long to wait for them."""
    written = program.Program(tmp_path, delta_rewrite=True)
    services, (base, _), start = written.services, written.keyed.stores(), written.now
    with base.transaction() as transaction:
        transaction.set_properties({**SIZES, **rules})
    for _ in range(2):
        written.upsert(row(1))
    services.explore_catalogs.explore()
    planned, reason = asked_for(services, program.TABLE)
    assert (planned, told in reason) == (set(), True)
    written.now = start + timedelta(hours=not_yet)
    assert asked_for(services, program.TABLE)[0] == set()
    if "compaction.major.cold-at-most" in rules:
        written.upsert(row(2))
    written.now = start + timedelta(hours=then)
    assert asked_for(services, program.TABLE)[0] == {CompactionType.MAJOR}
    program.merge_planned(written)
    assert services.one_table.commit_now(program.TABLE).record is not None
    written.check()
    services.close()


def test_a_full_that_waits_for_a_watermark_that_stands_turns_a_check_red(house: House) -> None:
    rules = {"self-optimizing.full.trigger.interval": "3600000", "self-optimizing.minor.trigger.interval": "9000000000"}
    table = house.lake.table("t", SCHEMA, BY_DAY, properties={**rules, "compaction.full.when-ready": "true"})
    other = house.lake.table("other")
    for number in (1, 2):
        table.insert({"id": number, "ts": None}, partition=Record(20_454))
    services = house.services
    services.explore_catalogs.explore()
    services.refresh_files.refresh(table.identifier)

    def red(*tables: TableIdentifier) -> bool:
        (found,) = services.judge_compaction.judge([check for check in CHECKS if check.name == "watermarks_move"], tables)
        return found.failed

    outcomes = []
    for _ in range(3):
        house.pass_time(DAYS / 2)
        services.plan_tables.plan(table.identifier)
        outcomes.append(red())
    assert outcomes == [False, False, True]
    assert (red(table.identifier), red(other.identifier)) == (True, False)
