"""Everything that the code location offers, in one `Definitions`. Loading it opens nothing."""

from __future__ import annotations

from typing import Any

import dagster as dg

from compaction_pipeline.defs.assets import compacted_files, compaction_records, delta_files, table_figures, table_health
from compaction_pipeline.defs.check_sensor import check_sensor
from compaction_pipeline.defs.checks import definitions_of
from compaction_pipeline.defs.checks_job import compaction_checks_job
from compaction_pipeline.defs.group_jobs import add_group_job, change_group_job, drain_group_job
from compaction_pipeline.defs.jobs import commit_job, compact_job
from compaction_pipeline.defs.keeping import catalog_sensor, failure_sensor, keeper_sensor
from compaction_pipeline.defs.names import NAMES
from compaction_pipeline.defs.own_assets import own_assets_sensor
from compaction_pipeline.defs.own_checks import own_checks
from compaction_pipeline.defs.pausing import pause_job, resume_job
from compaction_pipeline.defs.queues import compaction_queues, optimizers, queue_sensor
from compaction_pipeline.defs.resources import Compaction, SparkOfSettings
from compaction_pipeline.defs.retire import retire_job, retire_schedule
from compaction_pipeline.defs.sensors import commit_sensor, fragmentation_sensor, snapshot_sensor

OF_PROJECT = "project"
"""Stands for the resource `pyspark` that a project defines by itself."""


def definitions(*, with_executor: bool = True, pyspark: Any = None) -> dg.Definitions:
    """Assets, checks, jobs, sensors, schedules and the resources that they share.

    `with_executor` is False inside a project of somebody else, because an executor applies to every asset of a code location. `pyspark` is
    the resource whose `spark_session` merges run on, or "project" when the project has such a resource. None means the settings.
    """
    resources: dict[str, Any] = {"compaction": Compaction()}
    if pyspark != OF_PROJECT:
        resources["pyspark"] = SparkOfSettings() if pyspark is None else pyspark
    return dg.Definitions(
        assets=[delta_files, table_health, table_figures, compacted_files, compaction_records, compaction_queues, optimizers],
        asset_checks=[*definitions_of(NAMES), *own_checks()],
        jobs=[
            compact_job,
            commit_job,
            pause_job,
            resume_job,
            compaction_checks_job,
            add_group_job,
            change_group_job,
            drain_group_job,
            retire_job,
        ],
        sensors=[
            snapshot_sensor,
            fragmentation_sensor,
            commit_sensor,
            own_assets_sensor,
            keeper_sensor,
            catalog_sensor,
            check_sensor,
            queue_sensor,
            failure_sensor,
        ],
        schedules=[retire_schedule],
        resources=resources,
        # Spark works in parallel already. A process for each step would start a JVM each.
        executor=dg.in_process_executor if with_executor else None,
    )
