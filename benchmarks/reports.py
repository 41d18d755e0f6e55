"""What it costs a server to look at the files of a report before it believes the report.

A report of many files is judged: the footer of each file is read from an S3 (s3proxy) behind a proxy that counts, and that delays each
request by 30 ms. The peer asks for each file by a HEAD request, also eight at a time. That is the least that can be asked, and says nothing
about the files. CPU is that of one process, on local disk, for files of 4 row groups.

The last line is the time of our judging, divided by that of the peer.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
from measure import load_average, positive
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType
from real_services import fault_proxy, s3_server

from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.data_file import FileContent, OutputFile
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.merging.reading.evolution import arrow_schema
from compaction_pipeline.merging.reading.file_access import FileAccess
from compaction_pipeline.merging.reported.describe import describe
from compaction_pipeline.merging.writing.metrics import footer_bytes
from compaction_pipeline.merging.writing.parquet_options import ParquetOptions, parquet_writer
from compaction_pipeline_tests.merging.files import Table

FILES, COLUMNS, GROUPS, LATENCY = 1_000, 10, 4, 0.03
BUCKET = "lakehouse"
_KINDS: tuple[Any, ...] = (LongType(), StringType(), DoubleType())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=positive, default=FILES, help="number of files of the report")
    arguments = parser.parse_args()
    print(load_average())
    with tempfile.TemporaryDirectory(prefix="reports-") as name, s3_server(Path(name)) as s3, fault_proxy(s3.port) as proxy:
        for columns in (10, 100, 1_000):
            case = _Case(Path(name) / str(columns), columns)
            output = case.write(f"{name}/{columns}.parquet", {})
            cpu = _cpu_seconds(lambda case=case, output=output: case.judge([output], {}))
            print(f"{columns:5} columns: a footer of {output.footer_bytes / 1e3:6.1f} kB, {1000 * cpu:6.1f} ms of CPU")
        case = _Case(Path(name) / "many", COLUMNS)
        output = case.write(f"s3://{BUCKET}/many/0.parquet", s3.properties(None))
        outputs = [output] * arguments.files
        proxy.latency_seconds = LATENCY
        file_io = s3.properties(proxy.port)
        case.judge(outputs[:8], file_io)
        proxy.forget()
        ours = _seconds(lambda: case.judge(outputs, file_io))
        counted = Counter(request.method for request in proxy.requests())
        heads = _seconds(lambda: _heads(outputs, file_io))
        print(f"ours   {ours:6.2f} s for {arguments.files} files, {dict(counted)}")
        print(f"HEADs  {heads:6.2f} s")
        print(f"ratio {ours / heads:.2f}")


class _Case:
    """A table with so many columns."""

    def __init__(self, folder: Path, columns: int) -> None:
        folder.mkdir()
        self._schema = Schema(*(NestedField(number, f"c{number}", _KINDS[number % 3]) for number in range(1, columns + 1)))
        table = Table(folder, [self._schema])
        self._task: CompactionTask = table.task()
        self._layout: TableLayout = table.layout()

    def write(self, path: str, file_io: dict[str, str]) -> OutputFile:
        arrow, footers = arrow_schema(self._schema.fields), list[Any]()
        values = {0: pa.array(range(100), pa.int64()), 1: pa.array([f"text {each}" for each in range(100)]), 2: pa.array([0.5] * 100)}
        rows = pa.table([values[number % 3] for number in range(1, len(arrow) + 1)], schema=arrow)
        with FileAccess(file_io, path).output(path) as stream:
            writer = parquet_writer(stream, arrow, ParquetOptions.of({}), [], footers)
            for _ in range(GROUPS):
                writer.write_table(rows)
            writer.close()
            size = int(stream.tell())
        return OutputFile(path, FileContent.DATA, 0, (), size, 100 * GROUPS, footer_bytes=footer_bytes(footers[0]))

    def judge(self, outputs: list[OutputFile], file_io: dict[str, str]) -> None:
        result = MergeResult(self._task.task_id, self._task.current_attempt_id, tuple(outputs))
        described = describe(self._task.merge_input(self._layout), result, file_io)
        if not all(output.value_counts for output in described.outputs):
            raise SystemExit("a footer told nothing")


def _heads(outputs: list[OutputFile], file_io: dict[str, str]) -> None:
    io = FileAccess(file_io, outputs[0].path).io
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda output: len(io.new_input(output.path)), outputs))


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _cpu_seconds(work: Callable[[], object]) -> float:
    """The least of seven runs: the others were disturbed."""
    found = []
    for _ in range(7):
        started = time.process_time()
        work()
        found.append(time.process_time() - started)
    return min(found)


if __name__ == "__main__":
    main()
