"""What a busy day and a large run cost Dagster. `dagster_scale.py` fills the deployment, and calls this."""

# This module has no `from __future__ import annotations`. Dagster compares the annotation of an op's context, so it must not be a string.
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from unittest import mock

import dagster as dg
from measure import load_average
from synthetic_table import append, fakes, make_catalog

from compaction_pipeline.bootstrap import Services, open_services
from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.demo.options import DemoOptions

_DAY = timedelta(days=1)
_SMALL_FILES = 13
"""They make a MINOR of a node due."""


def measure_busy_day(options: DemoOptions, part: timedelta) -> None:
    """At every tick another table gets small files, and becomes due. Nothing is merged, so nothing else stores events."""
    os.environ |= {"COMPACTION_HOME": str(options.home), "DAGSTER_HOME": str(options.dagster_home)}
    from compaction_pipeline.definitions import defs

    repository = defs.get_repository_def()
    catalog = make_catalog(options.root)
    names = sorted(str(table[1]) for table in catalog.list_tables("db"))
    sensors = [sensor for sensor in repository.sensor_defs if sensor.default_status is dg.DefaultSensorStatus.RUNNING]
    step = timedelta(seconds=options.sensor_interval_seconds)
    cursors: dict[str, str | None] = {}
    with dg.DagsterInstance.get() as instance, _moved_clock() as clock:
        for sensor in sensors:
            _tick(instance, repository, sensor.name, cursors)
        before, bytes_before = _last_event(options), _bytes_used(options)
        began, number = clock.now, 0
        ticked = {sensor.name: began for sensor in sensors}
        while clock.now - began < part:
            append(catalog.load_table(f"db.{names[number % len(names)]}"), list(fakes(_SMALL_FILES, 1, 1 << 20, seed=number)))
            number += 1
            clock.now += step
            for sensor in sensors:
                if clock.now - ticked[sensor.name] >= timedelta(seconds=sensor.minimum_interval_seconds or 30):
                    ticked[sensor.name] = clock.now
                    _tick(instance, repository, sensor.name, cursors)
    catalog.close()
    counts, sizes = _events_since(options, before)
    share, grown = _DAY / part, _bytes_used(options) - bytes_before
    for asset in sorted(sizes, key=lambda asset: -sizes[asset]):
        print(f"busy day, {asset:20} {counts[asset] * share:6.0f} events of {sizes[asset] / counts[asset] / 1000:5.1f} kB", flush=True)
    files = sizes.pop("delta_files", 0)
    print(
        f"busy day of {len(names)} tables: {sum(sizes.values()) * share / 1e6:.1f} MB of events, and {files * share / 1e6:.1f} MB "
        f"of delta_files ({number * share:.0f} nodes change); Dagster's databases grow by {grown * share / 1e6:.1f} MB; {load_average()}",
        flush=True,
    )


def measure_close(options: DemoOptions) -> None:
    """Let a run say that it has committed every table, and measure how long it takes to close."""
    os.environ |= {"COMPACTION_HOME": str(options.home), "DAGSTER_HOME": str(options.dagster_home)}
    from compaction_pipeline.defs.names import Names
    from compaction_pipeline.defs.report import RunReport

    services = open_services()
    tables = services.read_tables.names()
    stored, took = _Stopwatch(), {}

    @dg.op(out=dg.Out(dg.Nothing))
    def close(context: dg.OpExecutionContext) -> None:
        with mock.patch("time.monotonic", return_value=0.0):
            # The clock of the report stands still, so it tells of the commits at its end.
            report = RunReport(Names(), context, services)
            report._evaluate_from = 1.0
            for table in tables:
                report.committed(_record(table, services.clock()))
        with stored.of(context, "log_event"), stored.of(context.instance, "report_runless_asset_event"):
            began = time.perf_counter()
            report.close()
            took["all"] = time.perf_counter() - began

    @dg.job(executor_def=dg.in_process_executor)
    def closing() -> None:
        close()

    with dg.DagsterInstance.get() as instance:
        assert closing.execute_in_process(instance=instance).success
    services.close()
    print(
        f"a run over {len(tables)} tables closes in {took['all']:.1f} s, {stored.seconds:.1f} s of it for {stored.calls} events; "
        f"beside them {took['all'] - stored.seconds:.1f} s; {load_average()}",
        flush=True,
    )


def _record(table: TableIdentifier, now: datetime) -> CompactionRecord:
    return CompactionRecord(f"record-{table.name}", table, RecordStatus.COMMITTED, now, ("t",), committed_task_ids=("t",), ended_at=now)


class _Stopwatch:
    """How often a method was called, and how long that took."""

    def __init__(self) -> None:
        self.calls, self.seconds = 0, 0.0

    @contextmanager
    def of(self, owner: Any, name: str) -> Iterator[None]:
        original = getattr(owner, name)

        def measured(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return original(*arguments, **named)
            finally:
                self.calls += 1
                self.seconds += time.perf_counter() - began

        with mock.patch.object(owner, name, measured):
            yield


class _Clock:
    """The time of all ticks."""

    now: datetime


@contextmanager
def _moved_clock() -> Iterator[_Clock]:
    """Let all ticks read a clock that the caller moves."""
    from compaction_pipeline.defs import resources

    clock = _Clock()
    probe = open_services()
    clock.now = probe.clock()
    probe.close()

    def opened(settings: Any, holder: str | None = None) -> Services:
        services = open_services(settings, holder)
        services.clock = lambda: clock.now
        return services

    with mock.patch.object(resources, "open_services", opened):
        yield clock


def _tick(instance: dg.DagsterInstance, repository: dg.RepositoryDefinition, name: str, cursors: dict[str, str | None]) -> None:
    from compaction_pipeline.defs.resources import Compaction

    with dg.build_sensor_context(
        instance=instance, repository_def=repository, cursor=cursors.get(name), resources={"compaction": Compaction()}
    ) as context:
        result = repository.get_sensor_def(name)(context)
    assert isinstance(result, dg.SensorResult)
    for event in result.asset_events:
        instance.report_runless_asset_event(event)
    for request in result.dynamic_partitions_requests or ():
        if isinstance(request, dg.AddDynamicPartitionsRequest):
            instance.add_dynamic_partitions(str(request.partitions_def_name), list(request.partition_keys))
    cursors[name] = result.cursor or cursors.get(name)


def _index(options: DemoOptions) -> sqlite3.Connection:
    return sqlite3.connect(options.dagster_home / "history" / "runs" / "index.db")


def _bytes_used(options: DemoOptions) -> int:
    """The bytes of all pages that hold something, of the index and of the file with the events of no run."""
    used = 0
    for name in ("index.db", ".db"):
        with sqlite3.connect(options.dagster_home / "history" / "runs" / name) as connection:
            pages = "(select page_count from pragma_page_count()) - (select freelist_count from pragma_freelist_count())"
            used += int(connection.execute(f"select ({pages}) * page_size from pragma_page_size()").fetchone()[0])
    return used


def _last_event(options: DemoOptions) -> int:
    with _index(options) as connection:
        return int(connection.execute("select coalesce(max(id), 0) from event_logs").fetchone()[0])


def _events_since(options: DemoOptions, event_id: int) -> tuple[Counter[str], Counter[str]]:
    """How many events each asset has got, and their bytes. Evaluations of checks count too."""
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    with _index(options) as connection:
        for asset, number, size in connection.execute(
            "select asset_key, count(*), sum(length(cast(event as blob))) from event_logs where id > ? group by asset_key", [event_id]
        ):
            name = "others" if asset is None else asset.strip('[]"')
            counts[name], sizes[name] = number, size
    return counts, sizes
