"""Shared by the benchmarks: CPU and memory of a process tree, a Spark session that knows Iceberg, and rounds that alternate.

CPU is the time of this process and of all its descendants (JVM, Python workers, children of `dagster dev`), also of those that ended.
"""

from __future__ import annotations

import argparse
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from compaction_pipeline.spark.session import SparkSettings

MB = 1_000_000
PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
CATALOG = "bench"
"""The name of Iceberg's catalog in the session. Its tables are the folders below `warehouse`, so it needs no database."""

_WATCH_SECONDS = 0.25


@dataclass
class Cost:
    """Wall and CPU seconds of a block, and the most memory that its process tree held (measured every quarter of a second)."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_rss_bytes: int = 0


@contextmanager
def measured(*, pid: int | None = None) -> Iterator[Cost]:
    """Measure a block. With `pid`, measure the tree of that process instead of our own."""
    cost, stopped = Cost(), threading.Event()
    watcher = threading.Thread(target=_watch, args=(cost, stopped, pid, cpu_seconds(pid)), daemon=True)
    started = time.monotonic()
    watcher.start()
    try:
        yield cost
    finally:
        cost.seconds = time.monotonic() - started
        stopped.set()
        watcher.join()


def cpu_seconds(pid: int | None = None) -> float:
    """The CPU seconds that a process and its descendants have used."""
    return _sums(pid)[0]


def rss_bytes(pid: int | None = None) -> int:
    """The resident memory of a process and its descendants. A shared page counts in each of them."""
    return _sums(pid)[1]


def alternating(
    runs: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    warm_up: int = 1,
    tidy: Callable[[], object] = lambda: None,
    pids: Mapping[str, int] | None = None,
) -> dict[str, list[Cost]]:
    """Run all sides in turns, round by round, and return their costs. Warm-up rounds (imports, JIT) and tidying are not counted.

    In its turn a side runs twice, and the second run counts. `pids` names the process of a side that does not run in this process. Only
    that process tree is measured then, because the JVM of the other side goes on compiling after its turn.
    """
    costs: dict[str, list[Cost]] = {name: [] for name in runs}
    for number in range(-warm_up, rounds):
        for name, run in runs.items():
            # On a machine that takes unused memory back, the first run pays for every page again, so only the second one counts.
            for _ in range(2):
                tidy()
                _wait_until_idle()
                with measured(pid=(pids or {}).get(name)) as cost:
                    run()
            tidy()
            label = "warm-up" if number < 0 else f"round {number + 1}"
            print(f"{label:8} {name:12} {cost.seconds:7.2f} s {cost.cpu_seconds:7.2f} CPU-s {cost.peak_rss_bytes / MB:7.0f} MB", flush=True)
            if number >= 0:
                costs[name].append(cost)
    return costs


def _wait_until_idle() -> None:
    """Wait until the last side's compiler, garbage collector and workers are done, at most half a minute. They are not the next side's."""
    os.sync()
    for _ in range(60):
        before = cpu_seconds()
        time.sleep(0.5)
        if cpu_seconds() - before < 0.1:
            return


def median(costs: list[Cost]) -> Cost:
    """The median of each figure."""
    return Cost(
        statistics.median(cost.seconds for cost in costs),
        statistics.median(cost.cpu_seconds for cost in costs),
        int(statistics.median(cost.peak_rss_bytes for cost in costs)),
    )


def spark_settings(
    folder: Path, *, master: str = "local[2]", driver_memory: str = "4g", extra: Mapping[str, str] | None = None
) -> SparkSettings:
    """Settings of a Spark session with Iceberg's Java library, for the peer. Spark fetches the jar once."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return SparkSettings(
        master=master,
        home=str(folder / "home"),
        extra={
            "spark.jars.packages": PACKAGE,
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
            f"spark.sql.catalog.{CATALOG}.type": "hadoop",
            f"spark.sql.catalog.{CATALOG}.warehouse": str(folder / "warehouse"),
            "spark.driver.memory": driver_memory,
            # Rows pass through the peer's JVM, so it needs both compilers.
            "spark.driver.defaultJavaOptions": "",
            **(extra or {}),
        },
    )


def positive(text: str) -> int:
    """An argument that is a whole number ≥ 1. Raises argparse.ArgumentTypeError."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number ≥ 1")
    return int(text)


def load_average() -> str:
    """The load average, printed beside every figure, because a busy machine is slower."""
    return "load average " + " ".join(f"{one:.1f}" for one in os.getloadavg())


def _watch(cost: Cost, stopped: threading.Event, pid: int | None, cpu: float) -> None:
    own = time.thread_time()
    while True:
        last = stopped.wait(_WATCH_SECONDS)
        now, rss = _sums(pid)
        cost.peak_rss_bytes = max(cost.peak_rss_bytes, rss)
        # The CPU of this thread is not part of the block. When another process tree is measured, the sum does not hold it anyway.
        watched, own = (time.thread_time() - own if pid is None else 0.0), time.thread_time()
        # The sum falls when a process ends whose parent does not take over its CPU time, as idle workers of PySpark's daemon do.
        cost.cpu_seconds += max(0.0, now - cpu - watched)
        cpu = now
        if last:
            return


def _sums(pid: int | None) -> tuple[float, int]:
    """(CPU seconds until now, resident bytes) of a process and its descendants. A shared page counts in each of them."""
    cpu, rss = 0.0, 0
    for process in _tree(pid):
        with suppress(psutil.Error), process.oneshot():
            times = process.cpu_times()
            cpu += times.user + times.system + getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
            rss += process.memory_info().rss
    return cpu, rss


def _tree(pid: int | None) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
