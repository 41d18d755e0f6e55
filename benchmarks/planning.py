"""Measures the time and memory of planning a table the first time, and after one new commit.

    python benchmarks/planning.py --files 1000000
    python benchmarks/planning.py --files 100000 --no-peer --profile

Two tables are planned. `healthy` has files of the target size, so there is nothing to do. `fragmented` has small files, which fill the
queue with tasks. Each step of ours runs in a process of its own, as a sensor's tick would. The peer is Iceberg's `rewrite_data_files`,
which finds nothing to do in the healthy table. The last line is `ratio <peer's CPU-seconds / ours>` for that table.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from measure import MB, load_average, measured, positive, spark_settings
from opened_services import OpenedServices
from synthetic_table import append, fakes, make_catalog, make_table, show_to_java

from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.settings import Settings
from compaction_pipeline.spark.session import SparkSessions

TARGET_BYTES = 128 << 20
_LONG = timedelta(hours=1)
SIZES = {"healthy": TARGET_BYTES, "fragmented": 4 << 20}


def main() -> None:
    arguments = _arguments()
    if arguments.step:
        _step(Path(arguments.folder), arguments.table, arguments.step, arguments.profile)
        return
    with tempfile.TemporaryDirectory(prefix="planning-benchmark-") as name:
        _compare(arguments, Path(name))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=positive, default=100_000)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--peer", action=argparse.BooleanOptionalAction, default=True, help="measure Iceberg's procedure on Spark too")
    parser.add_argument("--tables", nargs="+", default=list(SIZES), choices=SIZES)
    parser.add_argument("--profile", action="store_true", help="show where the time of each of our steps goes")
    parser.add_argument("--step", choices=("first", "next", "tick"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--table", help=argparse.SUPPRESS)
    return parser.parse_args()


def _compare(arguments: argparse.Namespace, folder: Path) -> None:
    catalog = make_catalog(folder)
    ours: dict[str, dict[str, float]] = {}
    for table in arguments.tables:
        started = time.monotonic()
        made = make_table(catalog, table, **{"write.target-file-size-bytes": str(TARGET_BYTES)})
        append(made, fakes(arguments.files, arguments.partitions, SIZES[table]))
        print(
            f"{table}: {arguments.files:,} files in {arguments.partitions:,} partitions, made in {time.monotonic() - started:.0f} s",
            flush=True,
        )
        ours[table] = _child(folder, table, "first", arguments.profile)
        for number in range(3):
            append(made.refresh(), [next(fakes(1, 1, 4 << 20, seed=number + 7))])
            _child(folder, table, "next", arguments.profile)
        _child(folder, table, "tick", arguments.profile)
    if arguments.peer and "healthy" in ours:
        peer = _peer(show_to_java(catalog.load_table(("db", "healthy")), folder / "warehouse"), folder)
        print(f"ratio {peer / ours['healthy']['cpu_seconds']:.2f}")


def _child(folder: Path, table: str, step: str, profile: bool) -> dict[str, float]:
    """Run one step of ours in a process of its own and return the figures that it prints. They leave imports out."""
    command = [sys.executable, __file__, "--step", step, "--folder", str(folder), "--table", table, *(["--profile"] if profile else [])]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    figures: dict[str, Any] = json.loads(output.splitlines()[-1])
    print("\n".join(output.splitlines()[:-1]), end="\n" if profile else "")
    print(
        f"{table:10} {step:5} {figures['seconds']:7.2f} s {figures['cpu_seconds']:7.2f} CPU-s, peak {figures['peak_rss_mb']:5.0f} MB; "
        f"{figures['steps']}; {figures['reason']} ({load_average()})",
        flush=True,
    )
    return figures


def _step(folder: Path, name: str, step: str, profile: bool) -> None:
    services = OpenedServices(Settings(home=folder / f"home-{name}"))
    catalog = CatalogEntry(
        "bench", {"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": (folder / "warehouse").as_uri()}
    )
    table = TableIdentifier("bench", ("db",), name)
    if not services.stores.catalogs.entries():
        services.stores.catalogs.add(catalog)
    steps: dict[str, float] = {}
    profiler = cProfile.Profile()

    def timed(what: str, run: Callable[[], Any]) -> Any:
        started = time.monotonic()
        answer = run()
        steps[what] = round(time.monotonic() - started, 3)
        return answer

    with measured() as cost:
        if profile:
            profiler.enable()
        refresh = timed("refresh", lambda: services.refresh_files.refresh(table))
        nodes = {table: frozenset(refresh.changed)} if step != "tick" else None
        planned = timed("plan", lambda: services.tick_tables.plan_due([table], _LONG, nodes=nodes))
        profiler.disable()
    if profile:
        pstats.Stats(profiler, stream=sys.stdout).sort_stats("tottime").print_stats(35)
    services.close()
    figures = {
        "seconds": cost.seconds,
        "cpu_seconds": cost.cpu_seconds,
        "peak_rss_mb": cost.peak_rss_bytes / MB,
        "steps": " ".join(f"{what} {seconds} s" for what, seconds in steps.items()),
        "reason": planned[0][1].plan.reason.text[:90],
    }
    print(json.dumps(figures))


def _peer(table: str, folder: Path) -> float:
    """The CPU-seconds of the procedure's second call in a session. The first call pays for the JVM's warm-up."""
    sessions = SparkSessions(spark_settings(folder))
    session = sessions.session()
    try:
        cpu = 0.0
        for label in ("warm-up", "counted"):
            with measured() as cost:
                (row,) = session.sql(
                    f"call bench.system.rewrite_data_files(table => '{table}', options => map('target-file-size-bytes', '{TARGET_BYTES}'))"
                ).collect()
            cpu = cost.cpu_seconds
            print(
                f"iceberg    {label} {cost.seconds:7.2f} s {cost.cpu_seconds:7.2f} CPU-s, peak {cost.peak_rss_bytes / MB:5.0f} MB; "
                f"{row[0]} files rewritten ({load_average()})",
                flush=True,
            )
        return cpu
    finally:
        sessions.stop()


if __name__ == "__main__":
    main()
