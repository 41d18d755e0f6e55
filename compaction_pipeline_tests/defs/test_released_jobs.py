"""Jobs of a user's Dagster that start when the dependency center releases them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import dagster as dg
import pytest

from compaction_pipeline.automation import ReleasedJob, released_jobs
from compaction_pipeline.core.dependencies.ready_time import Window
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.defs.released_jobs import Ticks
from compaction_pipeline_tests.services.dependencies.center_house import CenterHouse
from compaction_pipeline_tests.state import sqlite_stores

DAYS = dg.DailyPartitionsDefinition("2026-01-01", timezone="Europe/Berlin")


@dg.op
def work() -> None: ...


@dg.op
def fail() -> None:
    raise RuntimeError("it broke")


@dg.job(partitions_def=DAYS)
def load() -> None:
    work()


@dg.job
def report() -> None:
    work()


@dg.job
def broken() -> None:
    fail()


JOBS = {"load": ReleasedJob(load, DAYS), "report": ReleasedJob(report), "broken": ReleasedJob(broken)}
LOAD = {"name": "load", "period": "day", "zone": "Europe/Berlin", "since": "2026-01-01"}
REPORT = {**LOAD, "name": "report", "needs": [{"job": "load"}]}


class Dagster:
    """A Dagster that runs what the sensor asks for, as its daemon does: once for each run key."""

    def __init__(self, instance: dg.DagsterInstance, house: CenterHouse) -> None:
        self.instance, self.house = instance, house
        self.cursor: str | None = None
        self.run_keys: list[str] = []

    def tick(self) -> dg.SensorResult:
        result = Ticks(self.house.center, self.instance, JOBS, "airflow").tick(self.cursor, 20)
        self.cursor = result.cursor
        self.house.settle()
        return result

    def carry_out(self, result: dg.SensorResult) -> list[str]:
        started = []
        for request in result.run_requests or ():
            if request.run_key in self.run_keys:
                continue
            assert request.run_key is not None
            self.run_keys.append(request.run_key)
            job = JOBS[str(request.job_name)].job
            job.execute_in_process(instance=self.instance, tags=request.tags, partition_key=request.partition_key, raise_on_error=False)
            started.append(request.run_key)
        return started


@pytest.fixture
def dagster(tmp_path: Path) -> Iterator[Dagster]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Dagster(instance, CenterHouse(sqlite_stores(tmp_path)))


def test_a_job_starts_with_the_partition_of_its_time_and_releases_what_waits_for_it(dagster: Dagster) -> None:
    dagster.house.save(LOAD, REPORT)
    dagster.house.settle()
    asked = dagster.tick()
    assert [(one.run_key, one.partition_key) for one in asked.run_requests or ()] == [
        ("load/2026-01-01/scheduled/1", "2026-01-01"),
        ("load/2026-01-02/scheduled/1", "2026-01-02"),
    ]
    assert len(dagster.carry_out(asked)) == 2
    after = dagster.tick()
    assert not after.run_requests
    assert [dagster.house.state("load", f"2026-01-0{day}") for day in (1, 2)] == ["SUCCEEDED", "SUCCEEDED"]
    assert [one.job_name for one in dagster.tick().run_requests or ()] == ["report", "report"]


def test_the_run_of_a_job_that_starts_without_something_says_so(dagster: Dagster) -> None:
    late = {"name": "late", "period": "day", "virtual": True, "since": "2026-01-02"}
    dagster.house.save(late, {**LOAD, "since": "2026-01-02", "needs": [{"job": "late", "until": "1min"}]})
    dagster.house.pass_time(days=1)
    tags = [request.tags or {} for request in dagster.tick().run_requests or ()]
    assert "started without job=late && biz=2026-01-02, because it was not there at " in tags[0]["compaction/note"]


def test_a_tick_that_starts_nothing_says_what_is_waited_for(dagster: Dagster) -> None:
    hourly = {"name": "raw", "period": "hour", "virtual": True, "since": "2026-01-01T19"}
    dagster.house.save(hourly, {**LOAD, "zone": "UTC", "needs": [{"job": "raw", "times": "whole"}]})
    dagster.house.settle()
    said = dagster.tick().skip_reason
    assert isinstance(said, dg.SkipReason)
    hours = ", ".join(f"job=raw && biz=2026-01-01T{hour}" for hour in (19, 20, 21))
    assert said.skip_message == f"load/2026-01-01/scheduled/1 waits for {hours} and 2 more"


def test_a_tick_whose_requests_were_lost_asks_again_under_the_same_key_and_it_starts_once(dagster: Dagster) -> None:
    dagster.house.save({**LOAD, "since": "2026-01-02"})
    dagster.house.settle()
    lost = dagster.tick()
    again = dagster.tick()
    assert [one.run_key for one in lost.run_requests or ()] == [one.run_key for one in again.run_requests or ()]
    assert len(dagster.carry_out(again)) == 1
    assert dagster.carry_out(lost) == []
    assert not dagster.tick().run_requests


def test_a_failed_run_and_its_run_again_are_generations(dagster: Dagster) -> None:
    broken_job = {**LOAD, "name": "broken", "since": "2026-01-02"}
    dagster.house.save(broken_job, {**LOAD, "since": "2026-01-02", "needs": [{"job": "broken"}]})
    dagster.house.settle()
    dagster.carry_out(dagster.tick())
    dagster.tick()
    assert dagster.house.state("broken", "2026-01-02") == "FAILED"
    (first,) = dagster.instance.get_runs()
    # A person runs it again in Dagster, and this time it works.
    report.execute_in_process(instance=dagster.instance, tags=first.tags)
    dagster.tick()
    one = dagster.house.one("broken", "2026-01-02")
    assert (one.state.value, one.generation) == ("SUCCEEDED", 2)
    assert [request.job_name for request in dagster.tick().run_requests or ()] == ["load"]


def test_what_the_sensor_cannot_start_keeps_nothing_else_waiting(dagster: Dagster) -> None:
    dagster.house.save({**LOAD, "since": "2026-01-02"}, {**LOAD, "name": "other"}, {**LOAD, "name": "report", "since": "2026-01-02"})
    dagster.house.settle()
    assert {request.job_name for request in dagster.tick().run_requests or ()} == {"load", "report"}


def test_a_partition_that_dagster_does_not_have_yet_keeps_nothing_else_waiting(tmp_path: Path) -> None:
    house = CenterHouse(sqlite_stores(tmp_path), datetime(2091, 1, 1, tzinfo=timezone.utc))
    house.save({**LOAD, "since": "2091-01-01"}, {**LOAD, "name": "report", "since": "2091-01-01"})
    house.settle()
    with dg.DagsterInstance.ephemeral() as instance:
        assert [request.job_name for request in Dagster(instance, house).tick().run_requests or ()] == ["report"]


def test_partitions_of_another_zone_are_told(dagster: Dagster) -> None:
    with pytest.raises(ConfigError, match="has no partition for"):
        ReleasedJob(load, dg.DailyPartitionsDefinition("2026-01-01")).partition(dagster_window(dagster))
    static = dg.StaticPartitionsDefinition(["a"])
    with pytest.raises(ConfigError, match="no windows of time"):
        released_jobs({"load": ReleasedJob(load, static)})  # type: ignore[arg-type]
    assert released_jobs({"load": ReleasedJob(load, DAYS), "report": report}).name == "released_jobs"


def dagster_window(dagster: Dagster) -> Window:
    dagster.house.save(LOAD)
    return dagster.house.center.window("load", "2026-01-02")
