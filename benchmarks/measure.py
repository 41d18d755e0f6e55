"""What the benchmarks share: CPU and memory of a process tree, a Spark session that knows Iceberg, and rounds that alternate.

CPU is that of this process and all its descendants (JVM, Python workers, `dagster dev`'s children), those that ended included.
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
"""Iceberg's catalog in the session: tables lie below the folder's `warehouse`, one folder each, found by their path alone."""

_WATCH_SECONDS = 0.25


@dataclass
class Cost:
    """Wall and CPU seconds of a block, and the most memory that its process tree held at a time (looked at every quarter of a second)."""

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
    return _sums(pid)[0]


def rss_bytes(pid: int | None = None) -> int:
    """Resident memory of a process and its descendants now; shared pages count in each."""
    return _sums(pid)[1]


def alternating(
    runs: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    warm_up: int = 1,
    tidy: Callable[[], object] = lambda: None,
    pids: Mapping[str, int] | None = None,
) -> dict[str, list[Cost]]:
    """Costs of each side, one after the other, round by round; warm-up rounds (imports, JIT) and tidying are not counted.

    In its turn a side runs twice, and the second time counts.
    `pids`: sides that are measured by the tree of another process than ours (the other side's JVM goes on compiling when its turn is over).
    """
    costs: dict[str, list[Cost]] = {name: [] for name in runs}
    for number in range(-warm_up, rounds):
        for name, run in runs.items():
            # Twice, and the second time counts: a machine that takes unused memory back lets the first one pay for every page anew.
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
    """What the last side left running (a compiler, a collector, workers that end) is not the next one's; at most half a minute."""
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
            # Rows cross the peer's JVM: it needs both compilers.
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
    """To stand beside every figure: a busy machine is a slow one."""
    return "load average " + " ".join(f"{one:.1f}" for one in os.getloadavg())


def _watch(cost: Cost, stopped: threading.Event, pid: int | None, cpu: float) -> None:
    own = time.thread_time()
    while True:
        last = stopped.wait(_WATCH_SECONDS)
        now, rss = _sums(pid)
        cost.peak_rss_bytes = max(cost.peak_rss_bytes, rss)
        # To look is no work of the block's; where another tree is measured it is not in the sum.
        watched, own = (time.thread_time() - own if pid is None else 0.0), time.thread_time()
        # A sum that falls lost a process whose parent does not account for it: PySpark's daemon lets idle workers go that way.
        cost.cpu_seconds += max(0.0, now - cpu - watched)
        cpu = now
        if last:
            return


def _sums(pid: int | None) -> tuple[float, int]:
    """(CPU seconds until now, resident bytes) of a process and its descendants; shared pages count in each."""
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
