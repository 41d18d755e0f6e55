"""Reads the rows of one node of a keyed table, with all changes applied (Amoro: `MixedDeleteFilter`).

A delete counts for a row of the same key exactly when its LSN is greater. So an insert with the offset of its delete stays, which is how
writers log an update, and a delete in the transaction of a base file leaves the rows of this file.

The rows stream through, batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import NestedField

from compaction_pipeline.core.queue.task import CompactionType, TaskAction, TaskWork
from compaction_pipeline.core.tables.keyed.merge_on_read import NodeRead
from compaction_pipeline.merging.deletes.deletes import ONE_PASS_SHARE, TaskDeletes
from compaction_pipeline.merging.deletes.keys import KeyColumns
from compaction_pipeline.merging.deletes.shared_deletes import SharedDeletes
from compaction_pipeline.merging.keyed.change_columns import ChangeColumns, Lsns
from compaction_pipeline.merging.keyed.node_deletes import HeldDeletes, MarkedDeletes, NodeDeletes
from compaction_pipeline.merging.reading.evolution import arrow_schema
from compaction_pipeline.merging.reading.file_access import FileAccess
from compaction_pipeline.merging.reading.read import DataReader, TableShape


class KeyedReader:
    """Reads nodes of a keyed table, projected to `fields` of the base store's schema.

    `key` are the field ids of the primary key. `memory_bytes` is the limit for batches and buffers, and `delete_bytes` that for the deletes
    of a node: more of them are kept on local disk.
    """

    def __init__(
        self,
        files: FileAccess,
        base: TableShape,
        change: TableShape,
        key: Sequence[int],
        fields: Sequence[NestedField],
        memory_bytes: int,
        delete_bytes: int,
    ) -> None:
        self._base, self._change = DataReader(files, base, memory_bytes), DataReader(files, change, memory_bytes)
        self._base_shape = base
        self._key = KeyColumns.of(tuple(key), base)
        self._fields = tuple(fields)
        self._memory_bytes, self._delete_bytes = memory_bytes, delete_bytes
        self.schema = arrow_schema(self._fields)

    def batches(self, read: NodeRead) -> Iterator[Any]:
        """The living rows of a node, as record batches of `schema`. Raises MergeFailed for a file that cannot be read."""
        self._change.expect(each.file for each in (*read.deletes, *read.inserts))
        lsns = Lsns(max((each.named.transaction_id for each in (*read.base, *read.inserts, *read.deletes)), default=0))
        deletes = self._deletes(read, lsns)
        yield from self._base_rows(read, deletes, lsns)
        yield from self._inserted_rows(read, deletes, lsns)

    def _deletes(self, read: NodeRead, lsns: Lsns) -> NodeDeletes:
        deletes = self._deleted_keys(read, lsns)
        limit = int(self._delete_bytes * ONE_PASS_SHARE)
        estimated = sum(self._key.estimated_bytes(each.file.record_count, each.file.file_size_bytes) for each in read.deletes)
        if estimated <= limit:
            return HeldDeletes(deletes)
        records = {each.file.path: each.file.record_count for each in (*read.base, *read.inserts)}
        # One half of the limit is for a part, and the other for what comes from disk.
        parts = -(-2 * estimated // max(limit, 1))
        return MarkedDeletes(deletes, min(parts, 4096), lambda: self._keys_of_rows(read, lsns), records, limit // 4)

    def _deleted_keys(self, read: NodeRead, lsns: Lsns) -> Iterator[tuple[list[Any], NDArray[np.int64]]]:
        for each in read.deletes:
            with self._change.open(each.file) as opened:
                columns = ChangeColumns(self._change, self._key, opened, each, read.optimized, lsns)
                for _, batch in opened.batches([columns.projection]):
                    keys, numbers, counts = columns.of(batch)
                    if counts.all():
                        yield keys, numbers
                    elif counts.any():
                        yield [key.filter(pa.array(counts)) for key in keys], numbers[counts]

    def _keys_of_rows(self, read: NodeRead, lsns: Lsns) -> Iterator[tuple[str, int, list[Any], int, int | NDArray[np.int64]]]:
        """Canonical keys and LSNs of all rows that may be deleted."""
        for each in read.base:
            with self._base.open(each.file) as opened:
                keys = self._base.projection(opened, each.file, self._key.fields)
                for position, batch in opened.batches([keys]):
                    last = lsns.last_of(each.named.transaction_id)
                    yield each.file.path, position, self._key.canonical(keys.arrays(batch)), batch.num_rows, last
        for each in read.inserts:
            with self._change.open(each.file) as opened:
                columns = ChangeColumns(self._change, self._key, opened, each, read.optimized, lsns)
                for position, batch in opened.batches([columns.projection]):
                    canonical, numbers, _ = columns.of(batch)
                    yield each.file.path, position, canonical, batch.num_rows, numbers

    def _inserted_rows(self, read: NodeRead, deletes: NodeDeletes, lsns: Lsns) -> Iterator[Any]:
        for each in read.inserts:
            with self._change.open(each.file) as opened:
                columns = ChangeColumns(self._change, self._key, opened, each, read.optimized, lsns)
                rows = self._change.projection(opened, each.file, self._fields)
                for position, batch in opened.batches([columns.projection, rows]):
                    keys, numbers, counts = columns.of(batch)
                    gone = deletes.of(each.file.path, position, keys, batch.num_rows, numbers)
                    yield from _kept(rows.apply(batch), counts & ~gone)

    def _base_rows(self, read: NodeRead, deletes: NodeDeletes, lsns: Lsns) -> Iterator[Any]:
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
                last = lsns.last_of(each.named.transaction_id)
                for position, batch in opened.batches([keys, rows, *masks.projections]):
                    gone = deletes.of(each.file.path, position, self._key.canonical(keys.arrays(batch)), batch.num_rows, last)
                    for mask in masks.deleted(position, batch):
                        gone = gone if mask is None else gone | mask
                    yield from _kept(rows.apply(batch), ~gone)


def _kept(batch: Any, mask: NDArray[np.bool_]) -> Iterator[Any]:
    if mask.all():
        if batch.num_rows:
            yield batch
    elif mask.any():
        yield batch.filter(pa.array(mask))
