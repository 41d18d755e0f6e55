"""Measures how fast `dagster dev`, with its sensors at their defaults, works off a backlog of due nodes in one large and many small tables.

    python benchmarks/backlog.py                                   # a first look
    python benchmarks/backlog.py --nodes 5000 --tables 200         # the sizes that the goals are about; up to an hour on 2 cores

It counts the nodes whose merge ended, from the start of the first attempt to the end of the last. Goals: at least 240 nodes a minute on
2 cores, no whole minute below 120, no idle second while a node is due, at most one commit of a table in 30 s, and ticks of at most 20 s.
The last line is `rate <nodes a minute>`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from statistics import median

import pyarrow as pa
from dagster import DagsterInstance
from dagster._core.definitions.run_request import InstigatorType
from dagster_dev import parsed, start_dagster
from loads import write_load
from measure import load_average, positive
from opened_services import OpenedServices
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, NestedField

from compaction_pipeline.core.commit.record import RecordStatus
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.data_file import FileContent, OutputFile
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.demo.options import DemoOptions
from compaction_pipeline.demo.processes import Processes
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.demo.write_files import write_parquet_file
from compaction_pipeline.iceberg.catalogs import SqlCatalog
from compaction_pipeline.settings import Settings

FILES = 4
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "day", IntegerType(), required=False))
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day"))
PROPERTIES = {"self-optimizing.minor.trigger.file-count": str(FILES)}
_MERGED = (TaskStatus.PREPARED, TaskStatus.COMMITTED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=500, help="nodes of the large table; 0 leaves the table out")
    parser.add_argument("--tables", type=int, default=4, help="number of small tables")
    parser.add_argument("--nodes-each", type=positive, default=50, help="nodes of each small table")
    parser.add_argument("--minutes", type=positive, default=90, help="give up after this many minutes")
    parser.add_argument("--record", type=Path, help="write the merged tasks to this file, for `autoscaling.py`")
    arguments = parsed(parser, port=3919)
    with tempfile.TemporaryDirectory(prefix="backlog-benchmark-") as folder:
        options = DemoOptions(Path(folder), arguments.port, sensor_interval_seconds=30)
        nodes = _prepare(options, arguments)
        _measure(options, nodes, arguments)


def _prepare(options: DemoOptions, arguments: argparse.Namespace) -> int:
    """Make tables of small files and register their catalog. Returns the number of due nodes."""
    options.make_folders()
    catalog = SqlCatalog("bench", uri=options.catalog_url, warehouse=options.warehouse.as_uri())
    catalog.create_namespace("db")
    started = time.monotonic()
    nodes = [arguments.nodes_each] * arguments.tables + ([arguments.nodes] if arguments.nodes else [])
    model: Sequence[OutputFile] = ()
    for number, count in enumerate(nodes):
        table = catalog.create_table(("db", f"t{number:05d}"), SCHEMA, partition_spec=SPEC, properties=PROPERTIES)
        if len(model) < count:
            model = [_file(table, day) for day in range(count)]
        # A compaction never deletes its inputs, so tables may share them. Each of a node's files is a hard link to one model file.
        row_delta(table, [replace(file, path=_named(file, copy)) for file in model[:count] for copy in range(FILES)])
    services = OpenedServices(Settings(home=options.home))
    entry = {"type": "sql", "uri": options.catalog_url, "warehouse": options.warehouse.as_uri()}
    services.explore_catalogs.register(CatalogEntry("bench", entry))
    services.close()
    print(f"{sum(nodes)} nodes of {FILES} files in {len(nodes)} table(s) written in {time.monotonic() - started:.0f} s", flush=True)
    return sum(nodes)


def _file(table: Table, day: int) -> OutputFile:
    rows = pa.table({"id": pa.array([day], pa.int64()), "day": pa.array([day], pa.int32())})
    return write_parquet_file(table, rows, content=FileContent.DATA, partition=Record(day), name=f"model-{day:05d}")


def _named(file: OutputFile, copy: int) -> str:
    path = Path(file.path.removeprefix("file://"))
    link = path.with_name(f"{path.stem}-{copy}.parquet")
    if not link.exists():
        link.hardlink_to(path)
    return link.as_uri()


def _measure(options: DemoOptions, nodes: int, arguments: argparse.Namespace) -> None:
    minutes = arguments.minutes
    services = OpenedServices(Settings(home=options.home))
    deadline = time.monotonic() + 60 * minutes
    with Processes() as processes:
        start_dagster(processes, options, linger_seconds=20)
        while (done := sum(services.stores.tasks.counts().get(status, 0) for status in _MERGED)) < nodes:
            processes.check()
            if time.monotonic() > deadline:
                print(f"given up: {done} of {nodes} nodes merged in {minutes} minutes", flush=True)
                break
            time.sleep(5)
    tasks = [task for status in _MERGED for task in services.stores.tasks.tasks(statuses=(status,))]
    attempts = [attempt for task in tasks for attempt in services.stores.tasks.attempts(task.task_id) if attempt.ended_at is not None]
    spans = sorted((attempt.started_at, attempt.ended_at) for attempt in attempts if attempt.ended_at is not None)
    if not spans:
        raise SystemExit("no task was merged")
    _report_ticks(options)
    _report(spans, services)
    if arguments.record:
        print(f"{write_load(services, options.home, arguments.record)} tasks recorded")
    services.close()


def _report(spans: Sequence[tuple[datetime, datetime]], services: OpenedServices) -> None:
    first, last = spans[0][0], max(end for _, end in spans)
    minute = timedelta(minutes=1)
    whole = int((last - first) / minute)
    by_minute = Counter(int((end - first) / minute) for _, end in spans)
    worst = min((by_minute[number] for number in range(whole)), default=len(spans))
    idle, until = timedelta(0), first
    for start, end in spans:
        idle += max(timedelta(0), start - until)
        until = max(until, end)
    length = max(last - first, timedelta(seconds=1))
    commits: dict[str, list[datetime]] = {}
    for record in services.stores.records.records(limit=1_000_000):
        if record.status is RecordStatus.COMMITTED and record.ended_at is not None:
            commits.setdefault(str(record.table), []).append(record.ended_at)
    nearest = min((after - before for ended in commits.values() for before, after in pairwise(sorted(ended))), default=None)
    rate = len(spans) / (length / minute)
    print(f"{len(spans)} nodes merged in {length.total_seconds():.0f} s, by minute {[by_minute[number] for number in range(whole + 1)]}")
    print(f"worst whole minute {worst}; idle {idle / length:.1%} of the time; {load_average()}")
    each = max(len(ended) for ended in commits.values()) if commits else 0
    apart = "-" if nearest is None else f"{nearest.total_seconds():.0f} s"
    print(f"at most {each} commits of a table, the nearest two {apart} apart")
    print(f"rate {rate:.0f}")


def _report_ticks(options: DemoOptions) -> None:
    """Print how long the sensors' ticks took. Each tick has 20 s."""
    with DagsterInstance.from_config(str(options.dagster_home)) as instance:
        for state in instance.all_instigator_state(instigator_type=InstigatorType.SENSOR):
            ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id)
            seconds = [tick.end_timestamp - tick.timestamp for tick in ticks if tick.end_timestamp is not None]
            if seconds:
                print(f"{state.name}: {len(seconds)} ticks, median {median(seconds):.1f} s, longest {max(seconds):.1f} s")


if __name__ == "__main__":
    main()
