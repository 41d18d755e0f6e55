"""How our assets depend on each other, as Dagster understands it: in launches, and when it calls something outdated ("Unsynced")."""

from __future__ import annotations

import dagster as dg
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.execution.asset_backfill import AssetBackfillData
from dagster._core.loader import LoadingContextForTest

from compaction_pipeline.definitions import defs
from compaction_pipeline_tests.defs.executed import launch, run
from compaction_pipeline_tests.defs.lake import Lake, key
from compaction_pipeline_tests.defs.ticks import Tick
from compaction_pipeline_tests.plain_names import (
    COMPACTED_FILES,
    COMPACTION_CAPACITY,
    COMPACTION_QUEUES,
    COMPACTION_RECORDS,
    DELTA_FILES,
    OPTIMIZERS,
    TABLE_FIGURES,
    TABLE_HEALTH,
    WAITING_JOBS,
)

SPECS = {spec.key: spec for spec in defs.resolve_all_asset_specs()}
SENSORS = ("snapshot_sensor", "fragmentation_sensor", "commit_sensor", "queue_sensor")


def test_each_asset_stands_behind_what_it_tells_of() -> None:
    behind = {asset: [dep.asset_key for dep in spec.deps] for asset, spec in SPECS.items()}
    assert behind == {
        DELTA_FILES: [],
        TABLE_HEALTH: [DELTA_FILES],
        TABLE_FIGURES: [DELTA_FILES],
        COMPACTION_QUEUES: [DELTA_FILES],
        OPTIMIZERS: [COMPACTION_QUEUES],
        WAITING_JOBS: [],
        COMPACTION_CAPACITY: [OPTIMIZERS],
        COMPACTED_FILES: [DELTA_FILES],
        COMPACTION_RECORDS: [COMPACTED_FILES],
    }


def test_each_dependency_between_different_partitions_names_its_mapping() -> None:
    unnamed = [
        (asset, dep.asset_key)
        for asset, spec in SPECS.items()
        for dep in spec.deps
        if spec.partitions_def != SPECS[dep.asset_key].partitions_def and dep.partition_mapping is None
    ]
    assert unnamed == []


def test_a_launch_of_nodes_with_all_that_is_downstream_launches_these_nodes_and_no_table(instance: dg.DagsterInstance) -> None:
    graph = defs.resolve_asset_graph()
    # A table without partitions, and its only node, have keys that differ by the catalog only.
    instance.add_dynamic_partitions("table_nodes", ["shop.orders", key(1)])
    instance.add_dynamic_partitions("tables", ["lake.shop.orders", "shop.orders"])
    selected = dg.AssetSelection.assets(COMPACTED_FILES).downstream().resolve(graph) & graph.executable_asset_keys
    assert selected == {COMPACTED_FILES, COMPACTION_RECORDS}
    launched = AssetBackfillData.from_asset_partitions(
        graph, ["shop.orders", key(1)], list(selected), instance, backfill_start_timestamp=0, all_partitions=False
    )
    target = {(each.asset_key, each.partition_key) for each in launched.target_subset.iterate_asset_partitions()}
    assert target == {(COMPACTED_FILES, "shop.orders"), (COMPACTED_FILES, key(1))}


def test_nothing_of_ours_is_outdated_when_all_is_told(lake: Lake, instance: dg.DagsterInstance, tick: Tick) -> None:
    cursors: dict[str, str | None] = {}

    def tick_all() -> None:
        for _ in range(2):
            for name in SENSORS:
                cursors[name] = tick(name, cursors.get(name)).cursor

    tick_all()
    # One node is compacted by a person, and one by a machine's run. Then a person launches both again, and a writer goes on.
    assert launch(instance, COMPACTED_FILES, key(1)).success
    tick_all()
    assert run(instance, "compact_job").success
    tick_all()
    assert launch(instance, COMPACTED_FILES, key(1), key(2)).success
    assert launch(instance, COMPACTION_RECORDS, "lake.shop.orders").success
    lake.append_small_files(1, 1)
    tick_all()
    resolver = CachingStaleStatusResolver(instance, defs.resolve_asset_graph(), LoadingContextForTest(instance))
    partitions = {asset: spec.partitions_def for asset, spec in SPECS.items()}
    statuses = {
        (asset.to_user_string(), partition): resolver.get_status(asset, partition)
        for asset, of in partitions.items()
        for partition in ([None] if of is None else instance.get_dynamic_partitions(str(of.name)))  # type: ignore[attr-defined]
    }
    assert len(statuses) >= 8
    assert [place for place, status in statuses.items() if status is StaleStatus.STALE] == []
