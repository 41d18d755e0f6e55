"""Compares our merge with Iceberg's `rewrite_data_files` in MB of input per CPU-second, on the same Spark and the same files.

    python benchmarks/merge.py                       # 80 files, 420 MB
    python benchmarks/merge.py --scale 1             # 2 GB
    python benchmarks/merge.py --rows codes          # every column is dictionary-encoded

Each side has a warm session of its own: the peer's with the JVM's defaults, ours as the product starts it. CPU is the time of a process
and all its descendants (the JVM, the Python workers). The first round (imports, JIT) is not counted. The counted rounds alternate, and
each figure is a median. The last line is `ratio <ours / Iceberg's>`.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from generate import LINEITEM, ORDERS, GeneratedTable, Rows, merged, total_bytes, warehouse
from measure import MB, alternating, load_average, median, positive
from own_session import own_session

from compaction_pipeline.core.work.merge_engine import MergeEngine
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.merging.engine import InProcessMergeEngine

CODES = Rows(
    {
        **{f"code{number}": f"cast(rand({number}) * {20 * 4**number} as bigint)" for number in range(1, 5)},
        **{f"name{number}": f"concat('name-', cast(rand({number}) * {30 * number} as int))" for number in range(5, 13)},
        "flag": "rand(13) < 0.5",
    },
    ("code1",),
    700_000,
    300,
)
"""Every column has few values, so Spark dictionary-encodes them all."""
_ROWS = {"orders": ORDERS, "lineitem": LINEITEM, "codes": CODES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.2, help="1 is at least 2 GB")
    parser.add_argument("--rows", choices=sorted(_ROWS), default="orders", help="the kind of rows")
    parser.add_argument("--rounds", type=positive, default=3, help="counted rounds")
    parser.add_argument("--compression-level", default=None, help="'write.parquet.compression-level' of the table, for both sides")
    parser.add_argument("--profile", action="store_true", help="profile one merge in this process and stop")
    arguments = parser.parse_args()
    rows = _ROWS[arguments.rows]
    level = arguments.compression_level
    compare(
        rows,
        max(2, round(rows.files_at_scale_1 * arguments.scale)),
        rows.rows_per_file,
        arguments.rounds,
        {} if level is None else {"write.parquet.compression-level": level},
        profile=arguments.profile,
    )


def compare(rows: Rows, files: int, rows_per_file: int, rounds: int, properties: Mapping[str, str], *, profile: bool = False) -> None:
    """Generate the files, merge them with both sides, and print the ratio."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="merge-benchmark-"))
        opened, spark = stack.enter_context(warehouse(Path(folder))), stack.enter_context(own_session(Path(folder)))
        table = opened.table("rows", rows, files, rows_per_file, properties)
        output = Path(folder) / "ours"
        snapshot_id, tasks, layout = table.snapshot_id(), table.tasks(), table.layout(output)
        megabytes = total_bytes(table.files()) / MB
        print(f"{files} files, {megabytes:.0f} MB, {files * rows_per_file} rows; {load_average()}")
        if profile:
            _profile(table, output)
            return
        peaks: list[int] = []

        def ours(engine: MergeEngine) -> None:
            results: list[MergeResult] = merged(engine, tasks, layout)
            peaks.append(max(result.peak_memory_bytes for result in results))

        alone = InProcessMergeEngine()
        runs = {
            "iceberg": lambda: table.rewrite(snapshot_id),
            "ours": lambda: ours(spark),
            "without Spark": lambda: ours(alone),
        }
        every = alternating(runs, rounds, tidy=lambda: shutil.rmtree(output, ignore_errors=True), pids={"ours": spark.pid()})
        costs = {name: median(each) for name, each in every.items()}
        for name, cost in costs.items():
            print(f"{name:14} {megabytes / cost.cpu_seconds:6.1f} MB per CPU-second, {cost.seconds:.2f} s")
        print(f"peak of a task {max(peaks) / MB:.0f} MB; {load_average()}")
        print(f"ratio {costs['iceberg'].cpu_seconds / costs['ours'].cpu_seconds:.2f}")


def _profile(table: GeneratedTable, output: Path) -> None:
    profile = cProfile.Profile()
    profile.enable()
    for result in InProcessMergeEngine().merge([task.merge_input(table.layout(output)) for task in table.tasks()], {}):
        print(result.error or f"{result.duration_ms} ms, peak {result.peak_memory_bytes / MB:.0f} MB")
    profile.disable()
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
