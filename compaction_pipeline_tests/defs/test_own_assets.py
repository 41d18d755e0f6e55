"""A table reports its health, its last compaction and a check to the asset that its property or the component names."""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pytest

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.tables.property_rules import ASSET_KEY
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.definitions import definitions
from compaction_pipeline.defs.choices import Choices
from compaction_pipeline.defs.own_checks import CHECK, remember, remembered
from compaction_pipeline_tests.defs.lake import Lake
from compaction_pipeline_tests.defs.ticks import Tick, reason
from compaction_pipeline_tests.plain_names import NAMES

ORDERS = dg.AssetKey(["analytics", "orders"])
SENSOR = "own_assets_sensor"


def name(lake: Lake, key: str, table: str = "shop.orders") -> None:
    lake.load(table).transaction().set_properties({ASSET_KEY: key}).commit_transaction()


def observed(result: dg.SensorResult) -> list[dg.AssetObservation]:
    return [event for event in result.asset_events if isinstance(event, dg.AssetObservation)]


def checked(result: dg.SensorResult) -> list[dg.AssetCheckEvaluation]:
    return [event for event in result.asset_events if isinstance(event, dg.AssetCheckEvaluation)]


def test_without_a_named_asset_the_tick_says_how_to_name_one(lake: Lake, tick: Tick) -> None:
    tick("snapshot_sensor")
    assert ASSET_KEY in reason(tick(SENSOR))


def test_the_asset_gets_health_and_a_check_and_after_a_commit_the_last_compaction(
    lake: Lake, services: Services, tick: Tick, instance: dg.DagsterInstance
) -> None:
    name(lake, "analytics/orders")
    tick("snapshot_sensor")
    first = tick(SENSOR)
    (observation,), (evaluation,) = observed(first), checked(first)
    assert (observation.asset_key, observation.partition) == (ORDERS, None)
    assert observation.metadata["compaction/table"].value == "lake.shop.orders"
    assert observation.metadata["compaction/health"].value == "DUE"
    score = observation.metadata["compaction/health_score_points"].value
    assert str(observation.metadata["compaction/health_score"].value).startswith(f"{score} of 100")
    assert observation.metadata["compaction/small_files_count"].value == 9
    assert "compaction/last_compaction" not in observation.metadata
    assert (evaluation.asset_key, evaluation.check_name, evaluation.passed) == (ORDERS, CHECK, True)
    again = tick(SENSOR, first.cursor)
    assert again.asset_events == []
    assert "0 of 1 asset told of changes" in reason(again)

    assert services.compact_tables.compact(Lake.identifier).committed
    (told,) = observed(tick(SENSOR, again.cursor))
    assert told.metadata["compaction/files_count"].value == 3
    assert str(told.metadata["compaction/last_compaction_did"].value).startswith("8 data files → 2; the table 9 data files → 3; snapshot ")
    assert told.metadata["compaction/last_compaction"].value > services.clock().timestamp() - 600
    assert instance.fetch_observations(ORDERS, limit=9).records[0].asset_observation == told


@pytest.mark.parametrize("bad", ["", "a//b", "/", " / x"])
def test_a_bad_key_is_told_and_the_table_is_compacted_all_the_same(bad: str, lake: Lake, services: Services, tick: Tick) -> None:
    name(lake, bad)
    tick("snapshot_sensor")
    result = tick(SENSOR)
    assert result.asset_events == []
    said = f"1 table without an asset, e.g. lake.shop.orders: '{ASSET_KEY}' is {bad!r} but must be levels separated by '/'"
    assert said in reason(result)
    assert f"SET TBLPROPERTIES ('{ASSET_KEY}' = '…')" in reason(result)
    assert str(services.read_tables.table(Lake.identifier).overview.warning).startswith(f"lake.shop.orders: '{ASSET_KEY}'")
    assert services.compact_tables.compact(Lake.identifier).committed


def test_an_asset_that_nobody_defines_is_named(lake: Lake, tick: Tick, instance: dg.DagsterInstance) -> None:
    name(lake, "analytics/ordrs")
    tick("snapshot_sensor")
    first = tick(SENSOR)
    said = "1 asset never materialized, e.g. analytics/ordrs, which lake.shop.orders names: correct the key"
    assert said in reason(first)
    assert said in reason(tick(SENSOR, first.cursor))
    instance.report_runless_asset_event(dg.AssetMaterialization(["analytics", "ordrs"]))
    assert "never materialized" not in reason(tick(SENSOR, first.cursor))


def test_a_check_is_told_again_after_the_asset_was_materialized(lake: Lake, tick: Tick, instance: dg.DagsterInstance) -> None:
    name(lake, "analytics/orders")
    tick("snapshot_sensor")
    first = tick(SENSOR)
    # The cursor keeps whole seconds, so the report is made to lie in the past.
    cursor = json.dumps({key: " ".join([*text.split()[:2], "1000000"]) for key, text in json.loads(first.cursor or "").items()})
    assert tick(SENSOR, cursor).asset_events == []
    instance.report_runless_asset_event(dg.AssetMaterialization(ORDERS))
    assert len(checked(tick(SENSOR, cursor))) == 1


def test_an_asset_that_somebody_else_observes_gets_the_check_only(lake: Lake, tick: Tick, instance: dg.DagsterInstance) -> None:
    instance.report_runless_asset_event(dg.AssetObservation(ORDERS, metadata={"rows": 7}))
    name(lake, "analytics/orders")
    tick("snapshot_sensor")
    result = tick(SENSOR)
    assert observed(result) == []
    assert checked(result)[0].metadata["compaction/health"].value == "DUE"


def test_a_refused_table_turns_the_check_red(lake: Lake, services: Services, tick: Tick) -> None:
    name(lake, "analytics/orders")
    lake.load("shop.orders").transaction().set_properties({"self-optimizing.fragment-ratio": "1"}).commit_transaction()
    tick("snapshot_sensor")
    (evaluation,) = checked(tick(SENSOR))
    assert (evaluation.passed, evaluation.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "'self-optimizing.fragment-ratio' is 1" in str(evaluation.description)


def test_the_component_names_assets_too_and_wins_over_the_property(lake: Lake, tick: Tick) -> None:
    name(lake, "a//b")
    gone = TableIdentifier("lake", ("shop",), "ordrs")
    choices = Choices(asset_keys={Lake.identifier: ("mine",), gone: ("other",)})
    tick("snapshot_sensor")
    result = tick(SENSOR, of=definitions(choices))
    assert [event.asset_key for event in observed(result)] == [dg.AssetKey("mine")]
    said = "1 table without an asset, e.g. attribute 'asset_keys' names lake.shop.ordrs, but its catalog has no such table"
    assert said in reason(result)


def test_the_next_load_defines_the_check_of_each_asset(lake: Lake, services: Services, tick: Tick) -> None:
    name(lake, "analytics/orders")
    tick("snapshot_sensor")
    assert "reload this code location, so that the checks of 1 asset appear or go" in reason(tick(SENSOR))
    defined = remembered(NAMES, services.settings.home)
    assert defined == {("analytics", "orders")}
    made = definitions()
    assert "reload" not in reason(tick(SENSOR, of=made))
    check = dg.define_asset_job("check", selection=dg.AssetSelection.checks(dg.AssetCheckKey(ORDERS, CHECK)))
    done = dg.Definitions.merge(made, dg.Definitions(jobs=[check])).resolve_job_def("check")
    (judged,) = done.execute_in_process().get_asset_check_evaluations()
    assert (judged.asset_key, judged.check_name, judged.passed) == (ORDERS, CHECK, True)
    assert "lake.shop.orders is DUE" in str(judged.description)


def test_a_damaged_or_missing_list_of_assets_counts_as_none(tmp_path: Path) -> None:
    assert remembered(NAMES, tmp_path) == frozenset()
    remember(NAMES, [("a", "b")], tmp_path)
    assert remembered(NAMES, tmp_path) == {("a", "b")}
    (tmp_path / "own_assets.json").write_text("[3")
    assert remembered(NAMES, tmp_path) == frozenset()
    remember(NAMES, [("a",)], tmp_path / "nowhere")
