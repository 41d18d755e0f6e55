"""Checks the report of a worker before it is believed. A worker on another host may be broken, or may be no friend.

What a report says must fit the task: its inputs, its deletes and the names of its files. One thing cannot be checked here: that the files
hold the rows that the proofs count. An optimizer is trusted that far.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from compaction_pipeline.core.queue.task import CompactionTask, MergeResult, TaskAction
from compaction_pipeline.core.tables.data_file import FileContent, OutputFile

REQUIRED = frozenset(
    {"task_id", "attempt_id", "outputs", "rows_read", "rows_deleted_by_position", "rows_deleted_by_equality", "rows_written"}
    | {"digest_read", "digest_written", "end_reason", "error"}
)
"""A report must have these fields, so that nothing that a worker left out counts as a success."""
_MOST = 2**63


def report_problem(task: CompactionTask, result: MergeResult, data_folder: str) -> str | None:
    """Return why the report of a merge cannot be true; None when nothing speaks against it.

    `data_folder` is the folder of the table's data files, without a slash at its end. A report of a failed attempt has no outputs. Its
    end reason and its sentence are believed, because they can only keep the task from being merged.
    """
    if result.task_id != task.task_id or result.attempt_id != task.current_attempt_id:
        return f"it is about task {result.task_id!r}, attempt {result.attempt_id!r}, but the attempt is {task.current_attempt_id!r}"
    if result.error is not None:
        return "it names files although the attempt failed" if result.outputs else None
    return next(_problems(task, result, data_folder), None)


def _problems(task: CompactionTask, result: MergeResult, data_folder: str) -> Iterator[str]:
    yield from _problems_of_rows(task, result)
    paths = [output.path for output in result.outputs]
    if len(set(paths)) != len(paths):
        yield "it names a file twice"
    if task.work.action is TaskAction.CONVERT:
        yield from _problems_of_positions(result.outputs, {file.path: file.record_count for file in task.work.inputs})
    elif task.work.changes is not None:
        marked = {file.path: file.record_count for file in task.work.inputs if file.path in task.work.changes.marked}
        yield from _problems_of_positions([each for each in result.outputs if each.content is not FileContent.DATA], marked)
    for output in result.outputs:
        yield from _problems_of_file(task, output, data_folder)


def _problems_of_rows(task: CompactionTask, result: MergeResult) -> Iterator[str]:
    by_position, by_equality = result.rows_deleted_by_position, result.rows_deleted_by_equality
    if min(result.rows_read, by_position, by_equality, result.rows_written, result.rows_kept) < 0:
        yield "a count of rows is negative"
    changes = task.work.changes
    planned = sum(file.record_count for file in task.work.inputs)
    # Of the inserts only those count that are in the span and in the node of the task.
    most = planned + (sum(file.record_count for file in changes.inserts) if changes is not None else 0)
    if not planned <= result.rows_read <= most:
        held = str(planned) if planned == most else f"{planned} to {most}"
        yield f"{result.rows_read} rows were read, but the data files of the task hold {held}"
    stay = sum(file.record_count for file in task.work.inputs if file.path in changes.marked) if changes is not None else 0
    if result.rows_kept > stay:
        yield f"{result.rows_kept} rows stay in their files, but the files that stay hold {stay}"
    rows_of = {kind: sum(file.record_count for file in task.work.deletes if file.content is kind) for kind in FileContent}
    if by_position > rows_of[FileContent.POSITION_DELETES]:
        yield f"{by_position} rows were deleted by position, but the task's position deletes name {rows_of[FileContent.POSITION_DELETES]}"
    by_changes = task.work.action is TaskAction.REWRITE_CHANGES or (changes is not None and changes.deletes)
    if by_equality and not rows_of[FileContent.EQUALITY_DELETES] and not by_changes:
        yield f"{by_equality} rows were deleted by equality, but the task has no equality delete"
    deleted = by_position + by_equality
    expected = deleted if task.work.action is TaskAction.CONVERT else result.rows_read - deleted - result.rows_kept
    if expected != result.rows_written:
        yield f"{result.rows_read} rows were read and {deleted} deleted: {expected} must be written, but {result.rows_written} were"
    if result.digest_written.rows != result.rows_written:
        yield f"{result.rows_written} rows were written, but the proof counts {result.digest_written.rows}"
    if result.digest_read != result.digest_written:
        yield "the rows that were written are not those that were read: their digests differ"
    listed = sum(output.record_count for output in result.outputs if changes is None or output.content is FileContent.DATA)
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


def _problems_of_file(task: CompactionTask, output: OutputFile, data_folder: str) -> Iterator[str]:
    name = output.path.rpartition("/")[2]
    converts = task.work.action is TaskAction.CONVERT
    contents = [FileContent.POSITION_DELETES] if converts else [FileContent.DATA]
    if task.work.changes is not None:
        contents.append(FileContent.POSITION_DELETES)
    if not output.path.startswith(f"{data_folder}/") or "/../" in output.path:
        yield f"file {output.path} does not lie below {data_folder}"
    if task.task_id not in name or task.current_attempt_id not in name:
        yield f"the name of file {output.path} does not hold the ids of the task and the attempt"
    if output.content not in contents:
        yield f"file {output.path} holds {output.content.value}, but this task writes {' and '.join(each.value for each in contents)}"
    specs = {file.spec_id for file in task.work.inputs} if converts else {task.work.output_spec_id}
    if output.spec_id not in specs:
        yield f"file {output.path} has partition spec {output.spec_id}, which this task does not write"
    if not (0 < output.file_size_bytes < _MOST and 0 < output.record_count < _MOST):
        yield f"file {output.path} has {output.file_size_bytes} bytes and {output.record_count} rows"
    counts = (output.column_sizes, output.value_counts, output.null_value_counts, output.nan_value_counts)
    if not all(_are_counts(each.values()) for each in (*counts, dict(enumerate(output.split_offsets)))):
        yield f"a count of file {output.path} is negative or larger than 2⁶³"
    if not all(_are_hex(each) for each in (output.lower_bounds, output.upper_bounds)):
        yield f"a bound of file {output.path} is not hexadecimal"


def _are_counts(values: Collection[int]) -> bool:
    return all(0 <= value < _MOST for value in values)


def _are_hex(bounds: Mapping[int, str]) -> bool:
    try:
        for bound in bounds.values():
            bytes.fromhex(bound)
    except ValueError:
        return False
    return True
