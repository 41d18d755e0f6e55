"""Two sets of definitions in one code location have no name in common, and each works on its own state database."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from compaction_pipeline.bootstrap import open_services
from compaction_pipeline.core.catalogs.definition import CatalogDefinition
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.property_rules import ASSET_KEY
from compaction_pipeline.definitions import Choices, definitions
from compaction_pipeline.defs.names import Names
from compaction_pipeline.settings import load_settings
from compaction_pipeline_tests.defs.lake import Lake
from compaction_pipeline_tests.defs.ticks import Tick, reason
from compaction_pipeline_tests.plain_names import NAMES

SILVER = Names(("silver",), "silver")
ORDERS = ("analytics", "orders")
"""An asset of a user, for which a table of each state database stands. Each set defines a check of its own on it."""


def silver_of(folder: Path, **settings: object) -> Choices:
    """A second set of definitions, with a state database in this folder."""
    return Choices({"asset_prefix": "silver", "state_url": f"sqlite:///{folder / 'silver.db'}", **settings}, name_prefix="silver")


@pytest.fixture
def silver_lake(tmp_path: Path) -> Lake:
    """A lake of its own, in which another table has the same name."""
    made = Lake(tmp_path / "silver_lake")
    made.create_orders()
    made.append_small_files(1, 4)
    return made


@pytest.fixture
def both(lake: Lake, silver_lake: Lake, tmp_path: Path) -> dg.Definitions:
    """The definitions of both lakes, in one code location. The first set has no prefix."""
    return definitions(Choices(), replace(silver_of(tmp_path), catalogs=(CatalogDefinition("lake", silver_lake.properties),)))


def all_names(made: dg.Definitions) -> set[object]:
    """Everything of which a code location may have only one of each name, and the partitions, which the whole instance shares."""
    repository = made.get_repository_def()
    graph, jobs = repository.asset_graph, [job for job in repository.get_all_jobs() if not job.name.startswith("__")]
    specs = list(made.resolve_all_asset_specs())
    return {
        *(graph.get_all_asset_keys() - {dg.AssetKey(ORDERS)}),
        *graph.asset_check_keys,
        *(job.name for job in jobs),
        *(node.name for job in jobs for node in job.all_node_defs),
        *(sensor.name for sensor in repository.sensor_defs),
        *(schedule.name for schedule in repository.schedule_defs),
        *(spec.partitions_def for spec in specs if spec.partitions_def is not None),
        *(key for key in made.resources or {} if key != "pyspark"),
    }


def test_two_sets_have_no_name_in_common(tmp_path: Path) -> None:
    asset_keys = {Lake.identifier: ORDERS}
    plain, silver = Choices(asset_keys=asset_keys), replace(silver_of(tmp_path), asset_keys=asset_keys)
    one, other = all_names(definitions(plain)), all_names(definitions(silver))
    assert (len(one), len(other)) == (len(one | other) / 2, len(one | other) / 2)
    assert all_names(definitions(plain, silver)) == one | other


def compacted(
    made: dg.Definitions, names: Names, instance: dg.DagsterInstance, *, launched: str | None = None
) -> dg.ExecuteInProcessResult:
    """One run of the job of this set, or of its asset when a partition is launched."""
    if launched is not None:
        job = made.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(instance=instance, asset_selection=[names.compacted_files], partition_key=launched)
    config = {"ops": {names.of("compact"): {"config": {"tables": ["lake.shop.orders"]}}}}
    return made.resolve_job_def(names.of("compact_job")).execute_in_process(instance=instance, run_config=config)


def committed(**chosen: Any) -> int:
    """How many records the state database with these settings has."""
    services = open_services(load_settings(chosen))
    try:
        return len(services.read_records.newest(Lake.identifier))
    finally:
        services.close()


def test_a_run_of_each_works_on_its_own_database(
    both: dg.Definitions, lake: Lake, silver_lake: Lake, tick: Tick, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    rows, silver_rows = lake.rows(), silver_lake.rows()
    database = str(silver_of(tmp_path).settings["state_url"])
    assert "1 new table" in reason(tick("silver_catalog_sensor", of=both))
    assert compacted(both, SILVER, instance).success
    assert (lake.files(), silver_lake.files()) == (9, 1)
    assert (committed(), committed(state_url=database)) == (0, 1)

    assert compacted(both, NAMES, instance).success
    assert (lake.files(), silver_lake.files()) == (3, 1)
    records = committed()
    assert (records > 0, committed(state_url=database)) == (True, 1)
    assert (lake.rows(), silver_lake.rows()) == (rows, silver_rows)
    for names, nodes, commits in ((NAMES, 2, records), (SILVER, 1, 1)):
        assert len(instance.get_dynamic_partitions(str(names.table_nodes.name))) == nodes
        assert len(instance.fetch_materializations(names.compacted_files, limit=9).records) == nodes
        assert len(instance.fetch_materializations(names.compaction_records, limit=9).records) == commits


def test_a_launch_of_a_node_that_is_no_partition_yet_looks_into_its_own_database(
    both: dg.Definitions, silver_lake: Lake, instance: dg.DagsterInstance
) -> None:
    assert compacted(both, SILVER, instance, launched="shop.orders/day=2026-01-01").success
    assert silver_lake.files() == 1
    assert list(instance.get_dynamic_partitions("table_nodes")) == []


def test_each_set_remembers_the_assets_of_its_own_tables(lake: Lake, silver_lake: Lake, tick: Tick, tmp_path: Path) -> None:
    sets = Choices(), replace(silver_of(tmp_path), catalogs=(CatalogDefinition("lake", silver_lake.properties),))
    for of_lake, asset in ((lake, "analytics/orders"), (silver_lake, "silver_orders")):
        of_lake.load("shop.orders").transaction().set_properties({ASSET_KEY: asset}).commit_transaction()
    for name in ("silver_catalog_sensor", "snapshot_sensor", "silver_snapshot_sensor", "own_assets_sensor", "silver_own_assets_sensor"):
        tick(name, of=definitions(*sets))
    loaded = definitions(*sets)
    checks = {key for key in loaded.get_repository_def().asset_graph.asset_check_keys if "compaction_health" in key.name}
    assert checks == {
        dg.AssetCheckKey(dg.AssetKey(ORDERS), "compaction_health"),
        dg.AssetCheckKey(dg.AssetKey("silver_orders"), "silver_compaction_health"),
    }
    assert "reload" not in reason(tick("own_assets_sensor", of=loaded))
    assert "reload" not in reason(tick("silver_own_assets_sensor", of=loaded))


@pytest.mark.parametrize(
    ("settings", "name_prefix", "said"),
    [
        ({}, "", "the attribute 'name_prefix' '': a code location has one job"),
        ({"asset_prefix": ""}, "silver", "the attribute 'asset_prefix' '': an asset key belongs to one of them"),
        ({"state_url": None}, "silver", "the same state database"),
        ({"spark_master": "local[3]"}, "silver", "different settings of Spark.*a process has one JVM"),
    ],
)
def test_sets_that_cannot_stand_together_are_refused(settings: dict[str, object], name_prefix: str, said: str, tmp_path: Path) -> None:
    second = replace(silver_of(tmp_path, **settings), name_prefix=name_prefix)
    assert definitions(second)
    with pytest.raises(ConfigError, match=f"two sets of definitions .*{said}.*; give each set|.*{said}.* give each set"):
        definitions(Choices(), second)


def test_a_name_prefix_that_dagster_would_refuse_is_refused_with_the_rule() -> None:
    with pytest.raises(ConfigError, match="attribute 'name_prefix' of CompactionPipeline is 'a b' but must be letters, digits and '_'"):
        Choices(name_prefix="a b")
