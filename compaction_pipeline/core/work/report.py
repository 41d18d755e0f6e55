"""Checks the report of a worker before it is believed. A worker on another host may be broken, or may be no friend.

What a report says must fit the task: its inputs, its deletes, the names of its files and the columns of the table. What the footers of its
files tell is not taken from the report (`merging/reported/`). That the files hold the rows that the proofs count cannot be checked here.
`docs/security.md` says what a worker can still do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.tables.columns import PATH_ID, primitive_columns
from compaction_pipeline.core.tables.data_file import FileContent, OutputFile
from compaction_pipeline.core.work.expected import Expected, expected_of
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.reported_metrics import (
    POSITION_DELETE_COLUMNS,
    problems_of_metrics,
)
from compaction_pipeline.core.work.reported_paths import Places, places_of
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Work

REQUIRED = frozenset(
    {"task_id", "attempt_id", "outputs", "rows_read", "rows_deleted_by_position", "rows_deleted_by_equality", "rows_written"}
    | {"digest_read", "digest_written", "end_reason", "error"}
)
"""A report must have these fields, so that nothing that a worker left out counts as a success."""
_MOST = 2**63
_LONGEST_MS = 366 * 24 * 3600 * 1000
"""No attempt may take a year. Durations are summed, and shown as times."""


def report_problem(task: MergeInput[Work], result: MergeResult) -> str | None:
    """Return why the report of a merge cannot be true; None when nothing speaks against it.

    A report of a failed attempt has no outputs.
    `core.queue.reported_ends` says which of its end reasons are believed. What the report says of metrics is not looked at.
    """
    if result.task_id != task.task_id or result.attempt_id != task.attempt_id:
        return f"it is about task {result.task_id!r}, attempt {result.attempt_id!r}, but the attempt is {task.attempt_id!r}"
    if result.error is not None:
        return "it names files although the attempt failed" if result.outputs else None
    try:
        return next(_problems(task, result), None)
    except (ArithmeticError, LookupError, TypeError, ValueError, CompactionError) as error:
        # A value that no rule foresaw is not believed.
        return f"it cannot be compared with the task ({type(error).__name__}: {error})"


def metrics_problem(task: MergeInput[Work], result: MergeResult) -> str | None:
    """Return why the metrics of a file, as its footer tells them, cannot be true; None when nothing speaks against them.

    `result` has passed `report_problem`.
    """
    try:
        return next(_problems_of_metrics(task, result), None)
    except (ArithmeticError, LookupError, TypeError, ValueError, CompactionError) as error:
        # A value that no rule foresaw is not believed.
        return f"its metrics cannot be compared with the task ({type(error).__name__}: {error})"


def _problems_of_metrics(task: MergeInput[Work], result: MergeResult) -> Iterator[str]:
    if not result.outputs:
        return
    schema = task.work.written_layout(task.layout).schemas[task.schema_id]
    columns = {**primitive_columns(schema), **expected_of(task.work).columns}
    for output in result.outputs:
        yield from problems_of_metrics(output, columns if output.is_data else POSITION_DELETE_COLUMNS)
        whole = (output.referenced_data_file or "").encode(errors="replace").hex()
        if not output.is_data and (output.lower_bounds.get(PATH_ID), output.upper_bounds.get(PATH_ID)) != (whole, whole):
            yield f"the bounds of the paths in file {output.path} are not {output.referenced_data_file}, whose positions it holds"


def _problems(task: MergeInput[Work], result: MergeResult) -> Iterator[str]:
    expected = expected_of(task.work)
    yield from _problems_of_figures(result)
    yield from _problems_of_rows(task, result, expected)
    paths = [output.path for output in result.outputs]
    if len(set(paths)) != len(paths):
        yield "it names a file twice"
    if expected.positions_of is not None:
        positions = [output for output in result.outputs if FileContent.DATA not in expected.contents or not output.is_data]
        yield from _problems_of_positions(positions, {file.path: file.record_count for file in expected.positions_of})
    if expected.keeps_kinds:
        yield from _problems_of_kinds(task, result.outputs)
    if task.schema_id not in task.work.written_layout(task.layout).schemas:
        yield f"the table no longer has schema {task.schema_id}, with which the task was planned"
        return
    places = places_of(task)
    for output in result.outputs:
        yield from _problems_of_file(output, places, expected)


def _problems_of_figures(result: MergeResult) -> Iterator[str]:
    digests = (result.digest_read, result.digest_written)
    deleted = (result.rows_deleted_by_position, result.rows_deleted_by_equality)
    if min(result.rows_read, *deleted, result.rows_written, result.rows_kept) < 0:
        yield "a count of rows is negative"
    figures = (result.duration_ms, result.peak_memory_bytes, *(getattr(each, name) for each in digests for name in ("sum_a", "sum_b")))
    if not (0 <= result.duration_ms < _LONGEST_MS and all(0 <= figure < 2 * _MOST for figure in figures)):
        yield f"its duration is {str(result.duration_ms)[:30]} ms, or its memory or a sum of its digests is no number of 64 bits"


def _problems_of_rows(task: MergeInput[Work], result: MergeResult, expected: Expected) -> Iterator[str]:
    by_position, by_equality = result.rows_deleted_by_position, result.rows_deleted_by_equality
    planned = sum(file.record_count for file in task.work.inputs)
    # Of the inserts only those count that are in the span and in the node of the task.
    most = planned + sum(file.record_count for file in expected.inserts)
    if not planned <= result.rows_read <= most:
        held = str(planned) if planned == most else f"{planned} to {most}"
        yield f"{result.rows_read} rows were read, but the data files of the task hold {held}"
    stay = sum(file.record_count for file in expected.kept)
    if result.rows_kept > stay:
        yield f"{result.rows_kept} rows stay in their files, but the files that stay hold {stay}"
    rows_of = {kind: sum(file.record_count for file in task.work.deletes if file.content is kind) for kind in FileContent}
    if by_position > rows_of[FileContent.POSITION_DELETES]:
        yield f"{by_position} rows were deleted by position, but the task's position deletes name {rows_of[FileContent.POSITION_DELETES]}"
    if by_equality and not rows_of[FileContent.EQUALITY_DELETES] and not expected.deletes_by_key:
        yield f"{by_equality} rows were deleted by equality, but the task has no equality delete"
    deleted = by_position + by_equality
    to_write = task.work.rows_to_write(result)
    if to_write != result.rows_written:
        yield f"{result.rows_read} rows were read and {deleted} deleted: {to_write} must be written, but {result.rows_written} were"
    if result.digest_written.rows != result.rows_written:
        yield f"{result.rows_written} rows were written, but the proof counts {result.digest_written.rows}"
    if result.digest_read != result.digest_written:
        yield "the rows that were written are not those that were read: their digests differ"
    listed = sum(output.record_count for output in task.work.counted(result.outputs))
    if listed != result.rows_written:
        yield f"its files hold {listed} rows, but {result.rows_written} were written"


def _problems_of_positions(outputs: Sequence[OutputFile], rows_of: Mapping[str, int]) -> Iterator[str]:
    """Each of these files holds positions of one data file, and each data file has at most one. `rows_of` are the rows of the data files
    that may have one."""
    targets = [output.referenced_data_file for output in outputs]
    if len(set(targets)) != len(targets):
        yield "two of its files hold positions of one data file"
    for output in outputs:
        rows = rows_of.get(output.referenced_data_file or "")
        if rows is None:
            yield f"file {output.path} holds positions of {output.referenced_data_file}, which the task does not keep"
        elif output.record_count > rows:
            yield f"file {output.path} holds {output.record_count} positions of a data file of fewer rows"


def _problems_of_kinds(task: MergeInput[Work], outputs: Sequence[OutputFile]) -> Iterator[str]:
    """Names alone tell inserts from deletes in a change store. A merge makes neither of the two, and the last delete of a key stays."""
    read, written = Counter[bool](), Counter[bool]()
    for file in task.work.inputs:
        read[task.work.holds_deletes(file)] += file.record_count
    for output in outputs:
        written[task.work.holds_deletes(output)] += output.record_count
    for deletes, kind in ((False, "inserts"), (True, "deletes")):
        if written[deletes] > read[deletes]:
            yield f"its files hold {written[deletes]} {kind}, but the change files of the task hold {read[deletes]}"
    if read[True] and not written[True]:
        yield "the task read deletes and wrote none, but the last delete of each key stays"


def _problems_of_file(output: OutputFile, places: Places, expected: Expected) -> Iterator[str]:
    if output.content not in expected.contents:
        words = " and ".join(each.value for each in expected.contents)
        yield f"file {output.path} holds {output.content.value}, but this task writes {words}"
        return
    if not (0 < output.file_size_bytes < _MOST and 0 < output.record_count < _MOST):
        yield f"file {output.path} has {output.file_size_bytes} bytes and {output.record_count} rows"
    yield from places.problems(output)
    if output.sort_order_id is not None and (not output.is_data or output.sort_order_id not in places.layout.sort_orders):
        yield f"file {output.path} is said to be sorted by order {output.sort_order_id}, by which this task does not sort it"
    if output.is_data and output.referenced_data_file is not None:
        yield f"file {output.path} holds rows, but is said to hold positions of {output.referenced_data_file}"
