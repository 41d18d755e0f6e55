"""The sensors that keep things in order: lost attempts, the list of tables, and failed runs. None of them starts a run."""

from __future__ import annotations

from datetime import timedelta

import dagster as dg

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.words import count_text
from compaction_pipeline.defs.draining import is_of_machine
from compaction_pipeline.defs.event_wipe import wipe_copies
from compaction_pipeline.defs.health_events import health_event, nobody_looks
from compaction_pipeline.defs.health_page import health_page
from compaction_pipeline.defs.names import COMMIT_JOB, COMPACT_JOB, NAMES, SETTINGS
from compaction_pipeline.defs.resources import Compaction
from compaction_pipeline.defs.runs import end_lost_runs
from compaction_pipeline.defs.ticks import abandoned_when_dagster_ends, ticking


@ticking(
    "keeper_sensor",
    every=SETTINGS.keeper_interval_seconds,
    description="Marks silent optimizers as lost, returns tasks to the queue when their run is gone or their retry is due, and reads the "
    "tables of commits that were cut off, to settle them. Ends runs of ours whose process is gone.",
)
def keeper_sensor(context: dg.SensorEvaluationContext, services: Services) -> dg.SensorResult:
    watched = services.keep_watch.keep(timedelta(seconds=SETTINGS.keeper_interval_seconds))
    kept = watched.kept
    returned, settled = count_text(len(kept.returned), "lost attempt"), count_text(len(kept.settled), "commit")
    retried = f", {count_text(len(kept.retried), 'failed task')} put back" if kept.retried else ""
    lost = f", {count_text(len(watched.lost), 'silent optimizer')} lost" if watched.lost else ""
    runs = end_lost_runs(context.instance, services)
    gone = f", {count_text(len(runs), 'run')} without a process ended, e.g. {runs[0][:8]}" if runs else ""
    return dg.SensorResult(skip_reason=f"{returned} returned, {settled} settled{retried}{lost}{gone}")


@ticking(
    "catalog_sensor",
    every=SETTINGS.catalog_interval_seconds,
    description="Lists the registered catalogs: adds new tables, and forgets tables that were dropped. Where Dagster keeps its events in "
    "SQLite, it also deletes second copies of our sensors' events.",
)
def catalog_sensor(context: dg.SensorEvaluationContext, services: Services) -> dg.SensorResult:
    wipe_copies(context.instance, NAMES.external_assets)
    found = services.explore_catalogs.explore()
    text = f"{count_text(len(found.appeared), 'new table')}, {count_text(len(found.dropped), 'dropped table')}"
    if found.failed:
        name, reason = found.failed[0]
        text += f"; {count_text(len(found.failed), 'catalog')} could not be listed, e.g. {name}: {reason}"
    return dg.SensorResult(skip_reason=text)


@dg.run_failure_sensor(
    name="failure_sensor",
    description="After a failed run of ours, returns its lost attempts to the queue, and shows the run and its reason on `table_health`.",
)
@abandoned_when_dagster_ends
def failure_sensor(context: dg.RunFailureSensorContext, compaction: Compaction) -> dg.SkipReason | None:
    run = context.dagster_run
    ours = {NAMES.of(COMPACT_JOB), NAMES.of(COMMIT_JOB)}
    if run.job_name not in ours and not (run.asset_selection or frozenset()) & NAMES.assets:
        return dg.SkipReason(f"run {run.run_id[:8]} of {run.job_name} is not ours")
    services = compaction.services()
    services.tick_tables.keep()
    reason = context.failure_event.message or "the run gave no reason"
    status = services.read_status.status()
    metadata = {
        "failed_run": dg.MetadataValue.dagster_run(run.run_id),
        "failed_reason": dg.MetadataValue.text(reason),
        **health_page(NAMES, status, services.watch_files.history(status.tables), None),
    }
    silence = nobody_looks(services) if is_of_machine(run) else None
    context.instance.report_runless_asset_event(health_event(NAMES, f"{run.job_name} failed", metadata, silence))
    return None
