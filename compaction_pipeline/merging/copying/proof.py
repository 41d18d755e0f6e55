"""Proves a merge that copies bytes: what was read is compared with what is written, directly or by checksums.

The columns of an output row are joined by position, so every part of the proof includes the number of the row in the task. A column's bytes
or values that are lost, doubled, changed or moved to another row change the sum. The reading side adds what it took from the sources. The
writing side adds what it handed to the encoder and to the file.

Bytes are added by their checksums. Decoded rows are added by their numbers. The writing side adds a row only if it is the row that was
read: the same memory, which Arrow never changes, or equal values. This is exact, and cheaper than a hash of the values. If a
batch loses rows to deletes, the rows that stay are selected twice, in two ways, and both must agree.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from isal import isal_zlib
from numpy.typing import NDArray

from compaction_pipeline.core.errors import DigestMismatch
from compaction_pipeline.core.work.result import Digest
from compaction_pipeline.formats.arrow_fields import children
from compaction_pipeline.formats.parquet.segments import Part, ReadRows
from compaction_pipeline.formats.row_hashes import column_ids
from compaction_pipeline.merging.digest import RowDigest, same_rows

_MASK = (1 << 64) - 1
_VERBATIM = -1
_STEP_BYTES = 4 * 1024 * 1024


class CopyProof:
    """The sum of one side. `value.rows` counts each row once, even if several parts of it were added."""

    def __init__(self) -> None:
        self.rows = 0
        self._a = 0
        self._b = 0

    @property
    def value(self) -> Digest:
        return Digest(self.rows, self._a, self._b)

    def add(self, digest: Digest) -> None:
        """Add the sums of a digest. Its number of rows is not added."""
        self._a = (self._a + digest.sum_a) & _MASK
        self._b = (self._b + digest.sum_b) & _MASK

    def add_bytes(self, leaf: int, first: int, rows: int, length: int, checksum: int) -> None:
        """Add the bytes of a leaf column for `rows` rows that begin at number `first`."""
        self.add(_folded(leaf, first, rows, length, checksum))

    def add_verbatim(self, number: int, leaf: int, rows: int, length: int, checksum: int) -> None:
        """Add one column of a row group that moves whole. It is the `number`-th such row group of the task."""
        self.add(_folded(_VERBATIM - leaf, number, rows, length, checksum))


def checksum(data: memoryview, before: int = 0) -> int:
    """The checksum of bytes, continued from the checksum `before`."""
    return isal_zlib.crc32(data, before)


def _folded(*numbers: int) -> Digest:
    words = hashlib.blake2b(struct.pack("<5q", *numbers), digest_size=16).digest()
    return Digest(0, int.from_bytes(words[:8], "little"), int.from_bytes(words[8:], "little"))


def _row_token(ids: Sequence[int], row: int) -> tuple[int, int]:
    data = struct.pack(f"<{len(ids) + 1}q", row, *ids)
    words = hashlib.blake2b(data, digest_size=16).digest()
    return int.from_bytes(words[:8], "little"), int.from_bytes(words[8:], "little")


def _row_tokens(ids: Sequence[int], first: int, rows: int) -> Digest:
    """A digest that stands for rows of some columns. The digests of two adjacent ranges add up to that of both, wherever rows are cut."""
    begin, end = _row_token(ids, first), _row_token(ids, first + rows)
    return Digest(0, (end[0] - begin[0]) & _MASK, (end[1] - begin[1]) & _MASK)


def part_of(columns: tuple[int, ...], batch: pa.RecordBatch, first: int, source: CopyProof) -> Part:
    """A part that was just read. Its rows are added to the proof of the reading side."""
    source.add(_row_tokens(column_ids(batch.schema), first, batch.num_rows))
    return Part(columns, batch, ReadRows(batch, first))


def handed_digest(part: Part, handed: pa.Array, first: int) -> Digest:
    """What the writing side may add for rows that it handed to the encoder. It is zero unless these are the rows that were read."""
    expected = part.read.rows(first, handed.num_rows)
    if not same_rows(handed, expected) and _ordered_digest(handed) != _ordered_digest(expected):
        return Digest(0, 0, 0)
    return _row_tokens(column_ids(handed.schema), first, handed.num_rows)


def kept_rows(batch: pa.RecordBatch, keep: NDArray[np.bool_]) -> pa.RecordBatch:
    """The rows of a batch where `keep` is True. Raises DigestMismatch if a second way to pick them finds other rows."""
    kept = _filtered(batch, keep)
    if not are_kept(batch, keep, kept):
        raise DigestMismatch("the rows that stay beside deleted ones are not those that were read; nothing of this attempt is used")
    return kept


def _filtered(batch: pa.RecordBatch, keep: NDArray[np.bool_]) -> pa.RecordBatch:
    # Each array is filtered by itself. Arrow filters a whole batch by taking row numbers, and that is the second way.
    mask = pa.array(keep)
    return pa.RecordBatch.from_arrays([column.filter(mask) for column in batch.columns], schema=batch.schema)


def are_kept(batch: pa.RecordBatch, keep: NDArray[np.bool_], kept: pa.RecordBatch) -> bool:
    """Whether `kept` holds exactly the rows of a batch where `keep` is True, in their order."""
    numbers = pa.array(np.flatnonzero(keep))
    if len(keep) != batch.num_rows or kept.num_rows != len(numbers) or kept.schema != batch.schema:
        return False
    # Arrow filters nested columns by taking row numbers, too, so these columns are hashed.
    nested = [number for number, field in enumerate(batch.schema) if children(field.type)]
    if nested and _ordered_digest(batch.select(nested), keep) != _ordered_digest(kept.select(nested)):
        return False
    return all(
        number in nested or _same_values(one, numbers, two)
        for number, (one, two) in enumerate(zip(batch.columns, kept.columns, strict=True))
    )


def _same_values(read: pa.Array, numbers: pa.Array, kept: pa.Array) -> bool:
    """Whether `kept` holds, bit by bit, the values of `read` at these row numbers."""
    if isinstance(read.type, pa.BaseExtensionType):
        return _same_values(read.storage, numbers, kept.storage)
    if pa.types.is_dictionary(read.type):
        return bool(read.dictionary.equals(kept.dictionary)) and _same_values(read.indices, numbers, kept.indices)
    if pa.types.is_floating(read.type):
        # Compare floats by their bits: a NaN equals itself, and the two zeros differ.
        bits = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[read.type.bit_width]
        read, kept = read.view(bits), kept.view(bits)
    step = _rows_per_step(read)
    # `are_kept` made sure that the numbers are inside, so Arrow need not check them again.
    taken = (pc.take(read, numbers.slice(start, step), boundscheck=False) for start in range(0, len(numbers), step))
    return all(rows.equals(kept.slice(start, step)) for start, rows in zip(range(0, len(numbers), step), taken, strict=True))


def _rows_per_step(rows: pa.Array) -> int:
    """How many rows are compared at a time. A second copy of all rows would take as much memory as the rows themselves."""
    return max(1, _STEP_BYTES * len(rows) // max(rows.nbytes, 1)) if len(rows) else 1


def _ordered_digest(batch: pa.RecordBatch, keep: NDArray[np.bool_] | None = None) -> Digest:
    """A digest of rows and their order. If `keep` is given, only the rows where it is True count."""
    numbers = np.arange(batch.num_rows) if keep is None else np.cumsum(keep) - 1
    numbered = pa.RecordBatch.from_arrays(
        [*batch.columns, pa.array(numbers, pa.int64())], schema=batch.schema.append(pa.field("row", pa.int64()))
    )
    digest, step = RowDigest(), _rows_per_step(numbered)
    for start in range(0, batch.num_rows, step):
        digest.add(numbered.slice(start, step), None if keep is None else keep[start : start + step])
    return digest.value
