"""The runs and data that forecasts look at, on SQLite and on PostgreSQL."""

from __future__ import annotations

from datetime import timedelta

from compaction_pipeline.core.dependencies.center.instances import InstanceState
from compaction_pipeline.core.stores import Stores
from compaction_pipeline_tests.services.dependencies.center_house import CenterHouse

RAW = {"name": "raw", "period": "day", "virtual": True, "since": "2026-01-01"}
LOAD = {"name": "load", "period": "day", "since": "2026-01-01", "needs": [{"job": "raw"}]}


def test_the_newest_runs_that_succeeded_are_told_by_job(stores: Stores) -> None:
    house, history = CenterHouse(stores), stores.center_runs
    house.save(RAW, LOAD)
    for day in range(1, 6):
        house.succeed(f"job=raw && biz=2026-01-0{day}")
        house.settle()
        assert house.claimed() == [f"load/2026-01-0{day}/scheduled/1"]
        house.now += timedelta(hours=1)
        ended = InstanceState.FAILED if day == 4 else InstanceState.SUCCEEDED
        house.succeed(f"job=load && biz=2026-01-0{day}", 1, ended)
        house.pass_time(hours=23)
    assert house.center.backfill("fix", ["load"], "2026-01-01", "2026-01-01") == 1
    house.settle()
    house.claimed()
    house.succeed("job=load && biz=2026-01-01 && backfill=fix", 1)
    last = history.last_runs(["load", "raw", "loud"], 3)
    assert [one.biz for one in last["load"]] == ["2026-01-05", "2026-01-03", "2026-01-02"]
    assert [one.biz for one in last["raw"]] == ["2026-01-05", "2026-01-04", "2026-01-03"]
    assert set(last) == {"load", "raw"}
    newest = last["load"][0]
    assert newest.ended_at is not None
    assert newest.claimed_at is not None
    assert newest.ended_at - newest.claimed_at == timedelta(hours=1)
    assert [one.biz for one in history.open_runs(["load"])] == ["2026-01-06"]
    assert history.open_runs([]) == []
    runs = [("load", "2026-01-04"), ("load", "2026-01-06"), ("load", "2027-01-01"), ("raw", "2026-01-01")]
    assert {run: one.state.value for run, one in history.scheduled(runs).items()} == {
        ("load", "2026-01-04"): "FAILED",
        ("load", "2026-01-06"): "WAITING",
        ("raw", "2026-01-01"): "SUCCEEDED",
    }
    known = history.arrivals(["job=raw && biz=2026-01-05", "job=load && biz=2026-01-04", "job=raw && biz=2026-01-06"])
    assert known["job=raw && biz=2026-01-05"][0] == 1
    assert known["job=load && biz=2026-01-04"][0] < 0
    assert "job=raw && biz=2026-01-06" not in known
