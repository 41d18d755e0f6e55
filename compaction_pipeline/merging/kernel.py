"""Carries out one MergeInput. It runs in a Python worker of Spark, or in this process.

- MERGE reads the inputs in the plan's schema, leaves out the rows that the task's deletes delete, and writes the rest as new files.
- CONVERT writes position-delete files for the rows that some of the deletes delete.
- DROP_DELETES reads and writes nothing.
- TO_BASE merges changes of a keyed table into its base store (`merging/keyed/to_base.py`).
- REWRITE_CHANGES merges change files of a keyed table with each other (`merging/keyed/rewrite_changes.py`).

The kernel checks its own laws before it answers (see `MergeResult`). A failure is a result whose `error` gives the reason; the files
that the attempt wrote are then deleted.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa
from pyiceberg.schema import Schema

from compaction_pipeline.core.errors import DigestMismatch, FileGone, MergeDenied, MergeFailed, MergeRefused, assert_never
from compaction_pipeline.core.tables.data_file import OutputFile
from compaction_pipeline.core.tables.output_names import FilePaths, OutputNames
from compaction_pipeline.core.tables.table import data_folder
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import Digest, MergeResult
from compaction_pipeline.core.work.work import Convert, DropDeletes, Merge, RewriteChanges, ToBase, Work
from compaction_pipeline.formats.parquet.footer import DamagedPages
from compaction_pipeline.merging.convert import convert_deletes
from compaction_pipeline.merging.copying.assemble import Assembler
from compaction_pipeline.merging.copying.merge import CopyMerge
from compaction_pipeline.merging.copying.proof import CopyProof
from compaction_pipeline.merging.copying.source import CopyLimits
from compaction_pipeline.merging.cpu import CpuTime
from compaction_pipeline.merging.deletes.deleted_rows import DeletedRows
from compaction_pipeline.merging.deletes.deletes import TaskDeletes
from compaction_pipeline.merging.deletes.shared_deletes import SharedDeletes
from compaction_pipeline.merging.digest import RowDigest, SeenBatches
from compaction_pipeline.merging.keyed.rewrite_changes import rewrite_changes
from compaction_pipeline.merging.keyed.to_base import merge_changes
from compaction_pipeline.merging.memory import PeakMemory, tight_allocation
from compaction_pipeline.merging.reading.file_access import FileAccess
from compaction_pipeline.merging.reading.patience import patiently
from compaction_pipeline.merging.reading.read import DataReader, TableShape
from compaction_pipeline.merging.route import RowRouter, common_partition
from compaction_pipeline.merging.writing.file_format import FileFormat
from compaction_pipeline.merging.writing.sizing import FileSizing, Progress
from compaction_pipeline.merging.writing.write import DataWriter

_END_REASONS: Mapping[type[MergeFailed], EndReason] = {
    MergeDenied: EndReason.NO_ACCESS,
    MergeRefused: EndReason.REFUSED,
    DigestMismatch: EndReason.DIGEST_MISMATCH,
    FileGone: EndReason.FILE_GONE,
}


def merge_task(
    task: MergeInput[Work],
    file_io: Mapping[str, str],
    shared: SharedDeletes | None = None,
    *,
    held: Mapping[str, bytes] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    canceled: Callable[[], bool] = lambda: False,
) -> MergeResult:
    """Do one attempt of a task. It never raises: a failure is a result with `error`.

    A busy store is tried again for a few minutes. Once `canceled` is true, the attempt ends before it opens its next file. `shared` holds
    delete files that earlier tasks of this process have read, and takes those that this task reads. Its bytes count as memory of this task.
    `held` has whole input files by path, which are not read from storage then.
    """
    started, cpu = time.monotonic(), CpuTime()
    shared = shared if shared is not None else SharedDeletes()
    before = shared.nbytes
    memory = PeakMemory()
    layout = task.layout
    files = FileAccess(file_io, layout.location, task.memory_bytes, layout.kind.change_location, canceled, held=held)
    try:
        with tight_allocation(task.memory_bytes):
            result = patiently(lambda: _merged(task, files, shared), files, sleep)
    except MergeFailed as failure:
        result = _failed(task, str(failure), _END_REASONS.get(type(failure), EndReason.FAILED))
    except MemoryError as error:
        records = sum(delete.record_count for delete in task.work.deletes)
        reason = f"out of memory; the task applies delete files with {records} records; raise the memory of the Spark worker ({error})"
        result = _failed(task, reason)
    except Exception as error:
        # This is the boundary to Spark. Any error fails this attempt alone, and its text must reach the attempt's record.
        result = _failed(task, f"{type(error).__name__}: {error}")
    if result.error is not None:
        files.delete_written()
        shared.clear()
    files.close()
    peak_bytes = before + memory.peak_bytes()
    # The next task must not count memory that Arrow keeps for this one.
    pa.default_memory_pool().release_unused()
    duration_ms = int((time.monotonic() - started) * 1000)
    return replace(result, duration_ms=duration_ms, peak_memory_bytes=peak_bytes, cpu_ms=cpu.used_ms(), overhead_cpu_ms=cpu.overhead_ms)


def _failed(task: MergeInput[Work], reason: str, end_reason: EndReason = EndReason.FAILED) -> MergeResult:
    return MergeResult(task.task_id, task.attempt_id, end_reason=end_reason, error=reason)


def _merged(task: MergeInput[Work], files: FileAccess, shared: SharedDeletes) -> MergeResult:
    work = task.work
    match work:
        case DropDeletes():
            return MergeResult(task.task_id, task.attempt_id)
        case Convert():
            result = convert_deletes(task.of(work), files, _names(task), shared)
        case ToBase():
            result = merge_changes(task.of(work), files, shared)
        case RewriteChanges():
            result = rewrite_changes(task.of(work), files)
        case Merge():
            result = _merge(task.of(work), files, _names(task).path, shared)
        case _:
            assert_never(work)
    return checked(result, work)


def _names(task: MergeInput[Work]) -> OutputNames:
    folder = data_folder(task.layout.location, task.layout.properties)
    # The suffix is random per execution: Spark may run a task twice, and only files named in the accepted result are used.
    return OutputNames(folder, f"{task.file_prefix}{secrets.token_hex(4)}")


def _merge(task: MergeInput[Merge], files: FileAccess, names: FilePaths, shared: SharedDeletes) -> MergeResult:
    try:
        return _merge_inputs(task, files, names, shared, copies=True)
    except DamagedPages:
        # Decode every row instead. This names the damaged file, or shows that only a checksum is wrong.
        files.delete_written()
        return _merge_inputs(task, files, names, shared, copies=False)


def _merge_inputs(task: MergeInput[Merge], files: FileAccess, names: FilePaths, shared: SharedDeletes, *, copies: bool) -> MergeResult:
    work, shape = task.work, TableShape.of(task.layout)
    schema = shape.schema_of_plan(task.schema_id)
    reader = DataReader(files, shape, task.memory_bytes)
    deletes = TaskDeletes(work.inputs, work.deletes, shape, reader, task.memory_bytes, shared)
    rows_expected = sum(file.record_count for file in work.inputs)
    progress = Progress(rows_expected, max(work.input_bytes / max(rows_expected, 1), 0.01))
    is_full = work.type is CompactionType.FULL
    # A FULL promises the order whatever its size. A MINOR or MAJOR sorts only what fits its memory.
    router = RowRouter(shape, schema, work.output_spec_id, common_partition(work), task.memory_bytes, promises_order=is_full)
    sizing = FileSizing(work.target_size_bytes, work.fragment_size_bytes, max(task.memory_bytes // 12, 1))
    # A bloom filter is made of values. A table that asks for one has its rows decoded and encoded; no bytes are copied.
    file_format = FileFormat.of(schema, shape.layout.properties, router.sort_column_ids)
    if router.passes_through and not file_format.filters and router.partition is not None:
        read = CopyProof()
        # Spark declares a column as required when its expression cannot be NULL, even if it is optional in the table. The bytes of such a
        # column can be copied only into a column that is required too.
        written = FileFormat.of(_with_required(schema, reader.never_null(work.inputs, schema)), shape.layout.properties)
        writer = Assembler(files, written, names, sizing, progress, (work.output_spec_id, router.partition), read)
        limits = CopyLimits.of(work.target_size_bytes, writer.limit_bytes) if copies else CopyLimits.nothing()
        merge = CopyMerge(reader, deletes, schema, progress, writer, read, limits)
        outputs = merge.merge(work.inputs)
        return _result(task, outputs, merge.rows_read, merge.deleted, read.value, writer.digest.value)
    seen = SeenBatches()
    rows = DataWriter(files, file_format, names, sizing, progress, work.output_spec_id, seen)
    return _merge_rows(task, reader, deletes, progress, router, rows, seen)


def _with_required(schema: Schema, ids: frozenset[int]) -> Schema:
    fields = [field.model_copy(update={"required": True}) if field.field_id in ids else field for field in schema.fields]
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)


def _merge_rows(
    task: MergeInput[Merge],
    reader: DataReader,
    deletes: TaskDeletes,
    progress: Progress,
    router: RowRouter,
    writer: DataWriter,
    seen: SeenBatches,
) -> MergeResult:
    """Merge row by row. Rows that are sorted, or that go to several partitions, need this."""
    read = RowDigest(seen)
    rows_read, gone = 0, DeletedRows()
    try:
        for file in task.work.inputs:
            with reader.open(file) as opened:
                progress.note_file(opened.dictionary_encoded)
                output = reader.projection(opened, file, writer.format.schema.fields)
                masks = deletes.of(file, opened)
                for position, batch in opened.batches([output, *masks.projections]):
                    projected = output.apply(batch)
                    positional, equal = masks.deleted(position, batch)
                    rows_read += batch.num_rows
                    deleted = gone.among(batch.num_rows, positional, equal)
                    keep = None if deleted is None else ~deleted
                    # The digest is taken before rows are filtered, assembled or sorted, so that it shows a mistake in each of these.
                    read.add(projected, keep)
                    progress.rows_seen += batch.num_rows
                    kept = projected if keep is None else projected.filter(pa.array(keep))
                    progress.rows_kept += kept.num_rows
                    if kept.num_rows:
                        router.add(kept, writer.write)
        writer.sort_order_id = router.sort_order_id
        router.finish(writer.write)
        outputs = writer.finish()
    except BaseException:
        writer.abort()
        raise
    finally:
        router.close()
    return _result(task, outputs, rows_read, gone, read.value, writer.digest.value)


def _result(
    task: MergeInput[Merge], outputs: tuple[OutputFile, ...], rows_read: int, deleted: DeletedRows, read: Digest, written: Digest
) -> MergeResult:
    rows = sum(output.record_count for output in outputs)
    by_position, by_equality = deleted.by_position, deleted.by_equality
    return MergeResult(task.task_id, task.attempt_id, outputs, rows_read, by_position, by_equality, rows, read, written)


def checked(result: MergeResult, work: Work) -> MergeResult:
    """The result itself, or a failed result if the output is not right: not exactly as many rows as the law of this work demands, or not
    the rows that were read."""
    expected = work.rows_to_write(result)
    if expected != result.rows_written or result.rows_written != result.digest_written.rows:
        counts = (
            f"{result.rows_read} rows read, {result.rows_deleted_by_position} deleted by position, "
            f"{result.rows_deleted_by_equality} by equality{f', {result.rows_kept} stay in their files' if result.rows_kept else ''}: "
            f"{expected} must be written, but {result.rows_written} were"
        )
        return replace(result, outputs=(), end_reason=EndReason.DIGEST_MISMATCH, error=f"{counts}; nothing of this attempt is used")
    if result.digest_read != result.digest_written:
        what = work.counted_in_words
        return replace(
            result,
            outputs=(),
            end_reason=EndReason.DIGEST_MISMATCH,
            error=f"{what} written are not {what} read: digest {result.digest_read} read, {result.digest_written} written; "
            "nothing of this attempt is used",
        )
    return result
