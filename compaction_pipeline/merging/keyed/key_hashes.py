"""The hashes of primary keys for whole Arrow columns. They are those of `core/tables/keyed/key_hash.py`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from compaction_pipeline.core.tables.keyed.key_hash import value_hash

_HASH_BITS = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_LAST_OF_ASCII = 127
_MOST_POSITIONS = 256
"""Longer texts are rare in keys. They are hashed one by one."""


def key_hashes(columns: Sequence[pa.Array], types: Sequence[str], length: int) -> NDArray[np.int64]:
    """The hash of each key, in 0..2³¹ − 1. `types` are the Iceberg types of the columns, in the order of the primary key."""
    total = np.ones(length, dtype=np.uint64)
    for column, kind in zip(columns, types, strict=True):
        total = (np.uint64(31) * total + _hashes(column, kind)) & _HASH_BITS
    signed = total.astype(np.uint32).view(np.int32).astype(np.int64)
    return np.minimum(np.abs(signed), 0x7FFFFFFF)


def _hashes(column: pa.Array, kind: str) -> NDArray[np.uint64]:
    """The 32-bit hash of each value; 0 for NULL."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
    if pa.types.is_integer(column.type):
        bits = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
        hashes: NDArray[np.uint64] = (bits if kind in ("int", "date") else bits ^ (bits >> _HALF)) & _HASH_BITS
        return hashes
    if pa.types.is_string(column.type):
        ascii_hashes = _of_ascii(column)
        if ascii_hashes is not None:
            return ascii_hashes
    # Other values are hashed one by one, each distinct value once. Two floats are one value here only when all their bits are equal.
    by_bits = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64()) if pa.types.is_floating(column.type) else column
    encoded = by_bits.dictionary_encode()
    distinct = encoded.dictionary.view(column.type) if by_bits is not column else encoded.dictionary
    known = np.array([value_hash(value, kind) & 0xFFFFFFFF for value in distinct.to_pylist()] + [0], dtype=np.uint64)
    looked_up: NDArray[np.uint64] = known[encoded.indices.fill_null(len(distinct)).to_numpy(zero_copy_only=False)]
    return looked_up


def _of_ascii(column: pa.Array) -> NDArray[np.uint64] | None:
    """The hashes of texts, all at once, position by position; 0 for NULL. None when a text is long or has a character beyond ASCII."""
    lengths = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    longest = int(lengths.max(initial=0))
    if longest > _MOST_POSITIONS:
        return None
    _, offsets, data = column.buffers()
    hashes = np.zeros(len(column), dtype=np.uint64)
    if not longest:
        return hashes
    starts = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + len(column)].astype(np.int64)
    units = np.frombuffer(data, dtype=np.uint8)
    # The texts are taken in the order of their lengths, so that those that have a position are the last ones.
    order = np.argsort(lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]
    sums = np.zeros(len(column), dtype=np.uint64)
    for position in range(longest):
        first = int(np.searchsorted(lengths, position, side="right"))
        units_there = units[starts[first:] + position]
        if units_there.max() > _LAST_OF_ASCII:
            return None
        # Only the lowest 32 bits count, and in 64 bits nothing carries down into them.
        sums[first:] = np.uint64(31) * sums[first:] + units_there
    hashes[order] = sums & _HASH_BITS
    return hashes
