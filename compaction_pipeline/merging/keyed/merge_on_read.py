"""Reads the rows of one node of a keyed table, with all changes applied (Amoro: `MixedDeleteFilter`).

A delete counts for a row of the same key exactly when its LSN is greater. So an insert with the offset of its delete stays, which is how
writers log an update, and a delete in the transaction of a base file leaves the rows of this file.

The deletes of a node are held in memory. The rows stream through, batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import LongType, NestedField

from compaction_pipeline.core.errors import MergeRefused
from compaction_pipeline.core.queue.task import CompactionType, TaskAction, TaskWork
from compaction_pipeline.core.tables.keyed.merge_on_read import KeyedInput, NodeRead
from compaction_pipeline.merging.deletes.deletes import TaskDeletes
from compaction_pipeline.merging.deletes.keys import KeyColumns, KeySet, KeySetBuilder
from compaction_pipeline.merging.deletes.shared_deletes import SharedDeletes
from compaction_pipeline.merging.reading.evolution import arrow_schema, field_id
from compaction_pipeline.merging.reading.file_access import FileAccess
from compaction_pipeline.merging.reading.read import DataReader, OpenFile, TableShape

OFFSET_FIELD = NestedField(2147482645, "_file_offset", LongType(), required=False)
"""The offset of a row in its transaction. All change files have this column."""
TRANSACTION_FIELD = NestedField(2147482646, "_transaction_id", LongType(), required=False)
"""The transaction of a row. Only files that hold rows of several transactions have this column; else the file's name tells it."""


class KeyedReader:
    """Reads nodes of a keyed table, projected to `fields` of the base store's schema.

    `key` are the field ids of the primary key. `memory_bytes` is the limit for batches and buffers; the deletes of a node take memory
    beside it.
    """

    def __init__(
        self, files: FileAccess, base: TableShape, change: TableShape, key: Sequence[int], fields: Sequence[NestedField], memory_bytes: int
    ) -> None:
        self._base, self._change = DataReader(files, base, memory_bytes), DataReader(files, change, memory_bytes)
        self._base_shape = base
        self._key = KeyColumns.of(tuple(key), base)
        self._fields = tuple(fields)
        self._memory_bytes = memory_bytes
        self.schema = arrow_schema(self._fields)

    def batches(self, read: NodeRead) -> Iterator[Any]:
        """The living rows of a node, as record batches of `schema`. Raises MergeFailed for a file that cannot be read."""
        lsns = _Lsns(max((each.named.transaction_id for each in (*read.base, *read.inserts, *read.deletes)), default=0))
        self._change.expect(each.file for each in (*read.deletes, *read.inserts))
        deletes = self._deletes(read, lsns)
        yield from self._base_rows(read, deletes, lsns)
        for each in read.inserts:
            with self._change.open(each.file) as opened:
                columns = _ChangeColumns(self, opened, each, read.optimized, lsns)
                rows = self._change.projection(opened, each.file, self._fields)
                for _, batch in opened.batches([columns.projection, rows]):
                    keys, sequences, counts = columns.of(batch)
                    gone = deletes.matches(keys, batch.num_rows, sequences)
                    yield from _kept(rows.apply(batch), counts & ~gone)

    def _deletes(self, read: NodeRead, lsns: _Lsns) -> KeySet:
        """The deleted keys, each with its highest LSN."""
        builder = KeySetBuilder()
        for each in read.deletes:
            with self._change.open(each.file) as opened:
                columns = _ChangeColumns(self, opened, each, read.optimized, lsns)
                for _, batch in opened.batches([columns.projection]):
                    keys, sequences, counts = columns.of(batch)
                    if not counts.all():
                        keys, sequences = [key.filter(pa.array(counts)) for key in keys], sequences[counts]
                    builder.add(keys, sequences)
        return builder.build()

    def _base_rows(self, read: NodeRead, deletes: KeySet, lsns: _Lsns) -> Iterator[Any]:
        if not read.base:
            return
        inputs = tuple(each.file for each in read.base)
        work = TaskWork(read.node, CompactionType.FULL, TaskAction.MERGE, inputs, read.base_deletes, read.node.spec_id, 1, 1)
        own = TaskDeletes(work, self._base_shape, self._base, self._memory_bytes, SharedDeletes())
        for each in read.base:
            with self._base.open(each.file) as opened:
                masks = own.of(each.file, opened)
                keys = self._base.projection(opened, each.file, self._key.fields)
                rows = self._base.projection(opened, each.file, self._fields)
                for position, batch in opened.batches([keys, rows, *masks.projections]):
                    gone = deletes.matches(self._key.canonical(keys.arrays(batch)), batch.num_rows, lsns.last_of(each.named.transaction_id))
                    for mask in masks.deleted(position, batch):
                        gone = gone if mask is None else gone | mask
                    yield from _kept(rows.apply(batch), ~gone)

    def change_projection(self, opened: OpenFile, each: KeyedInput) -> Any:
        """The key columns of a change file, then its offset and transaction columns."""
        return self._change.projection(opened, each.file, [*self._key.fields, OFFSET_FIELD, TRANSACTION_FIELD])

    def canonical_key(self, arrays: Sequence[Any]) -> list[Any]:
        """The canonical form of the key columns."""
        return self._key.canonical(arrays)


class _ChangeColumns:
    """Tells key and LSN of each row of a change file, and which rows are not in the base store yet."""

    def __init__(self, reader: KeyedReader, opened: OpenFile, of: KeyedInput, optimized: int | None, lsns: _Lsns) -> None:
        self.projection = reader.change_projection(opened, of)
        self._canonical = reader.canonical_key
        self._named, self._path = of.named, of.file.path
        self._has_transactions = any(field_id(field) == TRANSACTION_FIELD.field_id for field in opened.schema)
        self._optimized = optimized
        self._lsns = lsns

    def of(self, batch: Any) -> tuple[list[Any], NDArray[np.int64], NDArray[np.bool_]]:
        """(Canonical keys, LSNs, whether each row counts) of a batch."""
        *key, offsets, transactions = self.projection.arrays(batch)
        counts = np.ones(batch.num_rows, dtype=bool)
        numbers = np.full(batch.num_rows, self._named.transaction_id, dtype=np.int64)
        if self._has_transactions:
            numbers = self._numbers(transactions, TRANSACTION_FIELD)
            if self._optimized is not None:
                counts = numbers > self._optimized
        return self._canonical(key), self._lsns.of(numbers, self._numbers(offsets, OFFSET_FIELD), self._path), counts

    def _numbers(self, array: Any, field: NestedField) -> NDArray[np.int64]:
        if array.null_count:
            raise MergeRefused(
                f"file {self._path} of the change store has rows without '{field.name}', so it is unknown which change came first; another "
                "program added the file. Roll the change store back, or write these rows again"
            )
        numbers: NDArray[np.int64] = array.to_numpy(zero_copy_only=False)
        return numbers


class _Lsns:
    """LSNs of one node as single numbers in the same order. A transaction takes the high bits and the offset the low ones."""

    def __init__(self, highest_transaction: int) -> None:
        self._shift = 63 - highest_transaction.bit_length()
        self._last = (1 << self._shift) - 1
        self._highest = highest_transaction

    def of(self, transactions: NDArray[np.int64], offsets: NDArray[np.int64], path: str) -> NDArray[np.int64]:
        if not len(offsets):
            return offsets
        if offsets.min() < 0 or offsets.max() >= self._last or transactions.min() < 0 or transactions.max() > self._highest:
            raise MergeRefused(
                f"file {path} of the change store has offsets from {offsets.min()} to {offsets.max()} and transactions from "
                f"{transactions.min()} to {transactions.max()}, but offsets must be in 0..{self._last - 1}, and transactions in "
                f"0..{self._highest}, which is the highest one that the names of the node's files tell"
            )
        lsns: NDArray[np.int64] = (transactions << self._shift) | offsets
        return lsns

    def last_of(self, transaction: int) -> int:
        """The LSN of base rows: after all changes of the transaction."""
        return transaction << self._shift | self._last


def _kept(batch: Any, mask: NDArray[np.bool_]) -> Iterator[Any]:
    if mask.all():
        if batch.num_rows:
            yield batch
    elif mask.any():
        yield batch.filter(pc.equal(pa.array(mask), True))
