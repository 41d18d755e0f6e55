"""Proves that the rows that were kept are the rows that were written: a digest of rows that does not depend on their order.

The digest holds the number of rows and two sums, mod 2⁶⁴. Each row's hash (`formats.row_hashes`) is mixed once for the first sum, and the
result again for the second. Sums show a row that was written twice. Mixing shows values that were swapped between rows. A batch that
goes from the reader to the writer unchanged is hashed only once (`SeenBatches`).
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from compaction_pipeline.core.work.result import Digest
from compaction_pipeline.formats.arrow_fields import children
from compaction_pipeline.formats.row_hashes import (
    INDEX_ROWS,
    MASK_64,
    SHIFT_A,
    SHIFT_B,
    STEP_ROWS,
    ChainedHashes,
    column_ids,
    filled_indices,
    missing_rows,
    mix,
)

_FINAL_A = np.uint64(0xFF51AFD7ED558CCD)
_FINAL_B = np.uint64(0xC4CEB9FE1A85EC53)


class SeenBatches:
    """Keeps the digests of record batches on their way from the reader to the writer, by the identity of the batch.

    Arrow memory never changes, so a batch that was hashed when it was read need not be hashed again when it is written. Both sides
    still add up its digest for themselves, so a batch that is lost or written twice shows.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[pa.RecordBatch], Digest]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def remember(self, batch: pa.RecordBatch, digest: Digest) -> None:
        """Keep the digest of a batch for as long as the batch lives."""
        key = id(batch)
        self._known[key] = (weakref.ref(batch, lambda _: self._known.pop(key, None)), digest)

    def digest_of(self, batch: pa.RecordBatch) -> Digest | None:
        """The digest of this batch object. None if it was not remembered."""
        reference, digest = self._known.get(id(batch), (None, None))
        return digest if reference is not None and reference() is batch else None


class RowDigest:
    """Adds up rows; `value` is their digest. The two sides of a merge share `seen`."""

    def __init__(self, seen: SeenBatches | None = None) -> None:
        self._seen = seen
        self._rows = 0
        self._a = 0
        self._b = 0

    def add(self, batch: pa.RecordBatch, keep: NDArray[np.bool_] | None = None) -> None:
        """Add the rows of a record batch or table. If `keep` is given, only the rows where it is True are added."""
        if isinstance(batch, pa.Table):
            for part in batch.to_batches():
                self._sum(_digest(part, None))
            return
        digest = _digest(batch, keep)
        self._sum(digest)
        if self._seen is not None and keep is None:
            self._seen.remember(batch, digest)

    def add_assembled(self, table: pa.Table, parts: Sequence[pa.RecordBatch]) -> None:
        """Add the rows of a table that was made by joining these record batches.

        The remembered digest of a part is used only if each column is the same memory as before, or is dictionary text that was renumbered
        or decoded and has equal values row by row. Any other part is hashed again.
        """
        batches = table.to_batches()
        if self._seen is None or len(batches) != len(parts):
            self.add(table)
            return
        for batch, part in zip(batches, parts, strict=True):
            known = self._seen.digest_of(part)
            self._sum(known if known is not None and same_rows(batch, part) else _digest(batch, None))

    def _sum(self, digest: Digest) -> None:
        self._rows += digest.rows
        self._a = (self._a + digest.sum_a) & MASK_64
        self._b = (self._b + digest.sum_b) & MASK_64

    @property
    def value(self) -> Digest:
        return Digest(self._rows, self._a, self._b)


def _digest(batch: pa.RecordBatch, keep: NDArray[np.bool_] | None) -> Digest:
    rows = a = b = 0
    chained = ChainedHashes(zip(column_ids(batch.schema), batch.columns, strict=True))
    for start in range(0, batch.num_rows, STEP_ROWS):
        stop = min(start + STEP_ROWS, batch.num_rows)
        hashes = chained.hashes(start, stop)
        if keep is not None:
            hashes = hashes[keep[start:stop]]
        rows += len(hashes)
        mix(hashes, _FINAL_A, SHIFT_A)
        a += int(hashes.sum(dtype=np.uint64))
        mix(hashes, _FINAL_B, SHIFT_B)
        b += int(hashes.sum(dtype=np.uint64))
    return Digest(rows, a & MASK_64, b & MASK_64)


def same_rows(batch: pa.RecordBatch, other: pa.RecordBatch) -> bool:
    """Whether two batches are the same memory, or dictionary-encoded text with the same values."""
    if batch.num_rows != other.num_rows or column_ids(batch.schema) != column_ids(other.schema):
        return False
    return all(_same_column(one, two) for one, two in zip(batch.columns, other.columns, strict=True))


def _same_column(one: pa.Array, two: pa.Array) -> bool:
    if pa.types.is_dictionary(one.type) and pa.types.is_dictionary(two.type):
        return _same_by_dictionary(one, two)
    if pa.types.is_dictionary(one.type) or pa.types.is_dictionary(two.type):
        dissolved = [each.dictionary_decode() if pa.types.is_dictionary(each.type) else each for each in (one, two)]
        return bool(dissolved[0].equals(dissolved[1]))
    return bool(one.type == two.type) and _memory(one) == _memory(two)


def _same_by_dictionary(one: pa.Array, two: pa.Array) -> bool:
    """Whether two dictionary arrays have the same values, row by row, even if their dictionaries number them differently.

    The answer may be False for equal values if a dictionary holds one value twice.
    """
    if one.null_count != two.null_count or one.dictionary.null_count or two.dictionary.null_count:
        return False
    if not len(one.dictionary):
        return bool(one.null_count == len(one) == two.null_count)
    if _memory(one.indices) == _memory(two.indices) and one.dictionary.equals(two.dictionary):
        return True
    missing = missing_rows(one)
    if missing is not None and not np.array_equal(missing, two.is_null().to_numpy(zero_copy_only=False)):
        return False
    renumbered = pc.index_in(one.dictionary, two.dictionary).fill_null(-1).to_numpy(zero_copy_only=False)
    indices, others = filled_indices(one), filled_indices(two)
    if missing is not None:
        indices, others = indices[~missing], others[~missing]
    steps = [slice(start, start + INDEX_ROWS) for start in range(0, len(indices), INDEX_ROWS)]
    return all(np.array_equal(renumbered.take(indices[step]), others[step]) for step in steps)


def _memory(array: pa.Array) -> tuple[object, ...]:
    """Where the rows of an array lie in memory. Two arrays have equal places only if they are the same rows of the same memory."""
    arrow = array.type
    inner: list[pa.Array] = []
    if isinstance(arrow, pa.BaseExtensionType):
        inner = [array.storage]
    elif pa.types.is_struct(arrow):
        inner = [array.field(index) for index in range(arrow.num_fields)]
    elif pa.types.is_map(arrow):
        inner = [array.keys, array.items]
    elif children(arrow):
        inner = [array.values]
    buffers = tuple(None if buffer is None else (buffer.address, buffer.size) for buffer in array.buffers())
    return (len(array), array.offset, buffers, *(_memory(each) for each in inner))
