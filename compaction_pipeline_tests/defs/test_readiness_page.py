"""The code of the page about waiting for tables runs as it stands there, and opens nothing while it loads."""

from __future__ import annotations

import re
from pathlib import Path

import dagster as dg
import pytest

from compaction_pipeline_tests.defs.readiness import Tables, tables, utc
from compaction_pipeline_tests.defs.test_readiness import Automation, materialized, requested
from compaction_pipeline_tests.defs.ticks import Tick

__all__ = ["tables"]

PAGE = Path(__file__).parents[2] / "docs" / "readiness-dagster.md"
WAITING, JOB = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


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


@pytest.mark.parametrize("code", [WAITING, JOB])
def test_loading_the_page_opens_no_services(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("opened while loading")

    monkeypatch.setattr("compaction_pipeline.defs.readiness.opened_services", refuse)
    loaded(code).get_repository_def()
