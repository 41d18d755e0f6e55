"""Conversion: deletes become one position-delete file for each data file, and the data files stay.

Invariant: the positions in a new file are the rows of its data file that a converted delete deletes, each once, in ascending order.
A data file without such rows gets no delete file.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from compaction_pipeline.core.tables.data_file import FileContent, LiveFile, OutputFile
from compaction_pipeline.core.tables.output_names import OutputNames
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Convert
from compaction_pipeline.formats.parquet.leaves import leaves
from compaction_pipeline.merging.deletes.deleted_rows import DeletedRows
from compaction_pipeline.merging.deletes.deletes import TaskDeletes
from compaction_pipeline.merging.deletes.positions import PATH_FIELD, POSITION_DELETE_SCHEMA
from compaction_pipeline.merging.deletes.shared_deletes import SharedDeletes
from compaction_pipeline.merging.digest import RowDigest
from compaction_pipeline.merging.reading.evolution import arrow_schema
from compaction_pipeline.merging.reading.file_access import FileAccess, in_words
from compaction_pipeline.merging.reading.read import DataReader, TableShape
from compaction_pipeline.merging.writing.metrics import MetricsModes, footer_bytes, with_metrics
from compaction_pipeline.merging.writing.parquet_options import ParquetOptions, parquet_writer

_ARROW = arrow_schema(POSITION_DELETE_SCHEMA.fields)
_ROWS_PER_GROUP = 1_000_000


class PositionDeleteWriter:
    """Writes position-delete files."""

    def __init__(self, files: FileAccess, properties: Mapping[str, str]) -> None:
        self._files = files
        self._options = ParquetOptions.of(properties, deletes=True)
        # The bounds are whole, whatever the table's metrics modes say: readers recognise the referenced
        # data file when both path bounds are equal.
        self._modes = MetricsModes.of(POSITION_DELETE_SCHEMA, {"write.metadata.metrics.default": "full"})
        self.digest = RowDigest()
        self.rows = 0

    def write(self, path: str, data: LiveFile, positions: NDArray[np.int64]) -> OutputFile:
        """Write one file at `path` that deletes these rows of the data file. `positions` are ascending and not empty.

        The new file has the partition spec and the partition of the data file.
        """
        footers: list[pq.FileMetaData] = []
        with self._files.output(path) as stream, in_words(f"new file {path}", "cannot be written"):
            writer = parquet_writer(stream, _ARROW, self._options, [PATH_FIELD.name], footers)
            for start in range(0, len(positions), _ROWS_PER_GROUP):
                rows = positions[start : start + _ROWS_PER_GROUP]
                table = pa.table([pa.repeat(pa.scalar(data.path, pa.string()), len(rows)), pa.array(rows, pa.int64())], schema=_ARROW)
                writer.write_table(table, row_group_size=len(rows))
                self.digest.add(table)
                self.rows += len(rows)
            writer.close()
            size = int(stream.tell())
        output = OutputFile(
            path=path,
            content=FileContent.POSITION_DELETES,
            spec_id=data.spec_id,
            partition=data.partition,
            file_size_bytes=size,
            record_count=len(positions),
            referenced_data_file=data.path,
            footer_bytes=footer_bytes(footers[0]),
        )
        return with_metrics(output, footers[0], leaves(POSITION_DELETE_SCHEMA), self._modes, {})


def position_rows(path: str, positions: NDArray[np.int64]) -> pa.RecordBatch:
    """The rows of a position-delete file that delete these rows of a data file, as a record batch."""
    paths = pa.repeat(pa.scalar(path, pa.string()), len(positions))
    return pa.RecordBatch.from_arrays([paths, pa.array(positions, pa.int64())], schema=_ARROW)


def convert_deletes(task: MergeInput[Convert], files: FileAccess, names: OutputNames, shared: SharedDeletes) -> MergeResult:
    """Convert the delete files that `work.converts` names.

    The digests and `rows_written` of the result are of positions. `rows_read` counts rows of the data files.
    """
    work, shape = task.work, TableShape.of(task.layout)
    reader = DataReader(files, shape, task.memory_bytes)
    paths = frozenset(work.converts)
    converted = [delete for delete in work.deletes if delete.path in paths]
    deletes = TaskDeletes(work.inputs, converted, shape, reader, task.memory_bytes, shared)
    writer = PositionDeleteWriter(files, shape.layout.properties)
    matched = RowDigest()
    outputs: list[OutputFile] = []
    rows_read, gone = 0, DeletedRows()
    for file in work.inputs:
        with reader.open(file) as opened:
            masks = deletes.of(file, opened)
            found: list[NDArray[np.int64]] = []
            for position, batch in opened.batches(masks.projections):
                positional, equal = masks.deleted(position, batch)
                rows_read += batch.num_rows
                deleted = gone.among(batch.num_rows, positional, equal)
                if deleted is not None:
                    found.append(np.flatnonzero(deleted).astype(np.int64) + position)
            for positions in found:
                matched.add(position_rows(file.path, positions))
        if found:
            path = names.path(file.partition, len(outputs), "-deletes")
            outputs.append(writer.write(path, file, np.concatenate(found)))
    return MergeResult(
        task.task_id,
        task.attempt_id,
        tuple(outputs),
        rows_read,
        gone.by_position,
        gone.by_equality,
        sum(output.record_count for output in outputs),
        matched.value,
        writer.digest.value,
    )
