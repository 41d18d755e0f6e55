"""Describes the files of a report by their footers. The worker's own description of what a footer tells is not looked at.

A footer proves that the manifest entry and the file agree. The worker wrote both, so a footer proves nothing about the rows. No library
in C++ sees the footer: PyArrow ends the whole process for some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from threading import Lock

from pyiceberg.schema import Schema

from compaction_pipeline.core.errors import MergeRefused, OutputUnusable, StorageUnavailable
from compaction_pipeline.core.storage_failures import StorageFailure, advice, needs_a_person, storage_failure
from compaction_pipeline.core.tables.data_file import OutputFile
from compaction_pipeline.core.words import printable
from compaction_pipeline.core.work.expected import expected_of
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.formats.file_io.local_files import Tail
from compaction_pipeline.formats.parquet.footer import MAGIC, Footer
from compaction_pipeline.formats.parquet.footer_metadata import FooterMetadata
from compaction_pipeline.formats.parquet.leaves import Leaf, leaves
from compaction_pipeline.formats.parquet.thrift import DamagedParquet, TooManyValues, field
from compaction_pipeline.merging.deletes.positions import POSITION_DELETE_SCHEMA
from compaction_pipeline.merging.keyed.change_columns import OFFSET_FIELD, TRANSACTION_FIELD
from compaction_pipeline.merging.reading.file_access import FileAccess
from compaction_pipeline.merging.reading.read import TableShape
from compaction_pipeline.merging.reported.footer_rules import FooterRules
from compaction_pipeline.merging.route import sort_column_ids, sort_order
from compaction_pipeline.merging.writing.metrics import MetricsModes, with_metrics
from compaction_pipeline.merging.writing.parquet_options import filters_of

MOST_FOOTER_BYTES = 16 * 1024 * 1024
"""A longer footer is refused unread. One of 1,000 columns and 4 row groups has 0.6 MB."""
MOST_FOOTER_VALUES = 2_000_000
"""A footer of more values is not read further. One of 1,000 columns and 4 row groups has 180,000.

A value of one byte takes a hundred in memory, so these may take 300 MB for a moment.
"""
_LARGE_BYTES = 512 * 1024
_LARGE = Lock()
"""One footer of more than `_LARGE_BYTES` is looked at, at a time, in the whole program: a server has many reports at once. More threads
would not be faster, because Python reads footers on one core."""
_AT_ONCE = 8
TRAILER = 8
"""The bytes behind a footer: its length, and the magic bytes."""


@dataclass(frozen=True)
class _Kind:
    """What all files of one content have in common: their columns, the rules for their footers, and which metrics are kept."""

    columns: list[Leaf]
    rules: FooterRules
    modes: MetricsModes


def describe(task: MergeInput[Work], result: MergeResult, file_io: Mapping[str, str]) -> MergeResult:
    """Return the result with what the footers of its files tell, in place of what the worker told of it.

    `task` has the layout with which the report was compared, and `file_io` opens the table's files. Raises MergeRefused when a file is not
    what the report says, OutputUnusable when one cannot be used for a reason that may not be the worker's fault, and StorageUnavailable
    when the storage does not answer.
    """
    if not result.outputs:
        return result
    files = FileAccess(file_io, task.layout.location, change_location=task.layout.kind.change_location)
    try:
        kind_of = _kinds(task)
    except Exception as error:
        # Somebody may have changed a property of the table to one that no file can have.
        raise OutputUnusable(f"its outputs cannot be compared with the table ({type(error).__name__}: {printable(str(error))})") from error
    # Each thread drops a footer before it reads the next one. All of them together may be large.
    pool = ThreadPoolExecutor(min(_AT_ONCE, len(result.outputs)), thread_name_prefix="footers")
    try:
        outputs = tuple(pool.map(lambda output: _described(output, files, kind_of(output)), result.outputs))
    finally:
        # After the first file that is refused, no other is read.
        pool.shutdown(cancel_futures=True)
        files.close()
    return replace(result, outputs=outputs)


def _kinds(task: MergeInput[Work]) -> Callable[[OutputFile], _Kind]:
    shape = TableShape.of(task.work.written_layout(task.layout))
    properties, known = shape.layout.properties, dict[bool, _Kind]()

    def made(is_data: bool) -> _Kind:
        schema = written_schema(task, is_data=is_data)
        columns = leaves(schema)
        if not is_data:
            modes = MetricsModes.of(schema, {"write.metadata.metrics.default": "full"})
            return _Kind(columns, FooterRules.of(schema, bloom_filters=False), modes)
        # The bounds of this column mark a merged change file, whatever the table says about metrics.
        marks = expected_of(task.work).columns.keys() & {TRANSACTION_FIELD.field_id}
        sorted_by = frozenset(marks) or sort_column_ids(sort_order(shape), schema)
        rules = FooterRules.of(schema, bloom_filters=bool(filters_of(properties, columns)))
        return _Kind(columns, rules, MetricsModes.of(schema, properties, sorted_by))

    # Both kinds are made before threads use them.
    known.update({is_data: made(is_data) for is_data in (True, False)})
    return lambda output: known[output.is_data]


def written_schema(task: MergeInput[Work], *, is_data: bool) -> Schema:
    """The schema of the files that a task writes: of its data files, or of its files of positions.

    Raises MergeFailed when the table no longer has the schema of the plan.
    """
    if not is_data:
        return POSITION_DELETE_SCHEMA
    schema = TableShape.of(task.work.written_layout(task.layout)).schema_of_plan(task.schema_id)
    columns = expected_of(task.work).columns
    added = [field for field in (OFFSET_FIELD, TRANSACTION_FIELD) if field.field_id in columns]
    return Schema(*schema.fields, *added, schema_id=schema.schema_id) if added else schema


def _described(output: OutputFile, files: FileAccess, kind: _Kind) -> OutputFile:
    if not 0 < output.footer_bytes <= MOST_FOOTER_BYTES:
        raise MergeRefused(f"the footer of file {output.path} is said to have {output.footer_bytes} bytes, of {MOST_FOOTER_BYTES} at most")
    with _LARGE if output.footer_bytes > _LARGE_BYTES else nullcontext():
        return _described_by_footer(output, files, kind)


def _described_by_footer(output: OutputFile, files: FileAccess, kind: _Kind) -> OutputFile:
    tail = _tail(output, files)
    if tail.size != output.file_size_bytes:
        raise MergeRefused(f"file {output.path} has {tail.size} bytes on storage, but is said to have {output.file_size_bytes}")
    end = tail.data[-TRAILER:]
    length = int.from_bytes(end[:4], "little")
    if len(tail.data) != output.footer_bytes + TRAILER or end[4:] != MAGIC or length != output.footer_bytes:
        raise MergeRefused(f"file {output.path} does not end with a Parquet footer of {output.footer_bytes} bytes")
    try:
        footer = Footer.of(tail.data[:-TRAILER], most_values=MOST_FOOTER_VALUES)
        problem = _problem(output, footer, kind)
        described = None if problem else _with_metrics(output, footer, kind)
    except TooManyValues as error:
        # An honest file may have very many columns and small row groups.
        raise OutputUnusable(
            f"the footer of its output {output.path} holds more than {MOST_FOOTER_VALUES} values: "
            "set 'write.parquet.row-group-size-bytes' of the table to a larger value, or 'self-optimizing.target-size' to a smaller one"
        ) from error
    except DamagedParquet as error:
        # The text stays as operators know it.
        problem, described = f"it cannot be read (ValueError: {error})", None
    except Exception as error:
        # A footer that no rule foresaw may raise anything, in any library that reads it.
        problem, described = f"it cannot be read ({type(error).__name__}: {error})", None
    if described is None:
        raise MergeRefused(f"the footer of file {output.path} is not one that this task writes: {printable(str(problem))}")
    return replace(described, version=tail.version)


def _tail(output: OutputFile, files: FileAccess) -> Tail:
    try:
        return files.tail(output.path, output.file_size_bytes, output.footer_bytes + TRAILER)
    except Exception as error:
        kind, why = storage_failure(error), printable(f"{type(error).__name__}: {error}")
        if kind is StorageFailure.PASSING:
            raise StorageUnavailable(f"the storage did not answer for file {output.path} ({why}); report again") from error
        hint = advice(kind) if needs_a_person(kind) else "it may have been removed, or replaced by something else"
        raise OutputUnusable(f"its output {output.path} cannot be opened: {hint} ({why})") from error


def _problem(output: OutputFile, footer: Footer, kind: _Kind) -> str | None:
    if footer.length != output.footer_bytes:
        return f"it ends after {footer.length} of its {output.footer_bytes} bytes"
    rows = sum(group.rows for group in footer.groups)
    if rows != output.record_count:
        return f"it counts {rows} rows, but the report {output.record_count}"
    problem = next(kind.rules.problems(footer, output.file_size_bytes - TRAILER - output.footer_bytes), None)
    return problem if problem is not None or output.is_data else _problem_of_paths(output, footer)


def _problem_of_paths(output: OutputFile, footer: Footer) -> str | None:
    """Why the statistics of the paths in a file of positions cannot be true. With other bounds a reader would leave out the row group, and
    the deleted rows would be back."""
    path = (output.referenced_data_file or "").encode()
    for group in footer.groups:
        statistics = field(group.chunks[0].meta, 12, {})
        if any(field(statistics, number, path) != path for number in (5, 6)):
            return f"row group {group.number}: its bounds of the paths are not {output.referenced_data_file}, whose positions it holds"
    return None


def _with_metrics(output: OutputFile, footer: Footer, kind: _Kind) -> OutputFile:
    counted = {leaf.field_id for leaf in kind.columns if kind.modes.by_id.get(leaf.field_id) is not None}
    nans = {number: count for number, count in output.nan_value_counts.items() if number in counted}
    return with_metrics(output.told(), FooterMetadata(footer), kind.columns, kind.modes, nans)
