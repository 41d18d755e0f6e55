"""Compares the rows of reported files with those that the task must write: the last line of defence (`verify-outputs` = `rows`).

The task is merged once more, into a folder of this host. The reported files must hold the same rows in the same order, place by place.
A place is a partition, and in a keyed table a node and a kind of file; positions of deleted rows have the place of their data file. So no
rule about a kind of task is written a second time. Then the statistics of each row group must be true of its rows, and the numbers of NaNs
too. It costs about as much as the merge.

A file of somebody else may bring a library down. So `verify_rows` runs in a process of its own (`merging/process.py`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema

from compaction_pipeline.core.errors import MergeDenied, MergeFailed, StoreBusy
from compaction_pipeline.core.tables.data_file import OutputFile
from compaction_pipeline.core.tables.keyed.file_names import parse_name
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.formats.parquet.footer import Footer
from compaction_pipeline.formats.parquet.footer_metadata import FooterMetadata
from compaction_pipeline.merging.kernel import merge_task
from compaction_pipeline.merging.reading.evolution import arrow_schema
from compaction_pipeline.merging.reading.file_access import FileAccess
from compaction_pipeline.merging.reported.describe import TRAILER, written_schema
from compaction_pipeline.merging.reported.row_groups import problem_of_statistics
from compaction_pipeline.merging.reported.same_values import same_values
from compaction_pipeline.merging.writing.metrics import MetricsModes, NanCounter

Place = tuple[object, ...]


class FalseRows(Exception):
    """A reported file does not hold what it must hold. The text says why, in words."""


def verify_rows(task: MergeInput[Work], result: MergeResult, file_io: Mapping[str, str]) -> str | None:
    """Return why the rows of a report cannot be those of its task; None when they are.

    `result` was described by the footers of its files. Raises MergeFailed when the task cannot be merged here, so that nobody can tell.
    """
    with tempfile.TemporaryDirectory(prefix="compaction-verify-") as folder:
        # What is merged here is compared by place and not by name, so the names may be those of the attempt.
        own = merge_task(replace(task, layout=task.layout.writing_to(f"file://{folder}")), file_io)
        if own.error is not None:
            raise MergeFailed(f"the task could not be merged a second time: {own.error}")
        files = FileAccess(file_io, task.layout.location, task.memory_bytes, task.layout.kind.change_location)
        try:
            _compare(task, result, own, files)
        except FalseRows as false:
            return str(false)
        except (StoreBusy, MergeDenied, MemoryError) as error:
            raise MergeFailed(f"its files could not be read: {error}") from error
        except Exception as error:
            # The files are somebody else's, so reading them may raise anything.
            return f"its files cannot be read ({type(error).__name__}: {error})"
        finally:
            files.close()
    return None


def _compare(task: MergeInput[Work], result: MergeResult, own: MergeResult, files: FileAccess) -> None:
    counts = ("rows_read", "rows_deleted_by_position", "rows_deleted_by_equality", "rows_written", "rows_kept")
    for name in counts:
        if getattr(result, name) != getattr(own, name):
            raise FalseRows(f"{name} is {getattr(result, name)}, but the same merge gives {getattr(own, name)}")
    reported, wanted = _by_place(result.outputs), _by_place(own.outputs)
    if reported.keys() != wanted.keys():
        odd = next(iter(reported.keys() ^ wanted.keys()))
        raise FalseRows(f"files for {odd} are {'missing' if odd in wanted else 'too many'}")
    for place, outputs in reported.items():
        orders = {output.sort_order_id for output in outputs}, {output.sort_order_id for output in wanted[place]}
        if orders[0] != orders[1]:
            raise FalseRows(f"files for {place} are said to be sorted by {orders[0]}, but the same merge sorts by {orders[1]}")
        schema = written_schema(task, is_data=outputs[0].is_data)
        _compare_rows(place, _Rows(outputs, files, schema, checked=True), _Rows(wanted[place], files, schema))


def _by_place(outputs: Sequence[OutputFile]) -> dict[Place, list[OutputFile]]:
    found: dict[Place, list[OutputFile]] = {}
    for output in outputs:
        named = parse_name(output.path)
        keyed = (named.type, named.node, named.transaction_id) if named is not None else ()
        partition = tuple((value.name, repr(value.value)) for value in output.partition)
        place = (output.content.value, output.spec_id, partition, *keyed, output.referenced_data_file)
        found.setdefault(place, []).append(output)
    return found


@dataclass
class _Rows:
    """The rows of some files, one file after the other. With `checked`, what the files say of their rows is compared with the rows."""

    outputs: Sequence[OutputFile]
    files: FileAccess
    schema: Schema
    checked: bool = False

    def tables(self) -> Iterator[pa.Table]:
        """The rows, one row group after the other."""
        # Also in columns of which the table keeps no metrics: a sort column has them all the same.
        modes = MetricsModes.of(self.schema, {"write.metadata.metrics.default": "counts"})
        for output in self.outputs:
            nans = NanCounter(self.schema, modes)
            described = self._described(output) if self.checked else None
            with self.files.parquet(output.path, output.file_size_bytes) as (parquet, _):
                for number in range(parquet.metadata.num_row_groups):
                    table = parquet.read_row_group(number, use_threads=False).cast(arrow_schema(self.schema.fields))
                    if described is not None:
                        # The manifest tells what we read of the footer, and readers believe what a library reads of it.
                        groups = [each.row_group(number) for each in (described, parquet.metadata)]
                        problem = problem_of_statistics(groups, table, self.schema)
                        if problem is not None:
                            raise FalseRows(f"row group {number} of file {output.path}: {problem}")
                        nans.add(table.combine_chunks())
                    yield table
            said = output.nan_value_counts
            wrong = [number for number, count in nans.counts.items() if said.get(number, count) != count]
            if self.checked and wrong:
                raise FalseRows(f"file {output.path} has another number of NaNs in column {wrong[0]} than was reported")

    def _described(self, output: OutputFile) -> FooterMetadata:
        """The footer of which the metrics of a reported file were made. Raises FalseRows when another file lies there now."""
        tail = self.files.tail(output.path, output.file_size_bytes, output.footer_bytes + TRAILER)
        if (tail.size, tail.version) != (output.file_size_bytes, output.version):
            raise FalseRows(f"file {output.path} was replaced after it was reported")
        return FooterMetadata(Footer.of(tail.data[:-TRAILER]))


def _compare_rows(place: Place, reported: _Rows, wanted: _Rows) -> None:
    left, right = _Stream(reported.tables()), _Stream(wanted.tables())
    row = 0
    while True:
        rows = min(left.waiting(), right.waiting())
        if not rows:
            break
        one, other = left.take(rows), right.take(rows)
        for index, field in enumerate(one.schema):
            if not same_values(_joined(one.column(index)), _joined(other.column(index))):
                raise FalseRows(f"column {field.name!r} of the files for {place} has other values in rows {row} to {row + rows - 1}")
        row += rows
    if left.waiting() or right.waiting():
        raise FalseRows(f"the files for {place} hold {'more' if left.waiting() else 'fewer'} than {row + right.waiting()} rows")


class _Stream:
    """Gives rows in the numbers that are asked for."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._tables = tables
        self._held: Any = None

    def waiting(self) -> int:
        """How many rows can be taken at once; 0 at the end."""
        while self._held is None or not self._held.num_rows:
            self._held = next(self._tables, None)
            if self._held is None:
                return 0
        return int(self._held.num_rows)

    def take(self, rows: int) -> pa.Table:
        taken, self._held = self._held.slice(0, rows), self._held.slice(rows)
        return taken


def _joined(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    return pa.concat_arrays(joined.chunks) if isinstance(joined, pa.ChunkedArray) else joined
