"""The figures of the dependency center, on SQLite and on PostgreSQL."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from compaction_pipeline.core.dependencies.center.figures import CenterFigures
from compaction_pipeline.core.dependencies.center.instances import InstanceState
from compaction_pipeline.core.dependencies.center.ports import Leader
from compaction_pipeline.core.stores import Stores
from compaction_pipeline_tests.services.dependencies.center_house import CenterHouse

RAW = {"name": "raw", "period": "day", "virtual": True, "since": "2026-01-01"}
LOAD = {"name": "load", "period": "day", "since": "2026-01-01", "needs": [{"job": "raw"}]}


def counts(figures: CenterFigures) -> dict[str, int]:
    return {state.value: count for state, count in figures.instances.items() if count}


def test_figures_count_what_waits_is_ready_and_runs(stores: Stores) -> None:
    house = CenterHouse(stores)

    def read() -> CenterFigures:
        return stores.center_figures.figures(house.now)

    empty = read()
    assert (counts(empty), empty.unclaimed_since, empty.report_since, empty.delay(0.99)) == ({}, None, None, None)
    house.save(RAW, LOAD)
    house.pass_time(days=2)
    assert counts(read()) == {"WAITING": 3}
    house.pass_time(minutes=10)
    house.center.report("job=raw && biz=2026-01-01", InstanceState.SUCCEEDED, "test")
    assert read().report_since == house.now, "the leader has not taken it in"
    house.pass_time(minutes=1)
    ready = read()
    assert (counts(ready), ready.unclaimed_since, ready.report_since) == ({"WAITING": 2, "READY": 1}, house.now, None)
    assert ready.delays == (timedelta(0),), "from when it was taken in, not from when it was made"
    assert house.claimed() == ["load/2026-01-01/scheduled/1"]
    assert read().unclaimed_since is None
    house.succeed("job=load && biz=2026-01-01", 1)
    assert counts(read()) == {"WAITING": 2}


def test_a_delay_is_of_the_last_thing_and_not_of_what_changed_later_or_ran_again(stores: Stores) -> None:
    house = CenterHouse(stores)
    house.save(RAW, LOAD)
    house.settle()
    house.center.report("job=raw && biz=2026-01-01", InstanceState.SUCCEEDED, "test")
    assert stores.center.take_in(Leader("process 0", house.now), 10) == 1
    house.now += timedelta(seconds=3)
    house.settle()
    assert stores.center_figures.figures(house.now).delay(0.99) == timedelta(seconds=3)
    house.pass_time(hours=1)
    assert house.claimed() == ["load/2026-01-01/scheduled/1"]
    house.succeed("job=load && biz=2026-01-01", 1)
    house.center.run_again("load", "2026-01-01")
    house.settle()
    assert stores.center_figures.figures(house.now).delays == (), "a run again says nothing of speed"


def test_the_share_of_delays() -> None:
    figures = CenterFigures(datetime.now(timezone.utc), {}, None, None, tuple(timedelta(seconds=each) for each in range(100, 0, -1)))
    assert [figures.delay(share) for share in (0.01, 0.5, 0.99, 1)] == [timedelta(seconds=each) for each in (1, 50, 99, 100)]
