"""All definitions, in one `Definitions` that is made of its arguments alone. It opens no database, no catalog and no JVM."""

from __future__ import annotations

from typing import Any

import dagster as dg

from compaction_pipeline.defs.assets import compacted_files, compaction_records, delta_files, table_figures, table_health
from compaction_pipeline.defs.capacity import compaction_capacity
from compaction_pipeline.defs.check_sensor import check_sensor
from compaction_pipeline.defs.checks import definitions_of
from compaction_pipeline.defs.checks_job import compaction_checks_job
from compaction_pipeline.defs.choices import Choices
from compaction_pipeline.defs.group_jobs import add_group_job, change_group_job, drain_group_job
from compaction_pipeline.defs.jobs import commit_job, compact_job
from compaction_pipeline.defs.keeping import catalog_sensor, failure_sensor, keeper_sensor
from compaction_pipeline.defs.names import Names
from compaction_pipeline.defs.own_assets import own_assets_sensor
from compaction_pipeline.defs.own_checks import checked_assets, own_checks
from compaction_pipeline.defs.pausing import pause_job, resume_job
from compaction_pipeline.defs.queues import compaction_queues, optimizers, queue_sensor
from compaction_pipeline.defs.resources import PYSPARK, Compaction, spark_of_settings, with_choices
from compaction_pipeline.defs.retire import retire_job, retire_schedule
from compaction_pipeline.defs.sensors import commit_sensor, fragmentation_sensor, snapshot_sensor
from compaction_pipeline.defs.together import check_together
from compaction_pipeline.defs.upkeep import upkeep_job, upkeep_sensor
from compaction_pipeline.defs.waiting_jobs import waiting_jobs

OF_PROJECT = "project"
"""Stands for the resource `pyspark` that a project defines by itself."""


def definitions(*sets: Choices, with_executor: bool = True, pyspark: Any = None) -> dg.Definitions:
    """Assets, checks, jobs, sensors, schedules and the resources that they share.

    Each of `sets` makes a set of definitions, with a state database of its own. Its choices win over the environment; without any, the
    environment alone makes one set. `with_executor` is False inside a project of somebody else, because an executor applies to every asset
    of a code location. `pyspark` is the resource whose `spark_session` merges run on, or "project" when the project has such a resource.
    None means the settings. Raises ConfigError for a setting that breaks its rule, and for sets that cannot stand together.
    """
    sets = sets or (Choices(),)
    check_together([(each, pyspark) for each in sets])
    made = [_one_set(each, with_executor=with_executor, pyspark=pyspark) for each in sets]
    return dg.Definitions.merge(*made) if len(made) > 1 else made[0]


def _one_set(choices: Choices, *, with_executor: bool, pyspark: Any) -> dg.Definitions:
    settings = choices.load_settings()
    names = Names.of_setting(settings.asset_prefix, choices.name_prefix)
    checked = checked_assets(names, choices, settings.home)
    retire = retire_job(names)
    resources: dict[str, Any] = {names.compaction: with_choices(Compaction, choices=choices, names=names)}
    if pyspark != OF_PROJECT:
        resources[PYSPARK] = spark_of_settings(choices.spark) if pyspark is None else pyspark
    return dg.Definitions(
        assets=[
            delta_files(names, settings),
            table_health(names, settings),
            table_figures(names, settings),
            compacted_files(names, settings, choices),
            compaction_records(names, settings, choices),
            compaction_queues(names, settings),
            waiting_jobs(names, settings),
            optimizers(names, settings),
            compaction_capacity(names, settings),
        ],
        asset_checks=[*definitions_of(names), *own_checks(names, choices, checked)],
        jobs=[
            compact_job(names),
            commit_job(names),
            pause_job(names),
            resume_job(names),
            compaction_checks_job(names),
            add_group_job(names),
            change_group_job(names),
            drain_group_job(names),
            retire,
            upkeep_job(names),
        ],
        sensors=[
            snapshot_sensor(names, settings),
            fragmentation_sensor(names, settings),
            commit_sensor(names, settings),
            own_assets_sensor(names, settings, choices, checked),
            keeper_sensor(names, settings),
            catalog_sensor(names, settings),
            check_sensor(names),
            upkeep_sensor(names, settings),
            queue_sensor(names),
            failure_sensor(names),
        ],
        schedules=[retire_schedule(names, retire)],
        resources=resources,
        # Spark works in parallel already. A process for each step would start a JVM each.
        executor=dg.in_process_executor if with_executor else None,
    )
