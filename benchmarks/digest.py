"""What the digest costs a merge, and that it catches a broken kernel.

    python benchmarks/digest.py                   # 120 MB of orders, merged in this process with and without the digest
    python benchmarks/digest.py --rows lineitem

Both sides are the same kernel in the same process on the same files, alternating; without: rows are counted, not hashed. Then the
kernel is broken on purpose: each time the digest must fail the task. The last line is `ratio <CPU with / CPU without>`.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from generate import LINEITEM, ORDERS, merged, total_bytes, warehouse
from measure import MB, alternating, load_average, median

from compaction_pipeline.core.model.table import TableLayout
from compaction_pipeline.core.model.task import CompactionTask, Digest
from compaction_pipeline.spark.digest import RowDigest
from compaction_pipeline.spark.merge import InProcessMergeEngine
from compaction_pipeline.spark.write import DataWriter

GOAL = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", choices=["orders", "lineitem"], default="orders")
    parser.add_argument("--files", type=int, default=22)
    parser.add_argument("--rounds", type=int, default=7, help="counted rounds")
    arguments = parser.parse_args()
    kind = ORDERS if arguments.rows == "orders" else LINEITEM
    with tempfile.TemporaryDirectory(prefix="digest-benchmark-") as folder:
        with warehouse(Path(folder)) as opened:
            table = opened.table("digested", kind, arguments.files, kind.rows_per_file)
            tasks, layout = table.tasks(), table.layout(Path(folder) / "ours")
            print(f"{arguments.files} files of {arguments.rows}, {total_bytes(table.files()) / MB:.0f} MB; {load_average()}")
        _caught(tasks[:1], layout)
        _share(tasks, layout, arguments.rounds)


def _share(tasks: Sequence[CompactionTask], layout: TableLayout, rounds: int) -> None:
    def run() -> None:
        merged(InProcessMergeEngine(), tasks, layout)
        shutil.rmtree(layout.properties["write.data.path"])

    def run_without() -> None:
        with _counting_only():
            run()

    costs = alternating({"with": run, "without": run_without}, rounds)
    # The least of each: what is above it is the rest of the machine's doing.
    least = {name: min(cost.cpu_seconds for cost in each) for name, each in costs.items()}
    medians = {name: median(each).cpu_seconds for name, each in costs.items()}
    for name, figures in (("least", least), ("median", medians)):
        share = 1 - figures["without"] / figures["with"]
        print(f"{name}: {figures['with']:.2f} CPU-s with, {figures['without']:.2f} without: the digest is {100 * share:.1f} % (goal ≤ 5 %)")
    print(load_average())
    print(f"ratio {medians['with'] / medians['without']:.3f}")


@contextmanager
def _counting_only() -> Iterator[None]:
    def add(self: RowDigest, batch: Any, keep: Any = None) -> None:
        self._sum(Digest(batch.num_rows if keep is None else int(keep.sum()), 0, 0))

    def add_assembled(self: RowDigest, table: Any, parts: Sequence[Any]) -> None:
        self._sum(Digest(table.num_rows, 0, 0))

    with patch.object(RowDigest, "add", add), patch.object(RowDigest, "add_assembled", add_assembled):
        yield


def _dropped(batch: Any) -> list[Any]:
    return [batch.slice(1)]


def _doubled(batch: Any) -> list[Any]:
    # In the place of another one: the number of rows stays right.
    return [batch.slice(1), batch.slice(batch.num_rows - 1)]


def _swapped(batch: Any) -> list[Any]:
    last = batch.num_columns - 1
    column = batch.column(last).take(pa.array([1, 0, *range(2, batch.num_rows)]))
    return [batch.set_column(last, batch.schema.field(last), column)]


def _caught(tasks: Sequence[CompactionTask], layout: TableLayout) -> None:
    """Break the first batch on its way to the writer; the task must fail and leave no file."""
    for name, breakage in (("a dropped row", _dropped), ("a doubled row for another", _doubled), ("two swapped values", _swapped)):
        with patch.object(DataWriter, "write", _broken_once(breakage)):
            (result,) = InProcessMergeEngine().merge(tasks, layout, {})
        files = list(Path(layout.properties["write.data.path"]).rglob("*.parquet"))
        if not result.digest_mismatch or files:
            raise SystemExit(f"{name} was not caught: {result}, files left: {files}")
        print(f"caught: {name}")


def _broken_once(breakage: Callable[[Any], list[Any]]) -> Callable[[DataWriter, Any, Any], None]:
    write = DataWriter.write
    still_whole = [True]

    def broken(self: DataWriter, place: Any, batch: Any) -> None:
        for part in breakage(batch) if still_whole and still_whole.pop() else [batch]:
            write(self, place, part)

    return broken


if __name__ == "__main__":
    main()
