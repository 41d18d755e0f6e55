"""The columns of change files that decide which rows are deleted: the key, the transaction and the offset."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyiceberg.types import LongType, NestedField

from compaction_pipeline.core.errors import MergeRefused
from compaction_pipeline.core.tables.keyed.merge_on_read import KeyedInput
from compaction_pipeline.merging.deletes.keys import KeyColumns
from compaction_pipeline.merging.reading.evolution import field_id
from compaction_pipeline.merging.reading.read import DataReader, OpenFile

OFFSET_FIELD = NestedField(2147482645, "_file_offset", LongType(), required=False)
"""The offset of a row in its transaction. All change files have this column."""
TRANSACTION_FIELD = NestedField(2147482646, "_transaction_id", LongType(), required=False)
"""The transaction of a row. Only files that hold rows of several transactions have this column; else the file's name tells it."""


class ChangeColumns:
    """Tells key and LSN of each row of a change file, and which rows are not in the base store yet."""

    def __init__(self, reader: DataReader, key: KeyColumns, opened: OpenFile, of: KeyedInput, optimized: int | None, lsns: Lsns) -> None:
        """Rows of files with several transactions do not count when their own is not above `optimized`."""
        self.projection = reader.projection(opened, of.file, [*key.fields, OFFSET_FIELD, TRANSACTION_FIELD])
        self._canonical = key.canonical
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


class Lsns:
    """LSNs of one node as single numbers in the same order. A transaction takes the high bits and the offset the low ones."""

    def __init__(self, highest_transaction: int) -> None:
        self._shift = 63 - highest_transaction.bit_length()
        self._last = (1 << self._shift) - 1
        self._highest = highest_transaction

    def of(self, transactions: NDArray[np.int64], offsets: NDArray[np.int64], path: str) -> NDArray[np.int64]:
        """The LSNs of rows of a change file. Raises MergeRefused for numbers that do not fit."""
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
