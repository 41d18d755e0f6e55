"""The columns of change files that decide which rows are deleted: the key, the transaction and the offset."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import LongType, NestedField

from compaction_pipeline.core.errors import MergeRefused
from compaction_pipeline.core.tables.columns import OFFSET_ID, TRANSACTION_ID
from compaction_pipeline.core.tables.keyed.merge_on_read import KeyedInput
from compaction_pipeline.core.tables.keyed.tree import ROOT, DataTreeNode
from compaction_pipeline.formats.arrow_fields import field_id
from compaction_pipeline.merging.deletes.deleted_rows import Mask
from compaction_pipeline.merging.deletes.keys import KeyColumns
from compaction_pipeline.merging.keyed.key_hashes import key_hashes
from compaction_pipeline.merging.reading.read import DataReader, OpenFile

OFFSET_FIELD = NestedField(OFFSET_ID, "_file_offset", LongType(), required=False)
"""The offset of a row in its transaction. All change files have this column."""
TRANSACTION_FIELD = NestedField(TRANSACTION_ID, "_transaction_id", LongType(), required=False)
"""The transaction of a row. Only files that hold rows of several transactions have this column; else the file's name tells it."""


@dataclass(frozen=True, slots=True)
class Span:
    """Which rows of change files count: those of transactions above `above` and up to `up_to` whose key lies in `node`.

    None means that there is no limit. A file with a column of transactions is filtered row by row. Another file counts as a whole, by its
    data sequence number. With `checks_keys` it is also checked that keys lie in the nodes that the names of their files tell.
    """

    above: int | None = None
    up_to: int | None = None
    node: DataTreeNode = ROOT
    checks_keys: bool = False

    def has(self, sequence: int) -> bool:
        """Whether a file with this data sequence number counts, when it is filtered as a whole."""
        return (self.above is None or sequence > self.above) and (self.up_to is None or sequence <= self.up_to)

    def hashes_keys_of(self, source: KeyedInput) -> bool:
        """Whether the keys in a file have to be hashed."""
        # A file of the root may hold every key, so there is nothing to check.
        return (self.checks_keys and source.named.node != ROOT) or not source.named.node.is_within(self.node)


class KeyNodes:
    """Tells in which tree nodes the keys of files lie."""

    def __init__(self, key: KeyColumns) -> None:
        self._types = [str(field.field_type) for field in key.fields]

    def hashes(self, key: list[pa.Array], length: int, source: KeyedInput) -> NDArray[np.int64]:
        """The hashes of keys, as they are in a file. Raises MergeRefused for a key that does not lie in the node of the file's name."""
        hashes = key_hashes(key, self._types, length)
        node = source.named.node
        elsewhere = np.flatnonzero((hashes & node.mask) != node.index)
        if len(elsewhere):
            found = DataTreeNode.of_hash(node.mask, int(hashes[elsewhere[0]]))
            raise MergeRefused(
                f"file {source.file.path} belongs to the tree node {node.id} by its name, but the key of one of its rows lies in node "
                f"{found.id}: its writer hashed keys in another way, so deletes may not find their rows. Write the rows of the file again"
            )
        return hashes


class ChangeColumns:
    """Tells key and LSN of each row of a change file, and which rows count."""

    def __init__(self, reader: DataReader, key: KeyColumns, opened: OpenFile, source: KeyedInput, span: Span, lsns: Lsns) -> None:
        self.projection = reader.projection(opened, source.file, [*key.fields, OFFSET_FIELD, TRANSACTION_FIELD])
        self._canonical = key.canonical
        self._source, self._path, self._named = source, source.file.path, source.named
        self._has_transactions = any(field_id(field) == TRANSACTION_FIELD.field_id for field in opened.schema)
        self._span = span
        self._nodes = KeyNodes(key) if span.hashes_keys_of(source) else None
        self._lsns = lsns
        counts = self._has_transactions or span.has(source.file.data_sequence_number)
        if counts and not self._has_transactions and span.up_to is not None and self._named.transaction_id > span.up_to:
            raise MergeRefused(
                f"file {self._path} of the change store has the data sequence number {source.file.data_sequence_number}, but its name "
                f"tells the later transaction {self._named.transaction_id}, which is not to be merged yet; find out who wrote the file"
            )
        self.may_count = counts
        """False when no row of the file counts."""
        self.transaction = None if self._has_transactions or self._nodes is not None else self._named.transaction_id
        """The transaction of all rows, when they all count. None when the rows have to be looked at."""

    def of(self, batch: pa.RecordBatch) -> tuple[list[pa.Array], NDArray[np.int64], Mask]:
        """(Canonical keys, LSNs, whether each row counts) of a batch of a file that may count."""
        *key, offsets, transactions = self.projection.arrays(batch)
        counts = np.ones(batch.num_rows, dtype=bool)
        numbers = np.full(batch.num_rows, self._named.transaction_id, dtype=np.int64)
        if self._has_transactions:
            numbers = self._numbers(transactions, TRANSACTION_FIELD)
            if self._span.above is not None:
                counts = numbers > self._span.above
            if self._span.up_to is not None:
                counts &= numbers <= self._span.up_to
        if self._nodes is not None:
            node = self._span.node
            counts &= (self._nodes.hashes(key, batch.num_rows, self._source) & node.mask) == node.index
        lsns = self._lsns.of(numbers, self._numbers(offsets, OFFSET_FIELD), self._path, self._named.transaction_id)
        return self._canonical(key), lsns, counts

    def _numbers(self, array: pa.Array, field: NestedField) -> NDArray[np.int64]:
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

    def of(self, transactions: NDArray[np.int64], offsets: NDArray[np.int64], path: str, highest: int) -> NDArray[np.int64]:
        """The LSNs of rows of a change file, whose name tells the transaction `highest`. Raises MergeRefused when numbers do not fit."""
        if not len(offsets):
            return offsets
        if offsets.min() < 0 or offsets.max() >= self._last or transactions.min() < 0 or transactions.max() > highest:
            raise MergeRefused(
                f"file {path} of the change store has offsets from {offsets.min()} to {offsets.max()} and transactions from "
                f"{transactions.min()} to {transactions.max()}, but offsets must be in 0..{self._last - 1}, and transactions in "
                f"0..{highest}, which is the one that the file's name, or else its data sequence number, tells"
            )
        lsns: NDArray[np.int64] = (transactions << self._shift) | offsets
        return lsns

    def last_of(self, transaction: int) -> int:
        """The LSN of base rows: after all changes of the transaction."""
        return transaction << self._shift | self._last

    def transaction_of(self, lsn: int) -> int:
        """The transaction of an LSN."""
        return lsn >> self._shift
