"""MB of input per CPU-second: our merge beside Iceberg's `rewrite_data_files`, on the same Spark and the same files, in one run.

    python benchmarks/merge.py --files 120 --rows-per-file 100000 --rounds 3

CPU is that of this process and all its descendants (the JVM, the Python workers). A first round of both is not counted (imports,
JIT); the counted rounds alternate; the figure of each is its median. The last line is `ratio <ours / Iceberg's>`.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psutil
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, DoubleType, IcebergType, LongType, NestedField, StringType, TimestamptzType

from compaction_pipeline.core.model.data_file import FileContent, LiveFile
from compaction_pipeline.core.model.node import TableNode
from compaction_pipeline.core.model.table import TableIdentifier, TableLayout
from compaction_pipeline.core.model.task import CompactionTask, CompactionType, TaskAction, TaskWork
from compaction_pipeline.spark.merge import InProcessMergeEngine, SparkMergeEngine
from compaction_pipeline.spark.session import SparkSessions, SparkSettings

MB = 1_000_000
TARGET_BYTES = 128 * 1024 * 1024
PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
COLUMNS: dict[str, tuple[str, IcebergType]] = {
    "id": ("id", LongType()),
    "customer": ("cast(rand(1) * 1000000 as bigint)", LongType()),
    "quantity": ("cast(rand(2) * 50 as bigint)", LongType()),
    "price": ("cast(rand(3) * 10000 as decimal(12, 2))", DecimalType(12, 2)),
    "discount": ("rand(4)", DoubleType()),
    "status": ("element_at(array('OPEN', 'PAID', 'SENT', 'DONE'), cast(rand(5) * 4 as int) + 1)", StringType()),
    "region": ("concat('region-', cast(rand(6) * 25 as int))", StringType()),
    "ordered_at": ("timestamp_seconds(1700000000 + cast(rand(7) * 10000000 as bigint))", TimestamptzType()),
    "comment": (
        "concat('order ', hex(cast(rand(8) * 1000000000000 as bigint)), ' of ', hex(cast(rand(9) * 1000000000 as bigint)))",
        StringType(),
    ),
}


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="merge-benchmark-") as folder:
        sessions = SparkSessions(_settings(Path(folder)))
        try:
            _compare(arguments, sessions, Path(folder))
        finally:
            sessions.stop()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=120, help="at least 115 for the 400 MB that keep fixed costs small")
    parser.add_argument("--rows-per-file", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3, help="counted rounds")
    parser.add_argument("--compression-level", default=None, help="'write.parquet.compression-level' of the table, for both")
    parser.add_argument("--profile", action="store_true", help="profile one merge in this process and stop")
    return parser.parse_args()


def _settings(folder: Path) -> SparkSettings:
    return SparkSettings(
        master="local[2]",
        home=str(folder / "home"),
        extra={
            "spark.jars.packages": PACKAGE,
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.bench": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.bench.type": "hadoop",
            "spark.sql.catalog.bench.warehouse": str(folder / "warehouse"),
            "spark.driver.memory": "4g",
        },
    )


def _compare(arguments: argparse.Namespace, sessions: SparkSessions, folder: Path) -> None:
    session = sessions.session()
    files, snapshot_id = _generated(session, arguments.files, arguments.rows_per_file, arguments.compression_level)
    megabytes = sum(file.file_size_bytes for file in files) / MB
    print(f"{len(files)} files, {megabytes:.0f} MB, {sum(file.record_count for file in files)} rows")
    layout = _layout(folder / "ours", arguments.compression_level)
    if arguments.profile:
        _profile(_tasks(files), layout)
        return
    engine = SparkMergeEngine(sessions)
    runs: dict[str, Callable[[], int]] = {"iceberg": lambda: _iceberg(session, snapshot_id), "ours": lambda: _ours(engine, files, layout)}
    speeds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(arguments.rounds + 1):
        for name, run in runs.items():
            started, cpu = time.monotonic(), _cpu_seconds()
            written = run() / MB
            seconds, cpu = time.monotonic() - started, _cpu_seconds() - cpu
            label = f"round {number}" if number else "warm-up"
            print(
                f"{label} {name:8} {seconds:6.1f} s, {cpu:6.1f} CPU-s, {megabytes / cpu:6.1f} MB per CPU-second, {written:.0f} MB written"
            )
            if number:
                speeds[name].append(megabytes / cpu)
        shutil.rmtree(folder / "ours", ignore_errors=True)
    iceberg, ours = statistics.median(speeds["iceberg"]), statistics.median(speeds["ours"])
    print(f"medians: iceberg {iceberg:.1f} MB per CPU-second, ours {ours:.1f}")
    print(f"ratio {ours / iceberg:.2f}")


def _generated(session: Any, files: int, rows_per_file: int, level: str | None) -> tuple[list[LiveFile], int]:
    """The benchmark's table, written by Spark as `files` small zstd files in one commit."""
    frame = session.range(0, files * rows_per_file, 1, files).selectExpr(
        *[f"{expression} as {name}" for name, (expression, _) in COLUMNS.items()]
    )
    session.sql("create namespace if not exists bench.db")
    writer = frame.writeTo("bench.db.orders").tableProperty("write.parquet.compression-codec", "zstd")
    if level is not None:
        writer = writer.tableProperty("write.parquet.compression-level", level)
    writer.option("write.distribution-mode", "none").create()
    rows = session.sql("select file_path, file_size_in_bytes, record_count from bench.db.orders.files").collect()
    live = [LiveFile(row[0], FileContent.DATA, 0, (), row[1], row[2], 1) for row in rows]
    return live, session.sql("select snapshot_id from bench.db.orders.snapshots").collect()[0][0]


def _iceberg(session: Any, snapshot_id: int) -> int:
    """Rewrite everything, then roll back to the small files; bytes written."""
    session.sql(
        "call bench.system.rewrite_data_files(table => 'db.orders', options => map('rewrite-all', 'true', "
        f"'target-file-size-bytes', '{TARGET_BYTES}', 'max-file-group-size-bytes', '{TARGET_BYTES}', "
        "'max-concurrent-file-group-rewrites', '2'))"
    ).collect()
    written = session.sql("select sum(file_size_in_bytes) from bench.db.orders.files").collect()[0][0]
    session.sql(f"call bench.system.rollback_to_snapshot('db.orders', {snapshot_id})").collect()
    return int(written)


def _ours(engine: SparkMergeEngine | InProcessMergeEngine, files: list[LiveFile], layout: TableLayout) -> int:
    written = 0
    for result in engine.merge(_tasks(files), layout, {}):
        if result.error is not None:
            raise SystemExit(result.error)
        written += sum(output.file_size_bytes for output in result.outputs)
    return written


def _tasks(files: list[LiveFile]) -> list[CompactionTask]:
    """Bins of at most the target, as a plan would cut them."""
    bins: list[list[LiveFile]] = [[]]
    for file in files:
        if bins[-1] and sum(each.file_size_bytes for each in bins[-1]) + file.file_size_bytes > TARGET_BYTES:
            bins.append([])
        bins[-1].append(file)
    return [_task(number, inputs) for number, inputs in enumerate(bins)]


def _task(number: int, inputs: list[LiveFile]) -> CompactionTask:
    work = TaskWork(TableNode(0), CompactionType.MAJOR, TaskAction.MERGE, tuple(inputs), (), 0, TARGET_BYTES, TARGET_BYTES // 8)
    return CompactionTask(
        task_id=f"task-{number}",
        plan_id="plan",
        table=TableIdentifier("bench", ("db",), "orders"),
        table_uuid="",
        snapshot_id=1,
        sequence_number=1,
        schema_id=0,
        queue="default",
        priority=0,
        max_attempts=1,
        memory_bytes=1 << 30,
        created_at=datetime.now(timezone.utc),
        work=work,
        attempt=1,
        attempt_id="attempt",
    )


def _layout(location: Path, level: str | None = None) -> TableLayout:
    fields = [NestedField(number + 1, name, kind, required=False) for number, (name, (_, kind)) in enumerate(COLUMNS.items())]
    return TableLayout(
        location=str(location),
        format_version=2,
        schema_id=0,
        schemas={0: Schema(*fields).model_dump_json()},
        default_spec_id=0,
        specs={0: '{"spec-id": 0, "fields": []}'},
        default_sort_order_id=0,
        sort_orders={},
        unpartitioned_spec_ids=frozenset({0}),
        properties={} if level is None else {"write.parquet.compression-level": level},
    )


def _cpu_seconds() -> float:
    """CPU of this process and its descendants, those that ended included where their parent lives."""
    me = psutil.Process()
    total = 0.0
    for process in [me, *me.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return total


def _profile(tasks: list[CompactionTask], layout: TableLayout) -> None:
    with _profiled():
        for result in InProcessMergeEngine().merge(tasks, layout, {}):
            print(result.error or f"{result.duration_ms} ms, peak {result.peak_memory_bytes / MB:.0f} MB")


@contextmanager
def _profiled() -> Iterator[None]:
    profile = cProfile.Profile()
    profile.enable()
    yield
    profile.disable()
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    main()
