"""The proof that what was kept was written: an order-free digest of a bag of rows.

A row's hash is a 64-bit hash chained over (field id, null flag, value) of every leaf, lists and maps with their lengths; each
step is a bijection of the value for a given chain, so one changed value always changes its row's hash. The digest is
(count, Σ mix(hash ^ seed) mod 2⁶⁴ under two seeds): sums, so that a doubled row shows, mixed after the chain, so that
values swapped between rows show. A batch that goes from the reader to
the writer untouched is hashed once (`SeenBatches`). Measured at 2 ns per fixed-width value and 6 ns per 8 bytes of a string.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from compaction_pipeline.core.model.task import Digest
from compaction_pipeline.spark.evolution import children, field_id

Words = NDArray[np.uint64]

_CHAIN = np.uint64(0x9E3779B97F4A7C15)
_FINAL_A = np.uint64(0xFF51AFD7ED558CCD)
_FINAL_B = np.uint64(0xC4CEB9FE1A85EC53)
_SEED_A = np.uint64(0x243F6A8885A308D3)
_SEED_B = np.uint64(0x13198A2E03707344)
_NULL = 0xA4093822299F31D0
_FIELD = 0xD1342543DE82EF95
_MASK = (1 << 64) - 1
# Rows per step: a step's arrays stay in the CPU's cache.
STEP_ROWS = 8192
# Texts of at least so many words are rare enough to be hashed together whatever their lengths.
_LONG_TEXT_WORDS = 12
_TAIL_MASKS = np.array([(1 << 8 * length) - 1 for length in range(8)], dtype=np.uint64)


class SeenBatches:
    """Digests of record batches on their way from the reader to the writer, found by the object itself.

    Arrow memory does not change once it is made, so the very batch that was read need not be hashed again when it is written.
    Both sides still add it up for themselves: a batch that is lost or doubled on the way shows.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], Digest]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def remember(self, batch: Any, digest: Digest) -> None:
        """Keep the digest as long as the batch lives."""
        key = id(batch)
        self._known[key] = (weakref.ref(batch, lambda _: self._known.pop(key, None)), digest)

    def digest_of(self, batch: Any) -> Digest | None:
        """The digest of this very object, None where none was taken."""
        reference, digest = self._known.get(id(batch), (None, None))
        return digest if reference is not None and reference() is batch else None


class RowDigest:
    """Adds up rows; `value` is their digest. `seen` is shared by the two sides of a merge."""

    def __init__(self, seen: SeenBatches | None = None) -> None:
        self._seen = seen
        self._rows = 0
        self._a = 0
        self._b = 0

    def add(self, batch: Any, keep: NDArray[np.bool_] | None = None) -> None:
        """Add the rows of a record batch or table, those with `keep` only where given."""
        if isinstance(batch, pa.Table):
            for part in batch.to_batches():
                self._sum(_digest(part, None))
            return
        digest = _digest(batch, keep)
        self._sum(digest)
        if self._seen is not None and keep is None:
            self._seen.remember(batch, digest)

    def add_assembled(self, table: Any, parts: Sequence[Any]) -> None:
        """Add the rows of a table that was made of these record batches, one after the other.

        A part that was seen is hashed again unless its rows in the table are the same memory, or (text whose dictionary was
        renumbered or dissolved) the same values row for row.
        """
        batches = table.to_batches()
        if self._seen is None or len(batches) != len(parts):
            self.add(table)
            return
        for batch, part in zip(batches, parts, strict=True):
            known = self._seen.digest_of(part)
            self._sum(known if known is not None and _same_rows(batch, part) else _digest(batch, None))

    def _sum(self, digest: Digest) -> None:
        self._rows += digest.rows
        self._a = (self._a + digest.sum_a) & _MASK
        self._b = (self._b + digest.sum_b) & _MASK

    @property
    def value(self) -> Digest:
        return Digest(self._rows, self._a, self._b)


def _digest(batch: Any, keep: NDArray[np.bool_] | None) -> Digest:
    rows = a = b = 0
    ids = _ids(batch.schema)
    # A dictionary is hashed once per batch, not per step.
    columns = [_hashed_values(column) if pa.types.is_dictionary(column.type) else column for column in batch.columns]
    for start in range(0, batch.num_rows, STEP_ROWS):
        length = min(STEP_ROWS, batch.num_rows - start)
        hashes = hash_columns([(number, column.slice(start, length)) for number, column in zip(ids, columns, strict=True)], length)
        if keep is not None:
            hashes = hashes[keep[start : start + STEP_ROWS]]
        rows += len(hashes)
        a += int(_mixed(hashes ^ _SEED_A).sum(dtype=np.uint64))
        b += int(_mixed(hashes ^ _SEED_B).sum(dtype=np.uint64))
    return Digest(rows, a & _MASK, b & _MASK)


def _same_rows(batch: Any, other: Any) -> bool:
    if batch.num_rows != other.num_rows or _ids(batch.schema) != _ids(other.schema):
        return False
    return all(_same_column(one, two) for one, two in zip(batch.columns, other.columns, strict=True))


def _same_column(one: Any, two: Any) -> bool:
    if pa.types.is_dictionary(one.type) or pa.types.is_dictionary(two.type):
        return bool(_hashed_values(one).equals(_hashed_values(two)))
    return bool(one.type == two.type) and _memory(one) == _memory(two)


def _hashed_values(array: Any) -> Any:
    """The hashes of an array's values as an Arrow array, NULL where it is: it is absorbed as the array itself would be."""
    missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(_values(array, 0), pa.uint64(), mask=missing)


def _memory(array: Any) -> tuple[Any, ...]:
    """Where an array's rows lie: equal for the same rows of the same memory only."""
    arrow = array.type
    inner: list[Any] = []
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


def row_hashes(batch: Any, seed: int = 0) -> Words:
    """One 64-bit hash per row of a record batch."""
    return hash_columns(zip(_ids(batch.schema), batch.columns, strict=True), batch.num_rows, seed)


def _ids(schema: Any) -> list[int]:
    return [field_id(field) or index for index, field in enumerate(schema)]


def hash_columns(columns: Iterable[tuple[int, Any]], length: int, seed: int = 0) -> Words:
    """One 64-bit hash per row, chained over (id, Arrow array) in the order given."""
    chain = np.full(length, seed & _MASK, dtype=np.uint64)
    for number, array in columns:
        _chain(chain, array, number)
    return chain


def _mixed(words: Words) -> Words:
    words = words ^ (words >> np.uint64(33))
    words *= _FINAL_A
    words ^= words >> np.uint64(33)
    words *= _FINAL_B
    words ^= words >> np.uint64(33)
    return words


def _absorb(chain: Words, values: Words) -> None:
    np.bitwise_xor(chain, values, out=chain)
    np.multiply(chain, _CHAIN, out=chain)
    chain ^= chain >> np.uint64(29)


def _constant(number: int) -> Any:
    return np.uint64((number * _FIELD + 0x452821E638D01377) & _MASK)


def _chain(chain: Words, array: Any, number: int) -> None:
    """Absorb one column. A NULL absorbs a step more than a value does, so that no value can stand for it."""
    values = _values(array, number)
    chain ^= _constant(number)
    if not array.null_count:
        _absorb(chain, values)
        return
    missing = array.is_null().to_numpy(zero_copy_only=False)
    # What stands in a NULL's place is not defined.
    _absorb(chain, np.where(missing, np.uint64(0), values))
    absent = chain[missing]
    _absorb(absent, np.full(len(absent), _NULL, dtype=np.uint64))
    chain[missing] = absent


def _values(array: Any, number: int) -> Words:
    arrow = array.type
    if isinstance(arrow, pa.BaseExtensionType):
        return _values(array.storage, number)
    if pa.types.is_dictionary(arrow):
        words = _values(array.dictionary, number)
        indices = array.indices.fill_null(0).to_numpy(zero_copy_only=False) if array.null_count else array.indices.to_numpy()
        return words[indices] if len(words) else np.zeros(len(array), dtype=np.uint64)
    if pa.types.is_struct(arrow):
        fields = children(arrow)
        return hash_columns([(field_id(field) or index, array.field(index)) for index, field in enumerate(fields)], len(array), number)
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        return _lists(array, [(number, array.values)])
    if pa.types.is_map(arrow):
        return _lists(array, [(number, array.keys), (number + 1, array.items)])
    if pa.types.is_boolean(arrow):
        return array.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint64)  # type: ignore[no-any-return]
    if pa.types.is_fixed_size_binary(arrow) or pa.types.is_decimal(arrow):
        return _fixed(array)
    if pa.types.is_string(arrow) or pa.types.is_binary(arrow) or pa.types.is_large_string(arrow) or pa.types.is_large_binary(arrow):
        return _strings(array)
    return _numbers(array)


def _numbers(array: Any) -> Words:
    """Fixed-width values as their bits (so −0.0 ≠ 0.0 and every NaN is itself)."""
    width = array.type.bit_width // 8
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), dtype=np.uint64)
    bits = np.frombuffer(buffer, dtype=f"<u{width}", count=len(array) + array.offset)[array.offset :]
    return bits.astype(np.uint64, copy=False)


def _fixed(array: Any) -> Words:
    width = array.type.bit_width // 8 if pa.types.is_decimal(array.type) else array.type.byte_width
    words = np.zeros(len(array), dtype=np.uint64)
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return words
    raw = np.frombuffer(buffer, dtype=np.uint8, count=(len(array) + array.offset) * width)
    rows = raw.reshape(-1, width)[array.offset :]
    padded = -(-width // 8) * 8
    if padded != width:
        wide = np.zeros((len(rows), padded), dtype=np.uint8)
        wide[:, :width] = rows
        rows = wide
    for column in np.ascontiguousarray(rows).view("<u8").T:
        _absorb(words, column)
    return words


def _offsets_of(array: Any) -> NDArray[np.int64]:
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type) or pa.types.is_large_list(array.type)
    buffer = array.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(len(array) + 1, dtype=np.int64)
    offsets = np.frombuffer(buffer, dtype=np.int64 if large else np.int32, count=len(array) + array.offset + 1)
    return offsets[array.offset :].astype(np.int64)


def _strings(array: Any) -> Words:
    """Hash of a text: its length, its whole 8-byte words in order, then the bytes left over."""
    offsets = _offsets_of(array)
    lengths = np.diff(offsets)
    if array.null_count:
        lengths = np.where(array.is_null().to_numpy(zero_copy_only=False), 0, lengths)
    low, high = int(offsets[0]), int(offsets[-1])
    if high == low:
        return lengths.astype(np.uint64)
    start_word = low >> 3
    words = _aligned_words(array.buffers()[2], start_word, high)
    position = offsets[:-1] - (start_word << 3)
    # Texts of equally many words are hashed together: no text drops out on the way, so nothing is gathered anew per word.
    count = np.minimum(lengths >> 3, _LONG_TEXT_WORDS)
    kinds = np.flatnonzero(np.bincount(count))
    if len(kinds) == 1:
        return _texts(words, position, lengths, int(kinds[0]))
    hashes = np.empty(len(lengths), dtype=np.uint64)
    for kind in kinds:
        rows = np.flatnonzero(count == kind)
        hashes[rows] = _texts(words, position[rows], lengths[rows], int(kind))
    return hashes


def _texts(words: Words, position: NDArray[np.int64], lengths: NDArray[np.int64], count: int) -> Words:
    """Hashes of texts of `count` whole words each (of at least so many, where it is the limit); `position` in bytes."""
    hashes = lengths.astype(np.uint64)
    # A word that begins anywhere is joined from two aligned ones; all words of one text are shifted alike.
    index = position >> 3
    right = ((position & 7) << 3).astype(np.uint64)
    left = np.uint64(63) - right
    if count == _LONG_TEXT_WORDS:
        full = lengths >> 3
        _absorb_full_words(hashes, words, index, right, left, full)
        index += full
        here = words.take(index, mode="clip")
    else:
        here = words.take(index, mode="clip")
        for _ in range(count):
            index += 1
            following = words.take(index, mode="clip")
            _absorb(hashes, _joined(here, following, right, left))
            here = following
    index += 1
    # Clipped: behind the last word of all there is nothing that a mask would keep.
    tail = _joined(here, words.take(index, mode="clip"), right, left)
    # The bytes behind the text's end are its neighbour's.
    tail &= _TAIL_MASKS.take(lengths & 7)
    _absorb(hashes, tail)
    return hashes


def _absorb_full_words(hashes: Words, words: Words, index: NDArray[np.int64], right: Words, left: Words, full: NDArray[np.int64]) -> None:
    """Absorb the whole words of every string, place by place; `hashes` is changed."""
    active: NDArray[np.int64] | None = None
    chain, place = hashes, 0
    longest, shortest = int(full.max()), int(full.min())
    here = words[index] if longest else words
    while place < longest:
        if place >= shortest:
            # Strings that ended drop out; the rest go on in arrays of their own.
            going = np.flatnonzero(full > place)
            if active is not None:
                hashes[active] = chain
            active = going if active is None else active[going]
            chain, index, right, left, full, here = hashes[active], index[going], right[going], left[going], full[going], here[going]
            shortest = int(full.min())
        following = words[index + (place + 1)]
        _absorb(chain, _joined(here, following, right, left))
        here = following
        place += 1
    if active is not None:
        hashes[active] = chain


def _joined(here: Words, following: Words, right: Words, left: Words) -> Words:
    low = here >> right
    # In two steps: a shift by 64 is not defined.
    high = following << np.uint64(1)
    high <<= left
    low |= high
    return low


def _aligned_words(buffer: Any, start_word: int, end: int) -> Words:
    """The buffer's bytes from `start_word` × 8 to `end` as words, one word of padding behind."""
    count = -(-end // 8) - start_word
    if buffer.size >= (start_word + count + 1) * 8 and buffer.address % 8 == 0:
        return np.frombuffer(buffer, dtype="<u8", count=count + 1, offset=start_word * 8)
    padded = np.zeros((count + 1) * 8, dtype=np.uint8)
    raw = np.frombuffer(buffer, dtype=np.uint8)[start_word * 8 : end]
    padded[: len(raw)] = raw
    return padded.view("<u8")


def _lists(array: Any, inner: list[tuple[int, Any]]) -> Words:
    """Hash of a list: its length, then its elements' hashes in order (place by place, over the lists that are that long)."""
    offsets = _offsets_of(array)
    lengths = np.diff(offsets)
    if array.null_count:
        lengths = np.where(array.is_null().to_numpy(zero_copy_only=False), 0, lengths)
    hashes = lengths.astype(np.uint64)
    low, high = int(offsets[0]), int(offsets[-1])
    if high == low:
        return hashes
    elements = hash_columns([(number, values.slice(low, high - low)) for number, values in inner], high - low)
    start = offsets[:-1] - low
    active = np.flatnonzero(lengths > 0)
    place = 0
    while len(active):
        part = hashes[active]
        _absorb(part, elements[start[active] + place])
        hashes[active] = part
        place += 1
        active = active[lengths[active] > place]
    return hashes
