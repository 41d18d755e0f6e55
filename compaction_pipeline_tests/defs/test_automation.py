"""The automation condition for assets of users, evaluated by Dagster on an instance."""

from __future__ import annotations

from collections.abc import Callable

import dagster as dg
import pytest

from compaction_pipeline.automation import compacted_since_last_update, compactions_of
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.definitions import defs
from compaction_pipeline_tests.plain_names import COMPACTION_RECORDS

ORDERS, RETURNS = "lake.shop.orders", "lake.shop.returns"


@dg.asset(deps=[compactions_of(ORDERS)], automation_condition=compacted_since_last_update())
def statistics() -> None: ...


KEY = dg.AssetKey("statistics")
TOGETHER = dg.Definitions.merge(defs, dg.Definitions(assets=[statistics]))
Evaluate = Callable[[], list[str]]


@pytest.fixture
def evaluate(instance: dg.DagsterInstance) -> Evaluate:
    """A function that evaluates the condition as Dagster's sensor does, and returns the assets that it asks for."""
    instance.add_dynamic_partitions("tables", [ORDERS, RETURNS])
    cursor = None

    def tick() -> list[str]:
        nonlocal cursor
        result = dg.evaluate_automation_conditions(TOGETHER, instance, dg.AssetSelection.assets(KEY), cursor=cursor)
        cursor = result.cursor
        return [each.key.to_user_string() for each in result.results if each.true_subset.size]

    return tick


def compacted(instance: dg.DagsterInstance, table: str) -> None:
    instance.report_runless_asset_event(dg.AssetMaterialization(COMPACTION_RECORDS, partition=table))


def test_a_commit_asks_for_the_asset_once(instance: dg.DagsterInstance, evaluate: Evaluate) -> None:
    assert evaluate() == []
    compacted(instance, ORDERS)
    assert evaluate() == ["statistics"]
    assert evaluate() == []
    compacted(instance, ORDERS)
    instance.report_runless_asset_event(dg.AssetMaterialization("statistics"))
    assert evaluate() == [], "the asset was updated after the commit"


def test_the_first_commit_of_a_table_makes_its_partition_and_asks_for_the_asset(instance: dg.DagsterInstance, evaluate: Evaluate) -> None:
    instance.delete_dynamic_partition("tables", ORDERS)
    assert evaluate() == []
    instance.add_dynamic_partitions("tables", [ORDERS])
    compacted(instance, ORDERS)
    assert evaluate() == ["statistics"]
    assert evaluate() == []


def test_commits_of_other_tables_do_not_matter(instance: dg.DagsterInstance, evaluate: Evaluate) -> None:
    evaluate()
    compacted(instance, RETURNS)
    assert evaluate() == []
    compacted(instance, ORDERS)
    assert evaluate() == ["statistics"]


def test_a_commit_during_a_run_asks_for_the_asset_after_the_run(instance: dg.DagsterInstance, evaluate: Evaluate) -> None:
    evaluate()
    job = TOGETHER.resolve_implicit_global_asset_job_def()
    run = instance.create_run_for_job(job, asset_selection=frozenset({KEY}), status=dg.DagsterRunStatus.STARTED)
    compacted(instance, ORDERS)
    assert evaluate() == []
    instance.report_run_failed(run)
    assert evaluate() == ["statistics"]


def test_the_prefix_of_our_assets_is_an_argument_or_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compactions_of(ORDERS, asset_prefix="a/b").asset_key == dg.AssetKey(["a", "b", "compaction_records"])
    monkeypatch.setenv("COMPACTION_ASSET_PREFIX", "ops")
    assert compactions_of(ORDERS).asset_key == dg.AssetKey(["ops", "compaction_records"])


def test_a_name_that_is_no_table_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"catalog\.namespace\.table"):
        compactions_of("orders")


def test_the_default_sensor_of_dagster_can_evaluate_the_condition() -> None:
    assert compacted_since_last_update().is_serializable
