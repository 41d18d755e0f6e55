"""Executes our jobs and assets in this process, and reads the events that they leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from compaction_pipeline.definitions import defs
from compaction_pipeline_tests.plain_names import COMPACTED_FILES


def launch(
    instance: dg.DagsterInstance,
    asset: dg.AssetKey,
    *keys: str,
    config: Mapping[str, Any] | None = None,
    resources: Mapping[str, Any] | None = None,
) -> dg.ExecuteInProcessResult:
    """Materialize partitions as the UI does: one run for a range of keys. `resources` take the place of those of the definitions."""
    name = "table_nodes" if asset == COMPACTED_FILES else "tables"
    instance.add_dynamic_partitions(name, list(keys))
    job = _with(resources).resolve_implicit_global_asset_job_def()
    tags = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]} if len(keys) > 1 else None
    return job.execute_in_process(
        instance=instance,
        asset_selection=[asset],
        partition_key=keys[0] if len(keys) == 1 else None,
        tags=tags,
        run_config={"ops": {asset.path[-1]: {"config": dict(config)}}} if config else None,
        raise_on_error=False,
    )


def run(instance: dg.DagsterInstance, job: str, *, resources: Mapping[str, Any] | None = None, **config: Any) -> dg.ExecuteInProcessResult:
    """Execute one of our jobs, with the configuration of its op `compact`. `resources` take the place of those of the definitions."""
    run_config = {"ops": {"compact": {"config": config}}} if config else None
    return _with(resources).resolve_job_def(job).execute_in_process(instance=instance, run_config=run_config, raise_on_error=False)


def _with(resources: Mapping[str, Any] | None) -> dg.Definitions:
    """Our definitions with other resources. Dagster refuses such resources when they are given only to a run of assets."""
    if resources is None:
        return defs
    return dg.Definitions(
        assets=defs.assets, asset_checks=defs.asset_checks, jobs=defs.jobs, resources={**(defs.resources or {}), **resources}
    )


def materializations(instance: dg.DagsterInstance, asset: dg.AssetKey) -> Sequence[dg.EventLogRecord]:
    """The materializations of an asset, newest first."""
    return instance.fetch_materializations(asset, limit=100).records


def events(instance: dg.DagsterInstance, asset: dg.AssetKey) -> Sequence[dg.AssetMaterialization]:
    """The materializations of an asset, oldest first."""
    records = materializations(instance, asset)
    return [record.asset_materialization for record in reversed(records) if record.asset_materialization]


def failure(result: dg.ExecuteInProcessResult) -> str:
    """The sentence with which the run failed."""
    event = next(event for event in result.all_events if event.is_step_failure)
    return event.step_failure_data.user_failure_data.description or ""  # type: ignore[union-attr]
