"""The sensors that look for work: new snapshots, nodes that are due, and commits that are due.

They detect, plan into the queue and mirror by themselves. They ask for a run only where Spark or a commit is needed. A tick of
`snapshot_sensor` or `fragmentation_sensor` works for about 20 s at most, and the cursor keeps its place. A tick asks for at most one run,
and says with numbers why it asked for none.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta

import dagster as dg

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.insight.open_tasks import open_tasks_text
from compaction_pipeline.core.tables.node_keys import table_key
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import count_text
from compaction_pipeline.defs.check_events import evaluations_without_run
from compaction_pipeline.defs.file_events import MOST_EVENTS, changed_nodes, file_events
from compaction_pipeline.defs.health_events import Told, health_event, nobody_looks, status_fingerprint
from compaction_pipeline.defs.health_page import health_page
from compaction_pipeline.defs.mirror import page_of
from compaction_pipeline.defs.names import COMMIT_JOB, COMPACT_JOB, MACHINE_TAGS, Names
from compaction_pipeline.defs.partitions import known_nodes, needs_care, new_nodes, new_tables
from compaction_pipeline.defs.retire import tables_without_record
from compaction_pipeline.defs.runs import active_run, is_active
from compaction_pipeline.defs.status_texts import why_no_run
from compaction_pipeline.defs.table_figures import table_figures
from compaction_pipeline.defs.terminated import held_back
from compaction_pipeline.defs.ticks import ticking
from compaction_pipeline.defs.walk import Walk, walked
from compaction_pipeline.settings import Settings

BUDGET = timedelta(seconds=20)
"""The time of one tick. Dagster allows 60 s, but all sensors share the daemon's threads."""

FIGURES_EVERY = timedelta(minutes=5)
"""`table_figures` gets a point at most this often. Dagster plots the newest hundred points or so: the last day of a busy deployment."""


def snapshot_sensor(names: Names, settings: Settings) -> dg.SensorDefinition:
    """The sensor `snapshot_sensor`."""
    return ticking(
        names,
        "snapshot_sensor",
        _snapshot_tick,
        events_of=[names.delta_files],
        every=settings.sensor_interval_seconds,
        description=(
            "Reads new snapshots into the index of files, first those that writers reported, materializes `delta_files`, and plans the "
            "nodes that just changed. It starts no run."
        ),
    )


def _snapshot_tick(names: Names, context: dg.SensorEvaluationContext, services: Services) -> dg.SensorResult:
    services.keep_watch.keep()
    # Three fifths of the time go into looking. The rest is for planning what was found.
    sweep = services.sweep_tables.sweep(_next_table(context.cursor), BUDGET * 0.6)
    changed = {refresh.table: frozenset(refresh.changed) for refresh in sweep.refreshed if refresh.changed}
    planned = services.sweep_tables.plan_due(changed, BUDGET * 0.4, nodes=changed)
    nodes = changed_nodes(services, changed)
    tasks = sum(len(plan.tasks) for _, plan in planned)
    problems = [refresh for refresh in sweep.refreshed if refresh.problem]
    looked_at = count_text(len(sweep.refreshed) + sweep.unmoved, "table")
    text = f"looked at {looked_at}: {count_text(len(nodes), 'node')} changed in {len(changed)}, {count_text(tasks, 'task')} planned"
    if problems:
        text += f"; {count_text(len(problems), 'table')} with a problem, e.g. {problems[0].table}: {problems[0].problem}"
    if sweep.cursor:
        text += f"; the next tick goes on from {sweep.cursor}"
    known = known_nodes(names, context.instance) if nodes else frozenset()
    new = new_nodes(names, known, (node.key for node in nodes if needs_care(node)))
    visible = known.union(*(request.partition_keys for request in new))
    return dg.SensorResult(
        skip_reason=text,
        cursor=json.dumps({"table": sweep.cursor}),
        dynamic_partitions_requests=new,
        asset_events=file_events(names, nodes, visible),
    )


def _next_table(cursor: str | None) -> str | None:
    """The table that the tick before had no time for; None when it had time for all.

    The daemon keeps the cursor of before in place of an empty one. So one that releases before this one wrote, the bare name of a table,
    may be old: all tables before it were not looked at since.
    """
    table: str | None = json.loads(cursor)["table"] if cursor and cursor.startswith("{") else None
    return table


def fragmentation_sensor(names: Names, settings: Settings) -> dg.SensorDefinition:
    """The sensor `fragmentation_sensor`."""
    return ticking(
        names,
        "fragmentation_sensor",
        _fragmentation_tick,
        job_name=COMPACT_JOB,
        every=settings.sensor_interval_seconds,
        description=(
            "Plans nodes that became due by time, or that could not be planned earlier. Asks for a run of `compact_job` when tasks wait "
            "and no run serves the queue."
        ),
    )


def _fragmentation_tick(names: Names, context: dg.SensorEvaluationContext, services: Services) -> dg.SensorResult:
    cursor = json.loads(context.cursor or "{}")
    started = services.clock()
    order = _from(cursor.get("table"), services.tables_in_line.worth_planning())
    # Three fifths of the time go into planning. The first tick of a process also needs time to read all nodes.
    planned = services.sweep_tables.plan_due(order, started + BUDGET * 0.6 - services.clock())
    status = services.read_status.status()
    history = services.watch_files.note(status.tables)
    fingerprint = status_fingerprint(status)
    serving = active_run(context.instance, names.of(COMPACT_JOB))
    # Optimizers merge what waits in their own queues.
    unserved = services.share_queues.unserved()
    wants_run = bool(unserved) and serving is None
    why = why_no_run(status, serving, by_optimizers=bool(status.queue.pending) and not unserved)
    held = held_back(names, context.instance, services.clock()) if wants_run else None
    if held is not None:
        wants_run, why = False, f"{held.text}; {open_tasks_text(status.queue.open_tasks)}"
    walk, new, events = walked(names, context.instance, Walk.of(cursor.get("walk")), status.all_nodes, status.at)
    silence = nobody_looks(services)
    told = Told.of(cursor.get("health"))
    tells = told.next(status)
    if tells is not None:
        page = health_page(names, status, history, context, large=tells.large_at != told.large_at)
        events.append(health_event(names, why, {**page, **_link_to_job(names, context)}, silence))
    figures_at = cursor.get("figures_at", 0)
    # Before the first table is read there is no history, and a point would say that there are no files.
    if history and fingerprint != cursor.get("figures") and status.at.timestamp() - figures_at >= FIGURES_EVERY.total_seconds():
        events.append(dg.AssetMaterialization(names.table_figures, metadata=table_figures(status.tables, history)))
        figures_at, cursor["figures"] = int(status.at.timestamp()), fingerprint
    place = {
        "table": _next(order, planned[-1][0] if planned else None),
        "health": (tells or told).text,
        "walk": walk.text,
        "figures": cursor.get("figures"),
        "figures_at": figures_at,
    }
    return dg.SensorResult(
        run_requests=[dg.RunRequest(tags=MACHINE_TAGS)] if wants_run else None,
        skip_reason=None if wants_run else "; ".join(filter(None, (silence, why))),
        cursor=json.dumps(place),
        dynamic_partitions_requests=new,
        asset_events=events,
    )


def _from(start: str | None, names: Sequence[TableIdentifier]) -> list[TableIdentifier]:
    """All tables, beginning with the one at which the last tick stopped."""
    first = next((i for i, table in enumerate(names) if start is not None and str(table) == start), 0)
    return [*names[first:], *names[:first]]


def _next(order: Sequence[TableIdentifier], last: TableIdentifier | None) -> str | None:
    """The table with which the next tick begins: the one after the last that was planned. When no plan succeeded, it is the second one."""
    return str(order[(order.index(last) + 1 if last is not None else 1) % len(order)]) if order else None


def _link_to_job(names: Names, context: dg.SensorEvaluationContext) -> dict[str, dg.MetadataValue]:
    origin = context.code_location_origin
    # The page of an asset lists no op jobs, so a link leads to ours.
    return {"compact_job": dg.MetadataValue.job(names.of(COMPACT_JOB), origin.location_name)} if origin is not None else {}


def commit_sensor(names: Names, settings: Settings) -> dg.SensorDefinition:
    """The sensor `commit_sensor`."""
    return ticking(
        names,
        "commit_sensor",
        _commit_tick,
        job_name=COMMIT_JOB,
        every=settings.sensor_interval_seconds,
        description="Asks for a run of `commit_job` when a table is due, and tells Dagster of commits that were made outside of it.",
    )


def _commit_tick(names: Names, context: dg.SensorEvaluationContext, services: Services) -> dg.SensorResult:
    cursor = json.loads(context.cursor or "{}")
    mirror = services.mirror_records
    # Dagster stores the events of a tick when the tick has ended. So the records of the last tick are marked as told only now.
    mirror.told(cursor.get("told", []))
    records = [record for record in mirror.untold(MOST_EVENTS) if not is_active(context.instance, record.run_id)]
    offset = cursor.get("offset", 0) if records and records[0].record_id == cursor.get("record") else 0
    page = page_of(names, records, mirror.tasks, MOST_EVENTS, offset)
    next_record = next((record.record_id for record in records if record.record_id not in page.told), None)
    due = services.commit_due.due()
    serving = active_run(context.instance, names.of(COMMIT_JOB), names.of(COMPACT_JOB))
    held = held_back(names, context.instance, services.clock()) if due and serving is None else None
    wants_run = bool(due) and serving is None and held is None
    who = held.text if held else f"run {serving[:8]} commits them" if serving else ""
    text = f"{count_text(len(due), 'table')} due for a commit; {who}" if due and who else _why_none_due(services)
    results = services.judge_compaction.judge(only_changed=True) if page.events else ()
    node_keys = [str(event.partition) for event in page.events if event.asset_key == names.compacted_files]
    table_keys = [str(event.partition) for event in page.events if event.asset_key == names.compaction_records]
    # Older versions made a partition of every table. Their keys go once, so that those that a person names later stay.
    empty = () if cursor.get("tidied") else tables_without_record(names, context.instance, {table_key(record.table) for record in records})
    return dg.SensorResult(
        run_requests=[dg.RunRequest(tags=MACHINE_TAGS)] if wants_run else None,
        skip_reason=None if wants_run else f"{text}; {count_text(len(page.events), 'event')} mirrored",
        cursor=json.dumps({"told": page.told, "record": next_record, "offset": page.offset, "tidied": True}),
        dynamic_partitions_requests=[
            *(new_nodes(names, known_nodes(names, context.instance), node_keys) if node_keys else ()),
            *(new_tables(names, context.instance, table_keys) if table_keys else ()),
            *([names.tables.build_delete_request(empty)] if empty else ()),
        ],
        asset_events=[*page.events, *evaluations_without_run(names, context.instance, results)],
    )


def _why_none_due(services: Services) -> str:
    """Say that no table is due, and for one table with merged tasks what these wait for."""
    held_back = services.commit_due.held_back()
    if not held_back:
        return "no table is due for a commit"
    table, reason = next(iter(held_back.items()))
    return f"no table is due for a commit; {count_text(len(held_back), 'table')} with merged tasks, e.g. {table}: {reason}"
