"""The proof of a merge that copies bytes: both sides add up what they see, row by row where rows are decoded, else by checksums.

Rows of an output are put together by position across its columns, so every part of the proof holds the row's number in the task:
a column's bytes or values that are lost, doubled, changed or stand at another row change the sum. The reading side adds what it
took from the sources; the writing side what it handed to the encoder and to the file.
"""

from __future__ import annotations

import hashlib
import struct
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from isal import isal_zlib
from numpy.typing import NDArray

from compaction_pipeline.core.model.task import Digest
from compaction_pipeline.spark.digest import RowDigest, same_rows

_MASK = (1 << 64) - 1
_VERBATIM = -1


@dataclass(frozen=True)
class Part:
    """Decoded columns (numbers of top-level columns) of consecutive rows; `first` is the number in the task of the first one."""

    columns: tuple[int, ...]
    batch: Any
    first: int


class SeenParts:
    """Digests of batches with their place, found by the object itself as `digest.SeenBatches` does."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], int, Digest]] = {}

    def remember(self, batch: Any, first: int, digest: Digest) -> None:
        """Keep the digest as long as the batch lives."""
        key = id(batch)
        self._known[key] = (weakref.ref(batch, lambda _: self._known.pop(key, None)), first, digest)

    def digest_of(self, batch: Any, first: int) -> Digest | None:
        """The digest of this very object at this place, None where none was taken."""
        reference, place, digest = self._known.get(id(batch), (None, None, None))
        return digest if reference is not None and reference() is batch and place == first else None


class CopyProof:
    """One side's sum. `value.rows` counts rows once, however many parts of them were added."""

    def __init__(self) -> None:
        self.rows = 0
        self.seen = SeenParts()
        self._a = 0
        self._b = 0

    @property
    def value(self) -> Digest:
        return Digest(self.rows, self._a, self._b)

    def add(self, digest: Digest) -> None:
        """Add sums, not rows."""
        self._a = (self._a + digest.sum_a) & _MASK
        self._b = (self._b + digest.sum_b) & _MASK

    def add_bytes(self, leaf: int, first: int, rows: int, length: int, checksum: int) -> None:
        """Add the bytes of a leaf column that stand for `rows` rows from `first` on."""
        self.add(_folded(leaf, first, rows, length, checksum))

    def add_verbatim(self, number: int, leaf: int, rows: int, length: int, checksum: int) -> None:
        """Add one column of a row group that stays one: the task's `number`-th."""
        self.add(_folded(_VERBATIM - leaf, number, rows, length, checksum))


def checksum(data: memoryview, before: int = 0) -> int:
    """Of bytes, going on from those before."""
    return isal_zlib.crc32(data, before)


def _folded(*numbers: int) -> Digest:
    words = hashlib.blake2b(struct.pack("<5q", *numbers), digest_size=16).digest()
    return Digest(0, int.from_bytes(words[:8], "little"), int.from_bytes(words[8:], "little"))


def ordered_digest(batch: Any, first: int, keep: NDArray[np.bool_] | None = None) -> Digest:
    """Digest of rows together with their numbers: `first` and on, counting those with `keep` only."""
    numbers = np.arange(first, first + batch.num_rows) if keep is None else first + np.cumsum(keep) - 1
    numbered = pa.RecordBatch.from_arrays(
        [*batch.columns, pa.array(numbers, pa.int64())], schema=batch.schema.append(pa.field("row", pa.int64()))
    )
    digest = RowDigest()
    digest.add(numbered, keep)
    return digest.value


def part_of(columns: tuple[int, ...], batch: Any, first: int, source: CopyProof) -> Part:
    """A part that was just read: its digest is added to the reading side's proof."""
    digest = ordered_digest(batch, first)
    source.add(digest)
    source.seen.remember(batch, first, digest)
    return Part(columns, batch, first)


def handed_digest(part: Part, handed: Any, first: int, source: CopyProof) -> Digest:
    """Digest of what was handed to the encoder for a part; hashed again unless it is the memory that was read, at its place."""
    known = source.seen.digest_of(part.batch, first)
    return known if known is not None and same_rows(handed, part.batch) else ordered_digest(handed, first)
