"""Writes the rows of a task as Parquet data files of about the target size, partition by partition, with their metrics.

Invariant: every row that is handed in is in exactly one file, and in the digest. The digest is taken when the row goes to the Parquet
writer; a batch that is unchanged since it was read keeps its digest. Field ids, compression and sizes are those of the table. A column is
dictionary-encoded only if at least half of the files that were merged encode it so. This makes a merge cheap, and so
does zstd level 1 if the table sets no level. (Only the writer that copies bytes chooses another level: `formats/parquet/levels.py`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import pyarrow as pa
import pyarrow.parquet as pq

from compaction_pipeline.core.tables.data_file import FileContent, OutputFile
from compaction_pipeline.core.tables.node import Partition
from compaction_pipeline.core.tables.output_names import FilePaths
from compaction_pipeline.merging.digest import RowDigest, SeenBatches
from compaction_pipeline.merging.memory import release_while_tight
from compaction_pipeline.merging.reading.file_access import FileAccess, in_words
from compaction_pipeline.merging.writing.file_format import FileFormat
from compaction_pipeline.merging.writing.metrics import NanCounter, footer_bytes, with_metrics
from compaction_pipeline.merging.writing.parquet_options import parquet_writer
from compaction_pipeline.merging.writing.sizing import FileEnds, FileSizing, Progress, rows_to_hold


class DataWriter:
    """Takes record batches of the output schema. `finish` gives the files."""

    def __init__(
        self,
        files: FileAccess,
        file_format: FileFormat,
        names: FilePaths,
        sizing: FileSizing,
        progress: Progress,
        spec_id: int,
        seen: SeenBatches | None = None,
    ) -> None:
        self.digest = RowDigest(seen)
        self.rows = 0
        self.sort_order_id: int | None = None
        self._files = files
        self.format = file_format
        self._names = names
        self.sizing = sizing
        self.progress = progress
        self._spec_id = spec_id
        self._partitions: dict[tuple[Partition, FilePaths], _PartitionWriter] = {}
        self._numbers = 0
        self.outputs: list[OutputFile] = []

    def write(self, partition: Partition, batch: pa.RecordBatch, names: FilePaths | None = None) -> None:
        """Put the rows into a file of this partition. Rows with other `names` go to other files; the writer's own names are the default."""
        place = (partition, names or self._names)
        writer = self._partitions.get(place)
        if writer is None:
            writer = self._partitions[place] = _PartitionWriter(self, *place)
        writer.add(batch)
        # All partitions share one buffer. When it is full, the partition with the most bytes writes its rows first.
        while sum(each.buffered_bytes for each in self._partitions.values()) > self.sizing.buffer:
            max(self._partitions.values(), key=lambda each: each.buffered_bytes).flush()

    def finish(self) -> tuple[OutputFile, ...]:
        """Close every file. Call once, at the end."""
        for writer in self._partitions.values():
            writer.close()
        return tuple(self.outputs)

    def abort(self) -> None:
        """Release open files without finishing them. The caller deletes what was written."""
        for writer in self._partitions.values():
            writer.abandon()

    def open_file(self, partition: Partition, names: FilePaths, schema: pa.Schema) -> _OpenOutput:
        path = names(partition, self._numbers)
        self._numbers += 1
        return _OpenOutput(self, self._files, path, partition, self._spec_id, schema)


class _PartitionWriter:
    """The rows of one partition, or of a tree node of it. They are buffered, written as row groups, and split into files of the target
    size."""

    def __init__(self, owner: DataWriter, partition: Partition, names: FilePaths) -> None:
        self._owner = owner
        self._partition = partition
        self._names = names
        self._buffer: list[pa.RecordBatch] = []
        self.buffered_bytes = 0
        self._buffered_rows = 0
        self._file: _OpenOutput | None = None
        self._ends = FileEnds(owner.sizing, owner.progress)

    def add(self, batch: pa.RecordBatch) -> None:
        while batch.num_rows:
            room = self._ends.cut(batch.num_rows, self._taken_bytes())
            if room is None:
                self._hold(batch)
                return
            self._hold(batch.slice(0, room))
            self.flush()
            if self._ends.is_full(self._taken_bytes()):
                self._roll()
            batch = batch.slice(room)

    def _hold(self, batch: pa.RecordBatch) -> None:
        limit = self._owner.sizing.held_bytes(self._owner.format.options.row_group_bytes)
        # A batch that is held whole keeps its digest. So a row group may end a little below its limit, to avoid cutting a batch.
        if batch.nbytes <= limit // 4 and self.buffered_bytes + batch.nbytes > limit:
            self.flush()
        while batch.num_rows:
            rows = rows_to_hold(batch.num_rows, batch.nbytes / batch.num_rows, limit - self.buffered_bytes)
            part = batch if rows == batch.num_rows else batch.slice(0, rows)
            self._buffer.append(part)
            self.buffered_bytes += part.nbytes
            self._buffered_rows += rows
            if self.buffered_bytes >= limit:
                self.flush()
            batch = batch.slice(rows)

    def _taken_bytes(self) -> float:
        written = self._file.position() if self._file is not None else 0
        return written + self._buffered_rows * self._ends.bytes_per_row

    def flush(self) -> None:
        """Write the held rows as one row group."""
        if not self._buffer:
            return
        table, parts = self._assembled(), self._buffer
        self._buffer, self.buffered_bytes, self._buffered_rows = [], 0, 0
        if self._file is None:
            self._file = self._owner.open_file(self._partition, self._names, table.schema)
        self._file.write(table)
        self._owner.digest.add_assembled(table, parts)
        self._owner.rows += table.num_rows
        self._ends.learn(self._file.position(), self._file.rows)
        # The allocator would keep the memory of the row group. If the task has little memory, it must give it back.
        release_while_tight()

    def _assembled(self) -> pa.Table:
        """The held batches as one table. If only some batches hold a column as dictionaries, the column is decoded."""
        columns, fields = [], []
        for index, field in enumerate(self._owner.format.arrow):
            begun_plain = self._file is not None and not pa.types.is_dictionary(self._file.schema.field(index).type)
            columns.append(rejoined([batch.column(index) for batch in self._buffer], field, plain=begun_plain))
            fields.append(field.with_type(columns[-1].type))
        table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
        # A column that began with dictionaries in this file goes on with them.
        return table if self._file is None or table.schema == self._file.schema else table.cast(self._file.schema)

    def _roll(self) -> None:
        if self._file is not None:
            self._owner.outputs.append(self._file.close())
            self._file = None

    def close(self) -> None:
        self.flush()
        self._roll()

    def abandon(self) -> None:
        if self._file is not None:
            self._file.abandon()
            self._file = None


class _OpenOutput:
    """A data file that is being written."""

    def __init__(self, owner: DataWriter, files: FileAccess, path: str, partition: Partition, spec_id: int, schema: pa.Schema) -> None:
        self.path = path
        self.schema = schema
        self.rows = 0
        self._owner = owner
        self._files = files
        self._partition = partition
        self._spec_id = spec_id
        self._nans = NanCounter(owner.format.schema, owner.format.modes)
        self._stack = ExitStack()
        self._stream = self._stack.enter_context(files.output(path))
        encoded = owner.progress.dictionary_columns()
        dictionaries = [leaf.parquet_path for leaf in owner.format.leaves if leaf.field_id in encoded]
        self._footers: list[pq.FileMetaData] = []
        with in_words(f"new file {path}", "cannot be written"):
            filters = {
                path: {"ndv": max(1, min(each.values, owner.progress.rows_expected)), "fpp": each.fpp}
                for path, each in owner.format.filters.items()
            }
            self._writer = parquet_writer(self._stream, schema, owner.format.options, dictionaries, self._footers, filters)

    def write(self, table: pa.Table) -> None:
        with in_words(f"new file {self.path}", "cannot be written"):
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self._nans.add(table)
        self.rows += table.num_rows

    def position(self) -> int:
        return int(self._stream.tell())

    def close(self) -> OutputFile:
        with in_words(f"new file {self.path}", "cannot be written"):
            self._writer.close()
            size = self.position()
            self._stack.close()
        output = OutputFile(
            path=self.path,
            content=FileContent.DATA,
            spec_id=self._spec_id,
            partition=self._partition,
            file_size_bytes=size,
            record_count=self.rows,
            sort_order_id=self._owner.sort_order_id,
            footer_bytes=footer_bytes(self._footers[0]),
        )
        return with_metrics(output, self._footers[0], self._owner.format.leaves, self._owner.format.modes, self._nans.counts)

    def abandon(self) -> None:
        # A writer that failed, for example because the disk is full, fails again when it is closed. The caller deletes the file anyway.
        for close in (self._writer.close, self._stack.close):
            try:
                close()
            except Exception:
                continue


def rejoined(arrays: Sequence[pa.Array], field: pa.Field, *, plain: bool = False) -> pa.Array:
    """Join arrays as the chunks of one column. They are decoded if only some of them are dictionaries, or with `plain`."""
    encoded = [pa.types.is_dictionary(array.type) for array in arrays]
    if all(encoded) and not plain:
        # The Parquet writer stops using a dictionary that changes within a row group, so all chunks get the same one.
        return pa.chunked_array(arrays).unify_dictionaries()
    decoded = [array.dictionary_decode() if is_encoded else array for array, is_encoded in zip(arrays, encoded, strict=True)]
    return pa.chunked_array(decoded, field.type)
