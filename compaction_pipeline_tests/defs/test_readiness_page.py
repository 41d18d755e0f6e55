"""The code of the page about waiting for tables runs as it stands there, and opens nothing while it loads."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest

from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.services.dependencies.read_readiness import ReadReadiness
from compaction_pipeline_tests.defs.readiness import Tables, tables, utc
from compaction_pipeline_tests.defs.test_readiness import Automation, materialized, requested
from compaction_pipeline_tests.defs.ticks import Tick
from compaction_pipeline_tests.services.dependencies.written_table import WrittenTable
from compaction_pipeline_tests.state import sqlite_stores

__all__ = ["tables"]

PAGE = Path(__file__).parents[2] / "docs" / "readiness-dagster.md"
WAITING, JOB, HOURS, BERLIN = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def loaded(code: str) -> dg.Definitions:
    names: dict[str, object] = {"__name__": "their_location"}
    exec(compile(code, str(PAGE), "exec", dont_inherit=True), names)
    defs = names["defs"]
    assert isinstance(defs, dg.Definitions)
    return defs


def test_the_asset_of_the_page_runs_once_for_each_day_in_berlin(tables: Tables, tick: Tick, instance: dg.DagsterInstance) -> None:
    defs = loaded(WAITING)
    automation = Automation(instance, defs, "daily_report")
    tables.watermark = utc(2026, 1, 1, 22)
    tick("readiness_sensor", None, defs)
    assert automation.tick(tables.now) == []
    tables.watermark = utc(2026, 1, 2, 23)
    told = tick("readiness_sensor", None, defs)
    assert materialized(told, dg.AssetKey(["ready", "lake", "shop", "orders"])) == ["2026-01-01", "2026-01-02"]
    assert automation.tick(tables.now) == ["2026-01-01", "2026-01-02"]
    assert automation.tick(tables.now) == []


def test_the_condition_of_the_page_is_one_that_the_default_sensor_evaluates(tables: Tables) -> None:
    (asset,) = (each for each in loaded(WAITING).assets or () if isinstance(each, dg.AssetsDefinition))
    (condition,) = asset.automation_conditions_by_key.values()
    assert condition.is_serializable


def test_the_job_of_the_page_gets_runs(tables: Tables, instance: dg.DagsterInstance) -> None:
    defs = loaded(JOB)
    repository = defs.get_repository_def()
    tables.watermark = utc(2026, 1, 2)
    with dg.build_sensor_context(instance=instance, repository_def=repository) as context:
        result = repository.get_sensor_def("export_job_when_ready")(context)
    assert isinstance(result, dg.SensorResult)
    assert requested(result) == ["2026-01-01"]


NOW = utc(2026, 1, 4)
STEPS = [range(23), [24], [23], range(25, 47), [47]]
"""The hours, counted from the first, that are written one step after the other. The last hour of a day comes late."""
DAYS_OF_STEPS: list[list[str]] = [[], [], ["2026-01-01"], [], ["2026-01-02"]]
IN_UTC = WAITING.replace(', timezone="Europe/Berlin"', "")


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WrittenTable:
    """The table of the page, partitioned by UTC days, behind the services that answer for it."""
    table = WrittenTable(NOW, TableIdentifier.parse("lake.shop.orders"))
    stores = sqlite_stores(tmp_path)
    stores.catalogs.add(CatalogEntry("lake", {}))
    answers = ReadReadiness(stores.catalogs, table, stores.dependencies, table.clock)
    explore = SimpleNamespace(entries=stores.catalogs.entries)
    services = SimpleNamespace(read_readiness=answers, clock=table.clock, explore_catalogs=explore, close=lambda: None)
    monkeypatch.setattr("compaction_pipeline.defs.readiness.opened_services", lambda *_: services)
    return table


class Both:
    """The code for Dagster alone and the code with this page, each in an instance of its own, on the same events."""

    def __init__(self, orders: WrittenTable, tick: Tick, instance: dg.DagsterInstance, alone: str, ours: str) -> None:
        self._orders, self._tick, self._hours = orders, tick, set[int]()
        self._alone = dg.DagsterInstance.ephemeral()
        self._defs = loaded(ours)
        self._automations = Automation(self._alone, loaded(alone), "daily_report"), Automation(instance, self._defs, "daily_report")

    def releases(self, hours: Iterable[int], *, of_an_asset: bool) -> tuple[list[str], list[str]]:
        """Write these hours. Return the days that each releases then."""
        for hour in hours:
            self._hours.add(hour)
            at = utc(2026, 1, 1) + timedelta(hours=hour)
            if of_an_asset:
                self._alone.report_runless_asset_event(dg.AssetMaterialization("hourly_orders", partition=f"{at:%Y-%m-%d-%H:%M}"))
        # The writer promises what has no gap before it.
        complete = next(hour for hour in count() if hour not in self._hours)
        self._orders.mark((utc(2026, 1, 1) + timedelta(hours=complete)).isoformat())
        self._tick("readiness_sensor", None, self._defs)
        alone, ours = (each.tick(NOW) for each in self._automations)
        return alone, ours


def test_days_of_an_hourly_asset_are_released_by_dagster_alone_when_the_watermark_releases_them(
    orders: WrittenTable, tick: Tick, instance: dg.DagsterInstance
) -> None:
    both = Both(orders, tick, instance, HOURS, IN_UTC)
    assert [both.releases(hours, of_an_asset=True) for hours in STEPS] == [(day, day) for day in DAYS_OF_STEPS]


def test_days_of_a_table_that_no_asset_writes_are_released_by_the_watermark_alone(
    orders: WrittenTable, tick: Tick, instance: dg.DagsterInstance
) -> None:
    both = Both(orders, tick, instance, HOURS, IN_UTC)
    assert [both.releases(hours, of_an_asset=False) for hours in STEPS] == [([], day) for day in DAYS_OF_STEPS]


def test_days_in_berlin_of_a_table_by_utc_days_are_refused_by_dagster_and_released_by_the_watermark(
    orders: WrittenTable, tick: Tick, instance: dg.DagsterInstance
) -> None:
    with pytest.raises(Exception, match="Error while evaluating conditions for daily_report") as refused:
        Automation(instance, loaded(BERLIN), "daily_report").tick(NOW)
    assert "Timezones UTC and Europe/Berlin don't match" in str(refused.value.__cause__)
    both = Both(orders, tick, instance, HOURS, WAITING)
    # Both days in UTC that a day in Berlin overlaps must be there.
    assert [both.releases(hours, of_an_asset=False)[1] for hours in STEPS] == DAYS_OF_STEPS


@pytest.mark.parametrize("code", [WAITING, JOB, HOURS])
def test_loading_the_page_opens_no_services(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("opened while loading")

    monkeypatch.setattr("compaction_pipeline.defs.readiness.opened_services", refuse)
    loaded(code).get_repository_def()
