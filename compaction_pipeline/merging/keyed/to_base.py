"""Merges changes of a keyed table into its base store: carries out one TO_BASE task.

Which rows die. A change has a place in the log, its LSN: its transaction, then its offset in it. A row of a base file comes after all
changes of the transaction that the file's name tells. A row of a base file or of an insert dies exactly when a delete of its key in the
task's span has a greater LSN; this is what a reader finds (`merge_on_read`, which this module shares with it). Iceberg's own deletes of the
base store come first.

Where the rest goes. In a marked base file the rows that die now get position deletes, and the file stays. The new file of positions has
those of the older ones that the task names too, and takes their place: a reader opens one. Other older deletes stay, and a file without
a row that dies now keeps all that it has. Rows of the other base files, and the inserts, go to new base files of the nodes that their
keys lie in.

What the new files are called. All rows of a file get one LSN by its name: after all changes of the transaction there. The name tells the
highest transaction that the task applied, or the highest name of the base files that it rewrites when that is higher. So the rows of a base
file that was named 5 may now count as rows of transaction 12, and an insert of transaction 7 too. This is right because of two promises:

- Every delete up to the name that could reach these rows is in the task's span, and was applied. The plan gives all changes of the node
  above the optimized sequence and up to T, and every transaction up to T is lower than every one above T. So a delete that comes later has
  a higher transaction than the name, and kills these rows as it would have killed them in their old places.
- A name is never above T. Else a delete above T, which a reader still applies, might not beat the row. So the name of a file of several
  transactions, whose rows are cut at T, does not count: only its rows do.

One kind of transaction breaks the first promise: a late one, whose number is not above a T that was committed before it arrived. A reader
who applies it to the new base files finds its inserts, and its deletes do not reach the rows of files that are called by its number or a
higher one. When a task merges late changes alone, its names must not sink below those of the base files that it rewrites: a late delete
that is older than a base row would then reach it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from itertools import groupby

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from compaction_pipeline.core.errors import DigestMismatch, MergeFailed
from compaction_pipeline.core.tables.data_file import LiveFile, OutputFile
from compaction_pipeline.core.tables.keyed.file_names import KeyedFileNames, KeyedFileType
from compaction_pipeline.core.tables.keyed.partition_paths import path_fields
from compaction_pipeline.core.tables.table import data_folder
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import ToBase
from compaction_pipeline.merging.convert import PositionDeleteWriter, position_rows
from compaction_pipeline.merging.deletes.deleted_rows import DeletedRows, Mask
from compaction_pipeline.merging.deletes.shared_deletes import SharedDeletes
from compaction_pipeline.merging.digest import RowDigest, SeenBatches
from compaction_pipeline.merging.keyed.merge_on_read import KeyedBatch, KeyedReader, NodeRows
from compaction_pipeline.merging.keyed.node_names import KeyedPaths
from compaction_pipeline.merging.keyed.node_writer import NodeWriter
from compaction_pipeline.merging.keyed.to_base_inputs import ToBaseInputs, inputs_of
from compaction_pipeline.merging.reading.file_access import FileAccess
from compaction_pipeline.merging.reading.read import TableShape
from compaction_pipeline.merging.route import RowRouter
from compaction_pipeline.merging.writing.file_format import FileFormat
from compaction_pipeline.merging.writing.sizing import FileSizing, Progress
from compaction_pipeline.merging.writing.write import DataWriter

_DELETE_SHARE = 0.3
"""The deletes of the change store get this share of the task's memory, and Iceberg's own the same. The rest is for rows that are read,
sorted and written."""


def merge_changes(task: MergeInput[ToBase], files: FileAccess, shared: SharedDeletes) -> MergeResult:
    """Carry out a TO_BASE task. Its layout is that of the base store, and has the change store's.

    The kernel checks the laws of the result. Raises MergeFailed when the task does not fit the table or a file cannot be read, and
    DigestMismatch when a position delete was not written as it was found.
    """
    shape = TableShape.of(task.layout)
    inputs = inputs_of(task, shape)
    if not inputs.read.base and not inputs.read.inserts:
        # Without rows there is nothing that a delete could delete.
        return MergeResult(task.task_id, task.attempt_id)
    schema, memory = shape.schema_of_plan(task.schema_id), task.memory_bytes
    change, key, delete_bytes = TableShape.of(inputs.keyed.change), inputs.keyed.primary_key, int(memory * _DELETE_SHARE)
    reader = KeyedReader(files, shape, change, key, schema.fields, memory, delete_bytes)
    rows = NodeRows(reader, inputs.read, inputs.span, shared, keys_only=inputs.marked)
    transaction = _name_of_outputs(rows, inputs)
    return _Merge(task, shape, files, inputs, _paths(task, shape, transaction)).run(rows)


def _name_of_outputs(rows: NodeRows, inputs: ToBaseInputs) -> int:
    applied = rows.highest_transaction()
    transaction = max(inputs.name_floor, 0 if applied is None else applied)
    most = inputs.span.up_to
    if most is not None and transaction > most:
        raise MergeFailed(f"new base files would be called by the transaction {transaction}, which is above {most}; report this as a fault")
    return transaction


def _paths(task: MergeInput[ToBase], shape: TableShape, transaction: int) -> KeyedPaths:
    # Clean-up finds a file by the ids in its name. The suffix is random per execution, because Spark may run a task twice.
    operation = f"{task.file_prefix}{secrets.token_hex(4)}"
    layout, node = shape.layout, task.work.node
    fields = path_fields(layout.specs[node.spec_id], [value.type for value in node.partition])
    return KeyedPaths(data_folder(layout.location, layout.properties), fields, KeyedFileNames(transaction, 0, 0, operation))


class _Merge:
    """One execution of a task: what was read, and what is written."""

    def __init__(self, task: MergeInput[ToBase], shape: TableShape, files: FileAccess, inputs: ToBaseInputs, paths: KeyedPaths) -> None:
        work, schema = task.work, shape.schema_of_plan(task.schema_id)
        self._task, self._inputs, self._paths = task, inputs, paths
        rewritten = [each.file for each in (*inputs.read.base, *inputs.read.inserts) if each.file.path not in inputs.marked]
        expected = sum(file.record_count for file in rewritten)
        size = sum(file.file_size_bytes for file in rewritten)
        self._progress = Progress(expected, max(size / max(expected, 1), 0.01))
        self._seen = SeenBatches()
        self._read = RowDigest(self._seen)
        is_full = work.type is CompactionType.FULL
        self._router = RowRouter(shape, schema, work.output_spec_id, work.node.partition, task.memory_bytes, promises_order=is_full)
        file_format = FileFormat.of(schema, shape.layout.properties, self._router.sort_column_ids)
        of_base = paths.of(work.node.tree, KeyedFileType.BASE)
        sizing = FileSizing(work.target_size_bytes, work.fragment_size_bytes, max(task.memory_bytes // 12, 1))
        self._writer = DataWriter(files, file_format, of_base, sizing, self._progress, work.output_spec_id, self._seen)
        self._nodes = NodeWriter(self._writer, paths, work.node.tree, inputs.mask, schema, inputs.keyed.primary_key)
        self._positions = PositionDeleteWriter(files, shape.layout.properties)
        self._position_files: list[OutputFile] = []
        self._matched = RowDigest()
        self._gone = DeletedRows()
        self._converted = {delete.referenced_data_file for delete in work.deletes if delete.path in work.converts}
        self._rows_read = self._rows_kept = 0
        # Rows of marked files that die now, counted once from the deletes and once from the position deletes that were written.
        self._died = self._newly_marked = 0

    def run(self, rows: NodeRows) -> MergeResult:
        try:
            for path, parts in groupby(rows.batches(), lambda part: part.source.file.path):
                if path in self._inputs.marked:
                    self._mark(parts)
                else:
                    self._rewrite(parts)
            self._writer.sort_order_id = self._router.sort_order_id
            self._router.finish(self._nodes.write)
            outputs = self._writer.finish()
        except BaseException:
            self._writer.abort()
            raise
        finally:
            self._router.close()
        if self._matched.value != self._positions.digest.value:
            raise DigestMismatch(
                f"the positions written are not the positions found: digest {self._matched.value} found, {self._positions.digest.value} "
                "written; nothing of this attempt is used"
            )
        if self._died != self._newly_marked:
            raise DigestMismatch(
                f"{self._died} rows of base files that stay die now, but new position deletes hold {self._newly_marked} of them; nothing "
                "of this attempt is used"
            )
        return MergeResult(
            self._task.task_id,
            self._task.attempt_id,
            (*outputs, *self._position_files),
            self._rows_read,
            self._gone.by_position,
            self._gone.by_equality,
            sum(output.record_count for output in outputs),
            self._read.value,
            self._writer.digest.value,
            rows_kept=self._rows_kept,
        )

    def _rewrite(self, parts: Iterable[KeyedBatch]) -> None:
        """Send the living rows of a file to new base files."""
        opened = None
        for part in parts:
            if opened is not part.opened:
                opened = part.opened
                self._progress.note_file(opened.dictionary_encoded)
            deleted = self._deleted(part)
            gone = _either(deleted, part.outside)
            keep = None if gone is None or not gone.any() else ~gone
            # The digest is taken before rows are filtered, sorted or sent to nodes, so that it shows a mistake in each of these.
            self._read.add(part.rows, keep)
            self._progress.rows_seen += part.length
            kept = part.rows if keep is None else part.rows.filter(pa.array(keep))
            self._progress.rows_kept += kept.num_rows
            if kept.num_rows:
                self._router.add(kept, self._nodes.write)

    def _mark(self, parts: Iterable[KeyedBatch]) -> None:
        """Write position deletes for the rows of a file that die now, and again for those that a position delete in `converts` deletes."""
        found: list[NDArray[np.int64]] = []
        data: LiveFile | None = None
        dies, repeated = False, 0
        for part in parts:
            data, node = part.source.file, part.source.named.node
            deleted = self._deleted(part)
            self._rows_kept += part.length - _count(deleted)
            before = _either(part.positional, part.equal)
            self._died += _count(deleted) - _count(before)
            dying = part.by_key if before is None else part.by_key & ~before
            dies |= bool(dying.any())
            if data.path in self._converted:
                dying = dying if part.positional is None else dying | part.positional
                repeated += _count(part.positional)
            if dying.any():
                found.append(np.flatnonzero(dying).astype(np.int64) + part.position)
        if data is None or not dies:
            return
        for positions in found:
            self._matched.add(position_rows(data.path, positions))
        path = self._paths.next(data.partition, node, KeyedFileType.POSITION_DELETE)
        self._position_files.append(self._positions.write(path, data, np.concatenate(found)))
        self._newly_marked += self._position_files[-1].record_count - repeated

    def _deleted(self, part: KeyedBatch) -> Mask | None:
        """The deleted rows of a batch, counted. Rows that do not count are not counted."""
        outside = 0 if part.outside is None else int(part.outside.sum())
        self._rows_read += part.length - outside
        by_key = part.by_key if part.outside is None or not outside else part.by_key & ~part.outside
        return self._gone.among(part.length, part.positional, _either(part.equal, by_key if by_key.any() else None))


def _count(mask: Mask | None) -> int:
    return 0 if mask is None else int(mask.sum())


def _either(one: Mask | None, other: Mask | None) -> Mask | None:
    if one is None or other is None:
        return other if one is None else one
    return one | other
