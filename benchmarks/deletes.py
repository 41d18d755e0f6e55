"""CPU of a merge with a tenth of the rows deleted, by equality and by position: ours beside Iceberg's `rewrite_data_files`.

    python benchmarks/deletes.py                  # 40 files, 220 MB
    python benchmarks/deletes.py --scale 1        # 2 GB

Three tables of the same rows: without deletes, with equality deletes, with position deletes; each side has a warm Spark session of its
own (the peer's with the JVM's defaults, ours as the product starts it). The counted rounds alternate between both sides and all tables.
Rows that no delete touches are copied as bytes, so what a delete costs is measured apart: the same kernel in this process, where a
table without deletes is decoded and encoded too. The last line is
`ratio <peer's CPU / ours>` of the worse of the two kinds.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from generate import ORDERS, GeneratedTable, Warehouse, merged, total_bytes, warehouse
from measure import MB, alternating, load_average, median, positive
from own_session import OwnSession, own_session

from compaction_pipeline.core.ports import MergeEngine
from compaction_pipeline.spark.copy.source import CopySource
from compaction_pipeline.spark.merge import InProcessMergeEngine

EQUALITY_FILES = 10
"""Delete files of an upsert stream: one a commit."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.1, help="1: at least 2 GB")
    parser.add_argument("--rounds", type=positive, default=3, help="counted rounds")
    parser.add_argument("--ours-only", action="store_true", help="leave the peer out: how much deletes cost us")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="deletes-benchmark-") as folder, warehouse(Path(folder)) as opened:
        _compare(opened, Path(folder) / "ours", arguments)


def _compare(opened: Warehouse, output: Path, arguments: argparse.Namespace) -> None:
    files = max(2, round(ORDERS.files_at_scale_1 * arguments.scale))
    tables = {kind: opened.table(kind, ORDERS, files, ORDERS.rows_per_file) for kind in ("plain", "equality", "position")}
    rows = files * ORDERS.rows_per_file
    for part in np.array_split(np.arange(3, rows, 10, dtype=np.int64), EQUALITY_FILES):
        tables["equality"].delete_by_equality(pa.table({"id": part}))
    tables["position"].delete_by_position("id % 10 = 3")
    megabytes = total_bytes(tables["plain"].files()) / MB
    print(f"{files} files, {megabytes:.0f} MB, {rows} rows, of which a tenth is deleted; {load_average()}")
    _share(tables, output, rows, arguments.rounds)
    if arguments.ours_only:
        return
    with own_session(output.parent) as engine:
        _beside_the_peer(engine, tables, output, rows, megabytes, arguments.rounds)


def _beside_the_peer(
    engine: OwnSession, tables: Mapping[str, GeneratedTable], output: Path, rows: int, megabytes: float, rounds: int
) -> None:
    runs: dict[str, Callable[[], object]] = {}
    for kind, table in tables.items():
        runs[f"iceberg {kind}"] = lambda table=table, snapshot=table.snapshot_id(): table.rewrite(snapshot)
        runs[f"ours {kind}"] = lambda kind=kind, table=table: _ours(engine, table, output, 0 if kind == "plain" else rows // 10)
    pids = dict.fromkeys((name for name in runs if name.startswith("ours")), engine.pid())
    costs = {name: median(each).cpu_seconds for name, each in alternating(runs, rounds, pids=pids).items()}
    for name, cpu in costs.items():
        print(f"{name:18} {megabytes / cpu:6.1f} MB per CPU-second")
    print(load_average())
    print(f"ratio {min(costs[f'iceberg {kind}'] / costs[f'ours {kind}'] for kind in ('equality', 'position')):.2f}")


def _share(tables: Mapping[str, GeneratedTable], output: Path, rows: int, rounds: int) -> None:
    """What deletes cost beside the same rows decoded and encoded without."""
    with patch.object(CopySource, "of", classmethod(lambda *_: None)):
        runs: dict[str, Callable[[], object]] = {
            kind: lambda kind=kind, table=table: _ours(InProcessMergeEngine(), table, output, 0 if kind == "plain" else rows // 10)
            for kind, table in tables.items()
        }
        costs = {kind: median(each).cpu_seconds for kind, each in alternating(runs, rounds).items()}
    for kind in ("equality", "position"):
        print(f"deletes by {kind} cost {100 * (costs[kind] / costs['plain'] - 1):.0f} % more CPU than none, all encoded (goal ≤ 15 %)")
    print(load_average())


def _ours(engine: MergeEngine, table: GeneratedTable, output: Path, deleted: int) -> None:
    results = merged(engine, table.tasks(), table.layout(output))
    found = sum(result.rows_deleted_by_equality + result.rows_deleted_by_position for result in results)
    if found != deleted:
        raise SystemExit(f"{found} rows were deleted, but {deleted} must be")
    shutil.rmtree(output, ignore_errors=True)


if __name__ == "__main__":
    main()
