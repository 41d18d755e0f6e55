"""The nodes of all tables are ranked by what readers gain for what the work is predicted to cost."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from compaction_pipeline.core.errors import ConfigError, StorageUnavailable
from compaction_pipeline.core.fragmentation.verdict import PlanReason, PlanReasonCode
from compaction_pipeline.core.planning.plan import CompactionPlan
from compaction_pipeline.core.queue.optimizer import Optimizer
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.services.planning.due_nodes import DueNodes
from compaction_pipeline.services.planning.rank_by_benefit import RankByBenefit
from compaction_pipeline_tests.behaviours.example_tasks import LEASE, example, prepared
from compaction_pipeline_tests.builders import NOW, TABLE, node
from compaction_pipeline_tests.state import sqlite_stores

ONE = Optimizer("o1", "default", "host", "1", "1.0", 1, NOW, NOW, memory_bytes=3_600 * 10**6)
OTHER = TableIdentifier(TABLE.catalog, TABLE.namespace, "other")
BROKEN = TableIdentifier(TABLE.catalog, TABLE.namespace, "broken")


def explain(table: TableIdentifier) -> CompactionPlan:
    """The first table has a node with many small files and one with large files; the other has one node."""
    if table == BROKEN:
        raise StorageUnavailable("its catalog is away")
    many = example("m", files=tuple(f"m{number}" for number in range(20)), inputs_kb=1, node=node(1)).work
    large = example("l", inputs_kb=1_000, node=node(2)).work
    tasks = (many, large) if table == TABLE else (example("o", node=node(3)).work,)
    return CompactionPlan(tasks, PlanReason(PlanReasonCode.PLANNED, "due"))


class House:
    def __init__(self, folder: Path) -> None:
        self.stores = stores = sqlite_stores(folder)
        stores.catalogs.add(CatalogEntry(TABLE.catalog, {"table.compaction.read-weight": "2"}))
        for table in (TABLE, OTHER, BROKEN):
            stores.index.add(table)
        due_nodes = DueNodes(stores.tables, stores.catalogs)
        self.ranks = RankByBenefit(stores.tables, stores.costs, explain, due_nodes, lambda: NOW)

    def merge(self, memory_bytes: int, kilobytes: float, seconds: float) -> None:
        """An attempt on the first table that has merged its task."""
        name = f"past{memory_bytes}{kilobytes}"
        self.stores.optimizers.add(replace(ONE, optimizer_id=name, memory_bytes=memory_bytes))
        self.stores.tasks.insert([example(name, inputs_kb=kilobytes)], [], NOW)
        task = self.stores.tasks.poll(None, name, NOW, LEASE, [name])
        assert task is not None
        self.stores.tasks.complete(prepared(task), NOW + timedelta(seconds=seconds))


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_without_a_known_reserve_nothing_can_be_predicted(house: House) -> None:
    house.merge(0, 100, 1)
    with pytest.raises(ConfigError, match="start optimizers with --memory"):
        house.ranks.rank(4.0)


def test_the_node_with_the_most_files_for_its_bytes_comes_first_and_the_budget_ends_where_it_is_spent(house: House) -> None:
    for kilobytes, seconds in ((100, 10), (200, 20), (400, 40)):
        house.merge(3_600 * 10**6, kilobytes, seconds)
    found = house.ranks.rank(0.05)
    first, second, third = found.nodes
    assert [(one.due.table, one.due.node) for one in found.nodes] == [(TABLE, node(1)), (OTHER, node(3)), (TABLE, node(2))]
    # The weight of the catalog doubles the gain: 20 files and a delete become one file.
    assert first.due.benefit == 2 * (20 - 1 + 1)
    assert [one.is_within for one in found.nodes] == [True, True, False]
    assert third.gb_hours_so_far == pytest.approx(sum(one.due.gb_hours for one in (first, second, third)))
    # 3.6 GB for a second are a thousandth of a GB-hour. The past attempts took a second for 20 kB.
    assert third.due.gb_hours == pytest.approx(0.1, rel=0.1)
    assert third.due.error == pytest.approx(1, abs=0.1)
    assert found.unknown == {str(BROKEN): "its catalog is away"}
    assert [one.due.table for one in house.ranks.rank(0.05, OTHER).nodes] == [OTHER]
