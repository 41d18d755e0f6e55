"""Takes a table of rows as a person hands it in, and writes it as new base files of a keyed table, node by node."""

from __future__ import annotations

import pyarrow as pa

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.data_file import OutputFile
from compaction_pipeline.core.tables.keyed.file_names import KeyedFileNames, KeyedFileType
from compaction_pipeline.core.tables.keyed.tree import ROOT
from compaction_pipeline.core.tables.table import data_folder
from compaction_pipeline.merging.keyed.change_rows import ChangeWriterId, fitted_rows, repeated_key
from compaction_pipeline.merging.keyed.change_writer import StoreTarget
from compaction_pipeline.merging.keyed.node_names import KeyedPaths
from compaction_pipeline.merging.keyed.node_writer import NodeWriter
from compaction_pipeline.merging.reading.file_access import FileAccess
from compaction_pipeline.merging.route import PartitionSplit
from compaction_pipeline.merging.writing.file_format import FileFormat
from compaction_pipeline.merging.writing.sizing import FileSizing, Progress
from compaction_pipeline.merging.writing.write import DataWriter

_BUFFER_BYTES = 64 * 1024 * 1024
_BATCH_ROWS = 65_536


def base_rows(rows: pa.Table, target: StoreTarget) -> pa.Table:
    """The rows with exactly the columns of the table, in its types.

    Raises ConfigError for rows that do not fit the table, and in an upsert table for two rows of one key.
    """
    fitted = fitted_rows(rows, target)
    repeated = repeated_key(fitted, target.key) if target.upsert else None
    if repeated is not None:
        raise ConfigError(
            f"several rows have the key {repeated}, but in an upsert table at most one row of a key is live: leave one of them"
        )
    return fitted


def write_base_rows(
    target: StoreTarget, rows: pa.Table, files: FileAccess, writer: ChangeWriterId, transaction_id: int
) -> list[OutputFile]:
    """Write an Arrow table as base files of this transaction. Returns the files; nothing is committed. Raises as `base_rows` does."""
    fitted, layout = base_rows(rows, target), target.shape.layout
    names = KeyedFileNames(transaction_id, writer.number, writer.task_id, writer.operation_id)
    paths = KeyedPaths(data_folder(layout.location, layout.properties), target.fields, names)
    sizing = FileSizing(target.target_size_bytes, 0, _BUFFER_BYTES)
    file_format, of_base = FileFormat.of(target.schema, layout.properties), paths.of(ROOT, KeyedFileType.BASE)
    data = DataWriter(files, file_format, of_base, sizing, Progress(fitted.num_rows, 16.0), layout.default_spec_id)
    nodes = NodeWriter(
        data, paths, ROOT, target.buckets - 1, target.schema, [target.schema.find_field(name).field_id for name in target.key]
    )
    split = PartitionSplit(target.shape.specs[layout.default_spec_id], target.shape, target.schema)
    try:
        for batch in fitted.combine_chunks().to_batches(max_chunksize=_BATCH_ROWS):
            for partition, part in split.parts(batch):
                nodes.write(partition, part)
        return list(data.finish())
    except BaseException:
        data.abort()
        raise
