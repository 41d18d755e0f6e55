"""Merges with equality deletes of 1, 10 and 40 times a task's memory: is our memory within its bound, and how far does the peer get?

    python benchmarks/delete_volume.py                     # the least task memory, 128 MiB; about 2 GB of disk, 10 minutes
    python benchmarks/delete_volume.py --times 0.1 1 2

The volume of deletes is the bytes of their keys, 8 for each key. The keys of every delete file span those of the table, and most keys
belong to no row. The peer is Iceberg's `rewrite_data_files`. It runs in a process of its own with Spark's default heap (`--peer-heap`).
A peer that dies, or takes more than `--patience` seconds, is not tried with larger volumes. The last line is
`ratio <most memory of a worker / bound>`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from generate import ORDERS, GeneratedTable, Warehouse, merged, warehouse
from measure import CATALOG, MB, load_average, measured

from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.spark.engine import SparkMergeEngine

MIB = 1024 * 1024
NAME = "rows"
KEY_BYTES = 8
FILES = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory-mib", type=int, default=128, help="'compaction.task.memory'")
    parser.add_argument("--times", type=float, nargs="+", default=[0.1, 1, 10, 40], help="volumes, ascending, as multiples of the memory")
    parser.add_argument("--peer-heap", default="1g", help="Spark's default; Spark refuses less than 450m")
    parser.add_argument("--patience", type=float, default=180)
    parser.add_argument("--peer-of", default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peer_of is not None:
        _peer(Path(arguments.peer_of), arguments.peer_heap)
        return
    with tempfile.TemporaryDirectory(prefix="delete-volume-") as folder, warehouse(Path(folder), master="local[1]") as opened:
        _compare(opened, Path(folder), arguments)


def _compare(opened: Warehouse, folder: Path, arguments: argparse.Namespace) -> None:
    table = opened.table(NAME, ORDERS, FILES, ORDERS.rows_per_file)
    rows = FILES * ORDERS.rows_per_file
    bound = arguments.memory_mib * MIB
    print(f"{FILES} files, {rows} rows, task memory {arguments.memory_mib} MiB, the peer's heap {arguments.peer_heap}; {load_average()}")
    engine = SparkMergeEngine(opened.sessions)
    # The first merge of a worker loads libraries. Their memory is not part of a task, so this merge is not counted.
    merged(engine, table.tasks(memory_bytes=bound), table.layout(folder / "ours"))
    volumes = [int(times * bound / KEY_BYTES) for times in arguments.times]
    files = -(-volumes[-1] // (bound // KEY_BYTES)) + len(volumes)
    written, gone, most, alive = 0, 0, 0, True
    for times, begin, end in zip(arguments.times, [0, *volumes], volumes, strict=False):
        for start in range(begin, end, bound // KEY_BYTES):
            keys = _keys(written, files, min(end - start, bound // KEY_BYTES))
            table.delete_by_equality(pa.table({"id": keys}))
            written, gone = written + 1, gone + int((keys < rows).sum())
        peak = _ours(engine, table, folder / "ours", bound, times, gone)
        most = max(most, peak)
        # A peer that died with fewer deletes would die again.
        alive = alive and _survives(folder, arguments, times)
    print(load_average())
    print(f"ratio {most / bound:.2f}")


def _keys(number: int, files: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The keys of one delete file, all even. Every file spans the ids of the table, so no file can be skipped by its bounds."""
    return (np.arange(count, dtype=np.int64) * files + number) * 2


def _ours(engine: SparkMergeEngine, table: GeneratedTable, output: Path, bound: int, times: float, expected: int) -> int:
    tasks, layout = table.tasks(memory_bytes=bound), table.layout(output)
    with measured() as cost:
        results = merged(engine, tasks, layout)
    deleted = sum(result.rows_deleted_by_equality for result in results)
    if deleted != expected:
        raise SystemExit(f"{deleted} rows were deleted, but {expected} must be")
    peak = max(result.peak_memory_bytes for result in results)
    print(
        f"{times:5.1f} times  ours     {cost.seconds:6.1f} s {cost.cpu_seconds:6.1f} CPU-s, "
        f"a worker's peak {peak / MB:.0f} MB of {bound / MB:.0f} ({peak / bound:.2f})",
        flush=True,
    )
    return peak


def _survives(folder: Path, arguments: argparse.Namespace, times: float) -> bool:
    command = [sys.executable, __file__, "--peer-of", str(folder), "--peer-heap", arguments.peer_heap]
    started = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=arguments.patience, check=False)
        how = "done" if done.returncode == 0 else _last_words(done.stdout + done.stderr)
    except subprocess.TimeoutExpired:
        how = f"given up after {arguments.patience:.0f} s"
    print(f"{times:5.1f} times  iceberg  {time.monotonic() - started:6.1f} s, {how}", flush=True)
    return how == "done"


def _last_words(text: str) -> str:
    return "dies: out of memory" if "OutOfMemory" in text or "terminating due to" in text else f"dies: {text.strip().splitlines()[-1]}"


def _peer(folder: Path, heap: str) -> None:
    with warehouse(folder, master="local[1]", driver_memory=heap, java_options="-XX:+ExitOnOutOfMemoryError") as opened:
        table = GeneratedTable(opened, TableIdentifier(CATALOG, ("db",), NAME), ORDERS)
        table.rewrite(table.snapshot_id())


if __name__ == "__main__":
    main()
