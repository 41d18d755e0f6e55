"""The dependency center when several processes work on it at once: claims beside withdrawals, two leaders, saves beside passes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest

from compaction_pipeline.core.dependencies.center.inbox import Fact, RunId
from compaction_pipeline.core.dependencies.center.instances import InstanceState
from compaction_pipeline.core.dependencies.center.ports import CenterStore, InstanceQuery, Leader, Released, Told
from compaction_pipeline.storage.stores import open_stores
from compaction_pipeline_tests.services.dependencies.center_house import RECEIVER, CenterHouse

JOBS = 40
WINDOW = "table=lake.a.b && window=2026-01-01T00:00Z/2026-01-02T00:00Z"


@pytest.fixture
def house(state_url: str) -> Iterator[CenterHouse]:
    stores = open_stores(state_url)
    yield CenterHouse(stores)
    stores.close()


def many(house: CenterHouse) -> None:
    needs = [{"table": "lake.a.b"}]
    house.save(*({"name": f"j{number}", "period": "day", "since": "2026-01-01", "needs": needs} for number in range(JOBS)))
    house.settle()


def test_what_is_claimed_beside_a_withdrawal_was_there_or_is_noted(house: CenterHouse) -> None:
    many(house)
    begun, others = Barrier(3), [house.another_center() for _ in range(2)]

    def claim(number: int) -> list[str]:
        begun.wait()
        return [one.key for _ in range(40) for one in others[number].claim(RECEIVER, 1)]

    with ThreadPoolExecutor(3) as pool:
        claims = [pool.submit(claim, number) for number in range(2)]
        begun.wait()
        for reached in [1, 0] * 20:
            house.store.post([Fact(WINDOW, house.now, "test", reached)])
            house.settle()
        keys = {key for one in claims for key in one.result()}
    house.settle()
    assert house.store.recount() == 0
    after = house.store.instances(InstanceQuery(most=1_000))
    assert len(after) == JOBS
    for one in after:
        # Nothing is there in the end. So what was claimed ran on what was taken back, and the rest waits.
        assert (one.changed_at is not None, one.state) == (
            (True, InstanceState.READY) if one.key in keys else (False, InstanceState.WAITING)
        )


def test_a_leader_whose_lease_another_took_changes_nothing(house: CenterHouse) -> None:
    many(house)
    late = Leader("process of before", house.now)
    house.store.post([Fact(WINDOW, house.now, "test", 1)])
    assert house.store.take_in(late, 10) == 0
    assert house.leader.once() is not None
    assert house.store.spread(late, 10) == Told()
    assert house.store.release(late, 10) == Released()
    assert house.store.make(late, house.store.version(), [], []) is None
    expired = Leader("process 0", house.now + timedelta(hours=1))
    assert house.store.take_in(expired, 10) == 0


def test_a_fan_out_in_small_steps_tells_each_instance_once(house: CenterHouse) -> None:
    many(house)
    house.store.post([Fact(WINDOW, house.now, "test", 1)])
    leader = Leader("process 0", house.now)
    house.leases.lead("dependency center", "process 0", timedelta(minutes=1))
    assert house.store.take_in(leader, 10) == 1
    told, released = list[int](), list[RunId]()
    while told[-1:] != [0]:
        one = house.store.spread(leader, 7)
        told.append(one.changes)
        released += one.released
        assert house.store.recount() == 0
    # The last step also ends the change.
    assert told == [7, 7, 7, 7, 7, 6, 0]
    assert (len(released), house.store.release(leader, 1_000)) == (JOBS, Released())


def test_a_backfill_that_is_made_beside_facts_misses_none(house: CenterHouse) -> None:
    many(house)
    begun = Barrier(2)

    def backfill() -> None:
        begun.wait()
        for number in range(20):
            house.center.backfill(f"fix{number}", [f"j{number}"], "2026-01-01", "2026-01-01")

    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(backfill)
        begun.wait()
        for _ in range(20):
            house.store.post([Fact(WINDOW, house.now, "test", 0), Fact(WINDOW, house.now, "test", 1)])
            house.settle()
        made.result()
    house.settle()
    assert house.store.recount() == 0
    by_origin = [(one.origin, one.state) for one in house.store.instances(InstanceQuery(most=1_000))]
    # Of one job and business time one is ready at a time: the scheduled one, or that of the backfill.
    assert sum(state is InstanceState.READY for _, state in by_origin) == JOBS
    assert sum(origin != "" for origin, _ in by_origin) == 20


def test_what_succeeds_by_itself_while_its_project_is_saved_is_not_set_back(house: CenterHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """The save found it waiting. What was released for it would be withdrawn, although nothing was taken back."""
    made = {"name": "made", "period": "day", "since": "2026-01-01", "made-by": {"table": "lake.a.b"}}
    waits = {"name": "waits", "period": "day", "since": "2026-01-01", "needs": [{"job": "made"}]}
    house.save(made, waits)
    house.settle()
    house.store.post([Fact(WINDOW, house.now, "test", 1)])
    real = type(house.store).save_project

    def beside(store: CenterStore, *arguments: Any) -> bool:
        house.settle()
        return real(store, *arguments)

    monkeypatch.setattr(type(house.store), "save_project", beside)
    house.save(made, waits, {"name": "other", "period": "day", "needs": [{"table": "lake.a.c"}]})
    assert house.state("made", "2026-01-01") == "SUCCEEDED"
    house.settle()
    # What has not begun is looked at anew by the new definitions.
    assert house.state("waits", "2026-01-01") == "READY"
