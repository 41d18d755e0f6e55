"""A node gets its key once. It keeps it whatever happens to the node, and no other node gets it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.figures import MeasuredNode, NodeMetrics
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.storage.stores import open_stores
from compaction_pipeline_tests.builders import NOW, TABLE, node

SAME_NAME = replace(TABLE, catalog="pond")
OLD_SPEC, NEW_SPEC = node("1"), replace(node("1"), spec_id=1)
SHORT, LONG, LONG_OF_POND = "shop.orders/dt=1", "lake.shop.orders/1/dt=1/0-0", "pond.shop.orders/0/dt=1/0-0"


def measure(stores: Stores, *nodes: TableNode) -> None:
    stores.index.save_figures(TABLE, [MeasuredNode(one, NodeMetrics(data_files=1), 1) for one in nodes], NOW)


def known_keys(stores: Stores) -> dict[TableNode, str]:
    return {state.node: state.key for state in stores.tables.nodes()}


def test_a_node_that_is_measured_gets_a_key_and_is_found_by_it(stores: Stores) -> None:
    measure(stores, OLD_SPEC)
    assert known_keys(stores) == {OLD_SPEC: SHORT}
    assert stores.node_keys.keys(TABLE, [OLD_SPEC]) == {OLD_SPEC: SHORT}
    assert stores.tables.node(SHORT).node == OLD_SPEC


def test_the_first_node_has_the_short_form_and_later_ones_the_long_form(stores: Stores) -> None:
    measure(stores, NEW_SPEC)
    measure(stores, OLD_SPEC, NEW_SPEC)
    assert known_keys(stores) == {NEW_SPEC: SHORT, OLD_SPEC: "lake.shop.orders/0/dt=1/0-0"}
    assert stores.node_keys.keys(SAME_NAME, [OLD_SPEC]) == {OLD_SPEC: LONG_OF_POND}


def test_keys_are_asked_for_and_given_in_one_question(stores: Stores) -> None:
    measure(stores, OLD_SPEC)
    assert stores.node_keys.keys(TABLE, [OLD_SPEC, NEW_SPEC, node("2")]) == {OLD_SPEC: SHORT, NEW_SPEC: LONG, node("2"): "shop.orders/dt=2"}
    assert stores.node_keys.keys(TABLE, []) == {}
    # A key says nothing about files.
    assert set(known_keys(stores)) == {OLD_SPEC}


def test_a_node_that_comes_back_has_its_key_again(stores: Stores) -> None:
    measure(stores, NEW_SPEC, OLD_SPEC)
    before = known_keys(stores)
    stores.index.remove_nodes(TABLE, [OLD_SPEC, NEW_SPEC])
    measure(stores, NEW_SPEC)
    measure(stores, OLD_SPEC)
    assert known_keys(stores) == before


def test_a_table_that_was_created_again_has_its_keys_again(stores: Stores) -> None:
    stores.index.add(TABLE)
    measure(stores, NEW_SPEC, OLD_SPEC)
    before = known_keys(stores)
    stores.index.begin_anew(TABLE, stores.tables.state(TABLE).index_version)
    measure(stores, NEW_SPEC)
    stores.index.forget(TABLE)
    measure(stores, NEW_SPEC)
    measure(stores, OLD_SPEC)
    assert known_keys(stores) == before


def test_nodes_of_a_removed_catalog_keep_their_keys_from_others(stores: Stores) -> None:
    stores.catalogs.add(CatalogEntry("lake", {}))
    stores.index.add(TABLE)
    measure(stores, OLD_SPEC)
    stores.catalogs.remove("lake")
    assert stores.node_keys.keys(SAME_NAME, [OLD_SPEC]) == {OLD_SPEC: LONG_OF_POND}
    measure(stores, OLD_SPEC)
    assert known_keys(stores) == {OLD_SPEC: SHORT}


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_processes_that_give_keys_at_once_give_each_key_to_one_node(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    processes = [open_stores(url) for _ in range(4)]
    nodes = [node(str(number)) for number in range(40)]
    tables = [TABLE, SAME_NAME, replace(TABLE, catalog="sea"), TABLE]

    def give(number: int) -> dict[TableNode, str]:
        # Two processes ask for the nodes of one table, in the opposite order.
        asked = nodes if number % 2 else nodes[::-1]
        keys: dict[TableNode, str] = {}
        for start in range(0, len(asked), 8):
            keys |= processes[number].node_keys.keys(tables[number], asked[start : start + 8])
        return keys

    with ThreadPoolExecutor(4) as pool:
        lake, pond, sea, again = pool.map(give, range(4))
    for stores in processes:
        stores.close()
    assert lake == again
    assert len({*lake.values(), *pond.values(), *sea.values()}) == 120
    for one in nodes:
        assert [keys[one].count("/") for keys in (lake, pond, sea)].count(1) == 1
