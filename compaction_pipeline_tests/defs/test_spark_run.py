"""A run on real Spark, as in production. No JVM runs before the first merge, and none after the run."""

from __future__ import annotations

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from compaction_pipeline.definitions import defs
from compaction_pipeline.defs.keys import COMPACTED_FILES
from compaction_pipeline_tests.defs.lake import Lake, key


@pytest.mark.spark
def test_compact_job_merges_on_spark_and_stops_its_session(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPACTION_MERGE_ENGINE", "spark")
    monkeypatch.setenv("COMPACTION_SPARK_MASTER", "local[1]")
    before = lake.rows()
    config = {"ops": {"compact": {"config": {"node_keys": [key(1), key(2)]}}}}
    result = defs.resolve_job_def("compact_job").execute_in_process(instance=instance, run_config=config)
    assert result.success
    assert lake.rows() == before
    assert lake.files() == 3
    assert instance.get_materialized_partitions(COMPACTED_FILES) == {key(1), key(2)}
    assert SparkSession.getActiveSession() is None
