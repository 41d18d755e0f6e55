"""Measures the seconds from a writer's commit to our commit, in `dagster dev` as the demo starts it.

    python benchmarks/latency.py --rounds 12

Sensors tick every 5 s, and a `compact_job` waits for new tasks. The table is due at every commit (`minor.trigger.file-count` is 2), and
`min-plan-interval` and `commit.interval` are 0. The duration of each step is read from the state database. The peer is Amoro with its
defaults: 60 s between refreshes and 60 s between plans. The last line is `ratio <120 s / our median>`.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from dagster_dev import parsed, start_dagster
from loads import write_load
from measure import load_average, positive
from opened_services import OpenedServices
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.demo.options import DemoOptions
from compaction_pipeline.demo.processes import Processes
from compaction_pipeline.iceberg.catalogs import SqlCatalog
from compaction_pipeline.settings import Settings

AMORO_SECONDS = 120
TABLE = TableIdentifier("bench", ("db",), "stream")
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "name", StringType(), required=False))
PROPERTIES = {
    "self-optimizing.minor.trigger.file-count": "2",
    "self-optimizing.min-plan-interval": "0",
    "self-optimizing.commit.interval": "0",
}
STEPS = ("found and planned", "polled", "merged", "committed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive, default=12, help="counted rounds; two rounds before them are not counted (Spark starts)")
    parser.add_argument("--sensor-seconds", type=int, default=5)
    parser.add_argument("--record", type=Path, help="write the merged tasks to this file, for `autoscaling.py`")
    arguments = parsed(parser, port=3917)
    with tempfile.TemporaryDirectory(prefix="latency-benchmark-") as folder:
        _measure(arguments, DemoOptions(Path(folder), arguments.port, sensor_interval_seconds=arguments.sensor_seconds))


def _measure(arguments: argparse.Namespace, options: DemoOptions) -> None:
    options.make_folders()
    table = _table(options)
    services = OpenedServices(Settings(home=options.home))
    entry = {"type": "sql", "uri": options.catalog_url, "warehouse": options.warehouse.as_uri()}
    services.explore_catalogs.register(CatalogEntry("bench", entry))
    rounds: list[Mapping[str, float]] = []
    with Processes() as processes:
        start_dagster(processes, options, linger_seconds=3_600)
        for number in range(-2, arguments.rounds):
            # A writer commits at any moment of a sensor's interval.
            time.sleep(random.uniform(0, arguments.sensor_seconds))
            steps = _round(table, services, processes, known=len(_records(services)))
            print(
                f"{'warm-up' if number < 0 else f'round {number + 1}':8} "
                + ", ".join(f"{name} {took:.1f} s" for name, took in steps.items()),
                flush=True,
            )
            if number >= 0:
                rounds.append(steps)
    if arguments.record:
        print(f"{write_load(services, options.home, arguments.record)} tasks recorded")
    services.close()
    medians = {name: statistics.median(steps[name] for steps in rounds) for name in ("in all", *STEPS)}
    print(f"medians of {len(rounds)}: " + ", ".join(f"{name} {took:.1f} s" for name, took in medians.items()) + f"; {load_average()}")
    print(f"worst {max(steps['in all'] for steps in rounds):.1f} s")
    print(f"ratio {AMORO_SECONDS / medians['in all']:.1f}")


def _table(options: DemoOptions) -> Table:
    catalog = SqlCatalog("bench", uri=options.catalog_url, warehouse=options.warehouse.as_uri())
    catalog.create_namespace("db")
    return catalog.create_table(("db", "stream"), SCHEMA, properties=PROPERTIES)


def _round(table: Table, services: OpenedServices, processes: Processes, known: int) -> Mapping[str, float]:
    """Commit two small files and wait for our commit. Returns the seconds until then, in all and by step."""
    for number in range(2):
        table.append(pa.table({"id": pa.array([number], pa.int64()), "name": ["a"]}))
    committed = table.current_snapshot()
    assert committed is not None
    at = committed.timestamp_ms / 1000
    deadline = time.monotonic() + 300
    while len(records := _records(services)) == known:
        processes.check()
        if time.monotonic() > deadline:
            raise SystemExit("no commit of ours within 300 s")
        time.sleep(0.1)
    record = records[0]
    (task,) = [services.stores.tasks.task(task_id) for task_id in record.committed_task_ids[:1]]
    (attempt, *_) = services.stores.tasks.attempts(task.task_id)
    table.refresh()
    ours = table.snapshot_by_id(record.snapshot_after or 0)
    assert ours is not None
    assert attempt.ended_at is not None
    moments = [at, task.created_at.timestamp(), attempt.started_at.timestamp(), attempt.ended_at.timestamp(), ours.timestamp_ms / 1000]
    steps = {name: after - before for name, before, after in zip(STEPS, moments, moments[1:], strict=False)}
    return {"in all": moments[-1] - at, **steps}


def _records(services: OpenedServices) -> list[CompactionRecord]:
    return [record for record in services.stores.records.records(TABLE) if record.status is RecordStatus.COMMITTED]


if __name__ == "__main__":
    main()
