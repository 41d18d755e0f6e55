"""The component `CompactionPipeline` makes the same definitions as the plain module, with what its YAML says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest
from dagster_pyspark import LazyPySparkResource
from pydantic import ValidationError

import compaction_pipeline
from compaction_pipeline.component import CompactionPipeline
from compaction_pipeline.core.catalogs.definition import CatalogDefinition
from compaction_pipeline.core.catalogs.problem import DefinitionError
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.definitions import definitions, defs
from compaction_pipeline.defs.choices import Choices
from compaction_pipeline.defs.resources import SparkOfSettings
from compaction_pipeline_tests.core.catalogs.bad_definitions import BAD, SECRET
from compaction_pipeline_tests.defs.lake import Lake
from compaction_pipeline_tests.defs.ticks import Tick, reason

_LOAD = """
import json, sys
import dagster as dg
from compaction_pipeline import CompactionPipeline
made = CompactionPipeline.from_attributes_dict(attributes=json.loads(sys.argv[1]))
loaded = [dg.build_defs_for_component(made) for _ in range(2)][1]
repository = loaded.get_repository_def()
print(json.dumps({
    "keys": sorted(key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()),
    "owners": sorted({owner for spec in loaded.resolve_all_asset_specs() for owner in spec.owners}),
    "intervals": {sensor.name: sensor.minimum_interval_seconds for sensor in repository.sensor_defs},
    "executor": loaded.executor is not None,
}))
"""


def load(home: Path, attributes: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Load the component with these attributes in a process of its own, whose environment is the given one alone."""
    return subprocess.run(
        [sys.executable, "-c", _LOAD, json.dumps(attributes)],
        capture_output=True,
        text=True,
        env={"PATH": "", "HOME": str(home), "COMPACTION_HOME": str(home / "compaction"), **environment},
    )


def test_every_bad_definition_of_a_catalog_keeps_the_component_from_loading() -> None:
    """Whether a group exists is known only with a state database, so the first tick says that.

    Dagster takes "yes" and 1 for true, and makes numbers of texts, so a number is a text here.
    """
    of_kinds = ("observe in words", "observe as a number", "a number in properties", "a switch in properties", "all at once")
    elsewhere = ("no group of this name", *of_kinds)
    tried = [bad for bad in BAD if isinstance(bad.given, dict) and bad.name not in elsewhere]
    assert len(tried) > 45
    in_words = 0
    for bad in tried:
        with pytest.raises((ConfigError, dg.DagsterError, ValidationError)) as caught:
            CompactionPipeline.from_attributes_dict(attributes={"catalogs": [bad.given]}).choices()
        if isinstance(caught.value, DefinitionError):
            in_words += 1
            assert {one.key for one in caught.value.problems} >= bad.keys, bad.name
            assert bad.said in str(caught.value)
            assert SECRET not in str(caught.value)
    assert in_words > 30, "Dagster itself tells the others: values of a kind that the schema of the YAML does not have"


def test_attributes_win_over_the_environment_and_loading_opens_nothing(tmp_path: Path) -> None:
    attributes = {
        "asset_prefix": "platform/compaction",
        "asset_owners": ["team:lake", "me@example.com"],
        "sensor_interval_seconds": 7,
        "catalogs": [{"name": "lake", "properties": {"type": "rest", "uri": "http://127.0.0.1:1"}}],
    }
    done = load(tmp_path, attributes, COMPACTION_ASSET_PREFIX="other", COMPACTION_KEEPER_INTERVAL_SECONDS="9")
    made = json.loads(done.stdout)
    assert {key.rpartition("/")[0] for key in made["keys"]} == {"platform/compaction"}
    assert made["owners"] == ["me@example.com", "team:lake"]
    assert (made["intervals"]["snapshot_sensor"], made["intervals"]["keeper_sensor"]) == (7, 9)
    assert list(tmp_path.iterdir()) == []


def test_the_component_brings_no_executor_into_the_project_of_somebody_else(tmp_path: Path) -> None:
    assert json.loads(load(tmp_path, {}).stdout)["executor"] is False


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"asset_prefix": "a//b"}, "attribute 'asset_prefix' of CompactionPipeline is 'a//b' but must be levels of letters"),
        ({"asset_owners": ["data"]}, "attribute 'asset_owners' of CompactionPipeline is 'data' but must be team:name"),
        ({"catalogs": [{"name": "a.b", "properties": {}}]}, "catalog 'a.b': 'name' is 'a.b' but must be 1 to 100 letters"),
        (
            {"catalogs": [{"name": "a", "type": "glue", "properties": {"table.self-optimizing.qota": "x"}}]},
            "catalog 'a': there is no property 'table.self-optimizing.qota'; do you mean",
        ),
    ],
)
def test_an_attribute_that_breaks_its_rule_is_named_with_the_rule(tmp_path: Path, attributes: object, said: str) -> None:
    done = load(tmp_path, attributes)
    assert done.returncode != 0
    assert f"Error: {said}" in done.stderr


def test_without_attributes_it_makes_the_definitions_of_the_module() -> None:
    made = dg.build_defs_for_component(compaction_pipeline.CompactionPipeline())
    assert _names(made) == _names(defs)


def _names(made: dg.Definitions) -> set[str]:
    repository = made.get_repository_def()
    graph = repository.asset_graph
    return {
        *(key.to_user_string() for key in graph.get_all_asset_keys()),
        *(check.name for check in graph.asset_check_keys),
        *(job.name for job in repository.get_all_jobs()),
        *(sensor.name for sensor in repository.sensor_defs),
        *(schedule.name for schedule in repository.schedule_defs),
    }


def test_the_first_tick_registers_the_declared_catalogs(lake: Lake, tick: Tick, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COMPACTION_HOME", str(tmp_path))
    entries = (
        CatalogDefinition("lake", lake.properties),
        CatalogDefinition("down", {"type": "sql", "uri": "sqlite:////nowhere/at/all.db"}),
    )
    made = definitions(Choices(catalogs=entries))
    assert "1 new table, 0 dropped tables; 1 catalog could not be listed, e.g. down: " in reason(tick("catalog_sensor", of=made))


def test_the_package_has_no_other_attribute() -> None:
    assert "CompactionPipeline" in dir(compaction_pipeline)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        compaction_pipeline.Nothing  # noqa: B018


def _pyspark_of(attributes: object) -> object:
    """The resource `pyspark` that the component defines; None when it leaves the key to the project."""
    made = CompactionPipeline.from_attributes_dict(attributes={"pyspark": attributes} if attributes else {})
    return (dg.build_defs_for_component(made).resources or {}).get("pyspark")


def test_the_component_takes_a_spark_of_dagster_pyspark_or_of_the_project() -> None:
    assert isinstance(_pyspark_of(None), SparkOfSettings)
    lazy = _pyspark_of({"spark.master": "spark://there:7077"})
    assert isinstance(lazy, LazyPySparkResource)
    assert lazy.spark_config == {"spark.master": "spark://there:7077"}
    assert _pyspark_of("project") is None
    mine = SimpleNamespace(spark_session=object())
    assert (dg.build_defs_for_component(CompactionPipeline(pyspark=mine)).resources or {})["pyspark"] is mine
    with pytest.raises(ConfigError, match="'pyspark' of CompactionPipeline is 'local' but must be 'project' or a mapping"):
        _pyspark_of("local")
