"""Checks the report of a worker before it is believed. A worker on another host may be broken, or may be no friend."""

from __future__ import annotations

from collections.abc import Iterator

from compaction_pipeline.core.queue.task import CompactionTask, MergeResult, TaskAction
from compaction_pipeline.core.tables.data_file import FileContent, OutputFile


def report_problem(task: CompactionTask, result: MergeResult, data_folder: str) -> str | None:
    """Return why the report of a merge cannot be true; None when nothing speaks against it.

    `data_folder` is the folder of the table's data files, without a slash at its end. A report of a failed attempt has no outputs, and
    nothing in it is believed but that it failed.
    """
    if result.task_id != task.task_id or result.attempt_id != task.current_attempt_id:
        return f"it is about task {result.task_id!r}, attempt {result.attempt_id!r}, but the attempt is {task.current_attempt_id!r}"
    if result.error is not None:
        return "it names files although the attempt failed" if result.outputs else None
    return next(_problems(task, result, data_folder), None)


def _problems(task: CompactionTask, result: MergeResult, data_folder: str) -> Iterator[str]:
    deleted = result.rows_deleted_by_position + result.rows_deleted_by_equality
    converts = task.work.action is TaskAction.CONVERT
    if min(result.rows_read, result.rows_deleted_by_position, result.rows_deleted_by_equality, result.rows_written) < 0:
        yield "a count of rows is negative"
    expected = deleted if converts else result.rows_read - deleted
    if expected != result.rows_written:
        yield f"{result.rows_read} rows were read and {deleted} deleted: {expected} must be written, but {result.rows_written} were"
    if result.digest_written.rows != result.rows_written:
        yield f"{result.rows_written} rows were written, but the proof counts {result.digest_written.rows}"
    if result.digest_read != result.digest_written:
        yield "the rows that were written are not those that were read: their digests differ"
    listed = sum(output.record_count for output in result.outputs)
    if listed != result.rows_written:
        yield f"its files hold {listed} rows, but {result.rows_written} were written"
    paths = [output.path for output in result.outputs]
    if len(set(paths)) != len(paths):
        yield "it names a file twice"
    content = FileContent.POSITION_DELETES if converts else FileContent.DATA
    for output in result.outputs:
        yield from _problems_of_file(task, output, content, data_folder)


def _problems_of_file(task: CompactionTask, output: OutputFile, content: FileContent, data_folder: str) -> Iterator[str]:
    name = output.path.rpartition("/")[2]
    if not output.path.startswith(f"{data_folder}/") or "/../" in output.path:
        yield f"file {output.path} does not lie below {data_folder}"
    if task.task_id not in name or task.current_attempt_id not in name:
        yield f"the name of file {output.path} does not hold the ids of the task and the attempt"
    if output.content is not content:
        yield f"file {output.path} holds {output.content.value}, but this task writes {content.value}"
    if output.spec_id != task.work.output_spec_id:
        yield f"file {output.path} has partition spec {output.spec_id}, but this task writes spec {task.work.output_spec_id}"
    if output.file_size_bytes <= 0 or output.record_count <= 0:
        yield f"file {output.path} has {output.file_size_bytes} bytes and {output.record_count} rows"
