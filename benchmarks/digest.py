"""Measures what the proof costs a merge, and checks that it catches a broken kernel.

    python benchmarks/digest.py                   # 115 MB of orders, merged in this process with and without the proof
    python benchmarks/digest.py --rows lineitem

The proof is the digest of decoded rows and the checksums of copied and encoded bytes. The same kernel merges the same files in the same
process, in turns with and without the proof. This is done in two ways: as the product merges, which copies bytes that no delete touches,
and with every row decoded and encoded. Before that, the kernel is broken on purpose in several ways. Each time the task must fail and
leave no file. The last line is `ratio <CPU with / CPU without>`, measured as the product merges.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
from generate import LINEITEM, ORDERS, merged, total_bytes, warehouse
from measure import MB, alternating, load_average, median, positive

from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.core.work.result import Digest
from compaction_pipeline.formats.parquet.chunks import Piece
from compaction_pipeline.formats.parquet.segments import Part, ReadRows, Segment
from compaction_pipeline.merging.copying import assemble, assembled_file, merge
from compaction_pipeline.merging.copying.assemble import Assembler
from compaction_pipeline.merging.copying.proof import CopyProof
from compaction_pipeline.merging.copying.source import CopySource
from compaction_pipeline.merging.engine import InProcessMergeEngine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", choices=["orders", "lineitem"], default="orders")
    parser.add_argument("--files", type=positive, default=22)
    parser.add_argument("--rounds", type=positive, default=7, help="counted rounds")
    arguments = parser.parse_args()
    kind = ORDERS if arguments.rows == "orders" else LINEITEM
    with tempfile.TemporaryDirectory(prefix="digest-benchmark-") as folder:
        with warehouse(Path(folder)) as opened:
            table = opened.table("digested", kind, arguments.files, kind.rows_per_file)
            tasks, layout = table.tasks(), table.layout(Path(folder) / "ours")
            print(f"{arguments.files} files of {arguments.rows}, {total_bytes(table.files()) / MB:.0f} MB; {load_average()}")
        _caught(tasks[:1], layout)
        with _encoding():
            _share("all encoded", tasks, layout, arguments.rounds)
        print(f"ratio {_share('as the product merges', tasks, layout, arguments.rounds):.3f}")


def _encoding() -> AbstractContextManager[object]:
    """Within the block nothing is copied. Every row is decoded and encoded."""
    return patch.object(CopySource, "of", classmethod(lambda *_: None))


def _share(name: str, tasks: Sequence[CompactionTask], layout: TableLayout, rounds: int) -> float:
    def run() -> None:
        merged(InProcessMergeEngine(), tasks, layout)
        shutil.rmtree(layout.properties["write.data.path"])

    def run_without() -> None:
        with _no_proof():
            run()

    costs = alternating({"with": run, "without": run_without}, rounds)
    # The least CPU of each side is shown too, because other work on the machine only adds to it.
    least = {side: min(cost.cpu_seconds for cost in each) for side, each in costs.items()}
    medians = {side: median(each).cpu_seconds for side, each in costs.items()}
    for kind, figures in (("least", least), ("median", medians)):
        share = 100 * (1 - figures["without"] / figures["with"])
        print(f"{name}, {kind}: {figures['with']:.2f} CPU-s with, {figures['without']:.2f} without: {share:.1f} % (goal ≤ 5 %)")
    print(load_average())
    return medians["with"] / medians["without"]


@contextmanager
def _no_proof() -> Iterator[None]:
    nothing = Digest(0, 0, 0)
    free: dict[str, Callable[..., object]] = {
        "handed_digest": lambda *_: nothing,
        "kept_rows": lambda batch, keep: batch.filter(pa.array(keep)),
        "part_of": lambda columns, batch, first, source: Part(columns, batch, ReadRows(batch, first)),
        "checksum": lambda *_: 0,
    }
    with ExitStack() as stack:
        # Both sides check the checksums of pages, because these show whether a source file is damaged.
        stack.enter_context(patch.object(CopyProof, "add_bytes", lambda *_: None))
        for module in (assemble, assembled_file, merge):
            for name, function in free.items():
                if hasattr(module, name):
                    stack.enter_context(patch.object(module, name, function))
        yield


def _dropped(part: Part) -> Part:
    return replace(part, batch=part.batch.slice(1))


def _doubled(part: Part) -> Part:
    # The doubled row replaces another one, so the number of rows stays right.
    return replace(part, batch=part.batch.take(pa.array([0, 0, *range(2, part.batch.num_rows)])))


def _swapped(part: Part) -> Part:
    batch = part.batch
    column = batch.column(0).take(pa.array([1, 0, *range(2, batch.num_rows)]))
    return replace(part, batch=batch.set_column(0, batch.schema.field(0), column))


def _swapped_bytes(piece: Piece) -> Piece:
    data = bytearray(piece.data)
    middle = len(data) // 2
    other = next(place for place in range(middle, len(data)) if data[place] != data[middle])
    data[middle], data[other] = data[other], data[middle]
    return replace(piece, data=memoryview(bytes(data)))


def _of_rows(change: Callable[[Part], Part]) -> Callable[[Segment], Segment]:
    def changed(segment: Segment) -> Segment:
        first, *rest = segment.parts
        part = change(first)
        return replace(segment, rows=segment.rows + part.batch.num_rows - first.batch.num_rows, parts=(part, *rest))

    return changed


def _of_bytes(segment: Segment) -> Segment:
    top, (piece, *rest) = max(segment.pieces.items(), key=lambda pair: len(pair[1][0].data))
    return replace(segment, pieces={**segment.pieces, top: (_swapped_bytes(piece), *rest)})


def _caught(tasks: Sequence[CompactionTask], layout: TableLayout) -> None:
    """Break the first segment on its way to the writer. The task must fail and leave no file."""
    for name, change in (("a dropped row", _dropped), ("a doubled row for another", _doubled), ("two swapped values", _swapped)):
        with _encoding():
            _fails(name, _of_rows(change), tasks, layout)
    _fails("two swapped bytes of a copied column", _of_bytes, tasks, layout)


def _fails(name: str, change: Callable[[Segment], Segment], tasks: Sequence[CompactionTask], layout: TableLayout) -> None:
    add, still_whole = Assembler.add, [True]

    def broken(self: Assembler, segment: Segment) -> None:
        add(self, change(segment) if still_whole and still_whole.pop() else segment)

    with patch.object(Assembler, "add", broken):
        (result,) = InProcessMergeEngine().merge([each.merge_input(layout) for each in tasks], {})
    files = list(Path(layout.properties["write.data.path"]).rglob("*.parquet"))
    if result.error is None or files or still_whole:
        raise SystemExit(f"{name} was not caught: {result}, files left: {files}")
    print(f"{name} is caught: {result.error[:90]}…")


if __name__ == "__main__":
    main()
