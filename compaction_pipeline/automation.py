"""Lets assets of users follow compactions and wait for tables: dependencies, automation conditions, and sensors for their jobs.

All conditions are made of Dagster's built-in ones, so Dagster's own automation sensor evaluates them, in any code location. Importing
this module fixes nothing about the definitions of the program.
"""

from __future__ import annotations

import dagster as dg

from compaction_pipeline.core.tables.node_keys import table_key
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.defs.readiness import ReadyPartitions, ready_definitions, ready_partitions, when_ready
from compaction_pipeline.defs.released_jobs import ReleasedJob, released_jobs
from compaction_pipeline.defs.reported_assets import reported_assets
from compaction_pipeline.defs.virtual_jobs import virtual_jobs
from compaction_pipeline.settings import load_settings

__all__ = [
    "ReadyPartitions",
    "ReleasedJob",
    "compacted_since_last_update",
    "compactions_of",
    "ready_definitions",
    "ready_partitions",
    "released_jobs",
    "reported_assets",
    "virtual_jobs",
    "when_ready",
]


def compactions_of(table: str, *, asset_prefix: str | None = None) -> dg.AssetDep:
    """Return a dependency of your asset on the compactions of a table, `catalog.namespace.table`. Put it into the asset's `deps`.

    `asset_prefix` is the prefix of the program's assets. Without it, COMPACTION_ASSET_PREFIX counts. Raises ConfigError for a bad name.
    """
    partitions = dg.SpecificPartitionsPartitionMapping([table_key(TableIdentifier.parse(table))])
    return dg.AssetDep(_records(asset_prefix), partition_mapping=partitions)


def compacted_since_last_update(*, asset_prefix: str | None = None) -> dg.AutomationCondition[dg.AssetKey | dg.AssetCheckKey]:
    """Return a condition that holds when a table was compacted since your asset was requested or materialized the last time.

    The tables are those that the asset's `deps` name with `compactions_of`. The condition does not hold while a run of the asset is under
    way. `asset_prefix` is as in `compactions_of`.
    """
    records = dg.AssetSelection.assets(_records(asset_prefix))
    # `newly_updated` alone returns the commits of all tables. Only `&` limits them to the partitions that the asset depends on.
    committed = dg.AutomationCondition.newly_updated() & ~dg.AutomationCondition.missing()
    compacted = dg.AutomationCondition.any_deps_match(committed).allow(records)
    return (compacted.since_last_handled() & ~dg.AutomationCondition.in_progress()).with_label("compacted since its last update")


def _records(asset_prefix: str | None) -> dg.AssetKey:
    prefix = load_settings().asset_prefix if asset_prefix is None else asset_prefix
    return dg.AssetKey([*filter(None, prefix.split("/")), "compaction_records"])
