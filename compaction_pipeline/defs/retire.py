"""Tidies up once a week: retires partitions of healthy and quiet nodes, expires old records and events, and removes leftover files."""

# This module has no `from __future__ import annotations`. Dagster compares the annotation of an op's context, so it must not be a string.

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

import dagster as dg

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.tables.node_keys import table_key
from compaction_pipeline.core.words import count_text
from compaction_pipeline.defs.event_wipe import wipe_old_events
from compaction_pipeline.defs.names import RETIRE_JOB, Names
from compaction_pipeline.defs.op_jobs import op_job
from compaction_pipeline.defs.partitions import keys_between, retirement
from compaction_pipeline.defs.resources import services_of
from compaction_pipeline.defs.runs import ACTIVE

_NEWEST_BACKFILLS = 100
_UNDER_WAY = frozenset({"REQUESTED", "CANCELING", "FAILING"})


def retire_job(names: Names) -> dg.JobDefinition:
    """The job that tidies up."""

    def retire(context: dg.OpExecutionContext) -> None:
        _retire(names, context)

    return op_job(
        names,
        RETIRE_JOB,
        retire,
        "Retires quiet partitions, expires old records, tasks and events, and removes leftover files.",
        "Retires partitions of healthy and quiet nodes, expires old records and events, and removes files of killed attempts.",
    )


def retire_schedule(names: Names, job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """The schedule of this job."""
    return dg.ScheduleDefinition(
        name=names.of("compaction_retire_schedule"),
        job=job,
        cron_schedule="0 4 * * 0",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Tidies up on Sundays at four, so that partitions, records, events and files do not grow in number for ever.",
    )


def _retire(names: Names, context: dg.OpExecutionContext) -> None:
    """Keep the number of partitions, records and files from growing for ever."""
    services = services_of(names, context)
    maintenance = services.maintain_tables.maintain()
    context.log.info(f"{count_text(maintenance.records_expired, 'record')} and {count_text(maintenance.tasks_expired, 'task')} expired")
    context.log.info(f"{count_text(maintenance.files_removed, 'leftover file')} removed")
    instance = context.instance
    nodes_name, tables_name = str(names.table_nodes.name), str(names.tables.name)
    known = instance.get_dynamic_partitions(nodes_name)
    nodes = services.read_status.nodes()
    for key in retirement(known, nodes, carried_keys(instance, known), services.clock()):
        instance.delete_dynamic_partition(nodes_name, key)
    gone = set(instance.get_dynamic_partitions(tables_name)) - set(map(table_key, services.read_tables.names()))
    for key in sorted(gone):
        instance.delete_dynamic_partition(tables_name, key)
    kept = len(instance.get_dynamic_partitions(nodes_name))
    context.log.info(
        f"{len(known) - kept} of {count_text(len(known), 'partition')} of nodes and {count_text(len(gone), 'partition')} of tables retired"
    )
    context.log.info(_wiped(names, instance, services))


def _wiped(names: Names, instance: dg.DagsterInstance, services: Services) -> str:
    """Delete old events of our external assets, and say so."""
    days = services.settings.event_ttl_days
    wiped = wipe_old_events(instance, names.external_assets, services.clock() - timedelta(days=days))
    if wiped is None:
        return "this instance keeps its events in no SQL database, so old events of our external assets stay: delete them yourself"
    return f"{count_text(wiped, 'event')} of our external assets deleted, older than COMPACTION_EVENT_TTL_DAYS={days}"


def tables_without_record(names: Names, instance: dg.DagsterInstance, untold: Collection[str]) -> Sequence[str]:
    """The partitions of tables that never got a record, and that no run works on. `untold` are tables with records that come now."""
    known = instance.get_dynamic_partitions(str(names.tables.name))
    if not known:
        return ()
    told = instance.get_materialized_partitions(names.compaction_records)
    kept = {*told, *untold, *carried_keys(instance, known)}
    return sorted(key for key in known if key not in kept)


def carried_keys(instance: dg.DagsterInstance, known: Sequence[str]) -> frozenset[str]:
    """The partition keys that a queued or running run works on. While a backfill is under way, it returns all keys."""
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
    """The node keys in the config of a run of `compact_job`."""
    return [key for op in (run_config.get("ops") or {}).values() for key in (op.get("config") or {}).get("node_keys") or ()]
