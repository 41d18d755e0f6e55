"""A run of ours whose process was killed does not stay under way: the keeper ends it, and the next sensor asks for another run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from unittest import mock

import dagster as dg
import pytest

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.definitions import defs
from compaction_pipeline.foundations import utc_now
from compaction_pipeline.services.keep import KeepWatch
from compaction_pipeline_tests.defs.clocked import compaction_at
from compaction_pipeline_tests.defs.lake import Lake
from compaction_pipeline_tests.defs.ticks import Tick, reason


class Clock:
    """The clock of all ticks."""

    def __init__(self) -> None:
        self.now = utc_now()

    def tick(self, tick: Tick, sensor: str) -> dg.SensorResult:
        """Let a sensor tick at this time."""
        return tick(sensor, compaction=compaction_at(lambda: self.now))


@pytest.fixture
def clock(lake: Lake) -> Clock:
    return Clock()


def keep(tick: Tick, clock: Clock, minutes: float) -> list[str]:
    """Let the keeper tick every 20 s for so long, and return what its ticks say of runs."""
    said = []
    for _ in range(int(minutes * 3)):
        clock.now += timedelta(seconds=20)
        said += [part for part in reason(clock.tick(tick, "keeper_sensor")).split(", ") if "without a process" in part]
    return said


@contextmanager
def started(instance: dg.DagsterInstance, services: Services, clock: Clock) -> Iterator[dg.DagsterRun]:
    """A run whose process has taken its lease, and is silent from then on: its thread renews every ten real seconds."""
    services.clock = lambda: clock.now
    run = instance.create_run_for_job(defs.resolve_job_def("compact_job"), status=dg.DagsterRunStatus.STARTED)
    with services.run_leases.hold(run.run_id):
        yield run


def status(instance: dg.DagsterInstance, run: dg.DagsterRun) -> dg.DagsterRunStatus:
    found = instance.get_run_by_id(run.run_id)
    assert found is not None
    return found.status


def test_a_run_whose_process_is_gone_is_ended_and_another_one_is_asked_for(
    services: Services, clock: Clock, tick: Tick, instance: dg.DagsterInstance
) -> None:
    clock.tick(tick, "snapshot_sensor")
    keep(tick, clock, 2)
    with started(instance, services, clock) as run:
        assert keep(tick, clock, 1 / 3) == []
        assert reason(clock.tick(tick, "fragmentation_sensor")) == f"2 tasks wait; run {run.run_id[:8]} serves the queue"
        assert keep(tick, clock, 2) == ["1 run without a process ended"]
        assert status(instance, run) is dg.DagsterRunStatus.FAILURE
        assert clock.tick(tick, "fragmentation_sensor").run_requests


def test_after_a_break_of_the_keeper_a_run_has_time_to_renew_its_lease(
    services: Services, clock: Clock, tick: Tick, instance: dg.DagsterInstance
) -> None:
    keep(tick, clock, 2)
    with started(instance, services, clock) as run:
        clock.now += timedelta(minutes=5)  # The host slept, for example.
        assert keep(tick, clock, 2 / 3) == []
        assert status(instance, run) is dg.DagsterRunStatus.STARTED


def test_runs_that_nobody_has_heard_of_stay(clock: Clock, tick: Tick, instance: dg.DagsterInstance) -> None:
    # It waits for its pool, or it is a run of somebody else.
    run = instance.create_run_for_job(defs.resolve_job_def("compact_job"), status=dg.DagsterRunStatus.STARTED)
    assert keep(tick, clock, 3) == []
    assert status(instance, run) is dg.DagsterRunStatus.STARTED


def test_a_run_holds_its_lease_while_it_works_and_gives_it_back(lake: Lake, services: Services, instance: dg.DagsterInstance) -> None:
    held: list[bool] = []
    keep = KeepWatch.keep

    def kept(keep_watch: KeepWatch) -> object:
        [run] = instance.get_runs()
        held.append(services.run_leases.is_held(run.run_id))
        return keep(keep_watch)

    with mock.patch.object(KeepWatch, "keep", kept):
        result = defs.resolve_job_def("compact_job").execute_in_process(instance=instance)
    assert held == [True]
    assert not services.run_leases.is_held(result.run_id)
    assert not services.run_leases.is_lost(result.run_id)
