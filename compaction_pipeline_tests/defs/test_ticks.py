"""What a tick can start: a run of the one job that its sensor names, and never a run of an asset."""

from __future__ import annotations

import dagster as dg
import pytest

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.queue.drain import Drain, Ends, Takes
from compaction_pipeline.definitions import defs
from compaction_pipeline.defs.names import Names
from compaction_pipeline.defs.resources import Compaction
from compaction_pipeline.defs.ticks import ticking
from compaction_pipeline_tests.defs.lake import Lake
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.plain_names import (
    COMPACTED_FILES,
    COMPACTION_CAPACITY,
    COMPACTION_QUEUES,
    COMPACTION_RECORDS,
    DELTA_FILES,
    NAMES,
    OPTIMIZERS,
    WAITING_JOBS,
)

WITH_JOB = {"fragmentation_sensor": "compact_job", "commit_sensor": "commit_job", "upkeep_sensor": "upkeep_job"}
SELECTED = {
    "snapshot_sensor": {DELTA_FILES},
    "queue_sensor": {COMPACTION_QUEUES, OPTIMIZERS, WAITING_JOBS, COMPACTION_CAPACITY},
    "check_sensor": {COMPACTED_FILES, COMPACTION_RECORDS, COMPACTION_QUEUES, COMPACTION_CAPACITY},
}


def ticked(instance: dg.DagsterInstance, sensor: dg.SensorDefinition) -> object:
    """What Dagster's daemon would be told by a tick of the sensor."""
    context = dg.build_sensor_context(
        instance=instance, repository_def=defs.get_repository_def(), resources={"compaction": Compaction()}, sensor_name=sensor.name
    )
    with context:
        return sensor.evaluate_tick(context)


def test_each_sensor_shows_on_the_pages_of_the_assets_whose_events_it_writes() -> None:
    repository = defs.get_repository_def()
    found = {
        sensor.name: set(sensor.asset_selection.resolve(repository.asset_graph))
        for sensor in repository.sensor_defs
        if sensor.asset_selection is not None
    }
    assert found == SELECTED


def test_no_tick_can_start_a_run_of_an_asset(lake: Lake, services: OpenedServices, instance: dg.DagsterInstance) -> None:
    with lake.orders.transaction() as transaction:
        transaction.set_properties({"table-expire.enabled": "true"})
    services.one_table.refresh(Lake.identifier)
    services.plan_tables.plan(Lake.identifier)
    queue = services.read_tasks.queue_counts
    services.work_on_queue.drain("me", Drain(Takes(queues=lambda: ("default",)), Ends(lambda: queue().prepared > 0)))
    asked: dict[str, str | None] = {}
    for sensor in defs.get_repository_def().sensor_defs:
        if sensor.name == "failure_sensor":
            # Dagster gives it no way to ask for a run of an asset: it has neither a job nor a selection.
            assert not sensor.targets
            continue
        jobs = {target.job_name for target in sensor.targets}
        for request in ticked(instance, sensor).run_requests or ():  # type: ignore[attr-defined]
            assert not request.asset_selection
            asked[sensor.name] = request.job_name or next(iter(jobs))
        assert jobs <= {WITH_JOB.get(sensor.name)}
    assert asked == WITH_JOB


def test_a_tick_without_a_job_that_asks_for_a_run_fails(lake: Lake, instance: dg.DagsterInstance) -> None:
    def odd_tick(names: Names, context: dg.SensorEvaluationContext, services: Services) -> dg.SensorResult:
        return dg.SensorResult(run_requests=[dg.RunRequest()])

    odd_sensor = ticking(NAMES, "odd_sensor", odd_tick, every=30, description="It asks for a run.", events_of=[COMPACTED_FILES])
    with pytest.raises(dg.DagsterInvariantViolationError, match="odd_sensor has no job, so it may ask for no run"):
        ticked(instance, odd_sensor)
