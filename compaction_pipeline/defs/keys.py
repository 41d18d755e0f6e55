"""Names that the definitions share: asset keys, pool, group, owners, tags, and the settings of the code location.

This module reads the environment, and what a component chose, once: when Dagster loads the code location. It opens nothing.
"""

from __future__ import annotations

import dagster as dg

from compaction_pipeline.defs.choices import chosen
from compaction_pipeline.settings import load_settings

SETTINGS = load_settings(chosen().settings)

_PREFIX = tuple(level for level in SETTINGS.asset_prefix.split("/") if level)

DELTA_FILES = dg.AssetKey([*_PREFIX, "delta_files"])
TABLE_HEALTH = dg.AssetKey([*_PREFIX, "table_health"])
TABLE_FIGURES = dg.AssetKey([*_PREFIX, "table_figures"])
COMPACTED_FILES = dg.AssetKey([*_PREFIX, "compacted_files"])
COMPACTION_RECORDS = dg.AssetKey([*_PREFIX, "compaction_records"])
COMPACTION_QUEUES = dg.AssetKey([*_PREFIX, "compaction_queues"])
OPTIMIZERS = dg.AssetKey([*_PREFIX, "optimizers"])

OUR_ASSETS = frozenset({DELTA_FILES, TABLE_HEALTH, TABLE_FIGURES, COMPACTED_FILES, COMPACTION_RECORDS, COMPACTION_QUEUES, OPTIMIZERS})

EXTERNAL_ASSETS = (DELTA_FILES, TABLE_HEALTH, TABLE_FIGURES, COMPACTION_QUEUES, OPTIMIZERS)
"""The assets that nobody launches: sensors and runs store their events."""

COMPACT_JOB = "compact_job"
COMMIT_JOB = "commit_job"
CHECKS_JOB = "compaction_checks_job"
PAUSE_JOB = "pause_job"
RESUME_JOB = "resume_job"
RETIRE_JOB = "compaction_retire_job"
ADD_GROUP_JOB = "add_group_job"
CHANGE_GROUP_JOB = "change_group_job"
DRAIN_GROUP_JOB = "drain_group_job"

GROUP = "compaction"
OWNERS = [owner for owner in SETTINGS.asset_owners.split(",") if owner]
POOL = "spark_merge"
"""A run that merges holds a slot of this pool. With the default limit of 1, a machine has one Spark session at a time."""

MACHINE_TAGS = {"dagster/priority": "-1", "compaction/requested-by": "machine"}
"""Tags of runs that a sensor asked for. Their priority lets the runs of people go first."""
