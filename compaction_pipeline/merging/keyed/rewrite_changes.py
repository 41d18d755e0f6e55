"""Merges change files of one tree node with each other: carries out one REWRITE_CHANGES task.

The outputs are change files again: inserts, and deletes. Each row keeps its own transaction and offset, in columns, so its place in the log
of changes (its LSN) stays what it was. A row is left out only when a row that stays outdoes it for every reader:

- Of the deletes of a key, the one with the greatest LSN stays. It deletes whatever the others delete. It is never left out because it has
  met its insert: it may also delete rows of a base file, or of a change file that is not part of the task.
- An insert is left out when a delete of its key in the task has a greater LSN. That delete stays, or a greater one does.
- In an upsert table, an insert is also left out when a later insert of its key is in the task. The writer of that later one has put a
  delete of the key before it, which may be in a file that is not part of the task. Inserts with one LSN all stay.

The last rule is seldom needed: the delete before an insert is mostly in the task too, and then leaves out what is older. So a first run
only looks whether it is there for each insert that stays. When it is not, what was written is thrown away, and a second run compares the
inserts with each other.

When the rows of the delete files fit into memory, they are read once. When only their keys do, they are read a second time to be written.
When the keys are too many for that, they are divided by their hash on local disk, and rows are marked part by part. The rows that stay are
the same in each of the three ways.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.schema import Schema

from compaction_pipeline.core.errors import MergeFailed, MergeRefused, TableRefused
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.core.tables.keyed.creation import was_created_upsert
from compaction_pipeline.core.tables.keyed.file_names import KeyedFileNames, KeyedFileType, change_file
from compaction_pipeline.core.tables.keyed.merge_on_read import KeyedInput
from compaction_pipeline.core.tables.keyed.partition_paths import path_fields
from compaction_pipeline.core.tables.table import data_folder
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import RewriteChanges
from compaction_pipeline.merging.deletes.deleted_rows import Mask
from compaction_pipeline.merging.deletes.deletes import ONE_PASS_SHARE
from compaction_pipeline.merging.deletes.keys import KeyColumns
from compaction_pipeline.merging.digest import RowDigest, SeenBatches
from compaction_pipeline.merging.keyed.change_columns import OFFSET_FIELD, TRANSACTION_FIELD, ChangeColumns, Lsns, Span
from compaction_pipeline.merging.keyed.node_deletes import HeldDeletes, MarkedDeletes, NodeDeletes
from compaction_pipeline.merging.keyed.node_names import KeyedPaths
from compaction_pipeline.merging.reading.evolution import arrow_schema
from compaction_pipeline.merging.reading.file_access import FileAccess
from compaction_pipeline.merging.reading.read import DataReader, TableShape
from compaction_pipeline.merging.writing.file_format import FileFormat
from compaction_pipeline.merging.writing.sizing import FileSizing, Progress
from compaction_pipeline.merging.writing.write import DataWriter

_KEY_SHARE = 0.6
"""Keys, and deletes that are held whole, get this share of the task's memory. The rest is for rows that are read and written."""
_MOST_PARTS = 4096


def rewrite_changes(task: MergeInput[RewriteChanges], files: FileAccess) -> MergeResult:
    """Carry out a REWRITE_CHANGES task. Its layout is that of the base store, and has the change store's.

    Rows that are left out count as deleted by equality. The kernel checks the laws of the result. Raises MergeFailed when the task does not
    fit the table or a file cannot be read, and MergeRefused for files that must not be merged.
    """
    try:
        return _Rewrite(task, files).run()
    except _DeletesElsewhere:
        files.delete_written()
        return _Rewrite(task, files, compares_inserts=True).run()


class _DeletesElsewhere(Exception):
    """The delete that an upsert table's writer puts before an insert is not part of the task."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of one file that were read together. `rows` are None when only the keys were read."""

    source: KeyedInput
    position: int
    keys: list[pa.Array]
    lsns: NDArray[np.int64]
    rows: pa.Table


class _Rewrite:
    """One execution of a task."""

    def __init__(self, task: MergeInput[RewriteChanges], files: FileAccess, *, compares_inserts: bool = False) -> None:
        work, keyed = task.work, task.layout.kind.of_task(f"task {task.task_id} merges change files")
        shape, layout = TableShape.of(keyed.change), keyed.change
        schema = shape.schema_of_plan(task.schema_id)
        inserts, deletes = _inputs_of(work)
        self._task, self._inserts, self._deletes = task, inserts, deletes
        self._upsert, self._compares_inserts = was_created_upsert(layout.properties), compares_inserts
        self._reader = DataReader(files, shape, task.memory_bytes)
        self._reader.expect(each.file for each in (*deletes, *inserts))
        self._key = KeyColumns.of(keyed.primary_key, shape)
        self._lsns = Lsns(max((each.named.transaction_id for each in (*inserts, *deletes)), default=0))
        self._key_bytes = int(task.memory_bytes * _KEY_SHARE * ONE_PASS_SHARE)
        written = Schema(*schema.fields, OFFSET_FIELD, TRANSACTION_FIELD, schema_id=schema.schema_id)
        self._fields, self._arrow = written.fields, arrow_schema(written.fields)
        self._seen = SeenBatches()
        self._read = RowDigest(self._seen)
        expected = sum(file.record_count for file in work.inputs)
        self._progress = Progress(expected, max(work.input_bytes / max(expected, 1), 0.01))
        paths = _paths(task, shape)
        self._names = {kind: paths.of(work.node.tree, kind) for kind in (KeyedFileType.INSERT, KeyedFileType.EQUALITY_DELETE)}
        # The bounds of this column mark the file for plans and readers, whatever the table says about metrics.
        file_format = FileFormat.of(written, layout.properties, frozenset({TRANSACTION_FIELD.field_id}))
        sizing = FileSizing(work.target_size_bytes, work.fragment_size_bytes, max(task.memory_bytes // 12, 1))
        of_inserts = self._names[KeyedFileType.INSERT]
        self._writer = DataWriter(files, file_format, of_inserts, sizing, self._progress, work.node.spec_id, self._seen)
        self._rows_read = self._rows_left_out = 0

    def run(self) -> MergeResult:
        try:
            self._write()
            outputs = self._writer.finish()
        except BaseException:
            self._writer.abort()
            raise
        return MergeResult(
            self._task.task_id,
            self._task.attempt_id,
            outputs,
            self._rows_read,
            rows_deleted_by_equality=self._rows_left_out,
            rows_written=sum(output.record_count for output in outputs),
            digest_read=self._read.value,
            digest_written=self._writer.digest.value,
        )

    def _write(self) -> None:
        held, deleted = self._found_deletes()
        for part in self._rows(self._deletes) if held is None else held:
            self._keep(part, deleted.of(part.source.file.path, part.position, part.keys, len(part.lsns), part.lsns))
        held = None
        # Deletes that were found part by part tell nothing beside what they were asked then.
        compares = self._upsert and (self._compares_inserts or not isinstance(deleted, HeldDeletes))
        outdone = self._found_newer_inserts() if compares else None
        for part in self._rows(self._inserts):
            place = part.source.file.path, part.position, part.keys, len(part.lsns), part.lsns
            gone = deleted.of(*place)
            if self._upsert and not compares and not _are_preceded(part, ~gone, deleted):
                raise _DeletesElsewhere
            self._keep(part, gone if outdone is None else gone | outdone.of(*place))

    def _keep(self, part: _Rows, gone: Mask) -> None:
        """Write the rows that are not gone. The digest is taken before they are filtered, so that it shows a mistake in that."""
        keep = ~gone if gone.any() else None
        self._read.add(part.rows, keep)
        self._rows_read += part.rows.num_rows
        self._rows_left_out += int(gone.sum())
        kept = part.rows if keep is None else part.rows.filter(pa.array(keep))
        self._progress.rows_seen += part.rows.num_rows
        self._progress.rows_kept += kept.num_rows
        if kept.num_rows:
            self._writer.write(self._task.work.node.partition, kept, self._names[part.source.named.type])

    # ---- what is outdone -----------------------------------------------------------------------------------------------

    def _found_deletes(self) -> tuple[list[_Rows] | None, NodeDeletes]:
        """(The rows of all delete files when they fit into memory, what tells which rows a delete of the task deletes)."""
        estimated = self._estimated(self._deletes)
        if estimated > self._key_bytes:
            return None, self._marked(self._deletes, (*self._deletes, *self._inserts), estimated)
        held = self._held_whole(self._key_bytes - estimated)
        return held, HeldDeletes(_keys_of(self._keys(self._deletes) if held is None else held))

    def _found_newer_inserts(self) -> NodeDeletes:
        """What tells which inserts have a later insert of their key in the task."""
        of_deletes, estimated = self._estimated(self._deletes), self._estimated(self._inserts)
        # The keys of the deletes are still in memory, unless they were too many for it.
        room = self._key_bytes - (of_deletes if of_deletes <= self._key_bytes else 0)
        if estimated > room:
            return self._marked(self._inserts, self._inserts, estimated)
        return HeldDeletes(_keys_of(self._keys(self._inserts)))

    def _estimated(self, sources: Iterable[KeyedInput]) -> int:
        return sum(self._key.estimated_bytes(each.file.record_count, each.file.file_size_bytes) for each in sources)

    def _held_whole(self, room: int) -> list[_Rows] | None:
        """The rows of all delete files; None when they take more than `room` bytes."""
        held: list[_Rows] = []
        for part in self._rows(self._deletes):
            room -= part.rows.nbytes
            if room < 0:
                return None
            held.append(part)
        return held

    def _marked(self, outdoing: Sequence[KeyedInput], among: Sequence[KeyedInput], estimated: int) -> NodeDeletes:
        # One half of the limit is for a part, and the other for what comes from disk.
        parts = min(-(-2 * estimated // max(self._key_bytes, 1)), _MOST_PARTS)
        records = {each.file.path: each.file.record_count for each in among}
        return MarkedDeletes(_keys_of(self._keys(outdoing)), parts, _places_of(self._keys, among), records, self._key_bytes // 4)

    # ---- reading -------------------------------------------------------------------------------------------------------

    def _keys(self, sources: Iterable[KeyedInput]) -> Iterator[_Rows]:
        """The keys and LSNs of all rows of these files."""
        return self._batches(sources, with_rows=False)

    def _rows(self, sources: Iterable[KeyedInput]) -> Iterator[_Rows]:
        """All rows of these files, each with its offset and its transaction."""
        return self._batches(sources, with_rows=True)

    def _batches(self, sources: Iterable[KeyedInput], *, with_rows: bool) -> Iterator[_Rows]:
        for source in sources:
            with self._reader.open(source.file) as opened:
                columns = ChangeColumns(self._reader, self._key, opened, source, Span(), self._lsns)
                rows = self._reader.projection(opened, source.file, self._fields)
                if with_rows:
                    self._progress.note_file(opened.dictionary_encoded)
                for position, batch in opened.batches([columns.projection, rows] if with_rows else [columns.projection]):
                    keys, lsns, _ = columns.of(batch)
                    yield _Rows(source, position, keys, lsns, self._with_transaction(rows.apply(batch), source) if with_rows else None)

    def _with_transaction(self, batch: pa.RecordBatch, source: KeyedInput) -> pa.RecordBatch:
        """The batch, in which each row tells its transaction. In a file that has no such column it is that of the file's name."""
        index = self._arrow.get_field_index(TRANSACTION_FIELD.name)
        if not batch.column(index).null_count:
            return batch
        transactions = pc.fill_null(batch.column(index), source.named.transaction_id)
        return pa.RecordBatch.from_arrays([*batch.columns[:index], transactions, *batch.columns[index + 1 :]], schema=batch.schema)


def _are_preceded(part: _Rows, stays: Mask, deleted: NodeDeletes) -> bool:
    """Whether each insert that stays has a delete of its key right before it in the log, or a later one.

    A writer gives the delete before an insert the offset before it, or its own offset when the two are an update.
    """
    keys, lsns = [key.filter(pa.array(stays)) for key in part.keys], part.lsns[stays]
    return bool(deleted.of(part.source.file.path, part.position, keys, len(lsns), lsns - 2).all())


def _keys_of(parts: Iterable[_Rows]) -> Iterator[tuple[list[pa.Array], NDArray[np.int64]]]:
    return ((part.keys, part.lsns) for part in parts if len(part.lsns))


def _places_of(
    keys: Callable[[Iterable[KeyedInput]], Iterator[_Rows]], sources: Sequence[KeyedInput]
) -> Callable[[], Iterator[tuple[str, int, list[pa.Array], int, NDArray[np.int64]]]]:
    return lambda: ((part.source.file.path, part.position, part.keys, len(part.lsns), part.lsns) for part in keys(sources))


def _paths(task: MergeInput[RewriteChanges], shape: TableShape) -> KeyedPaths:
    # Clean-up finds a file by the ids in its name. The suffix is random per execution, because Spark may run a task twice.
    operation = f"{task.file_prefix}{secrets.token_hex(4)}"
    layout, node = shape.layout, task.work.node
    fields = path_fields(layout.specs[node.spec_id], [value.type for value in node.partition])
    # The transaction 0 in a name means the data sequence number, so the file can be merged again.
    return KeyedPaths(data_folder(layout.location, layout.properties), fields, KeyedFileNames(0, 0, 0, operation))


def _inputs_of(work: RewriteChanges) -> tuple[tuple[KeyedInput, ...], tuple[KeyedInput, ...]]:
    """The (insert files, delete files) of the task, checked. A file in a wrong place would cost rows without an error."""
    twice = [path for path, count in Counter(file.path for file in work.inputs).items() if count > 1]
    if twice:
        raise MergeRefused(f"change file {twice[0]} is there twice, so its rows would appear twice")
    if work.output_spec_id != work.node.spec_id:
        raise MergeFailed("the task merges change files, but it also names other work; plan the node again")
    inserts: list[KeyedInput] = []
    deletes: list[KeyedInput] = []
    for file in work.inputs:
        try:
            named = change_file(file.path, file.data_sequence_number)
        except TableRefused as error:
            raise MergeRefused(str(error)) from error
        if file.content is not FileContent.DATA or named.type not in (KeyedFileType.INSERT, KeyedFileType.EQUALITY_DELETE):
            raise MergeRefused(f"file {file.path} is no file of changes by its name or content; find out who added it to the change store")
        if (file.spec_id, file.partition, named.node) != (work.node.spec_id, work.node.partition, work.node.tree):
            raise MergeFailed(
                f"change file {file.path} is of node {named.node.id} of partition {file.partition} of spec {file.spec_id}, but the task "
                f"merges files of {work.node}; plan the node again"
            )
        if named.transaction_id != file.data_sequence_number:
            raise MergeFailed(
                f"change file {file.path} is of transaction {named.transaction_id}, but its data sequence number is "
                f"{file.data_sequence_number}: readers skip it by the one and order its rows by the other, and a merged file has only one "
                "number for both; plan the node again"
            )
        (inserts if named.type is KeyedFileType.INSERT else deletes).append(KeyedInput(file, named))
    return tuple(inserts), tuple(deletes)
