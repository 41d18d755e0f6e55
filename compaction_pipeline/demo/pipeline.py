"""What the demo does with the product: it registers a catalog, starts `dagster dev`, and asks what work is left and who did it."""

from __future__ import annotations

import os
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.fragmentation.verdict import NOTHING_TO_DO
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.defs.runs import ACTIVE
from compaction_pipeline.demo import payments
from compaction_pipeline.demo.options import CATALOG, DemoOptions, child_environment
from compaction_pipeline.demo.processes import Child, Processes, dagster_command
from compaction_pipeline.demo.quiet import WorkLeft
from compaction_pipeline.demo.tables import NAMESPACE, TABLES
from compaction_pipeline.demo.tied import tied
from compaction_pipeline.demo.warehouse import catalog_entry, identifier, newest_snapshots
from compaction_pipeline.settings import load_settings

_SENSOR_TAG = "dagster/sensor_name"


def open_services(options: DemoOptions) -> Services:
    """Services on the demo's own state database. Settings of the person do not reach it."""
    return Services(load_settings({"home": options.home}))


def register_catalog(services: Services, options: DemoOptions) -> None:
    """Register the demo's catalog, unless an earlier demo has registered it."""
    if CATALOG not in {entry.name for entry in services.explore_catalogs.entries()}:
        services.explore_catalogs.register(catalog_entry(options))


def start_dagster(processes: Processes, options: DemoOptions) -> Child:
    """Start the webserver, the daemon with all sensors, and the code location. Their history is in the demo's own DAGSTER_HOME.

    The live demo has a second code location, as users have: its asset waits for days of `events`.
    """
    shutil.copyfile(Path(__file__).with_name("dagster.yaml"), options.dagster_home / "dagster.yaml")
    fail_lost_runs(options)
    log = options.logs / "dagster.log"
    others = () if options.once else ("compaction_pipeline.demo.waiting",)
    return processes.start("dagster dev", tied(dagster_command(options.port, *others), log), child_environment(options), options.root, log)


def fail_lost_runs(options: DemoOptions) -> None:
    """Mark the runs as failed that a killed demo left under way. Sensors and the pool would wait for them for ever.

    No process of an earlier demo runs: the demo has looked for them, and holds the folder. Queued runs stay, and Dagster starts them.
    """
    under_way = [status for status in ACTIVE if status is not DagsterRunStatus.QUEUED]
    with DagsterInstance.from_config(str(options.dagster_home)) as instance:
        for run in instance.get_runs(filters=RunsFilter(statuses=under_way)):
            instance.report_run_failed(run, "the demo was killed while this run was under way; a new run does what is left")
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)


def start_writer(processes: Processes, options: DemoOptions, table: str, *files: str) -> Child:
    """Start the writer of a plain table: for ever, or until it has written so many files."""
    command = [sys.executable, "-m", "compaction_pipeline.demo.writer", table, str(os.getpid()), *files]
    return processes.start(f"writer of {table}", command, child_environment(options), options.root, options.logs / f"{table}.log")


def start_payments(processes: Processes, options: DemoOptions, batches: int | None = None) -> Child:
    """Start the stream that writes the keyed table: for ever, or so many batches."""
    asked = [str(os.getpid()), *([] if batches is None else [str(batches)])]
    command = [sys.executable, "-m", "compaction_pipeline.demo.payments", *asked]
    return processes.start("stream of payments", command, child_environment(options), options.root, options.logs / "payments.log")


def ui_answers(options: DemoOptions) -> bool:
    """True when the webserver answers."""
    return answers(f"{options.address}/server_info")


def answers(url: str) -> bool:
    """True when a server answers to this address."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False


def work_left(services: Services, options: DemoOptions) -> WorkLeft:
    """Ask the planner whether any node of any table is due, going by the files that were read last."""
    tables: dict[str, str] = {}
    newest = newest_snapshots(options)
    for table in TABLES.values():
        name = identifier(table)
        try:
            overview = services.read_tables.table(name).overview
        except NotFoundError:
            tables[table.name] = "not found by the catalog's listing yet"
            continue
        if not overview.is_whole or overview.snapshot_id != newest[table.name]:
            tables[table.name] = overview.reason if overview.is_held_back else "its newest snapshot is not read yet"
            continue
        tables.update(_due(services, name))
    tables.update(_due(services, TableIdentifier(CATALOG, (NAMESPACE,), payments.NAME)))
    return WorkLeft(tables, services.read_tasks.queue_counts().open)


def _due(services: Services, table: TableIdentifier) -> dict[str, str]:
    """The reason of a table with work, by its name; nothing for one without."""
    try:
        plan = services.plan_tables.explain(table)
    except NotFoundError:
        return {table.name: "not found by the catalog's listing yet"}
    return {table.name: plan.reason.text} if plan.tasks or plan.reason.code not in NOTHING_TO_DO else {}


def runs_in_progress(options: DemoOptions) -> int:
    """How many runs have started and not ended. A run ends some seconds after its work is done."""
    with DagsterInstance.from_config(str(options.dagster_home)) as instance:
        return instance.get_runs_count(RunsFilter(statuses=[DagsterRunStatus.STARTING, DagsterRunStatus.STARTED]))


@dataclass(frozen=True, slots=True)
class RecordsBySensors:
    """The committed records. `sensors` maps the id of a record to the sensor that launched its run, where a sensor did."""

    committed: tuple[CompactionRecord, ...]
    sensors: Mapping[str, str]


def records_by_sensors(services: Services, options: DemoOptions, since: datetime) -> RecordsBySensors:
    """Find the run of every record that was committed since then, and the sensor that launched the run."""
    found = services.read_records.records(limit=None)
    records = tuple(record for record in found if record.status is RecordStatus.COMMITTED and record.created_at >= since)
    sensors: dict[str, str] = {}
    with DagsterInstance.from_config(str(options.dagster_home)) as instance:
        for record in records:
            run = instance.get_run_by_id(record.run_id) if record.run_id else None
            if run is not None and _SENSOR_TAG in run.tags:
                sensors[record.record_id] = run.tags[_SENSOR_TAG]
    return RecordsBySensors(records, sensors)
