"""The walk over all partitions rests when nothing changed, and begins again when something did."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import dagster as dg

from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.insight.overview import NodeOverview
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.defs.file_events import MOST_EVENTS
from compaction_pipeline.defs.walk import Walk, next_keys, walked
from compaction_pipeline.services.insight.overviews import tables_with_nodes
from compaction_pipeline_tests.defs.lake import Lake
from compaction_pipeline_tests.defs.ticks import Tick
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.plain_names import DELTA_FILES, NAMES
from compaction_pipeline_tests.statements import statements

NOW = datetime(2026, 5, 1, 23, tzinfo=timezone.utc)
ORDERS = TableIdentifier("lake", ("shop",), "orders")


def overview(name: str, snapshot_id: int = 1, health: HealthStatus = HealthStatus.HEALTHY) -> NodeOverview:
    return NodeOverview(ORDERS, TableNode(0), name, NodeMetrics(), health, "why", changed_snapshot_id=snapshot_id)


def step(
    instance: dg.DagsterInstance, walk: Walk, nodes: list[NodeOverview], now: datetime = NOW, most: int = MOST_EVENTS
) -> tuple[Walk, list[str], list[str]]:
    """Walk on and store what was found, as the daemon does. Returns the walk, the new partitions, and the nodes that were told."""
    walk, requests, events = walked(NAMES, instance, walk, nodes, now, most)
    new = [one for request in requests for one in request.partition_keys]
    instance.add_dynamic_partitions("table_nodes", new)
    for event in events:
        instance.report_runless_asset_event(event)
    return walk, new, [str(event.partition) for event in events if isinstance(event, dg.AssetMaterialization)]


def test_a_walk_takes_pages_until_it_has_come_round_and_then_rests(instance: dg.DagsterInstance) -> None:
    names = ["a", "b", "c", "d", "e"]
    nodes = [overview(name) for name in names]
    instance.add_dynamic_partitions("table_nodes", names)
    walk, told = Walk(), []
    for _ in range(3):
        walk, _, of_tick = step(instance, Walk.of(walk.text), nodes, most=2)
        told += of_tick
    assert sorted(told) == names
    assert walk.left == 0
    assert step(instance, walk, nodes) == (walk, [], [])


def test_a_resting_walk_goes_on_when_a_node_or_the_newest_partition_changes_and_once_a_day(instance: dg.DagsterInstance) -> None:
    instance.add_dynamic_partitions("table_nodes", ["a"])
    walk, _, told = step(instance, Walk(), [overview("a"), overview("b")])
    assert (told, walk.left) == (["a"], 0)
    walk, _, told = step(instance, walk, [overview("a", snapshot_id=2), overview("b")])
    assert (told, walk.left) == (["a"], 0)
    instance.add_dynamic_partitions("table_nodes", ["b"])
    walk, _, told = step(instance, walk, [overview("a", snapshot_id=2), overview("b")])
    assert (told, walk.left) == (["b"], 0)
    instance.wipe_assets([DELTA_FILES])
    assert step(instance, walk, [overview("a", snapshot_id=2), overview("b")])[2] == []
    walk, _, told = step(instance, walk, [overview("a", snapshot_id=2), overview("b")], NOW + timedelta(hours=1))
    assert sorted(told) == ["a", "b"]


def test_a_node_that_needs_care_becomes_a_partition_and_is_told(instance: dg.DagsterInstance) -> None:
    walk, new, told = step(instance, Walk(), [overview("a")])
    assert (new, told) == ([], [])
    ill = [overview("a", health=HealthStatus.FAILING)]
    walk, new, told = step(instance, walk, ill)
    assert (new, told) == (["a"], ["a"])
    walk, new, told = step(instance, walk, ill)
    assert (new, told) == ([], [])
    assert step(instance, walk, ill) == (walk, [], [])


def test_after_the_last_key_the_first_one_follows() -> None:
    assert next_keys(["b", "a", "c"], "") == ["a", "b", "c"]
    assert next_keys(["b", "a", "c"], "b") == ["c", "a", "b"]
    assert next_keys([], "b") == []


def test_a_tick_with_nothing_new_reads_neither_nodes_nor_partitions(lake: Lake, services: OpenedServices, tick: Tick) -> None:
    lake.orders.transaction().set_properties({"self-optimizing.minor.trigger.file-count": "50"}).commit_transaction()
    tick("snapshot_sensor")
    cursor = None
    for _ in range(3):
        cursor = tick("fragmentation_sensor", cursor).cursor
    assert json.loads(cursor or "")["walk"].split(" ")[1] == "0"

    def overviews() -> list[object]:
        stores = services.stores
        return [each.nodes for each in tables_with_nodes(stores.catalogs.entries(), stores.tables, stores.tasks, services.clock())]

    before = overviews()
    with statements() as asked:
        assert tick("fragmentation_sensor", cursor).asset_events == []
    assert not [each for each in asked if "FROM compaction_node" in each]
    [newest] = [each for each in asked if "FROM dynamic_partitions" in each]
    assert "LIMIT" in newest
    assert all(one is other for one, other in zip(before, overviews(), strict=True)), "overviews of nodes were made anew"
