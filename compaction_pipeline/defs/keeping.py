"""The sensors that keep things in order: lost attempts, the list of tables, and failed runs. None of them starts a run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import dagster as dg

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.tables.node_keys import may_be_key_of, table_key
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import count_text
from compaction_pipeline.defs.draining import is_of_machine
from compaction_pipeline.defs.event_wipe import wipe_copies
from compaction_pipeline.defs.health_events import health_event, nobody_looks
from compaction_pipeline.defs.health_page import health_page
from compaction_pipeline.defs.names import COMMIT_JOB, COMPACT_JOB, Names
from compaction_pipeline.defs.resources import Compaction
from compaction_pipeline.defs.retire import carried_keys
from compaction_pipeline.defs.runs import end_lost_runs
from compaction_pipeline.defs.ticks import abandoned_when_dagster_ends, ticking
from compaction_pipeline.settings import Settings


def keeper_sensor(names: Names, settings: Settings) -> dg.SensorDefinition:
    """The sensor `keeper_sensor`."""
    return ticking(
        names,
        "keeper_sensor",
        _keeper_tick,
        every=settings.keeper_interval_seconds,
        description="Marks silent optimizers as lost, returns tasks to the queue when their run is gone or their retry is due, and reads "
        "the tables of commits that were cut off, to settle them. Ends runs of ours whose process is gone.",
    )


def _keeper_tick(names: Names, context: dg.SensorEvaluationContext, services: Services) -> dg.SensorResult:
    watched = services.keep_watch.watch(timedelta(seconds=services.settings.keeper_interval_seconds))
    kept = watched.kept
    returned, settled = count_text(len(kept.returned), "lost attempt"), count_text(len(kept.settled), "commit")
    retried = f", {count_text(len(kept.retried), 'failed task')} put back" if kept.retried else ""
    lost = f", {count_text(len(watched.lost), 'silent optimizer')} lost" if watched.lost else ""
    runs = end_lost_runs(context.instance, services)
    gone = f", {count_text(len(runs), 'run')} without a process ended, e.g. {runs[0][:8]}" if runs else ""
    return dg.SensorResult(skip_reason=f"{returned} returned, {settled} settled{retried}{lost}{gone}")


def catalog_sensor(names: Names, settings: Settings) -> dg.SensorDefinition:
    """The sensor `catalog_sensor`."""
    return ticking(
        names,
        "catalog_sensor",
        _catalog_tick,
        every=settings.catalog_interval_seconds,
        description="Lists the registered catalogs: adds new tables, and forgets tables that were dropped. Where Dagster keeps its events "
        "in SQLite, it also deletes second copies of our sensors' events.",
    )


def _catalog_tick(names: Names, context: dg.SensorEvaluationContext, services: Services) -> dg.SensorResult:
    wipe_copies(context.instance, names.external_assets)
    found = services.explore_catalogs.explore()
    text = f"{count_text(len(found.appeared), 'new table')}, {count_text(len(found.dropped), 'dropped table')}"
    if found.unseen:
        text += f"; not all was seen: {found.unseen[0].sentence}"
        text += f"; and {count_text(len(found.unseen) - 1, 'more sentence')} on table_health" if len(found.unseen) > 1 else ""
    if found.failed:
        name, reason = found.failed[0]
        text += f"; {count_text(len(found.failed), 'catalog')} could not be listed, e.g. {name}: {reason}"
    if found.left_out:
        text += f"; {count_text(len(found.left_out), 'table')} left out by filters"
    for problem in services.manage_catalogs.applied.problems:
        context.log.warning(problem)
        text += f"; {problem}"
    return dg.SensorResult(
        skip_reason=text, dynamic_partitions_requests=_left(names, context.instance, services, (*found.dropped, *found.left_out))
    )


def _left(
    names: Names, instance: dg.DagsterInstance, services: Services, dropped: Sequence[TableIdentifier]
) -> list[dg.DeleteDynamicPartitionsRequest]:
    """Requests that take the partitions of dropped tables away, except those that a run works on.

    A table that was renamed is not dropped, and its nodes keep their keys.
    """
    if not dropped:
        return []
    held = {node.key for node in services.read_status.nodes()}
    tables = set(map(table_key, dropped))
    known = instance.get_dynamic_partitions(str(names.table_nodes.name))
    nodes = [key for key in known if key not in held and any(may_be_key_of(table, key) for table in dropped)]
    records = [key for key in instance.get_dynamic_partitions(str(names.tables.name)) if key in tables]
    asked = [(names.table_nodes, nodes), (names.tables, records)]
    carried = carried_keys(instance, [key for _, keys in asked for key in keys])
    free = [(partitions, [key for key in keys if key not in carried]) for partitions, keys in asked]
    return [partitions.build_delete_request(keys) for partitions, keys in free if keys]


def failure_sensor(names: Names) -> dg.SensorDefinition:
    """The sensor `failure_sensor`."""

    @abandoned_when_dagster_ends
    def evaluate(context: dg.RunStatusSensorContext, **resources: object) -> dg.SkipReason | None:
        # This context closes its resources. The one that it makes here would not.
        return _failure_tick(names, context.for_run_failure(), getattr(context.resources, names.compaction))

    # Dagster's decorator for failures takes a resource only by the name of a parameter.
    return dg.RunStatusSensorDefinition(
        name=names.of("failure_sensor"),
        run_status=dg.DagsterRunStatus.FAILURE,
        run_status_sensor_fn=evaluate,
        description="After a failed run of ours, returns its lost attempts to the queue, and shows the run and its reason on "
        "`table_health`.",
        required_resource_keys={names.compaction},
    )


def _failure_tick(names: Names, context: dg.RunFailureSensorContext, compaction: Compaction) -> dg.SkipReason | None:
    run = context.dagster_run
    ours = {names.of(COMPACT_JOB), names.of(COMMIT_JOB)}
    if run.job_name not in ours and not (run.asset_selection or frozenset()) & names.assets:
        return dg.SkipReason(f"run {run.run_id[:8]} of {run.job_name} is not ours")
    services = compaction.services()
    services.keep_watch.keep()
    reason = context.failure_event.message or "the run gave no reason"
    status = services.read_status.status()
    metadata = {
        "failed_run": dg.MetadataValue.dagster_run(run.run_id),
        "failed_reason": dg.MetadataValue.text(reason),
        **health_page(names, status, services.watch_files.history(status.tables), None),
    }
    silence = nobody_looks(services) if is_of_machine(run) else None
    context.instance.report_runless_asset_event(health_event(names, f"{run.job_name} failed", metadata, silence))
    return None
