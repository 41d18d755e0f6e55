"""Writes changes of a keyed table as insert files and delete files, node by node (Amoro: `ChangeTaskWriter`).

Each change gets an offset: its place in the transaction. These rules keep the order of the changes of a key, whatever file they go to:

- Every insert, delete and row before an update gets the next offset.
- The row after an update gets the newest offset. So the delete of its row before does not delete it, and every later delete does.
- In an upsert table an insert is a delete of its key first, and so is a row after an update whose row before is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.schema import Schema

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.data_file import OutputFile
from compaction_pipeline.core.tables.keyed.changes import CHANGE_TYPE, ChangeKind
from compaction_pipeline.core.tables.keyed.file_names import KeyedFileNames, KeyedFileType
from compaction_pipeline.core.tables.keyed.partition_paths import PathField
from compaction_pipeline.core.tables.keyed.tree import DataTreeNode
from compaction_pipeline.core.tables.output_names import FilePaths
from compaction_pipeline.core.tables.table import data_folder
from compaction_pipeline.merging.deletes.keys import canonical
from compaction_pipeline.merging.keyed.change_columns import OFFSET_FIELD
from compaction_pipeline.merging.keyed.key_hashes import key_hashes
from compaction_pipeline.merging.keyed.node_names import KeyedPaths
from compaction_pipeline.merging.reading.evolution import arrow_field
from compaction_pipeline.merging.reading.file_access import FileAccess
from compaction_pipeline.merging.reading.read import TableShape
from compaction_pipeline.merging.route import PartitionSplit
from compaction_pipeline.merging.writing.file_format import FileFormat
from compaction_pipeline.merging.writing.sizing import FileSizing, Progress
from compaction_pipeline.merging.writing.write import DataWriter

_KINDS = [kind.value for kind in ChangeKind]
_INSERT, _DELETE, _BEFORE, _AFTER = range(4)
_BATCH_ROWS = 65_536


@dataclass(frozen=True)
class LoggedChanges:
    """Rows of files in the order of the log: which row of the input each one is, whether it is a delete, and its offset."""

    rows: NDArray[np.int64]
    deletes: NDArray[np.bool_]
    offsets: NDArray[np.int64]


def logged(kinds: pa.Array, keys: NDArray[np.int64], *, upsert: bool) -> LoggedChanges:
    """Turn changes into rows of files. `kinds` are texts of ChangeKind, and `keys` are numbers that are equal where the keys are.

    Raises ConfigError for a text that is no kind of change.
    """
    codes = _codes(kinds)
    fresh = codes == _INSERT
    fresh |= (codes == _AFTER) & ~_follows_before(codes, keys)
    twice = fresh & upsert
    counts = np.where(twice, 2, 1)
    rows = np.repeat(np.arange(len(codes)), counts)
    first = np.ones(len(rows), dtype=bool)
    first[np.cumsum(counts)[twice] - 1] = False
    deletes = np.isin(codes[rows], (_DELETE, _BEFORE)) | (twice[rows] & first)
    moves_on = deletes | fresh[rows]
    return LoggedChanges(rows, deletes, np.cumsum(moves_on).astype(np.int64))


def _codes(kinds: pa.Array) -> NDArray[np.int64]:
    encoded = kinds.dictionary_encode(null_encoding="encode")
    names = encoded.dictionary.to_pylist()
    unknown = [name for name in names if name not in _KINDS]
    if unknown:
        raise ConfigError(f"column {CHANGE_TYPE!r} has the value {unknown[0]!r} but must be one of {', '.join(_KINDS)}")
    known = np.array([_KINDS.index(name) for name in names], dtype=np.int64)
    return known[encoded.indices.to_numpy(zero_copy_only=False)] if names else np.empty(0, dtype=np.int64)


def _follows_before(codes: NDArray[np.int64], keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether the change before each one, among those of its key, is a row before an update."""
    order = np.argsort(keys, kind="stable")
    found = np.zeros(len(codes), dtype=bool)
    same_key = keys[order[1:]] == keys[order[:-1]]
    found[order[1:]] = same_key & (codes[order[:-1]] == _BEFORE)
    return found


def key_numbers(columns: Sequence[pa.Array], length: int) -> NDArray[np.int64]:
    """One number for each row. Two rows have the same number exactly when their keys are equal, as Java compares them."""
    numbers = np.zeros(length, dtype=np.int64)
    for column in columns:
        encoded = canonical(column).dictionary_encode(null_encoding="encode")
        numbers = numbers * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy(zero_copy_only=False)
        # The numbers are given anew, so that they stay small.
        numbers = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
    return numbers


@dataclass(frozen=True)
class StoreTarget:
    """A store of a keyed table that is written.

    `key` are the columns of the primary key in its order, and `placed_by` the top-level columns that decide about the partition.
    """

    shape: TableShape
    fields: tuple[PathField, ...]
    key: tuple[str, ...]
    placed_by: tuple[str, ...]
    buckets: int
    upsert: bool
    target_size_bytes: int

    @property
    def schema(self) -> Schema:
        return self.shape.schemas[self.shape.layout.schema_id]


def write_changes(
    target: StoreTarget, rows: pa.Table, kinds: pa.Array, files: FileAccess, names: KeyedFileNames, buffer_bytes: int
) -> list[OutputFile]:
    """Write a table of changes in the order of its rows. Returns the files; nothing is committed.

    `rows` has the columns of the target's schema. `names` are the writer's names of files. A file buffers about `buffer_bytes`.
    """
    key = [rows.column(name).combine_chunks() for name in target.key]
    # A row after an update that lies in another partition than its row before is an insert there.
    placing = [rows.column(name).combine_chunks() for name in target.placed_by if name not in target.key]
    log = logged(kinds, key_numbers([*key, *placing], rows.num_rows), upsert=target.upsert)
    types = [str(target.schema.find_field(name).field_type) for name in target.key]
    nodes = key_hashes(key, types, rows.num_rows) & (target.buckets - 1)
    paths = KeyedPaths(data_folder(target.shape.layout.location, target.shape.layout.properties), target.fields, names)
    split = PartitionSplit(target.shape.specs[target.shape.layout.default_spec_id], target.shape, target.schema)
    outputs: list[OutputFile] = []
    for kind, chosen in ((KeyedFileType.EQUALITY_DELETE, log.deletes), (KeyedFileType.INSERT, ~log.deletes)):
        for index in np.unique(nodes[log.rows[chosen]]).tolist():
            places = np.flatnonzero(chosen & (nodes[log.rows] == index))
            writer = _writer(target, files, paths.of(DataTreeNode(target.buckets - 1, index), kind), len(places), buffer_bytes)
            try:
                for batch in _batches(rows, log, places):
                    for partition, part in split.parts(batch):
                        writer.write(partition, part)
                outputs += writer.finish()
            except BaseException:
                writer.abort()
                raise
    return outputs


def _batches(rows: pa.Table, log: LoggedChanges, places: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(places), _BATCH_ROWS):
        part = places[start : start + _BATCH_ROWS]
        table = rows.take(pa.array(log.rows[part])).append_column(arrow_field(OFFSET_FIELD), pa.array(log.offsets[part]))
        yield from table.combine_chunks().to_batches()


def _writer(target: StoreTarget, files: FileAccess, names: FilePaths, rows: int, buffer_bytes: int) -> DataWriter:
    layout = target.shape.layout
    schema = Schema(*target.schema.fields, OFFSET_FIELD, schema_id=target.schema.schema_id)
    sizing = FileSizing(target.target_size_bytes, 0, buffer_bytes)
    file_format = FileFormat.of(schema, layout.properties)
    return DataWriter(files, file_format, names, sizing, Progress(rows, 16.0), layout.default_spec_id)
