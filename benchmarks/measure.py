"""What the benchmarks share: CPU and memory of a process tree, a Spark session that knows Iceberg, and rounds that alternate.

CPU is that of this process and all its descendants (JVM, Python workers, `dagster dev`'s children), those that ended included.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from compaction_pipeline.spark.session import SparkSettings

MB = 1_000_000
PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
CATALOG = "bench"
"""Iceberg's catalog in the session: tables lie below the folder's `warehouse`, one folder each, found by their path alone."""


@dataclass
class Cost:
    """Wall and CPU seconds of a block, and the most memory that its process tree held at a time (looked at every 50 ms)."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_rss_bytes: int = 0


@contextmanager
def measured(*, pid: int | None = None) -> Iterator[Cost]:
    """Measure a block. `pid`: the tree of this process instead of our own."""
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
    """CPU of a process and its descendants until now."""
    total = 0.0
    for process in _tree(pid):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system + getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return total


def rss_bytes(pid: int | None = None) -> int:
    """Resident memory of a process and its descendants now; shared pages count in each."""
    total = 0
    for process in _tree(pid):
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue
    return total


def alternating(
    runs: Mapping[str, Callable[[], object]], rounds: int, *, warm_up: int = 1, tidy: Callable[[], object] = lambda: None
) -> dict[str, list[Cost]]:
    """Costs of each side, one after the other, round by round; warm-up rounds (imports, JIT) and tidying after each are not counted."""
    costs: dict[str, list[Cost]] = {name: [] for name in runs}
    for number in range(-warm_up, rounds):
        for name, run in runs.items():
            with measured() as cost:
                run()
            tidy()
            label = "warm-up" if number < 0 else f"round {number + 1}"
            print(f"{label:8} {name:12} {cost.seconds:7.2f} s {cost.cpu_seconds:7.2f} CPU-s {cost.peak_rss_bytes / MB:7.0f} MB", flush=True)
            if number >= 0:
                costs[name].append(cost)
    return costs


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
    """A session of ours with Iceberg's Java library in it, for the peer; Spark fetches the jar once."""
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
            **(extra or {}),
        },
    )


def load_average() -> str:
    """To stand beside every figure: a busy machine is a slow one."""
    return "load average " + " ".join(f"{one:.1f}" for one in os.getloadavg())


def _watch(cost: Cost, stopped: threading.Event, pid: int | None, cpu: float) -> None:
    while True:
        last = stopped.wait(0.05)
        cost.peak_rss_bytes = max(cost.peak_rss_bytes, rss_bytes(pid))
        # A sum that falls lost a process whose parent does not account for it: PySpark's daemon lets idle workers go that way.
        now = cpu_seconds(pid)
        cost.cpu_seconds += max(0.0, now - cpu)
        cpu = now
        if last:
            return


def _tree(pid: int | None) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
