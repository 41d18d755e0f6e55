"""`table_health` shows a failed run of our jobs and assets, and no other failed runs."""

from __future__ import annotations

import dagster as dg

from compaction_pipeline.definitions import defs
from compaction_pipeline.defs.keeping import failure_sensor
from compaction_pipeline.defs.resources import Compaction
from compaction_pipeline_tests.defs.lake import Lake, key
from compaction_pipeline_tests.plain_names import NAMES, TABLE_HEALTH


@dg.op
def _breaks() -> None:
    raise dg.Failure("a stranger's trouble")


@dg.job
def _strange_job() -> None:
    _breaks()


def tell(instance: dg.DagsterInstance, result: dg.ExecuteInProcessResult) -> object:
    failed = next(event for event in result.all_events if event.event_type is dg.DagsterEventType.RUN_FAILURE)
    with dg.build_run_status_sensor_context(
        sensor_name="failure_sensor",
        dagster_event=failed,
        dagster_instance=instance,
        dagster_run=result.dagster_run,
        resources={"compaction": Compaction()},
    ).for_run_failure() as context:
        return failure_sensor(NAMES)(context)


def test_a_failed_run_of_ours_is_shown_with_its_reason(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.corrupt_a_file(1)
    config = {"ops": {"compact": {"config": {"node_keys": [key(1)]}}}}
    result = defs.resolve_job_def("compact_job").execute_in_process(instance=instance, run_config=config, raise_on_error=False)
    tell(instance, result)
    (record,) = instance.fetch_materializations(TABLE_HEALTH, limit=1).records
    event = record.asset_materialization
    assert event is not None
    assert event.metadata["failed_run"].value == result.run_id


def test_the_daemon_s_tick_shows_a_failed_run_too(lake: Lake, instance: dg.DagsterInstance) -> None:
    repository = defs.get_repository_def()
    sensor = repository.get_sensor_def("failure_sensor")

    def ticked(cursor: str | None) -> str | None:
        given = {"compaction": Compaction()}
        with dg.build_sensor_context(instance=instance, repository_def=repository, cursor=cursor, resources=given) as context:
            return sensor.evaluate_tick(context).cursor

    begun = ticked(None)
    lake.corrupt_a_file(1)
    config = {"ops": {"compact": {"config": {"node_keys": [key(1)]}}}}
    defs.resolve_job_def("compact_job").execute_in_process(instance=instance, run_config=config, raise_on_error=False)
    told = len(instance.fetch_materializations(TABLE_HEALTH, limit=9).records)
    assert ticked(begun) != begun
    (newest, *_) = instance.fetch_materializations(TABLE_HEALTH, limit=9).records
    assert newest.asset_materialization is not None
    assert "failed_run" in newest.asset_materialization.metadata
    assert len(instance.fetch_materializations(TABLE_HEALTH, limit=9).records) == told + 1


def test_failed_runs_of_other_jobs_are_not_shown(lake: Lake, instance: dg.DagsterInstance) -> None:
    result = _strange_job.execute_in_process(instance=instance, raise_on_error=False)
    answer = tell(instance, result)
    assert isinstance(answer, dg.SkipReason)
    assert "not ours" in (answer.skip_message or "")
    assert not instance.fetch_materializations(TABLE_HEALTH, limit=1).records
