"""In a queue with the order QUOTA, the table that used the smallest part of its quota has its turn first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import pytest

from compaction_pipeline.core.queue.group import CompactionQueue, QueueOrder, ResourceGroup
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState
from compaction_pipeline.core.queue.quota import entitled_slots, group_slots, turns
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline_tests.behaviours.example_tasks import LEASE, example, prepared
from compaction_pipeline_tests.builders import NOW
from compaction_pipeline_tests.services.house import House

A, B, C = (TableIdentifier("lake", ("db",), name) for name in "abc")


@pytest.fixture
def house(tmp_path: Path) -> House:
    house = House(tmp_path)
    house.services.manage_groups.change(ResourceGroup("default", queue=CompactionQueue(order=QueueOrder.QUOTA)))
    return house


def test_a_quota_up_to_one_is_a_share_of_the_slots_that_work_and_above_it_a_number() -> None:
    assert entitled_slots(0.5, 8) == 4
    assert entitled_slots(3.0, 8) == 3
    workers = [
        Optimizer(f"o{number}", group, "host", "1", "1.0", 4, NOW, NOW, state)
        for number, (group, state) in enumerate(
            (("g", OptimizerState.RUNNING), ("g", OptimizerState.RUNNING), ("g", OptimizerState.DRAINING), ("h", OptimizerState.RUNNING))
        )
    ]
    assert group_slots(workers, "g", 2) == 8
    assert group_slots(workers, "other", 2) == 2
    assert group_slots([], "other", 0) == 1


def test_the_lowest_occupation_comes_first_and_a_name_decides_among_equals() -> None:
    assert turns({}, {B: 1.0, A: 1.0}) == [A, B]
    assert turns({A: 100.0, B: 150.0, C: 10.0}, {A: 1.0, B: 2.0, C: 0.05}) == [B, A, C]


def test_a_table_that_has_had_less_than_its_share_is_polled_first(house: House) -> None:
    tasks = house.services.stores.tasks
    tables = [house.fragmented("a").identifier, house.fragmented("b").identifier]
    tasks.insert([example(f"{table.name}{n}", table=table) for table in tables for n in range(3)], [], house.now)
    first = tasks.poll("default", "me", house.now, LEASE, ["a0"])
    assert first is not None
    tasks.complete(prepared(first), house.now.replace(microsecond=0) + LEASE)
    house.pass_time(120)
    assert house.services._turns.of("default") == [tables[1], tables[0]]
    assert tasks.first_waiting("default", None, house.services._turns.of("default")) == tables[1]
    # The answer stays the same for a few seconds, and is measured anew as a whole then.
    for name in ("b0", "b1", "b2"):
        assert tasks.poll("default", "me", house.now, LEASE, [name])
    tasks.insert([example("b3", table=tables[1])], [], house.now)
    house.pass_time(4)
    assert house.services._turns.of("default") == [tables[1], tables[0]]
    house.pass_time(116)
    assert house.services._turns.of("default") == [tables[0], tables[1]]
    house.pass_time(3700)
    assert house.services._turns.of(None) == ()


def test_while_one_thread_measures_the_others_go_on_with_the_last_answer(house: House) -> None:
    table = house.fragmented("a").identifier
    house.services.stores.tasks.insert([example("a0", table=table)], [], house.now)
    turns_of = house.services._turns.of
    assert turns_of("default") == [table]
    tasks = house.services.stores.tasks
    meanwhile: list[Sequence[TableIdentifier]] = []

    def slow(queue: str, since: datetime, now: datetime) -> Mapping[TableIdentifier, float]:
        assert not meanwhile, "two threads measure at once"
        meanwhile.append(turns_of("default"))
        return tasks.real.slot_seconds(queue, since, now)

    tasks.instead(slot_seconds=slow)
    house.pass_time(6)
    assert turns_of("default") == [table]
    assert meanwhile == [[table]]


def test_another_order_has_no_turns(house: House) -> None:
    house.services.manage_groups.change(ResourceGroup("default"))
    house.services.stores.tasks.insert([example("t1")], [], house.now)
    assert house.services._turns.of("default") == ()
    assert house.services._turns.of("missing") == ()
