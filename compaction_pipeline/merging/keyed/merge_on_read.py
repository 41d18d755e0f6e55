"""Reads the rows of one node of a keyed table, with all changes applied (Amoro: `MixedDeleteFilter`).

A delete counts for a row of the same key exactly when its LSN is greater. So an insert with the offset of its delete stays, which is how
writers log an update, and a delete in the transaction of a base file leaves the rows of this file.

The rows stream through, batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import NestedField

from compaction_pipeline.core.tables.keyed.merge_on_read import KeyedInput, NodeRead
from compaction_pipeline.merging.deletes.deleted_rows import Mask
from compaction_pipeline.merging.deletes.deletes import ONE_PASS_SHARE, TaskDeletes
from compaction_pipeline.merging.deletes.keys import KeyColumns
from compaction_pipeline.merging.deletes.shared_deletes import SharedDeletes
from compaction_pipeline.merging.keyed.change_columns import ChangeColumns, KeyNodes, Lsns, Span
from compaction_pipeline.merging.keyed.node_deletes import HeldDeletes, MarkedDeletes, NodeDeletes
from compaction_pipeline.merging.reading.evolution import arrow_schema
from compaction_pipeline.merging.reading.file_access import FileAccess
from compaction_pipeline.merging.reading.read import DataReader, OpenFile, TableShape


class KeyedReader:
    """Reads nodes of a keyed table, projected to `fields` of the base store's schema.

    `key` are the field ids of the primary key. `memory_bytes` is the limit for batches and buffers. `delete_bytes` is that for the deletes
    of a node, once for those of the change store and once for Iceberg's own: more of them are kept on local disk.
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
        self.base, self.change = DataReader(files, base, memory_bytes), DataReader(files, change, memory_bytes)
        self.base_shape = base
        self.key = KeyColumns.of(tuple(key), base)
        self.fields = tuple(fields)
        self.delete_bytes = delete_bytes
        self.schema = arrow_schema(self.fields)

    def batches(self, read: NodeRead) -> Iterator[pa.RecordBatch]:
        """The living rows of a node, as record batches of `schema`. Raises MergeFailed for a file that cannot be read."""
        for part in NodeRows(self, read, Span(read.optimized), SharedDeletes()).batches():
            yield from _kept(part.rows, ~part.gone)


@dataclass(frozen=True, slots=True)
class KeyedBatch:
    """Rows of one file that were read together, and which of them are deleted.

    `position` is the place of the first row in its file, and `rows` are the projected rows; None for a file of which only keys are read.
    `outside` are rows of change files that do not count. `positional` and `equal` are rows that Iceberg's own deletes delete; None means
    that no row is. `by_key` are rows that a delete of the change store deletes.
    """

    source: KeyedInput
    opened: OpenFile
    position: int
    length: int
    rows: pa.Table
    outside: Mask | None
    positional: Mask | None
    equal: Mask | None
    by_key: Mask

    @property
    def gone(self) -> Mask:
        """The rows that are deleted or do not count."""
        gone = self.by_key
        for mask in (self.outside, self.positional, self.equal):
            gone = gone if mask is None else gone | mask
        return gone


class NodeRows:
    """The rows of one node. To make one reads the deletes of the change store.

    `span` says which changes count. `keys_only` are paths of base files of which only keys are read.
    """

    def __init__(
        self, reader: KeyedReader, read: NodeRead, span: Span, shared: SharedDeletes, keys_only: frozenset[str] = frozenset()
    ) -> None:
        self._reader, self._read, self._span, self._shared, self._keys_only = reader, read, span, shared, keys_only
        reader.change.expect(each.file for each in (*read.deletes, *read.inserts))
        self._lsns = Lsns(max((each.named.transaction_id for each in (*read.base, *read.inserts, *read.deletes)), default=0))
        self._nodes = KeyNodes(reader.key)
        self._newest_delete = -1
        self._deletes = self._found_deletes()

    def batches(self) -> Iterator[KeyedBatch]:
        """All rows: those of the base store, file by file, and then those of the inserts that may count."""
        yield from self._base_rows()
        yield from self._inserted_rows()

    def highest_transaction(self) -> int | None:
        """The highest transaction of a change that counts, insert or delete; None when none does.

        Of the inserts, only files are opened that may have a higher one than all changes seen before.
        """
        newest = self._newest_delete
        highest = None if newest < 0 else self._lsns.transaction_of(newest)
        most = self._span.up_to
        bounds = [
            (each.named.transaction_id if most is None else min(each.named.transaction_id, most), each) for each in self._read.inserts
        ]
        for bound, each in sorted(bounds, key=lambda pair: -pair[0]):
            if highest is not None and bound <= highest:
                break
            found = self._highest_of(each)
            highest = found if highest is None or (found is not None and found > highest) else highest
        return highest

    def _highest_of(self, source: KeyedInput) -> int | None:
        highest = -1
        with self._reader.change.open(source.file) as opened:
            columns = self._change_columns(opened, source)
            if not columns.may_count or not source.file.record_count:
                return None
            if columns.transaction is not None:
                return columns.transaction
            for _, batch in opened.batches([columns.projection]):
                _, numbers, counts = columns.of(batch)
                highest = max(highest, int(numbers[counts].max(initial=-1)))
        return None if highest < 0 else self._lsns.transaction_of(highest)

    def _change_columns(self, opened: OpenFile, source: KeyedInput) -> ChangeColumns:
        return ChangeColumns(self._reader.change, self._reader.key, opened, source, self._span, self._lsns)

    def _found_deletes(self) -> NodeDeletes:
        read, key = self._read, self._reader.key
        limit = int(self._reader.delete_bytes * ONE_PASS_SHARE)
        estimated = sum(key.estimated_bytes(each.file.record_count, each.file.file_size_bytes) for each in read.deletes)
        if estimated <= limit:
            return HeldDeletes(self._deleted_keys())
        records = {each.file.path: each.file.record_count for each in (*read.base, *read.inserts)}
        # One half of the limit is for a part, and the other for what comes from disk.
        parts = -(-2 * estimated // max(limit, 1))
        return MarkedDeletes(self._deleted_keys(), min(parts, 4096), self._keys_of_rows, records, limit // 4)

    def _deleted_keys(self) -> Iterator[tuple[list[pa.Array], NDArray[np.int64]]]:
        for each in self._read.deletes:
            with self._reader.change.open(each.file) as opened:
                columns = self._change_columns(opened, each)
                for _, batch in opened.batches([columns.projection]) if columns.may_count else ():
                    keys, numbers, counts = columns.of(batch)
                    if not counts.all():
                        keys, numbers = [key.filter(pa.array(counts)) for key in keys], numbers[counts]
                    if len(numbers):
                        self._newest_delete = max(self._newest_delete, int(numbers.max()))
                        yield keys, numbers

    def _keys_of_rows(self) -> Iterator[tuple[str, int, list[pa.Array], int, int | NDArray[np.int64]]]:
        """Canonical keys and LSNs of all rows that may be deleted."""
        reader = self._reader
        for each in self._read.base:
            with reader.base.open(each.file) as opened:
                keys = reader.base.projection(opened, each.file, reader.key.fields)
                for position, batch in opened.batches([keys]):
                    last = self._lsns.last_of(each.named.transaction_id)
                    yield each.file.path, position, reader.key.canonical(keys.arrays(batch)), batch.num_rows, last
        for each in self._read.inserts:
            with reader.change.open(each.file) as opened:
                columns = self._change_columns(opened, each)
                for position, batch in opened.batches([columns.projection]) if columns.may_count else ():
                    canonical, numbers, _ = columns.of(batch)
                    yield each.file.path, position, canonical, batch.num_rows, numbers

    def _inserted_rows(self) -> Iterator[KeyedBatch]:
        for each in self._read.inserts:
            with self._reader.change.open(each.file) as opened:
                columns = self._change_columns(opened, each)
                rows = self._reader.change.projection(opened, each.file, self._reader.fields)
                for position, batch in opened.batches([columns.projection, rows]) if columns.may_count else ():
                    keys, numbers, counts = columns.of(batch)
                    by_key = self._deletes.of(each.file.path, position, keys, batch.num_rows, numbers)
                    yield KeyedBatch(each, opened, position, batch.num_rows, rows.apply(batch), ~counts, None, None, by_key)

    def _base_rows(self) -> Iterator[KeyedBatch]:
        read, reader = self._read, self._reader
        if not read.base:
            return
        inputs = tuple(each.file for each in read.base)
        own = TaskDeletes(inputs, read.base_deletes, reader.base_shape, reader.base, reader.delete_bytes, self._shared)
        for each in read.base:
            with reader.base.open(each.file) as opened:
                masks = own.of(each.file, opened)
                key = reader.base.projection(opened, each.file, reader.key.fields)
                rows = None if each.file.path in self._keys_only else reader.base.projection(opened, each.file, reader.fields)
                last = self._lsns.last_of(each.named.transaction_id)
                wanted = [key, *masks.projections] if rows is None else [key, rows, *masks.projections]
                for position, batch in opened.batches(wanted):
                    arrays = key.arrays(batch)
                    if self._span.hashes_keys_of(each):
                        self._nodes.hashes(arrays, batch.num_rows, each)
                    by_key = self._deletes.of(each.file.path, position, reader.key.canonical(arrays), batch.num_rows, last)
                    projected = None if rows is None else rows.apply(batch)
                    yield KeyedBatch(each, opened, position, batch.num_rows, projected, None, *masks.deleted(position, batch), by_key)


def _kept(batch: pa.RecordBatch, mask: NDArray[np.bool_]) -> Iterator[pa.RecordBatch]:
    if mask.all():
        if batch.num_rows:
            yield batch
    elif mask.any():
        yield batch.filter(pa.array(mask))
