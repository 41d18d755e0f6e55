"""Keeping house, once a week: partitions of healthy and quiet nodes retire, old records expire, leftovers are removed."""

# No `from __future__ import annotations` here: Dagster compares the annotation of an op's context, which must not be a string.

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from compaction_pipeline.defs.keys import GROUP, RETIRE_JOB
from compaction_pipeline.defs.partitions import keys_between, retirement, table_key, table_nodes, tables
from compaction_pipeline.defs.resources import Compaction
from compaction_pipeline.defs.runs import ACTIVE

_NEWEST_BACKFILLS = 100
_UNDER_WAY = frozenset({"REQUESTED", "CANCELING", "FAILING"})


@dg.op(description="retire quiet partitions, expire old records and tasks, remove leftovers", out=dg.Out(dg.Nothing))
def retire(context: dg.OpExecutionContext, compaction: Compaction) -> None:
    """Keep partitions, records and folders from growing for ever."""
    services = compaction.services()
    maintenance = services.maintain_tables.maintain()
    context.log.info(f"{maintenance.records_expired} record(s) and {maintenance.tasks_expired} task(s) expired")
    context.log.info(f"{maintenance.files_removed} leftover(s) removed")
    instance = context.instance
    known = instance.get_dynamic_partitions(str(table_nodes.name))
    nodes = services.read_status.nodes()
    for key in retirement(known, nodes, carried_keys(instance, known), services.clock()):
        instance.delete_dynamic_partition(str(table_nodes.name), key)
    gone = set(instance.get_dynamic_partitions(str(tables.name))) - set(map(table_key, services.read_tables.names()))
    for key in sorted(gone):
        instance.delete_dynamic_partition(str(tables.name), key)
    kept = len(instance.get_dynamic_partitions(str(table_nodes.name)))
    context.log.info(f"{len(known) - kept} of {len(known)} table node partition(s) and {len(gone)} table partition(s) retired")


def carried_keys(instance: dg.DagsterInstance, known: Sequence[str]) -> frozenset[str]:
    """Partition keys that a queued or running run, or a backfill under way, carries."""
    carried: set[str] = set()
    for run in instance.get_runs(filters=dg.RunsFilter(statuses=ACTIVE)):
        carried.update(key for key in (run.tags.get("dagster/partition"),) if key)
        start, end = run.tags.get("dagster/asset_partition_range_start"), run.tags.get("dagster/asset_partition_range_end")
        if start and end:
            carried.update(keys_between(known, start, end))
        carried.update(_named(run.run_config))
    if any(backfill.status.value in _UNDER_WAY for backfill in instance.get_backfills(limit=_NEWEST_BACKFILLS)):
        carried.update(known)
    return frozenset(carried)


def _named(run_config: Mapping[str, Any]) -> Sequence[str]:
    """The node keys that a run of `compact_job` was started with."""
    return [key for op in (run_config.get("ops") or {}).values() for key in (op.get("config") or {}).get("node_keys") or ()]


@dg.job(
    name=RETIRE_JOB,
    executor_def=dg.in_process_executor,
    tags={"compaction/group": GROUP},
    description="Retires partitions of nodes that have been healthy and quiet, expires records, removes what killed attempts left.",
)
def retire_job() -> None:
    retire()


retire_schedule = dg.ScheduleDefinition(
    name="compaction_retire_schedule",
    job=retire_job,
    cron_schedule="0 4 * * 0",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Sundays at four: keeps partitions, records and folders from growing for ever.",
)
