"""Compares our merge with a practical limit: DuckDB and Polars copy the same files, without Iceberg, deletes or a proof.

    python benchmarks/limit.py                    # 40 files, 210 MB
    python benchmarks/limit.py --scale 1          # 2 GB

Each side writes one file for each bin of files, with zstd at level 1 (our level where a table sets none), rows in any order, and two
threads. The last line is `ratio <our MB per CPU-second / that of the better of the two>`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import duckdb
from generate import LINEITEM, ORDERS, Warehouse, merged, total_bytes, warehouse
from measure import MB, alternating, load_average, median, positive

from compaction_pipeline.merging.engine import InProcessMergeEngine
from compaction_pipeline.spark.engine import SparkMergeEngine

THREADS = 2
LEVEL = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", choices=["orders", "lineitem"], default="orders")
    parser.add_argument("--scale", type=float, default=0.1, help="1 is at least 2 GB")
    parser.add_argument("--rounds", type=positive, default=3, help="counted rounds")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="limit-benchmark-") as folder, warehouse(Path(folder)) as opened:
        _compare(opened, Path(folder) / "output", arguments)


def _compare(opened: Warehouse, output: Path, arguments: argparse.Namespace) -> None:
    kind = ORDERS if arguments.rows == "orders" else LINEITEM
    table = opened.table(arguments.rows, kind, max(2, round(kind.files_at_scale_1 * arguments.scale)), kind.rows_per_file)
    tasks, layout = table.tasks(), table.layout(output)
    bins = [[file.path.removeprefix("file:") for file in task.work.inputs] for task in tasks]
    megabytes = total_bytes(table.files()) / MB
    print(f"{sum(map(len, bins))} files of {arguments.rows}, {megabytes:.0f} MB, {len(bins)} bins; {load_average()}")
    engines = {"spark": SparkMergeEngine(opened.sessions), "in process": InProcessMergeEngine()}
    runs: dict[str, Callable[[], object]] = {
        "duckdb": lambda: _duckdb(bins, output),
        "polars": lambda: _polars(bins, output),
        **{f"ours, {name}": lambda engine=engine: merged(engine, tasks, layout) for name, engine in engines.items()},
    }
    written: dict[str, float] = {}
    costs = alternating({name: _clearing(name, run, output, written) for name, run in runs.items()}, arguments.rounds)
    speeds = {name: megabytes / median(each).cpu_seconds for name, each in costs.items()}
    for name, speed in speeds.items():
        print(f"{name:16} {speed:6.1f} MB per CPU-second, {written[name]:.0f} MB written")
    print(load_average())
    print(f"ratio {speeds['ours, spark'] / max(speeds['duckdb'], speeds['polars']):.2f}")


def _clearing(name: str, run: Callable[[], object], output: Path, written: dict[str, float]) -> Callable[[], None]:
    def cleared() -> None:
        output.mkdir(parents=True, exist_ok=True)
        run()
        written[name] = sum(path.stat().st_size for path in output.rglob("*.parquet")) / MB
        shutil.rmtree(output)

    return cleared


def _duckdb(bins: Sequence[Sequence[str]], output: Path) -> None:
    settings: Mapping[str, str | int] = {"threads": THREADS, "preserve_insertion_order": "false"}
    with duckdb.connect(config=dict(settings)) as connection:
        for number, paths in enumerate(bins):
            connection.execute(
                f"copy (select * from read_parquet({list(paths)})) to '{output}/{number}.parquet' "
                f"(format parquet, compression zstd, compression_level {LEVEL})"
            )


def _polars(bins: Sequence[Sequence[str]], output: Path) -> None:
    # Polars reads its number of threads when it is imported.
    os.environ["POLARS_MAX_THREADS"] = str(THREADS)
    polars = importlib.import_module("polars")
    for number, paths in enumerate(bins):
        frame = polars.scan_parquet(list(paths), hive_partitioning=False)
        frame.sink_parquet(output / f"{number}.parquet", compression="zstd", compression_level=LEVEL, maintain_order=False)


if __name__ == "__main__":
    main()
