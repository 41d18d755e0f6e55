"""No door changes a table that its owner wants left alone, and no answer says that all is well when a request was not carried out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from compaction_pipeline.core.catalogs.definition import CatalogDefinition
from compaction_pipeline.core.errors import CompactionError, NotFoundError
from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.fragmentation.verdict import PlanReasonCode
from compaction_pipeline.core.insight.checks.judgement import Severity
from compaction_pipeline.core.insight.listener import CompactionListener
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.defs.launch_links import Place, links_by_purpose
from compaction_pipeline.services.planning.plan_tables import Planned
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.in_hand import InHand
from compaction_pipeline_tests.services.serving import serving


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


class Heard(CompactionListener):
    """Remembers why tables were not planned."""

    def __init__(self) -> None:
        self.not_planned_because: list[str] = []

    def not_planned(self, table: TableIdentifier, error: CompactionError) -> None:
        self.not_planned_because.append(str(error))


def test_a_catalog_that_is_observed_from_now_on_gets_no_commit_of_older_work(house: House) -> None:
    table = house.fragmented()
    services = house.services
    services.one_table.refresh(table.identifier)
    assert services.plan_tables.plan(table.identifier).tasks
    entry = services.stores.catalogs.entry("lake")
    services.manage_catalogs.apply([CatalogDefinition("lake", entry.properties, observe=True)])
    services.compact_tables.carry_out({}, serving(until=lambda: False, linger=timedelta(0)))
    house.pass_time(3600)
    assert list(services.commit_due.commit()) == []
    assert services.commit_tables.commit(table.identifier).reason == ("catalog lake is only observed, so nothing is committed to lake.db.t")
    assert services.read_records.newest() == ()
    services.manage_catalogs.apply([CatalogDefinition("lake", entry.properties, observe=False)])
    assert len(list(services.commit_due.commit())) == 1


def test_a_tick_judges_the_nodes_of_an_observed_catalog_once_and_plans_nothing(tmp_path: Path) -> None:
    house = House(tmp_path, observe=True)
    table = house.fragmented()
    services = house.services
    services.one_table.refresh(table.identifier)
    for _ in range(2):
        [(_, planned)] = services.sweep_tables.plan_due([table.identifier], timedelta(seconds=20))
        assert planned.plan.reason.code is PlanReasonCode.OBSERVED
        assert services.stores.tasks.tasks() == ()
        [node] = services.read_status.status().worst
        assert (node.health, node.type) == (HealthStatus.WAITING, CompactionType.MINOR)
        assert node.reason == "12 small data files, and 12 make a MINOR due; the catalog is only observed"
        # The files of a node that did not change are not read again.
        services.plan_tables._decide_plan._parts.parts = None


def test_no_link_of_the_page_names_a_disabled_or_paused_table(house: House) -> None:
    off = house.fragmented("off", self_optimizing__enabled="false")
    paused, on = house.fragmented("paused"), house.fragmented("on")
    for table in (off, paused, on):
        house.services.one_table.refresh(table.identifier)
    house.services.explore_catalogs.pause(paused.identifier)
    house.services.sweep_tables.plan_due([off.identifier, paused.identifier, on.identifier], timedelta(seconds=20))
    status = house.services.read_status.status()
    assert {node.table for node in status.worst} == {off.identifier, paused.identifier, on.identifier}
    entries = links_by_purpose(Place("here"), status.worst, status.tables)
    text = " ".join(str(entry.value) for name, entry in entries.items() if name.startswith("compact_"))
    assert "db.on" in text
    assert "db.off" not in text
    assert "db.paused" not in text


def _answers_not_found(house: House) -> None:
    def head(table: TableIdentifier) -> Any:
        raise NotFoundError(f"table {table} does not exist: it was dropped, renamed or never there, or its metadata file is missing")

    house.services.scan.instead(head=head)


def test_a_check_does_not_pass_when_a_listed_table_is_not_found(house: House) -> None:
    house.fragmented()
    _answers_not_found(house)
    checked = house.services.check_tables.check()
    assert list(checked.unread) == ["lake.db.t"]
    assert not checked.passes(Severity.ERROR)


def test_a_check_passes_over_a_table_that_was_dropped_meanwhile(house: House) -> None:
    house.fragmented()
    tables = house.services.stores.tables

    def dropped_after_the_listing() -> Any:
        names = tables.real.seen()
        if house.lake.catalog.table_exists("db.t"):
            house.lake.catalog.drop_table("db.t")
        return names

    tables.instead(seen=dropped_after_the_listing)
    assert house.services.check_tables.check().unread == {}


def test_a_check_does_not_pass_on_a_table_that_was_read_in_part(house: House) -> None:
    house.fragmented()
    house.services.stores.leases.instead(renew=lambda *arguments: False)
    checked = house.services.check_tables.check()
    assert list(checked.unread) == ["lake.db.t"]
    assert not checked.passes(Severity.ERROR)


def _pause(house: House, table: TableIdentifier) -> None:
    house.services.explore_catalogs.pause(table)


def _nothing(house: House, table: TableIdentifier) -> None: ...


@pytest.mark.parametrize(
    ("properties", "act", "reason"),
    [
        ({}, _pause, "a person paused it"),
        ({"self_optimizing__target_size": "-1"}, _nothing, "self-optimizing.target-size"),
        ({"self_optimizing__enabled": "false"}, _nothing, "'self-optimizing.enabled' is false"),
    ],
)
def test_who_asks_for_a_table_that_is_left_alone_is_told_so(
    house: House, properties: dict[str, str], act: Callable[[House, TableIdentifier], None], reason: str
) -> None:
    table = house.fragmented(**properties).identifier
    act(house, table)
    heard = Heard()
    house.services.compact_tables.carry_out({table: PlanRequest()}, serving(until=lambda: False, linger=timedelta(0), listener=heard))
    [because] = heard.not_planned_because
    assert reason in because


def test_a_task_of_a_request_that_another_worker_failed_is_a_failure(house: House) -> None:
    table = house.fragmented().identifier
    services = house.services
    held = InHand(services.one_table)
    services.one_table = held

    def planned_and_failed_elsewhere(asked: TableIdentifier, request: PlanRequest) -> Planned:
        planned: Planned = held.real.plan_nodes(asked, request)
        for task in planned.tasks:
            taken = services.stores.tasks.poll(None, "another process", house.now, timedelta(seconds=60), [task.task_id])
            assert taken is not None
            failed = MergeResult(taken.task_id, taken.current_attempt_id, end_reason=EndReason.REFUSED, error="cannot be merged")
            assert services.stores.tasks.complete(failed, house.now) is TaskStatus.FAILED
        return planned

    held.instead(plan_nodes=planned_and_failed_elsewhere)
    failed = services.compact_tables.carry_out({table: PlanRequest(force=True)}, serving(until=lambda: False, linger=timedelta(0))).failed
    assert list(failed.values()) == ["cannot be merged"]
