"""Compares two optimizers with one: how much more do they merge in the same time, when each is pinned to a core of its own?

    python benchmarks/scaling.py --scale 0.05 --rounds 1      # a first look
    python benchmarks/scaling.py                              # 0.8 GB, three rounds

A table has a tenth of its rows deleted by equality. The same tasks are merged by one optimizer and by two, in turns. Each optimizer has a
JVM and one slot, and `taskset` pins it to one core. The server, the state database and this script share these cores with them. The
optimizers are warm: each has merged something before the tasks come. The time counts from the first claim of a task to the end of the
last merge. Nothing is committed, so that each round finds the same files. Goal: at least 1.6 times the throughput. The last line is
`ratio <throughput with two / with one>`.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from deletes import EQUALITY_FILES
from generate import ORDERS, GeneratedTable, total_bytes, warehouse
from measure import CATALOG, MB, load_average, positive
from opened_services import OpenedServices

from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.demo.processes import Processes, stop_on_signals
from compaction_pipeline.settings import Settings

TASK_BYTES = 32 * 1024 * 1024
"""Small tasks, so that both optimizers are busy nearly to the end."""
PATIENCE_SECONDS = 1_800
FORCED = PlanRequest(types=(CompactionType.FULL,), force=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.4, help="size of the table; 1 is at least 2 GB")
    parser.add_argument("--rounds", type=positive, default=3, help="counted rounds")
    arguments = parser.parse_args()
    stop_on_signals()
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise SystemExit("this benchmark needs two cores")
    with tempfile.TemporaryDirectory(prefix="scaling-benchmark-") as folder:
        with warehouse(Path(folder)) as opened:
            tables = {
                "warm-up": _table(opened.table("warm", ORDERS, 16, 20_000, _properties(1_000_000)), 320_000),
                "measured": _measured_table(opened.table, arguments.scale),
            }
            properties = opened.properties
        print(
            f"{total_bytes(tables['measured'].files()) / MB:.0f} MB, of which a tenth of the rows is deleted; {load_average()}", flush=True
        )
        speeds: dict[int, list[float]] = {1: [], 2: []}
        for number in range(arguments.rounds):
            for optimizers, of_side in speeds.items():
                home = Path(folder) / f"home-{number}-{optimizers}"
                with Processes() as processes:
                    of_side.append(_round(processes, home, properties, tables, cores[:optimizers]))
                print(f"round {number + 1}: {optimizers} optimizer(s) merged {of_side[-1]:6.1f} MB/s; {load_average()}", flush=True)
        one, two = (statistics.median(speeds[optimizers]) for optimizers in (1, 2))
        print(f"{one:.1f} MB/s with one optimizer, {two:.1f} MB/s with two")
        print(f"ratio {two / one:.2f}")


def _measured_table(create: Callable[..., GeneratedTable], scale: float) -> GeneratedTable:
    files = max(4, round(ORDERS.files_at_scale_1 * scale))
    return _table(create("measured", ORDERS, files, ORDERS.rows_per_file, _properties(TASK_BYTES)), files * ORDERS.rows_per_file)


def _properties(target_bytes: int) -> Mapping[str, str]:
    return {"self-optimizing.target-size": str(target_bytes), "self-optimizing.max-task-size-bytes": str(target_bytes)}


def _table(table: GeneratedTable, rows: int) -> GeneratedTable:
    gone = np.arange(3, rows, 10, dtype=np.int64)
    table.delete_by_equality(*[pa.table({"id": part}) for part in np.array_split(gone, EQUALITY_FILES)])
    return table


def _round(
    processes: Processes, home: Path, properties: Mapping[str, str], tables: Mapping[str, GeneratedTable], cores: Sequence[int]
) -> float:
    """Start a server and an optimizer for each core, and merge all tasks. Return the megabytes of data files merged in a second."""
    home.mkdir()
    services = OpenedServices(Settings(home=home))
    try:
        services.explore_catalogs.register(CatalogEntry(CATALOG, properties))
        _start(processes, home, cores)
        _wait(processes, lambda: len(services.serve_optimizers.optimizers(live=True)) == len(cores), "the optimizers")
        warm = _merged(processes, services, tables["warm-up"])
        took_part = {services.read_tasks.task(task.task_id)[1][-1].owner for task in warm}
        if len(took_part) < len(cores):
            raise SystemExit("one optimizer took all tasks of the warm-up; run the benchmark again")
        tasks = _merged(processes, services, tables["measured"])
    finally:
        services.close()
    _check(tasks)
    started = min(task.started_at for task in tasks if task.started_at is not None)
    ended = max(task.prepared_at for task in tasks if task.prepared_at is not None)
    return sum(task.work.input_bytes for task in tasks) / MB / (ended - started).total_seconds()


def _start(processes: Processes, home: Path, cores: Sequence[int]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "COMPACTION_HOME": str(home)}
    command = str(Path(sys.executable).with_name("compaction-pipeline"))
    # Without its ticks the server plans and commits nothing by itself.
    serve = [command, "serve", "--port", str(port), "--no-ticks"]
    processes.start("server", serve, environment, home, home / "server.log")
    _wait(processes, lambda: (home / "optimizer.token").exists(), "the token of the server")
    optimizer = [command, "optimizer", "--server", f"http://127.0.0.1:{port}", "--parallelism", "1"]
    for core in cores:
        pinned = ["taskset", "--cpu-list", str(core), *optimizer]
        processes.start(f"optimizer on core {core}", pinned, environment, home, home / f"optimizer-{core}.log")


def _merged(processes: Processes, services: OpenedServices, table: GeneratedTable) -> list[CompactionTask]:
    """Put the tasks of a table into the queue, wait until the optimizers have merged all of them, and return them."""
    planned = services.one_table.plan_nodes(table.identifier, FORCED).tasks
    if not planned:
        raise SystemExit(f"nothing was planned on {table.identifier}")

    def tasks() -> list[CompactionTask]:
        return [services.stores.tasks.task(task.task_id) for task in planned]

    def all_ended() -> bool:
        failed = [task for task in tasks() if task.status is TaskStatus.FAILED]
        if failed:
            raise SystemExit(f"task {failed[0].task_id} failed: {failed[0].reason}")
        return all(task.status is TaskStatus.PREPARED for task in tasks())

    _wait(processes, all_ended, f"{len(planned)} merged tasks of {table.identifier}")
    return tasks()


def _check(tasks: Sequence[CompactionTask]) -> None:
    """End the benchmark when the merges did not delete a tenth of the rows."""
    results = [task.result for task in tasks if task.result is not None]
    rows = sum(file.record_count for task in tasks for file in task.work.inputs)
    deleted = sum(result.rows_deleted_by_equality for result in results)
    if deleted != rows // 10:
        raise SystemExit(f"{deleted} of {rows} rows were deleted, but a tenth must be")


def _wait(processes: Processes, done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not done():
        processes.check()
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {PATIENCE_SECONDS} s: {what}")
        time.sleep(0.5)


if __name__ == "__main__":
    main()
