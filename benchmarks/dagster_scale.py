"""Measures what Dagster costs with 1,000 quiet tables and 25,000 partitions, beside a hundredth of them.

    python benchmarks/dagster_scale.py --tables 1000 --partitions 25 --rest-seconds 180

    python benchmarks/dagster_scale.py --without-pages

First it fills an instance: every node becomes a partition with an event, as the sensors do it in time. Then nothing changes any more,
and it measures the ticks of each sensor: the first one, those until the sensor has nothing left to do, and those at rest. With
`dagster dev` it measures the pages in headless Chromium, their slowest GraphQL query, the events that are written, and how much the
instance grows. The last line is `ratio <slowest page with many partitions / the same with few>`.

After that it measures two more things with many tables. The first is a day at which something changes at every tick: it lets the sensors
tick for a part of a day on a clock of its own, and prints the MB that the events of each asset take. The second is a run that has committed
every table: how long it takes to close, beside the time in which Dagster stores its events.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import dagster as dg
from dagster_busy import measure_busy_day, measure_close
from dagster_dev import parsed, start_dagster
from idle import quiet_deployment
from measure import cpu_seconds, load_average, positive
from playwright.sync_api import Browser, Page, Request, sync_playwright

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.demo.options import DemoOptions
from compaction_pipeline.demo.processes import Processes
from compaction_pipeline.settings import Settings

FEW = 100
"""The peer has one of so many tables."""
_TICKS_AT_REST = 3
_PATIENCE_MS = 300_000
_DAY = 86_400


@dataclass(frozen=True, slots=True)
class Shown:
    """A page: its address, and a text that it shows when it is complete."""

    name: str
    address: str
    text: str


PAGES = (
    Shown("all assets", "/assets", "table_health"),
    Shown("table_health", "/assets/table_health", "worst_nodes"),
    Shown("delta_files, partitions", "/assets/delta_files?view=partitions", "Materialized"),
    Shown("compacted_files, partitions", "/assets/compacted_files?view=partitions", "Materialized"),
    Shown("compacted_files, checks", "/assets/compacted_files?view=checks", "rows_preserved"),
    Shown("compaction_records, partitions", "/assets/compaction_records?view=partitions", "Materialized"),
    Shown("automation", "/automation", "own_assets_sensor"),
)


@dataclass(frozen=True, slots=True)
class Loaded:
    """How long a page took, and its slowest query."""

    seconds: float
    query: str
    query_seconds: float
    query_bytes: int


@dataclass(frozen=True, slots=True, order=True)
class Tick:
    """What a tick took, and how many events it returned."""

    cpu_seconds: float
    seconds: float
    events: int

    def __str__(self) -> str:
        return f"{self.cpu_seconds:.2f} CPU-s ({self.seconds:.2f} s, {self.events} events)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=positive, default=1_000)
    parser.add_argument("--partitions", type=positive, default=25, help="partitions of each table")
    parser.add_argument("--rest-seconds", type=positive, default=180, help="how long `dagster dev` is left alone")
    parser.add_argument("--sensor-seconds", type=positive, default=30)
    parser.add_argument("--busy-minutes", type=positive, default=30, help="the part of a busy day that is measured")
    parser.add_argument("--without-pages", action="store_true", help="measure only the busy day and the run")
    arguments = parsed(parser, port=3921)
    if arguments.without_pages:
        with tempfile.TemporaryDirectory(prefix="dagster-scale-benchmark-") as folder:
            options = DemoOptions(Path(folder), arguments.port, sensor_interval_seconds=arguments.sensor_seconds)
            quiet_deployment(options, arguments.tables, arguments.partitions, files=1)
            _fill(options)
            measure_busy_day(options, timedelta(minutes=arguments.busy_minutes))
            measure_close(options)
        return
    pages: list[Mapping[str, Loaded]] = []
    with tempfile.TemporaryDirectory(prefix="dagster-scale-benchmark-") as folder, sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for name, tables in (("few", max(1, arguments.tables // FEW)), ("many", arguments.tables)):
            options = DemoOptions(Path(folder) / name, arguments.port, sensor_interval_seconds=arguments.sensor_seconds)
            quiet_deployment(options, tables, arguments.partitions, files=1)
            print(f"== {tables} tables, {tables * arguments.partitions} partitions; {load_average()}", flush=True)
            _fill(options)
            pages.append(_serve(options, browser, arguments.rest_seconds))
        browser.close()
        measure_busy_day(options, timedelta(minutes=arguments.busy_minutes))
        measure_close(options)
    few, many = pages
    slowest = max(many, key=lambda page: many[page].seconds)
    with_many, with_few = many[slowest].seconds, few[slowest].seconds
    print(f"slowest page with many partitions: {slowest}, {with_many:.2f} s beside {with_few:.2f} s; {load_average()}")
    print(f"ratio {with_many / with_few:.2f}")


def _fill(options: DemoOptions) -> None:
    """Make every node a partition, tick until nothing is left to tell, and print what a tick takes then."""
    os.environ |= {"COMPACTION_HOME": str(options.home), "DAGSTER_HOME": str(options.dagster_home)}
    (options.dagster_home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    from compaction_pipeline.definitions import defs

    services = Services(Settings(home=options.home))
    keys = [node.key for node in services.read_status.nodes()]
    services.close()
    repository = defs.get_repository_def()
    sensors = [sensor for sensor in repository.sensor_defs if sensor.default_status is dg.DefaultSensorStatus.RUNNING]
    with dg.DagsterInstance.get() as instance:
        instance.add_dynamic_partitions("table_nodes", keys)
        cursors: dict[str, str | None] = {}
        first = {sensor.name: _tick(instance, repository, sensor.name, cursors) for sensor in sensors}
        # Dagster's own way to store the other events takes minutes.
        _copy_events(options, keys)
        for sensor in sensors:
            busy: list[Tick] = []
            before: str | None = ""
            while before != cursors.get(sensor.name):
                before = cursors.get(sensor.name)
                busy.append(_tick(instance, repository, sensor.name, cursors))
            rest = [_tick(instance, repository, sensor.name, cursors) for _ in range(_TICKS_AT_REST)]
            print(
                f"{sensor.name:21} first tick {first[sensor.name]}; {len(busy)} ticks of ≤ {max(busy)}; "
                f"at rest ≤ {max(rest)}, cursor of {len(cursors.get(sensor.name) or '')} characters",
                flush=True,
            )


def _copy_events(options: DemoOptions, keys: Sequence[str]) -> None:
    """Give every node without an event of `delta_files` the event of another one."""
    with sqlite3.connect(_index(options)) as connection:
        of_nodes = "from event_logs where dagster_event_type = 'ASSET_MATERIALIZATION' and asset_key = '[\"delta_files\"]'"
        sample = connection.execute(f"select id, run_id, event, timestamp, partition {of_nodes} limit 1").fetchone()
        known = {row[0] for row in connection.execute(f"select distinct partition {of_nodes}")}
        tags = connection.execute("select asset_key, key, value from asset_event_tags where event_id = ?", [sample[0]]).fetchall()
        for key in sorted(set(keys) - known):
            row = (sample[1], sample[2].replace(sample[4], key), "ASSET_MATERIALIZATION", sample[3], '["delta_files"]', key)
            columns = "run_id, event, dagster_event_type, timestamp, asset_key, partition"
            event = connection.execute(f"insert into event_logs ({columns}) values (?, ?, ?, ?, ?, ?)", row).lastrowid
            connection.executemany(
                "insert into asset_event_tags (event_id, asset_key, key, value) values (?, ?, ?, ?)", [(event, *tag) for tag in tags]
            )


def _tick(instance: dg.DagsterInstance, repository: dg.RepositoryDefinition, name: str, cursors: dict[str, str | None]) -> Tick:
    """Evaluate a sensor, and store what it answers as the daemon does."""
    from compaction_pipeline.defs.resources import Compaction

    resource = Compaction()
    with dg.build_sensor_context(
        instance=instance, repository_def=repository, cursor=cursors.get(name), resources={"compaction": resource}
    ) as context:
        before, started = cpu_seconds(), time.monotonic()
        result = repository.get_sensor_def(name)(context)
        cpu, seconds = cpu_seconds() - before, time.monotonic() - started
    assert isinstance(result, dg.SensorResult)
    for event in result.asset_events:
        instance.report_runless_asset_event(event)
    for request in result.dynamic_partitions_requests or ():
        instance.add_dynamic_partitions(str(request.partitions_def_name), list(request.partition_keys))
    cursors[name] = result.cursor or cursors.get(name)
    return Tick(cpu, seconds, len(result.asset_events))


def _serve(options: DemoOptions, browser: Browser, rest_seconds: int) -> Mapping[str, Loaded]:
    """Start `dagster dev`, load the pages, then leave it alone, and print what it writes meanwhile."""
    with Processes() as processes:
        start_dagster(processes, options, linger_seconds=1)
        page = browser.new_page(base_url=options.address, viewport={"width": 1600, "height": 1000})
        page.set_default_timeout(_PATIENCE_MS)
        _wait_until_served(page, processes)
        loaded = {}
        for shown in PAGES:
            # The first load fills caches of the server, as the first reader of a day does.
            first, again = _load(page, shown), _load(page, shown)
            loaded[shown.name] = again
            print(
                f"page {shown.name:31} first {first.seconds:5.2f} s, again {again.seconds:5.2f} s; slowest query {again.query} "
                f"{again.query_seconds:.2f} s, {again.query_bytes / 1e6:.2f} MB",
                flush=True,
            )
        page.close()
        events, size = _events(options), _size(options)
        started = time.monotonic()
        while (passed := time.monotonic() - started) < rest_seconds:
            processes.check()
            time.sleep(1)
        told, grown = _events(options) - events, _size(options) - size
        a_day = grown / 1e6 * _DAY / passed
        print(f"at rest: {told * 3600 / passed:.0f} events an hour, the instance grows {a_day:.1f} MB a day", flush=True)
    return loaded


def _wait_until_served(page: Page, processes: Processes) -> None:
    deadline = time.monotonic() + _PATIENCE_MS / 1000
    while True:
        processes.check()
        try:
            page.goto("/assets")
            page.get_by_text("table_health").first.wait_for(timeout=20_000)
            return
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


def _load(page: Page, shown: Shown) -> Loaded:
    """Open a page anew, and wait until it shows its text and all its queries have ended."""
    page.goto("about:blank")
    queries: list[Request] = []

    def note(request: Request) -> None:
        if request.url.split("?")[0].endswith("/graphql"):
            queries.append(request)

    page.on("requestfinished", note)
    started = time.monotonic()
    page.goto(shown.address)
    page.get_by_text(shown.text).first.wait_for()
    page.wait_for_load_state("networkidle")
    # Chromium calls the network idle after half a second without a request.
    seconds = time.monotonic() - started - 0.5
    page.remove_listener("requestfinished", note)
    return _slowest(seconds, queries)


def _slowest(seconds: float, queries: Sequence[Request]) -> Loaded:
    """The figures of a page with these queries."""
    query = max(queries, key=_seconds)
    asked = query.post_data_json or {}
    response = query.response()
    return Loaded(seconds, str(asked.get("operationName")), _seconds(query), len(response.body()) if response is not None else 0)


def _seconds(query: Request) -> float:
    return float(query.timing["responseEnd"]) / 1000


def _events(options: DemoOptions) -> int:
    """The events that stand in the index of the instance, with those of assets and of checks."""
    with sqlite3.connect(_index(options)) as connection:
        return int(connection.execute("select count(*) from event_logs").fetchone()[0])


def _index(options: DemoOptions) -> Path:
    """Dagster's database of all events."""
    return options.dagster_home / "history" / "runs" / "index.db"


def _size(options: DemoOptions) -> int:
    """The bytes of all pages that Dagster's databases use. Files would show when SQLite tidies up its journals."""
    size = 0
    for path in options.dagster_home.rglob("*.db"):
        with sqlite3.connect(path) as connection:
            pages = "(select page_count from pragma_page_count()) - (select freelist_count from pragma_freelist_count())"
            size += int(connection.execute(f"select ({pages}) * page_size from pragma_page_size()").fetchone()[0])
    return size


if __name__ == "__main__":
    main()
