"""The resource `pyspark`: ours shows nothing, and what a project puts in its place must have a session."""

from __future__ import annotations

from types import SimpleNamespace

import dagster as dg
import pytest

from compaction_pipeline.definitions import defs
from compaction_pipeline.defs.location import definitions
from compaction_pipeline.defs.resources import Compaction, SparkOfSettings
from compaction_pipeline_tests.defs.lake import Lake, key


def test_our_resource_shows_no_properties() -> None:
    resource = defs.get_repository_def().get_top_level_resources()["pyspark"]
    assert resource.config_schema.config_type is not None
    assert list(getattr(resource.config_schema.config_type, "fields", {})) == []


def test_the_session_is_not_asked_for_before_a_merge(lake: Lake) -> None:
    class Lazy:
        @property
        def spark_session(self) -> object:
            raise AssertionError("nothing is merged yet")

    compaction = Compaction()
    for given in (Lazy(), SimpleNamespace(spark_session=object())):
        assert compaction.merging(given).open_spark is not None
    compaction._services = None
    assert compaction.merging(SparkOfSettings()).open_spark is None


def test_the_lease_of_a_run_does_not_choose_the_spark_of_its_merges(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPACTION_MERGE_ENGINE", "spark")
    asked: list[str] = []

    class Mine:
        @property
        def spark_session(self) -> object:
            asked.append("mine")
            raise RuntimeError("it does not start")

    job = definitions(pyspark=dg.ResourceDefinition.hardcoded_resource(Mine())).resolve_job_def("compact_job")
    config = {"ops": {"compact": {"config": {"node_keys": [key(1)]}}}}
    with pytest.raises(dg.Failure, match="the resource 'pyspark' does not give a Spark session: it does not start"):
        job.execute_in_process(instance=instance, run_config=config)
    assert asked


def test_services_that_merge_on_the_spark_of_the_settings_take_no_other_session(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPACTION_MERGE_ENGINE", "spark")
    services = Compaction().services()
    # A worker has its engine from the beginning.
    assert services.work_on_queue is not None
    with pytest.raises(RuntimeError, match="already have the Spark of the settings"):
        services.merge_on(object)
    services.close()


def test_a_resource_without_a_session_fails_the_launch_with_what_to_do(lake: Lake, instance: dg.DagsterInstance) -> None:
    job = definitions(pyspark=SimpleNamespace(session=1)).resolve_job_def("compact_job")
    config = {"ops": {"compact": {"config": {"node_keys": [key(1)]}}}}
    with pytest.raises(dg.Failure, match=r"the resource 'pyspark' is SimpleNamespace, which has no 'spark_session': give it a LazyPySpark"):
        job.execute_in_process(instance=instance, run_config=config)
    assert lake.files() == 9
