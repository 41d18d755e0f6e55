"""The sensors: they detect, plan into the queue and mirror, without a run; a run is asked for only where Spark or a commit is needed.

Each takes ≤ 20 s a tick and keeps its place in the cursor, asks for at most one run, and says with numbers why it asked for none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from hashlib import sha256

import dagster as dg

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.defs.checks import evaluations
from compaction_pipeline.defs.jobs import commit_job, compact_job
from compaction_pipeline.defs.keys import (
    COMMIT_JOB,
    COMPACT_JOB,
    COMPACTED_FILES,
    MACHINE_TAGS,
    OUR_ASSETS,
    SETTINGS,
    TABLE_HEALTH,
)
from compaction_pipeline.defs.metadata import status_metadata
from compaction_pipeline.defs.mirror import page_of
from compaction_pipeline.defs.observing import MOST_EVENTS, changed_nodes, observations
from compaction_pipeline.defs.partitions import MOST_NODES, additions, needs_care, table_key, table_nodes, tables
from compaction_pipeline.defs.resources import Compaction
from compaction_pipeline.defs.runs import active_run, is_active
from compaction_pipeline.defs.ticks import abandoned_when_dagster_ends
from compaction_pipeline.services.insight.read_status import Status

BUDGET = timedelta(seconds=20)
"""Of one tick, of the 60 s that Dagster allows: other sensors share the daemon's threads."""
NO_CATALOG = "no catalog: run `compaction-pipeline catalog add`"
_RUNNING = dg.DefaultSensorStatus.RUNNING

Additions = Sequence[dg.AddDynamicPartitionsRequest]


def _has_catalog(services: Services) -> bool:
    return bool(services.list_catalogs.entries())


def _new_nodes(instance: dg.DagsterInstance, wanted: Iterable[str]) -> list[dg.AddDynamicPartitionsRequest]:
    return additions(table_nodes, wanted, instance.get_dynamic_partitions(str(table_nodes.name)), MOST_NODES)


def _new_tables(instance: dg.DagsterInstance, services: Services) -> list[dg.AddDynamicPartitionsRequest]:
    wanted = map(table_key, services.read_tables.names())
    return additions(tables, wanted, instance.get_dynamic_partitions(str(tables.name)))


# ---- detection -------------------------------------------------------------------------------------------------------


@dg.sensor(
    name="snapshot_sensor",
    minimum_interval_seconds=SETTINGS.sensor_interval_seconds,
    default_status=_RUNNING,
    description="New snapshots → file index → observations of `delta_files`; plans the nodes that just changed. Starts no run.",
)
@abandoned_when_dagster_ends
def snapshot_sensor(context: dg.SensorEvaluationContext, compaction: Compaction) -> dg.SensorResult:
    services = compaction.services()
    if not _has_catalog(services):
        return dg.SensorResult(skip_reason=NO_CATALOG)
    work = services.tick_tables
    work.keep()
    # Three fifths for looking, the rest for planning what was found.
    sweep = work.sweep(context.cursor or None, BUDGET * 0.6)
    changed = {refresh.table: frozenset(refresh.changed) for refresh in sweep.refreshed if refresh.changed}
    planned = work.plan_due(changed, BUDGET * 0.4, nodes=changed)
    nodes = changed_nodes(services, changed)
    tasks = sum(len(plan.tasks) for _, plan in planned)
    problems = [refresh for refresh in sweep.refreshed if refresh.problem]
    looked_at = len(sweep.refreshed) + sweep.unmoved
    text = f"{looked_at} table(s) looked at, {len(nodes)} node(s) changed in {len(changed)}, {tasks} task(s) planned"
    if problems:
        text += f"; {len(problems)} table(s) with a problem, e.g. {problems[0].table}: {problems[0].problem}"
    if sweep.cursor:
        text += f"; goes on from {sweep.cursor}"
    known = frozenset(context.instance.get_dynamic_partitions(str(table_nodes.name)))
    new = _new_nodes(context.instance, (node.key for node in nodes if needs_care(node)))
    visible = known.union(*(request.partition_keys for request in new))
    return dg.SensorResult(
        skip_reason=text,
        cursor=sweep.cursor or "",
        dynamic_partitions_requests=[*new, *_new_tables(context.instance, services)],
        asset_events=observations(services, changed, visible),
    )


# ---- planning --------------------------------------------------------------------------------------------------------


@dg.sensor(
    name="fragmentation_sensor",
    job=compact_job,
    minimum_interval_seconds=SETTINGS.sensor_interval_seconds,
    default_status=_RUNNING,
    description="What the clock makes due, or could not be planned earlier → queue; asks for `compact_job` when nothing serves the queue.",
)
@abandoned_when_dagster_ends
def fragmentation_sensor(context: dg.SensorEvaluationContext, compaction: Compaction) -> dg.SensorResult:
    services = compaction.services()
    if not _has_catalog(services):
        return dg.SensorResult(skip_reason=NO_CATALOG)
    cursor = json.loads(context.cursor or "{}")
    order = _from(cursor.get("table"), services.plan_tables.worth_planning())
    planned = services.tick_tables.plan_due(order, BUDGET * 0.8)
    status = services.read_status.status()
    fingerprint = status_fingerprint(status)
    serving = active_run(context.instance, COMPACT_JOB)
    wants_run = bool(status.queue.pending) and serving is None
    return dg.SensorResult(
        run_requests=[dg.RunRequest(tags=MACHINE_TAGS)] if wants_run else None,
        skip_reason=None if wants_run else why_no_run(status, serving),
        cursor=json.dumps({"table": str(order[len(planned) % len(order)]) if order else None, "health": fingerprint}),
        dynamic_partitions_requests=_new_nodes(context.instance, (node.key for node in status.needing if needs_care(node))),
        asset_events=[]
        if fingerprint == cursor.get("health")
        else [dg.AssetObservation(TABLE_HEALTH, description=why_no_run(status, serving), metadata=_health(context, status))],
    )


def _from(start: str | None, names: Sequence[TableIdentifier]) -> list[TableIdentifier]:
    """The tables, beginning with the one where the last tick stopped."""
    first = next((i for i, table in enumerate(names) if start is not None and str(table) == start), 0)
    return [*names[first:], *names[:first]]


def _health(context: dg.SensorEvaluationContext, status: Status) -> dict[str, dg.MetadataValue]:
    origin = context.code_location_origin
    # An op job is not listed under the asset by itself.
    job = {"compact_job": dg.MetadataValue.job(COMPACT_JOB, origin.location_name)} if origin is not None else {}
    return {**status_metadata(status), **job}


def status_fingerprint(status: Status) -> str:
    """Equal for two states that `table_health` would show alike (times apart)."""
    shown = [
        [(node.key, node.health.value, node.reason, node.metrics.files) for node in status.worst],
        [(str(table.table), table.health.value, table.reason, table.warning, table.metrics.files) for table in status.tables],
        [(task.task_id, task.attempt) for task in status.executing],
        repr(status.queue),
        [record.record_id for record in status.unsettled],
    ]
    return sha256(json.dumps(shown).encode()).hexdigest()[:16]


def why_no_run(status: Status, serving: str | None) -> str:
    """What stands between now and the next run, with numbers."""
    queue = status.queue
    if queue.pending:
        return f"{queue.pending} task(s) wait" + (f"; run {serving[:8]} serves the queue" if serving else " for a run")
    if queue.executing or queue.prepared:
        return f"no task waits; {queue.executing} executing, {queue.prepared} merged and waiting for their table's commit"
    if not status.tables:
        return "no table in any registered catalog"
    held = [table for table in status.tables if table.is_held_back]
    best = next((node for node in status.worst), None)
    text = f"nothing due on {len(status.tables)} table(s), {status.nodes} node(s)"
    if best is not None:
        text += f"; worst {best.table} {best.node}: {best.metrics.small_files} small of {best.metrics.files} files, {best.reason}"
    if held:
        text += f"; {len(held)} table(s) held back, e.g. {held[0].table}: {held[0].reason}"
    return text


# ---- commits and the mirror ------------------------------------------------------------------------------------------


@dg.sensor(
    name="commit_sensor",
    job=commit_job,
    minimum_interval_seconds=SETTINGS.sensor_interval_seconds,
    default_status=_RUNNING,
    description="A table is due → one run of `commit_job`; mirrors commits that were made outside Dagster.",
)
@abandoned_when_dagster_ends
def commit_sensor(context: dg.SensorEvaluationContext, compaction: Compaction) -> dg.SensorResult:
    services = compaction.services()
    if not _has_catalog(services):
        return dg.SensorResult(skip_reason=NO_CATALOG)
    cursor = json.loads(context.cursor or "{}")
    # Told by the last tick, whose events are stored by now: only then is it remembered.
    mirror = services.mirror_records
    mirror.told(cursor.get("told", []))
    records = [record for record in mirror.untold(MOST_EVENTS) if not is_active(context.instance, record.run_id)]
    offset = cursor.get("offset", 0) if records and records[0].record_id == cursor.get("record") else 0
    page = page_of(records, mirror.tasks, MOST_EVENTS, offset)
    next_record = next((record.record_id for record in records if record.record_id not in page.told), None)
    due = services.commit_tables.due()
    serving = active_run(context.instance, COMMIT_JOB, COMPACT_JOB)
    wants_run = bool(due) and serving is None
    queue = services.read_tasks.queue_counts()
    text = (
        f"{len(due)} table(s) due, run {serving[:8]} commits them"
        if due and serving
        else f"no table due; {queue.prepared} merged task(s) wait"
    )
    node_keys = (str(event.partition) for event in page.events if event.asset_key == COMPACTED_FILES)
    return dg.SensorResult(
        run_requests=[dg.RunRequest(tags=MACHINE_TAGS)] if wants_run else None,
        skip_reason=None if wants_run else f"{text}; {len(page.events)} event(s) mirrored",
        cursor=json.dumps({"told": page.told, "record": next_record, "offset": page.offset}),
        dynamic_partitions_requests=[*_new_nodes(context.instance, node_keys), *_new_tables(context.instance, services)],
        asset_events=[*page.events, *(evaluations(services.judge_compaction) if page.events else ())],
    )


# ---- keeping ---------------------------------------------------------------------------------------------------------


@dg.sensor(
    name="keeper_sensor",
    minimum_interval_seconds=SETTINGS.keeper_interval_seconds,
    default_status=_RUNNING,
    description="Returns tasks whose run is gone to the queue, and settles commits that were cut off by reading their tables.",
)
@abandoned_when_dagster_ends
def keeper_sensor(context: dg.SensorEvaluationContext, compaction: Compaction) -> dg.SensorResult:
    kept = compaction.services().tick_tables.keep()
    return dg.SensorResult(skip_reason=f"{len(kept.returned)} lost attempt(s) returned, {len(kept.settled)} commit(s) settled")


@dg.sensor(
    name="catalog_sensor",
    minimum_interval_seconds=SETTINGS.catalog_interval_seconds,
    default_status=_RUNNING,
    description="Lists the registered catalogs: new tables appear, dropped ones are forgotten.",
)
@abandoned_when_dagster_ends
def catalog_sensor(context: dg.SensorEvaluationContext, compaction: Compaction) -> dg.SensorResult:
    services = compaction.services()
    if not _has_catalog(services):
        return dg.SensorResult(skip_reason=NO_CATALOG)
    found = services.explore_catalogs.explore()
    text = f"{len(found.appeared)} table(s) appeared, {len(found.dropped)} dropped"
    if found.failed:
        text += f"; {len(found.failed)} catalog(s) were not listed, e.g. {found.failed[0][0]}: {found.failed[0][1]}"
    return dg.SensorResult(skip_reason=text, dynamic_partitions_requests=_new_tables(context.instance, services))


@dg.run_failure_sensor(
    name="failure_sensor",
    description="A failed run of ours → its lost attempts are returned, and `table_health` shows the run and its reason.",
)
@abandoned_when_dagster_ends
def failure_sensor(context: dg.RunFailureSensorContext, compaction: Compaction) -> dg.SkipReason | None:
    run = context.dagster_run
    ours = {COMPACT_JOB, COMMIT_JOB}
    if run.job_name not in ours and not (run.asset_selection or frozenset()) & OUR_ASSETS:
        return dg.SkipReason(f"run {run.run_id[:8]} of {run.job_name} is not ours")
    services = compaction.services()
    services.tick_tables.keep()
    reason = context.failure_event.message or "no reason given"
    metadata = {
        "failed_run": dg.MetadataValue.dagster_run(run.run_id),
        "failed_reason": dg.MetadataValue.text(reason),
        **status_metadata(services.read_status.status()),
    }
    context.instance.report_runless_asset_event(dg.AssetObservation(TABLE_HEALTH, description=f"{run.job_name} failed", metadata=metadata))
    return None
