"""`make demo ONCE=1`: writes a backlog, lets the sensors work it off, compares every row with the change log, and ends.

The demo succeeds only when all rows are equal, and when a sensor has launched a run that committed something. With OPTIMIZERS, a commit of
what optimizers merged counts instead.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from datetime import datetime, timezone

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.demo import payments
from compaction_pipeline.demo.live_files import Census
from compaction_pipeline.demo.options import DemoOptions
from compaction_pipeline.demo.pipeline import (
    RecordsBySensors,
    open_services,
    records_by_sensors,
    register_catalog,
    runs_in_progress,
    start_dagster,
    start_payments,
    start_writer,
    work_left,
)
from compaction_pipeline.demo.processes import Child, Processes
from compaction_pipeline.demo.quiet import WorkLeft, wait_until_quiet
from compaction_pipeline.demo.service import records_of_optimizers, start_service
from compaction_pipeline.demo.tables import TABLES
from compaction_pipeline.demo.verify import compare, compare_payments
from compaction_pipeline.demo.watch import Watch

_RUN_END_SECONDS = 60.0
_SAY_SECONDS = 15.0
"""Writing the backlog takes minutes, so the demo says this often that it goes on."""


def run_once(options: DemoOptions) -> int:
    """Run the demo once, and answer its exit code: 0 only when every comparison holds."""
    started, since = time.monotonic(), datetime.now(timezone.utc)
    with Processes() as writers:
        _write_backlog(writers, options)
    watch = Watch(options)
    before = watch.census()
    watch.show(f"BEFORE, {_seconds(started)}  (n: files that a reader of one partition opens)", before)
    services = open_services(options)
    try:
        register_catalog(services, options)
        with Processes() as processes:
            start_dagster(processes, options)
            watch.say(
                f"Dagster is starting, {options.health_page} shows how the tables stand, and its log is {options.logs / 'dagster.log'}"
            )
            start_service(processes, options)
            left = wait_until_quiet(
                lambda: work_left(services, options),
                tick=lambda: _tick(processes, options),
                show=lambda left: watch.show(f"after {_seconds(started)}, to do: {left.short}"),
                patience=options.patience_seconds,
            )
            _let_runs_end(options)
        after = watch.census()
        watch.show(f"AFTER, {_seconds(started)}", after)
        return _judge(services, options, watch, before, after, left, since)
    finally:
        services.close()


def _let_runs_end(options: DemoOptions) -> None:
    """Wait for runs that have done their work. Dagster would show one as failed that is cut off with the demo."""
    deadline = time.monotonic() + _RUN_END_SECONDS
    while runs_in_progress(options) and time.monotonic() < deadline:
        time.sleep(1)


def _write_backlog(processes: Processes, options: DemoOptions) -> None:
    children = [
        start_writer(processes, options, table.name, str(int(options.backlog_files * table.backlog_share) + 1)) for table in TABLES.values()
    ]
    children.append(start_payments(processes, options, payments.backlog_batches(options)))
    print(f"Writing a backlog of at least {options.backlog_files:,} files …", flush=True)
    began = said = time.monotonic()
    while running := [child for child in children if child.exit_code is None]:
        if time.monotonic() - said >= _SAY_SECONDS:
            said = time.monotonic()
            print(f"… still writing after {_seconds(began)}: {', '.join(child.name for child in running)}", flush=True)
        _raise_for(child for child in children if child not in running)
        time.sleep(0.2)
    _raise_for(children)


def _raise_for(ended: Iterable[Child]) -> None:
    for child in ended:
        if child.exit_code:
            raise CompactionError(
                f"the {child.name} failed with exit code {child.exit_code}; the end of {child.log}:\n{child.last_words()}"
            )


def _tick(processes: Processes, options: DemoOptions) -> None:
    processes.check()
    time.sleep(options.sensor_interval_seconds)


def _judge(
    services: Services,
    options: DemoOptions,
    watch: Watch,
    before: dict[str, Census],
    after: dict[str, Census],
    left: WorkLeft,
    since: datetime,
) -> int:
    failures = []
    if not left.nothing:
        failures.append(f"work was left, and nothing changed for {options.patience_seconds} s: {left}")
    for comparison in (*(compare(options, table) for table in TABLES.values()), compare_payments(options)):
        watch.say(str(comparison))
        if not comparison.equal:
            failures.append(f"the rows of {comparison.table} are not those of the change log")
    records = records_by_sensors(services, options, since)
    watch.say(_committed(records))
    if options.optimizers:
        merged = records_of_optimizers(services, records.committed)
        watch.say(f"{len(merged)} of them hold only what optimizers merged")
        if not merged:
            failures.append("no record was made of what optimizers merged")
    elif not records.sensors:
        failures.append("no record was committed by a sensor's run")
    files = sum(census.files for census in before.values()), sum(census.files for census in after.values())
    watch.say(f"{files[0]:,} files before, {files[1]:,} after")
    for failure in failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _committed(records: RecordsBySensors) -> str:
    told = f"{len(records.committed)} records committed"
    by = ", ".join(sorted(set(records.sensors.values())))
    return f"{told}, {len(records.sensors)} of them by runs of {by}" if by else told


def _seconds(started: float) -> str:
    return f"{time.monotonic() - started:.0f} s"
