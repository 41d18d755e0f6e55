"""Compares the CPU of our merge and of Iceberg's `rewrite_data_files`, with a tenth of the rows deleted by equality or by position.

    python benchmarks/deletes.py                          # 0.2, 0.8 and 2 GB, and 0.2 GB with 1,000 delete files
    python benchmarks/deletes.py --scales 0.4 --many 0    # 0.8 GB

Three tables hold the same rows: one has no deletes, one has equality deletes, one has position deletes. Each side has a warm Spark
session of its own: the peer's with the JVM's defaults, ours as the product starts it. The counted rounds alternate between both sides
and all tables. Each equality-delete file holds one range of keys, and each position-delete file belongs to one data file. One more case
has `--many` delete files, each of which reaches the whole table.

Our merge copies the bytes of rows that no delete touches. So a second measurement shows what the deletes alone cost: the same kernel runs
in this process and decodes and encodes every row, also in the table without deletes. The last line is `ratio <peer's CPU / ours>`, the
lowest over both kinds of deletes and all sizes.
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

from compaction_pipeline.core.work.merge_engine import MergeEngine
from compaction_pipeline.merging.copying.source import CopySource
from compaction_pipeline.merging.engine import InProcessMergeEngine

EQUALITY_FILES = 10
"""The number of delete files, as an upsert stream of ten commits leaves them."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scales", type=float, nargs="+", default=[0.1, 0.4, 1.0], help="sizes; 1 is at least 2 GB")
    parser.add_argument("--many", type=int, default=1_000, help="delete files of one more case of the first size; 0 leaves the case out")
    parser.add_argument("--rounds", type=positive, default=3, help="counted rounds")
    parser.add_argument("--ours-only", action="store_true", help="measure only what deletes cost us, without the peer")
    arguments = parser.parse_args()
    cases = [(scale, 0) for scale in arguments.scales] + ([(arguments.scales[0], arguments.many)] if arguments.many else [])
    ratios = []
    for scale, many in cases:
        with tempfile.TemporaryDirectory(prefix="deletes-benchmark-") as folder, warehouse(Path(folder)) as opened:
            ratios += _compare(opened, Path(folder) / "ours", scale, many, arguments)
    if ratios:
        print(f"ratio {min(ratios):.2f}")


def _compare(opened: Warehouse, output: Path, scale: float, many: int, arguments: argparse.Namespace) -> list[float]:
    files = max(2, round(ORDERS.files_at_scale_1 * scale))
    tables = {kind: opened.table(kind, ORDERS, files, ORDERS.rows_per_file) for kind in ("plain", "equality", "position")}
    rows = files * ORDERS.rows_per_file
    gone = np.arange(3, rows, 10, dtype=np.int64)
    if many:
        tables["equality"].delete_by_equality(*[pa.table({"id": gone[number::many]}) for number in range(many)])
        # In the order of their paths, the files hold consecutive ranges of rows.
        paths = np.array(sorted(file.path for file in tables["position"].files()))
        parts = [gone[number::many] for number in range(many)]
        places = [{"file_path": paths[part // ORDERS.rows_per_file], "pos": part % ORDERS.rows_per_file} for part in parts]
        tables["position"].delete_positions(*[pa.table(each) for each in places])
    else:
        tables["equality"].delete_by_equality(*[pa.table({"id": part}) for part in np.array_split(gone, EQUALITY_FILES)])
        tables["position"].delete_by_position("id % 10 = 3")
    megabytes = total_bytes(tables["plain"].files()) / MB
    deletes = f", {many} delete files of each kind" if many else ""
    print(f"{files} files, {megabytes:.0f} MB, {rows} rows, of which a tenth is deleted{deletes}; {load_average()}")
    _share(tables, output, rows, arguments.rounds)
    if arguments.ours_only:
        return []
    with own_session(output.parent) as engine:
        return _beside_the_peer(engine, tables, output, rows, megabytes, arguments.rounds)


def _beside_the_peer(
    engine: OwnSession, tables: Mapping[str, GeneratedTable], output: Path, rows: int, megabytes: float, rounds: int
) -> list[float]:
    runs: dict[str, Callable[[], object]] = {}
    for kind, table in tables.items():
        runs[f"iceberg {kind}"] = lambda table=table, snapshot=table.snapshot_id(): table.rewrite(snapshot)
        runs[f"ours {kind}"] = lambda kind=kind, table=table: _ours(engine, table, output, 0 if kind == "plain" else rows // 10)
    pids = dict.fromkeys((name for name in runs if name.startswith("ours")), engine.pid())
    costs = {name: median(each).cpu_seconds for name, each in alternating(runs, rounds, pids=pids).items()}
    for name, cpu in costs.items():
        print(f"{name:18} {megabytes / cpu:6.1f} MB per CPU-second")
    print(load_average())
    ratios = {kind: costs[f"iceberg {kind}"] / costs[f"ours {kind}"] for kind in tables}
    print("times the peer's throughput per CPU-second: " + ", ".join(f"{kind} {ratio:.1f}" for kind, ratio in ratios.items()))
    return [ratios["equality"], ratios["position"]]


def _share(tables: Mapping[str, GeneratedTable], output: Path, rows: int, rounds: int) -> None:
    """Print how much more CPU deletes cost, compared with decoding and encoding the same rows without deletes."""
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
