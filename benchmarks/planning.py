"""Measures the time and memory of planning a table the first time, and after one new commit.

    python benchmarks/planning.py --files 1000000
    python benchmarks/planning.py --files 100000 --no-peer --profile

Three tables are planned. `healthy` has files of the target size, so there is nothing to do. `fragmented` has small files, which fill the
queue with tasks. Each step of these two runs in a process of its own. The peer is Iceberg's `rewrite_data_files`, which finds nothing to
do in the healthy table. The last line is `ratio <peer's CPU-seconds / ours>` for that table.

`keyed` has six of ten files in its base store, and the others in 40 commits of its change store; nothing is due. Its looks share a process,
as the ticks of a sensor do. Each look refreshes the table and plans all its nodes, and its line tells how many manifests were read. Its
peer is the table `healthy` of the same run.
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
from synthetic_table import append, fakes, keyed_fakes, make_catalog, make_keyed_table, make_table, show_to_java

from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.formats.avro.entry_decoder import ManifestDecoder
from compaction_pipeline.iceberg.catalogs import SqlCatalog
from compaction_pipeline.settings import Settings
from compaction_pipeline.spark.session import SparkSessions

TARGET_BYTES = 128 << 20
_LONG = timedelta(hours=1)
SMALL_BYTES = 4 << 20
SIZES = {"healthy": TARGET_BYTES, "fragmented": SMALL_BYTES}
KEYED = "keyed"
_COMMITS = 40
_NEVER_DUE = {"self-optimizing.minor.trigger.file-count": "1000000", "self-optimizing.minor.trigger.total-size": str(1 << 50)}


def main() -> None:
    arguments = _arguments()
    if arguments.step == "looks":
        _look_three_times(Path(arguments.folder))
        return
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
    parser.add_argument("--tables", nargs="+", default=[*SIZES, KEYED], choices=[*SIZES, KEYED])
    parser.add_argument("--profile", action="store_true", help="show where the time of each of our steps goes")
    parser.add_argument("--step", choices=("first", "next", "tick", "looks"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--table", help=argparse.SUPPRESS)
    return parser.parse_args()


def _compare(arguments: argparse.Namespace, folder: Path) -> None:
    catalog = make_catalog(folder)
    ours: dict[str, dict[str, float]] = {}
    for table in [each for each in arguments.tables if each in SIZES]:
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
    if KEYED in arguments.tables:
        _make_keyed(catalog, arguments.files, arguments.partitions)
        subprocess.run([sys.executable, __file__, "--step", "looks", "--folder", str(folder), "--table", KEYED], check=True)
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


def _opened(folder: Path, name: str) -> tuple[OpenedServices, TableIdentifier]:
    services = OpenedServices(Settings(home=folder / f"home-{name}"))
    catalog = CatalogEntry(
        "bench", {"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": (folder / "warehouse").as_uri()}
    )
    if not services.stores.catalogs.entries():
        services.stores.catalogs.add(catalog)
    return services, TableIdentifier("bench", ("db",), name)


def _step(folder: Path, name: str, step: str, profile: bool) -> None:
    services, table = _opened(folder, name)
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
        planned = timed("plan", lambda: services.sweep_tables.plan_due([table], _LONG, nodes=nodes))
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


def _make_keyed(catalog: SqlCatalog, files: int, partitions: int) -> None:
    base, change = make_keyed_table(catalog, KEYED, **{"write.target-file-size-bytes": str(TARGET_BYTES)}, **_NEVER_DUE)
    changes = files * 4 // 10
    append(base, keyed_fakes(files - changes, partitions, TARGET_BYTES, "B"))
    for number in range(_COMMITS):
        append(change.refresh(), keyed_fakes(changes // _COMMITS, partitions, SMALL_BYTES, "I", seed=number + 2))
    print(f"{KEYED}: {files:,} files in {partitions:,} partitions, in two stores and {_COMMITS + 1} commits", flush=True)


def _look_three_times(folder: Path) -> None:
    """Look at the keyed table the first time, with no head moved, and after one commit of a writer."""
    decoded = _counted_manifests()
    for label in ("first", "still", "next"):
        if label == "next":
            append(make_catalog(folder).load_table(("db", f"{KEYED}_change_")), keyed_fakes(1, 1, SMALL_BYTES, "I", seed=1_000))
        decoded.clear()
        services, table = _opened(folder, KEYED)
        with measured() as cost:
            refresh = services.refresh_files.refresh(table)
            between = time.monotonic()
            planned = services.sweep_tables.plan_due([table], _LONG)
            seconds = time.monotonic() - between
        services.close()
        assert refresh.problem is None, refresh.problem
        print(
            f"{KEYED:10} {label:5} {cost.seconds:7.2f} s {cost.cpu_seconds:7.2f} CPU-s, peak {cost.peak_rss_bytes / MB:5.0f} MB; "
            f"{len(decoded)} manifests read; plan {seconds:.3f} s; {planned[0][1].plan.reason.text[:90]} ({load_average()})",
            flush=True,
        )


def _counted_manifests() -> list[int]:
    """A list that gets the size of each manifest that is decoded from now on."""
    sizes: list[int] = []
    decode = ManifestDecoder.__init__

    def counted(self: ManifestDecoder, content: bytes) -> None:
        sizes.append(len(content))
        decode(self, content)

    ManifestDecoder.__init__ = counted  # type: ignore[method-assign]
    return sizes


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
