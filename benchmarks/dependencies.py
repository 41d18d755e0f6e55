"""Measures how soon work starts after the commit that completes its data: readiness of tables.

    python benchmarks/dependencies.py --tables 100 --commits-a-second 2 --seconds 20    # a first look
    python benchmarks/dependencies.py                                                   # the sizes that the goals are about

It makes tables in a SQL catalog (SQLite, local disk), starts a `serve` of its own, and lets a receiver of callbacks, in this process,
be told of the next days of each. Writers in a process of their own then commit with PyIceberg, so many a second, each commit with one data
file that does not exist and a watermark that completes one day. A commit lasts until PyIceberg returns, and the time from then on to the
arrival of the signed POST counts. First the writers report each commit over HTTP, then they do not. A day whose POST has not come after a
minute is lost.

At rest, before the first commit, the server's CPU is measured while nothing is awaited, and while all tables are; the difference for each
look at them, every 10 s, is the cost of a look. Last, ticks of the Dagster sensor `when_ready` are measured in this process.

Goals, with 1,000 tables and 20 commits a second: reported p99 ≤ 3 s, not reported ≤ 30 s; the sensor asks for as many runs as are ready in
its tick, or at least 5 a second. The last line is `p99 <of reported commits> unreported <the slowest>` in seconds, the worst of all
databases.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import dagster as dg
import requests
from callback_server import Receiver, Server
from measure import load_average, positive
from opened_services import OpenedServices
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, TimestamptzType
from real_services import lasting_postgres
from synthetic_table import make_catalog

from compaction_pipeline.api.ticking import TELL_EVERY
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.defs.ready_ticks import Source, job_tick, most_runs
from compaction_pipeline.demo.processes import Processes, stop_on_signals
from compaction_pipeline.settings import Settings

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "at", TimestamptzType(), required=False))
SPEC = PartitionSpec(PartitionField(2, 1000, DayTransform(), "at_day"))
FIRST_DAY = datetime(2026, 1, 1, tzinfo=timezone.utc)
DAY = timedelta(days=1)
WRITERS = 4
REST_SECONDS = 30
PATIENCE_SECONDS = 60
Key = tuple[str, str]
"""A table and a day."""


@dataclass(frozen=True)
class Committed:
    """A commit after which a day of a table is complete, and when it had landed (`time.monotonic`, which all processes share)."""

    table: str
    day: str
    at: float


@dataclass(frozen=True)
class Orders:
    """What the writers do: in which order they commit to which tables, how many commits a second, and where they report them."""

    folder: str
    tables: Sequence[str]
    first_number: int
    commits: int
    a_second: float
    report_to: str | None = None
    token: str = ""


# ---- writers ---------------------------------------------------------------------------------------------------------


def _commit(table: Table, number: int) -> Table:
    """Commit the data file and the watermark of a day. The first commit has the number 0, and completes the first day."""
    day = (FIRST_DAY + number * DAY - datetime(1970, 1, 1, tzinfo=timezone.utc)).days
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{table.location()}/data/{number}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(day),
        record_count=1,
        file_size_in_bytes=1000,
    )
    file.spec_id = table.spec().spec_id
    watermark = round((FIRST_DAY + (number + 1) * DAY).timestamp() * 1000)
    said = {"watermark": str(watermark)}
    with table.transaction() as transaction, transaction.update_snapshot(snapshot_properties=said).fast_append() as update:
        update.append_data_file(file)
    return table


def _day(number: int) -> str:
    return f"at_day={FIRST_DAY + number * DAY:%Y-%m-%d}"


def _write(orders: Orders, results: Connection) -> None:
    """Commit at a pace, on several threads, and send what was committed."""
    catalog = make_catalog(Path(orders.folder))
    opened = {name: catalog.load_table(("db", name)) for name in orders.tables}
    locks = {name: threading.Lock() for name in orders.tables}
    numbers = dict.fromkeys(orders.tables, orders.first_number)
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {orders.token}"
    results.send("ready")
    began = time.monotonic()

    def once(number: int) -> Committed:
        time.sleep(max(0.0, began + number / orders.a_second - time.monotonic()))
        name = orders.tables[number % len(orders.tables)]
        with locks[name]:
            table = _commit(opened[name], numbers[name])
            committed = Committed(name, _day(numbers[name]), time.monotonic())
            numbers[name] += 1
            snapshot = table.current_snapshot()
        if orders.report_to is not None and snapshot is not None:
            body = {"snapshot_id": snapshot.snapshot_id, "sequence_number": snapshot.sequence_number}
            session.post(f"{orders.report_to}/api/v1/tables/lake.db.{name}/commits", json=body, timeout=60).raise_for_status()
        return committed

    with ThreadPoolExecutor(WRITERS) as pool:
        results.send(list(pool.map(once, range(orders.commits))))


# ---- the receiver ----------------------------------------------------------------------------------------------------


def _key(data: Any) -> Key:
    return data["table"].rpartition(".")[2], data["what"]


def _delays(receiver: Receiver[Key], commits: Sequence[Committed]) -> list[float]:
    """Seconds from each commit to its callback. Waits for those that have not come yet, up to a minute after the last commit."""
    deadline = max(one.at for one in commits) + PATIENCE_SECONDS
    while time.monotonic() < deadline and any((one.table, one.day) not in receiver.arrived for one in commits):
        time.sleep(0.2)
    return [receiver.arrived[one.table, one.day] - one.at for one in commits if (one.table, one.day) in receiver.arrived]


# ---- what is measured ------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=positive, default=1_000)
    parser.add_argument("--commits-a-second", type=positive, default=20)
    parser.add_argument("--seconds", type=positive, default=60, help="how long the writers commit in each part")
    parser.add_argument("--databases", nargs="+", choices=("sqlite", "postgresql"), default=["sqlite", "postgresql"])
    parser.add_argument("--ticks", action="store_true", help="the server also refreshes and plans the tables, as without Dagster")
    parser.add_argument("--runs", type=int, nargs="*", default=[20, 150], help="how many partitions are ready in a tick of `when_ready`")
    arguments = parser.parse_args()
    stop_on_signals()
    worst = [0.0, 0.0]
    with tempfile.TemporaryDirectory(prefix="dependencies-benchmark-") as folder, Processes() as processes:
        for database in arguments.databases:
            found = _measured(database, Path(folder) / database, processes, arguments)
            worst = [max(each) for each in zip(worst, found, strict=True)]
    print(f"p99 {worst[0]:.2f} unreported {worst[1]:.2f}")


def _measured(database: str, home: Path, processes: Processes, arguments: argparse.Namespace) -> tuple[float, float]:
    """Measure all parts with one database. Return the p99 of reported commits, and the slowest of those that were not."""
    home.mkdir()
    commits = arguments.commits_a_second * arguments.seconds
    of_table = -(-commits // arguments.tables)
    with ExitStack() as stack:
        state_url = f"sqlite:///{home / 'state.db'}" if database == "sqlite" else stack.enter_context(lasting_postgres())
        receiver = Receiver(_key)
        hook = stack.enter_context(receiver.running())
        lake = home / "lake"
        names = [f"t{number:05d}" for number in range(arguments.tables)]
        began = time.monotonic()
        _make_tables(lake, [*names, "runs"])
        print(f"{database}: {len(names):,} tables made in {time.monotonic() - began:.0f} s; {load_average()}", flush=True)
        server = Server(processes, home / "home", state_url, hook, ticks=arguments.ticks)
        uri, warehouse = f"uri=sqlite:///{lake / 'catalog.db'}", f"warehouse={(lake / 'warehouse').as_uri()}"
        server.run("catalog", "add", "lake", "-p", "type=sql", "-p", uri, "-p", warehouse, "-p", "catalog-name=bench", "--observe")
        server.start()
        time.sleep(5)
        alone = server.cpu_at_rest(REST_SECONDS, TELL_EVERY.total_seconds())
        _await_days(server, names, 1 + 2 * of_table)
        # The first look loads each table.
        time.sleep(3 * TELL_EVERY.total_seconds())
        awaited = server.cpu_at_rest(REST_SECONDS, TELL_EVERY.total_seconds())
        print(
            f"  at rest {awaited - alone:.2f} CPU-s a look at {len(names):,} tables ({alone:.2f} → {awaited:.2f} in 10 s), "
            f"{server.memory():.0f} MB; {load_average()}",
            flush=True,
        )
        random.Random(1).shuffle(names)
        writer = Orders(str(lake), names, 1, commits, arguments.commits_a_second)
        reported = Orders(writer.folder, names, 1, commits, writer.a_second, server.url, server.token("writer"))
        unreported = Orders(writer.folder, names, 1 + of_table, commits, writer.a_second)
        slow = _percentile(_part(server, receiver, "reported", reported), 0.99)
        slowest = max(_part(server, receiver, "unreported", unreported))
        _ticks(lake, Settings(home=home / "home", state_url=state_url), arguments.runs)
        processes.stop()
    return slow, slowest


def _make_tables(folder: Path, names: Sequence[str]) -> None:
    """Make tables in which the first day is complete."""
    catalog = make_catalog(folder)
    for name in names:
        _commit(catalog.create_table(("db", name), SCHEMA, partition_spec=SPEC, properties={"format-version": "2"}), 0)


def _await_days(server: Server, names: Sequence[str], days: int) -> None:
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {server.token('reader')}"
    body = {"partitions": [_day(number) for number in range(1, days)]}

    def ask(name: str) -> None:
        session.post(f"{server.url}/api/v1/tables/lake.db.{name}/awaited", json=body, timeout=60).raise_for_status()

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(ask, names))


def _part(server: Server, receiver: Receiver[Key], name: str, orders: Orders) -> list[float]:
    """Let the writers commit, and print how long the callbacks took."""
    context = get_context("spawn")
    results, sent = context.Pipe(duplex=False)
    writers = context.Process(target=_write, args=(orders, sent), daemon=True)
    writers.start()
    results.recv()
    before, began = server.cpu_seconds(), time.monotonic()
    commits: list[Committed] = results.recv()
    took = time.monotonic() - began
    writers.join()
    delays = _delays(receiver, commits)
    cpu = server.cpu_seconds() - before
    times = ", ".join(f"p{share} {_percentile(delays, share / 100):.2f}" for share in (50, 90, 99))
    print(
        f"  {name:10} {len(commits) / took:.1f} commits a second: mean {statistics.mean(delays):.2f} s, {times}, most {max(delays):.2f}; "
        f"{len(commits) - len(delays)} of {len(commits):,} lost, {receiver.twice} came twice; the server took "
        f"{cpu / len(commits) * 1000:.0f} CPU-ms a commit, {server.memory():.0f} MB; {load_average()}",
        flush=True,
    )
    return delays


def _percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def _ticks(lake: Path, settings: Settings, counts: Sequence[int]) -> None:
    """Measure ticks of the sensor `when_ready` in which so many more partitions have become ready, with all that each opens."""
    table = make_catalog(lake).load_table(("db", "runs"))
    source = Source(TableIdentifier("lake", ("db",), "runs"), dg.DailyPartitionsDefinition(f"{FIRST_DAY:%Y-%m-%d}"), dg.AssetKey("runs"))
    cursor, ready = None, 1
    for count in (1, *counts):
        ready += count
        _commit(table, ready - 1)
        began, cpu, asked, ticks = time.monotonic(), time.process_time(), 0, 0
        while asked < count:
            with closing(OpenedServices(settings)) as services:
                result = job_tick(services, source, cursor, most_runs(settings.sensor_interval_seconds))
            cursor, ticks = result.cursor, ticks + 1
            asked += len(result.run_requests or ())
        if cursor is not None and count > 1:
            took = time.monotonic() - began
            print(
                f"  when_ready {count} partitions became ready: asked for in {ticks} ticks of together {took:.2f} s "
                f"({time.process_time() - cpu:.2f} CPU-s); {load_average()}",
                flush=True,
            )


if __name__ == "__main__":
    main()
