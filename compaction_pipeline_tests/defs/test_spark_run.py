"""A run on real Spark, as in production. No JVM runs before a merge needs it, and none after the run, unless the project gave a session."""

from __future__ import annotations

import sys

import dagster as dg
import pytest
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from compaction_pipeline.definitions import defs
from compaction_pipeline.defs.location import definitions
from compaction_pipeline_tests.defs.in_hand import in_hand, prepared
from compaction_pipeline_tests.defs.lake import Lake, key
from compaction_pipeline_tests.opened import merge_on_spark
from compaction_pipeline_tests.plain_names import COMPACTED_FILES


@pytest.mark.spark
def test_compact_job_merges_on_spark_and_stops_its_session(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPACTION_MERGE_ENGINE", "spark")
    monkeypatch.setenv("COMPACTION_SPARK_MASTER", "local[1]")
    before = lake.rows()
    config = {"ops": {"compact": {"config": {"node_keys": [key(1), key(2)]}}}}
    result = defs.resolve_job_def("compact_job").execute_in_process(
        instance=instance, run_config=config, resources=prepared(merge_on_spark)
    )
    assert result.success
    assert lake.rows() == before
    assert lake.files() == 3
    assert instance.get_materialized_partitions(COMPACTED_FILES) == {key(1), key(2)}
    assert SparkSession.getActiveSession() is None


def test_a_run_with_small_tasks_alone_starts_no_spark(lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPACTION_MERGE_ENGINE", "spark")

    def start(*_: object) -> None:
        raise AssertionError("Spark is started")

    before = lake.rows()
    config = {"ops": {"compact": {"config": {"node_keys": [key(1), key(2)]}}}}
    held = in_hand("_spark_sessions", lambda sessions: sessions.instead(session=start))
    result = defs.resolve_job_def("compact_job").execute_in_process(instance=instance, run_config=config, resources=held)
    assert result.success
    assert (lake.rows(), lake.files()) == (before, 3)
    said = [entry.user_message for entry in instance.all_logs(result.run_id)]
    assert not any("Spark" in line for line in said), said


@pytest.mark.spark
def test_a_run_merges_on_the_session_of_a_swapped_in_resource_and_leaves_it_as_it_was(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPACTION_MERGE_ENGINE", "spark")
    # The settings name a Spark that does not exist, so that nothing but the resource can have merged.
    monkeypatch.setenv("COMPACTION_SPARK_REMOTE", "sc://127.0.0.1:1")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    # Our own sessions turn adaptive execution off, and the JVM of this process may be one of theirs.
    given = {"spark.master": "local[1]", "spark.ui.enabled": "false", "spark.app.name": "a team's", "spark.sql.adaptive.enabled": "true"}
    mine = LazyPySparkResource(spark_config=given)
    before = lake.rows()
    job = definitions(pyspark=mine).resolve_job_def("compact_job")
    empty = job.execute_in_process(instance=instance)
    assert empty.success
    assert SparkSession.getActiveSession() is None, "a run without a merge opens no session"
    result = job.execute_in_process(instance=instance, run_config={"ops": {"compact": {"config": {"node_keys": [key(1), key(2)]}}}})
    session = SparkSession.getActiveSession()
    assert session is not None
    try:
        assert result.success
        assert (lake.rows(), lake.files()) == (before, 3)
        assert session.sparkContext.appName == "a team's"
        assert session.range(3).count() == 3
        assert session.conf.get("spark.sql.adaptive.enabled") == "true"
        ran = session.sparkContext.statusTracker().getJobIdsForGroup(None)
        assert len(ran) >= 2, "each task was a job of this application"
    finally:
        session.stop()
