"""How well optimizers are used, and the command that a person runs then."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from compaction_pipeline.cli.cost_tables import idle_table, uses_table
from compaction_pipeline.core.capacity.costs import CostKey
from compaction_pipeline.core.capacity.driver_gc import DriverGc
from compaction_pipeline.core.capacity.slot_time import SlotTotals
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.queue.container import Container, ContainerKind
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.services.capacity.read_costs import ReadCosts
from compaction_pipeline.services.capacity.read_use import OptimizerUse, ReadUse
from compaction_pipeline_tests.behaviours.example_tasks import LEASE, example, prepared
from compaction_pipeline_tests.builders import NOW
from compaction_pipeline_tests.state import sqlite_stores

HALF_HOUR = timedelta(minutes=30)
BY_HAND = Optimizer("by-hand", "default", "host", "1", "1.0", 4, NOW, NOW, memory_bytes=8 * 10**9, cores=4.0)


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return sqlite_stores(tmp_path)


def uses(stores: Stores, after: timedelta) -> dict[str, OptimizerUse]:
    return {each.optimizer_id: each for each in ReadUse(stores.optimizers, stores.costs, stores.groups, lambda: NOW + after).uses()}


def work(stores: Stores, owner: str, attempts: int, seconds: float, cpu: float) -> None:
    """So many attempts at a time for the last half hour, which lasted so long and used so much CPU."""
    for number in range(attempts):
        task_id = f"{owner}{number}"
        stores.tasks.insert([example(task_id)], [], NOW)
        task = stores.tasks.poll(None, owner, NOW, LEASE, [task_id])
        assert task is not None
        result = replace(prepared(task), cpu_ms=int(cpu * 1000), peak_memory_bytes=10**9)
        stores.tasks.complete(result, NOW + timedelta(seconds=seconds))


def test_an_optimizer_that_is_young_has_no_score(stores: Stores) -> None:
    stores.optimizers.add(BY_HAND)
    assert uses(stores, HALF_HOUR - timedelta(seconds=1))["by-hand"] == OptimizerUse("by-hand", "default", 4, None)
    assert uses(stores, HALF_HOUR)["by-hand"].use is not None


def test_one_without_tasks_is_drained_or_its_group_gets_fewer(stores: Stores) -> None:
    stores.groups.add(ResourceGroup("own group", container="local", properties={"instances": "3", "min-instances": "3"}))
    managed = replace(BY_HAND, optimizer_id="managed", group="own group", container="local")
    starting = replace(managed, optimizer_id="starting", state=OptimizerState.STARTING)
    for each in (BY_HAND, managed, starting):
        stores.optimizers.add(each)
    found = uses(stores, HALF_HOUR)
    assert {name: each.command for name, each in found.items()} == {
        "by-hand": "compaction-pipeline optimizer drain by-hand",
        "managed": "compaction-pipeline group change 'own group' -p instances=2 -p min-instances=2",
    }


def test_half_idle_slots_go_and_the_lowest_score_comes_first(stores: Stores) -> None:
    stores.groups.add(ResourceGroup("g", container="local"))
    managed = replace(BY_HAND, optimizer_id="managed", group="g", container="local")
    for each in (BY_HAND, managed):
        stores.optimizers.add(each)
    work(stores, "by-hand", 2, 1800, 1800)
    work(stores, "managed", 1, 1800, 1800)
    found = uses(stores, HALF_HOUR)
    assert list(found) == ["managed", "by-hand"]
    assert found["managed"].command == "compaction-pipeline group change g -p parallelism=1 -p memory=3100000000"
    assert found["by-hand"].command == "compaction-pipeline optimizer --server … --group default --parallelism 2 --memory 4600000000"


SCALED = {"dynamic-allocation.enabled": "true", "dynamic-allocation.max-parallelism": "16", "parallelism": "4"}


@pytest.mark.parametrize(
    ("more", "attempts", "cpu", "changes"),
    [
        ({}, 0, 0, ""),
        ({"min-parallelism": "8"}, 0, 0, " -p min-parallelism=4"),
        ({"dynamic-allocation.min-parallelism": "8"}, 0, 0, " -p dynamic-allocation.min-parallelism=4"),
        ({}, 1, 1800, " -p dynamic-allocation.executor-parallelism=1"),
        ({"dynamic-allocation.executor-parallelism": "1", "dynamic-allocation.max-executor-parallelism": "4"}, 1, 1800, ""),
        ({}, 4, 20, " -p dynamic-allocation.max-executor-parallelism=8"),
        ({"dynamic-allocation.max-executor-parallelism": "8"}, 4, 20, ""),
    ],
)
def test_the_remedy_in_a_group_with_a_policy_changes_the_policy(
    stores: Stores, more: dict[str, str], attempts: int, cpu: float, changes: str
) -> None:
    """What the policy decides by itself needs no command: `instances` and `parallelism` are only what it begins with."""
    stores.groups.add(ResourceGroup("g", container="local", properties={**SCALED, **more}))
    stores.optimizers.add(replace(BY_HAND, optimizer_id="managed", group="g", container="local"))
    work(stores, "managed", attempts, 1800, cpu)
    found = uses(stores, HALF_HOUR)["managed"]
    assert found.use is not None
    assert found.use.is_low
    assert found.command == (f"compaction-pipeline group change g{changes}" if changes else "")
    key = changes.removeprefix(" -p ").partition("=")[0]
    assert found.use.remedy.endswith("; the policy of scaling of group g decides that" + (f", within its {key}" if key else ""))


def test_an_optimizer_without_spark_gets_one_beside_it_and_no_second_slot(stores: Stores) -> None:
    """`--parallelism 2` is refused where COMPACTION_MERGE_ENGINE is in-process."""
    stores.groups.add(ResourceGroup("g", container="local", properties={"instances": "2"}))
    stores.groups.add(ResourceGroup("scaled", container="local", properties={**SCALED, "parallelism": "1"}))
    alone = replace(BY_HAND, parallelism=1, memory_bytes=2 * 10**9)
    of_spark = replace(alone, optimizer_id="spark", host="b", application="local-1")
    managed = replace(alone, optimizer_id="managed", group="g", container="local", host="c")
    scaled = replace(alone, optimizer_id="scaled", group="scaled", container="local", host="d")
    for each in (alone, of_spark, managed, scaled):
        stores.optimizers.add(each)
        work(stores, each.optimizer_id, 1, 1800, 20)
    found = uses(stores, HALF_HOUR)
    told = {name: each.use.remedy.partition(", because")[0] for name, each in found.items() if each.use is not None}
    assert told["by-hand"] == told["managed"] == "its slot waits for storage: one more optimizer uses the cores better"
    assert told["spark"].startswith("its slots wait for storage: parallelism 2 uses the cores better")
    assert found["by-hand"].command == "compaction-pipeline optimizer --server … --group default --memory 2000000000"
    assert found["managed"].command == "compaction-pipeline group change g -p instances=3"
    assert found["scaled"].command == ""
    assert found["scaled"].use is not None
    assert found["scaled"].use.remedy.endswith("has one slot; the policy of scaling of group scaled decides that")


def test_a_better_size_has_a_better_score(stores: Stores) -> None:
    stores.optimizers.add(BY_HAND)
    work(stores, "by-hand", 2, 1800, 1800)
    before = uses(stores, HALF_HOUR)["by-hand"].use
    assert before is not None
    assert before.better is not None
    better = replace(BY_HAND, optimizer_id="better", parallelism=before.better.slots, memory_bytes=before.better.memory_bytes)
    stores.optimizers.add(better)
    work(stores, "better", 2, 1800, 1800)
    after = uses(stores, HALF_HOUR)["better"].use
    assert after is not None
    assert (before.score, after.score, after.reasons) == (67, 100, ())


@pytest.mark.parametrize(("by", "days"), [(CostKey.TABLE, 36), (CostKey.DAY, 401), (CostKey.TEAM, 0)])
def test_costs_of_which_nothing_is_kept_are_refused(stores: Stores, by: CostKey, days: int) -> None:
    with pytest.raises(ConfigError, match=rf"'days' is {days} but must be from 1 to"):
        ReadCosts(stores.costs, stores.groups, lambda: NOW).costs(by, days)


def test_the_handover_of_a_group_is_what_its_slots_held_and_no_attempt_was_charged_for(stores: Stores) -> None:
    stores.optimizers.add(BY_HAND)
    stores.optimizers.note_first_poll("by-hand", NOW)
    work(stores, "by-hand", 1, 100, 1)
    found = ReadCosts(stores.costs, stores.groups, lambda: NOW).costs(CostKey.GROUP, 1)
    assert found.handover_seconds("default") == -100
    assert ReadCosts(stores.costs, stores.groups, lambda: NOW).costs(CostKey.TABLE, 1).handover_seconds("default") is None


def test_idle_time_is_shown_by_team_beside_its_work(stores: Stores) -> None:
    """Slots of a group that names a team are this team's. Those of the other one are shared by the teams whose tasks it merged."""
    for name, team in (("own", "ant"), ("common", None)):
        stores.groups.add(ResourceGroup(name, properties={"team": team} if team else {}))
        stores.optimizers.add(replace(BY_HAND, optimizer_id=name, group=name))
        stores.optimizers.note_first_poll(name, NOW)
        stores.optimizers.touch(name, NOW + timedelta(seconds=100), SlotTotals(held=100, idle=300))
    stores.tasks.insert([replace(example("t"), queue="common")], [], NOW)
    task = stores.tasks.poll(None, "common", NOW, LEASE, ["t"])
    assert task is not None
    stores.tasks.complete(prepared(task), NOW + timedelta(seconds=100))
    read = ReadCosts(stores.costs, stores.groups, lambda: NOW)
    found = read.costs(CostKey.TEAM, 1)
    assert [(one.team, one.idle_seconds, one.low_use_hours) for one in found.idle] == [("ant", 300.0, 0.0), ("unassigned", 300.0, 0.0)]
    # 2 GB for each of four slots.
    assert [one.idle_gb_hours for one in found.idle] == [pytest.approx(2 * 300 / 3600)] * 2
    assert [(one.key, one.slot_seconds) for one in found.costs] == [("unassigned", 100.0)]
    assert read.costs(CostKey.GROUP, 1).idle == ()
    shown = idle_table(found)
    assert [str(column.header) for column in shown.columns] == ["team", "slots without a task", "their GB-hours", "optimizers of low use"]
    assert list(shown.columns[1].cells) == ["5 min", "5 min"]


class Known:
    """A container whose optimizers are submitted to YARN, and one of this host."""

    def containers(self) -> dict[str, Container]:
        submitted = Container("cluster", ContainerKind.YARN, {"spark.driver.memory": "3g"})
        return {"cluster": submitted, "local": Container("local", ContainerKind.LOCAL, {})}


def test_a_driver_that_collects_garbage_for_minutes_gets_more_memory(stores: Stores) -> None:
    for name in ("cluster", "local"):
        stores.groups.add(ResourceGroup(name, container=name))
        stores.optimizers.add(replace(BY_HAND, optimizer_id=name, group=name, container=name, cores=None))
        for minute in range(4):
            stores.optimizers.touch(name, NOW, None, DriverGc(9.0 * minute, 60.0 * minute))
        work(stores, name, 4, 1800, 1800)
    containers: Any = Known()
    read = ReadUse(stores.optimizers, stores.costs, stores.groups, lambda: NOW + HALF_HOUR, containers=containers)
    found = {each.optimizer_id: each for each in read.uses()}
    assert {name: each.driver_gc_share for name, each in found.items()} == {"cluster": 0.15, "local": 0.15}
    assert found["cluster"].driver_memory == "6144m"
    assert found["cluster"].command == "compaction-pipeline group change cluster -p spark.driver.memory=6144m"
    # No property of its group sets the memory of a driver on this host.
    assert (found["local"].driver_memory, found["local"].command) == ("", "")
    shown = uses_table(found.values())
    assert list(shown.columns[4].cells) == ["15%", "15%"]
    assert list(shown.columns[6].cells) == ["6144m of memory for the driver", ""]
    assert uses(stores, HALF_HOUR)["cluster"].driver_memory == ""
