"""Hashes each row to 64 bits. The hash is chained over (field id, null flag, value) of every leaf, and over the lengths of lists and maps.

For a given chain each step is a bijection of the value, so one changed value always changes the hash of its row. Columns are views of
Arrow's memory. The module takes them in steps of some thousand rows, so that the arrays of a step stay in the CPU's cache. There a
pass over a column costs a quarter of a nanosecond for each value, and the number of passes decides the cost of the whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from compaction_pipeline.formats.arrow_fields import children, field_id

Words = NDArray[np.uint64]
Integers = NDArray[np.integer[Any]]
"""Whole numbers of any width."""
_CHAIN = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0xA4093822299F31D0)
_FIELD = 0xD1342543DE82EF95
MASK_64 = (1 << 64) - 1
# The rows of one step. Its arrays stay in the CPU's cache.
STEP_ROWS = 16384
# Dictionary indices are half as wide as words, and each is looked up once. So fewer and longer steps are faster.
INDEX_ROWS = 4 * STEP_ROWS
# Texts of at least this many words are rare. They are hashed together, whatever their lengths are.
_LONG_TEXT_WORDS = 12
_SHIFT_IN, SHIFT_A, SHIFT_B = np.uint64(29), np.uint64(32), np.uint64(31)
_SIXTY_FOUR = np.uint64(64)
_TAIL_MASKS = np.array([(1 << 8 * length) - 1 for length in range(8)], dtype=np.uint64)


def filled_indices(array: pa.Array) -> Integers:
    """The dictionary index of each row; 0 if the row is NULL."""
    indices: Integers = array.indices.fill_null(0).to_numpy(zero_copy_only=False) if array.null_count else array.indices.to_numpy()
    return indices


def column_ids(schema: pa.Schema) -> list[int]:
    """The field ids of a schema's top-level columns. A column without an id is named by its place."""
    return [field_id(field) or index for index, field in enumerate(schema)]


def hash_columns(columns: Iterable[tuple[int, pa.Array]], length: int, seed: int = 0) -> Words:
    """One 64-bit hash per row, chained over (id, Arrow array) in the order given."""
    chained = ChainedHashes(columns, seed)
    if length <= STEP_ROWS:
        return chained.hashes(0, length)
    hashes = np.empty(length, dtype=np.uint64)
    for start in range(0, length, STEP_ROWS):
        stop = min(start + STEP_ROWS, length)
        hashes[start:stop] = chained.hashes(start, stop)
    return hashes


def mix(words: Words, factor: np.uint64, shift: np.uint64) -> None:
    """Mix hashes in place: multiply them, then XOR them with their own upper bits."""
    np.multiply(words, factor, out=words)
    words ^= words >> shift


def _absorb(chain: Words, values: Words, factor: np.uint64 = _CHAIN) -> None:
    np.bitwise_xor(chain, values, out=chain)
    mix(chain, factor, _SHIFT_IN)


class ChainedHashes:
    """Columns that have the same number of rows. `hashes` chains a range of these rows."""

    def __init__(self, columns: Iterable[tuple[int, pa.Array]], seed: int = 0) -> None:
        self._seed = np.uint64(seed & MASK_64)
        # The factor of a column is made from its id. It must be odd, because only then is a step a bijection.
        self._columns = [
            (_column(array, column_id), np.uint64((column_id * _FIELD + 0x452821E638D01377) & MASK_64 | 1)) for column_id, array in columns
        ]

    def hashes(self, start: int, stop: int) -> Words:
        """The hashes of rows `start` to `stop`, in a new array that the caller may change."""
        chain = np.full(stop - start, self._seed, dtype=np.uint64)
        for column, factor in self._columns:
            column.absorb(chain, start, stop, factor)
        return chain


class _Column(ABC):
    """A view of an Arrow array. Ranges of its rows can be absorbed into a chain of hashes."""

    def __init__(self, array: pa.Array) -> None:
        self.missing = missing_rows(array)

    @abstractmethod
    def parts(self, start: int, stop: int) -> Sequence[Words]:
        """The words of each row: an array with the first word of all rows, then one with the second, and so on.

        The caller must not change them. The words of a row that is NULL are undefined.
        """

    def absorb(self, chain: Words, start: int, stop: int, factor: np.uint64) -> None:
        """Absorb a range of rows into `chain`. A NULL is absorbed as 0, and a constant is then XORed into the result, where no
        value can have the same effect."""
        missing = None if self.missing is None else self.missing[start:stop]
        for words in self.parts(start, stop):
            _absorb(chain, words if missing is None else np.where(missing, np.uint64(0), words), factor)
        if missing is not None:
            chain ^= missing * _NULL


def missing_rows(array: pa.Array) -> NDArray[np.bool_] | None:
    """Which rows are NULL. None if no row is."""
    return array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None


def _column(array: pa.Array, column_id: int) -> _Column:
    arrow = array.type
    types = pa.types
    if isinstance(arrow, pa.BaseExtensionType):
        return _column(array.storage, column_id)
    if types.is_dictionary(arrow):
        if array.dictionary.null_count:
            return _column(array.dictionary_decode(), column_id)
        return _Dictionary(array, column_id)
    if types.is_struct(arrow):
        return _Struct(array, column_id)
    if types.is_list(arrow) or types.is_large_list(arrow):
        return _List(array, [(column_id, array.values)])
    if types.is_map(arrow):
        return _List(array, [(column_id, array.keys), (column_id + 1, array.items)])
    if types.is_boolean(arrow):
        return _Numbers(array, array.fill_null(False).to_numpy(zero_copy_only=False).view(np.uint8))
    if types.is_fixed_size_binary(arrow) or types.is_decimal(arrow):
        return _Fixed(array)
    if types.is_string(arrow) or types.is_binary(arrow) or types.is_large_string(arrow) or types.is_large_binary(arrow):
        return _Texts(array)
    return _Numbers(array, _bits(array))


def _bits(array: pa.Array) -> Integers:
    """The bits of fixed-width values. So −0.0 differs from 0.0, and a NaN equals only a NaN with the same bits."""
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), dtype=np.uint64)
    return np.frombuffer(buffer, dtype=f"<u{array.type.bit_width // 8}", count=len(array) + array.offset)[array.offset :]


class _Numbers(_Column):
    def __init__(self, array: pa.Array, bits: Integers) -> None:
        super().__init__(array)
        self._bits = bits

    def parts(self, start: int, stop: int) -> Sequence[Words]:
        return [self._bits[start:stop].astype(np.uint64, copy=False)]


class _Fixed(_Column):
    """Decimals and fixed-length bytes. Each value is as many words as its length needs."""

    def __init__(self, array: pa.Array) -> None:
        super().__init__(array)
        width = array.type.bit_width // 8 if pa.types.is_decimal(array.type) else array.type.byte_width
        buffer = array.buffers()[1]
        if buffer is None or not width or not len(array):
            self._rows: Integers = np.zeros((len(array), 8), dtype=np.uint8)
            return
        raw = np.frombuffer(buffer, dtype=np.uint8, count=(len(array) + array.offset) * width)
        self._rows = raw.reshape(-1, width)[array.offset :]

    def parts(self, start: int, stop: int) -> Sequence[Words]:
        rows = self._rows[start:stop]
        width = rows.shape[1]
        padded = -(-width // 8) * 8
        if padded != width:
            wide = np.zeros((len(rows), padded), dtype=np.uint8)
            wide[:, :width] = rows
            rows = wide
        return list(rows.view("<u8").T)


class _Dictionary(_Column):
    """A dictionary array. Each value of the dictionary is hashed once, and a row finds its hash by its dictionary index.

    The words are the same as those of an array of plain values.
    """

    def __init__(self, array: pa.Array, column_id: int) -> None:
        super().__init__(array)
        count = len(array.dictionary)
        # A word is appended, because the dictionary may be empty if all rows are NULL.
        self._words = [np.append(words, np.uint64(0)) for words in _column(array.dictionary, column_id).parts(0, count)]
        self._indices = filled_indices(array)

    def parts(self, start: int, stop: int) -> Sequence[Words]:
        indices = self._indices[start:stop]
        return [words.take(indices) for words in self._words]


class _Struct(_Column):
    def __init__(self, array: pa.Array, column_id: int) -> None:
        super().__init__(array)
        fields = children(array.type)
        self._chained = ChainedHashes([(field_id(field) or index, array.field(index)) for index, field in enumerate(fields)], column_id)

    def parts(self, start: int, stop: int) -> Sequence[Words]:
        return [self._chained.hashes(start, stop)]


class _List(_Column):
    """Hash of a list or map: its length, then the hashes of its elements in order.

    All first elements are absorbed together, then all second ones, and so on. Shorter lists drop out on the way.
    """

    def __init__(self, array: pa.Array, inner: Sequence[tuple[int, pa.Array]]) -> None:
        super().__init__(array)
        self._offsets = _offsets_of(array)
        self._elements = ChainedHashes(inner)

    def parts(self, start: int, stop: int) -> Sequence[Words]:
        offsets = self._offsets[start : stop + 1].astype(np.int64)
        lengths = _lengths(offsets, self.missing, start, stop)
        hashes = lengths.astype(np.uint64)
        low, high = int(offsets[0]), int(offsets[-1])
        if high == low:
            return [hashes]
        elements = self._elements.hashes(low, high)
        first = offsets[:-1] - low
        active = np.flatnonzero(lengths > 0)
        place = 0
        while len(active):
            part = hashes[active]
            _absorb(part, elements[first[active] + place])
            hashes[active] = part
            place += 1
            active = active[lengths[active] > place]
        return [hashes]


def _offsets_of(array: pa.Array) -> Integers:
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type) or pa.types.is_large_list(array.type)
    buffer = array.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(len(array) + 1, dtype=np.int64)
    offsets = np.frombuffer(buffer, dtype=np.int64 if large else np.int32, count=len(array) + array.offset + 1)
    return offsets[array.offset :]


def _lengths(offsets: Integers, missing: NDArray[np.bool_] | None, start: int, stop: int) -> Integers:
    lengths = np.diff(offsets)
    if missing is not None:
        lengths[missing[start:stop]] = 0
    return lengths


class _Texts(_Column):
    """Hash of a text: its length, its whole 8-byte words in order, then the bytes that are left."""

    def __init__(self, array: pa.Array) -> None:
        super().__init__(array)
        self._offsets = _offsets_of(array)
        self._data = array.buffers()[2]

    def parts(self, start: int, stop: int) -> Sequence[Words]:
        offsets = self._offsets[start : stop + 1]
        lengths = _lengths(offsets, self.missing, start, stop)
        low, high = int(offsets[0]), int(offsets[-1])
        if high == low:
            return [lengths.astype(np.uint64)]
        start_word = low >> 3
        words = _aligned_words(self._data, start_word, high)
        # Offsets of 32 bits keep their width: a pass over them needs half the memory. The differences are small, as a step has few texts.
        position = offsets[:-1] - offsets.dtype.type(start_word << 3)
        shortest, longest = int(lengths.min()) >> 3, int(lengths.max()) >> 3
        if shortest == longest or shortest >= _LONG_TEXT_WORDS:
            return [_texts(words, position, lengths, min(shortest, _LONG_TEXT_WORDS))]
        # Texts with the same number of words are hashed together. All texts of a group end at the same word, so no array has to be filtered
        # between two words.
        count = np.minimum(lengths >> 3, _LONG_TEXT_WORDS)
        hashes = np.empty(len(lengths), dtype=np.uint64)
        for kind in np.flatnonzero(np.bincount(count)):
            rows = np.flatnonzero(count == kind)
            hashes[rows] = _texts(words, position.take(rows), lengths.take(rows), int(kind))
        return [hashes]


def _texts(words: Words, position: Integers, lengths: Integers, count: int) -> Words:
    """Hashes of texts that have `count` whole words each, or at least that many if `count` is the limit. `position` is in bytes."""
    hashes = lengths.astype(np.uint64)
    # A word may begin at any byte, so it is joined from two aligned words. All words of one text are shifted by the same number of bits.
    index = (position >> 3).astype(np.int64)
    right = ((position & 7) << 3).astype(np.uint64)
    left = _SIXTY_FOUR - right
    last = len(words) - 1
    if count == _LONG_TEXT_WORDS:
        full = (lengths >> 3).astype(np.int64)
        _absorb_full_words(hashes, words, index, right, left, full)
        index += full
        count = 0
    here = words.take(index, mode="clip")
    for place in range(1, count + 1):
        following = words[min(place, last) :].take(index, mode="clip")
        _absorb(hashes, _joined(here, following, right, left))
        here = following
    # The index may be clipped, because the mask below removes everything behind the last word.
    tail = _joined(here, words[min(count + 1, last) :].take(index, mode="clip"), right, left)
    # The bytes behind the end of a text belong to the next text.
    tail &= _TAIL_MASKS.take(lengths & 7)
    _absorb(hashes, tail)
    return hashes


def _absorb_full_words(hashes: Words, words: Words, index: NDArray[np.int64], right: Words, left: Words, full: NDArray[np.int64]) -> None:
    """Absorb the whole words of every text: all first words, then all second ones, and so on. It changes `hashes`."""
    active: NDArray[np.int64] | None = None
    chain, place = hashes, 0
    longest, shortest = int(full.max()), int(full.min())
    here = words[index] if longest else words
    while place < longest:
        if place >= shortest:
            # Texts that have ended drop out. The others go on in smaller arrays.
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
    # If a word begins at an aligned word, the shift is by 64 bits. NumPy's result is then 0, as it must be.
    low |= following << left
    return low


def _aligned_words(buffer: pa.Buffer, start_word: int, end: int) -> Words:
    """The bytes of the buffer from `start_word` × 8 to `end` as words, with one more word of padding at the end."""
    count = -(-end // 8) - start_word
    if buffer.size >= (start_word + count + 1) * 8 and buffer.address % 8 == 0:
        return np.frombuffer(buffer, dtype="<u8", count=count + 1, offset=start_word * 8)
    padded = np.zeros((count + 1) * 8, dtype=np.uint8)
    raw = np.frombuffer(buffer, dtype=np.uint8)[start_word * 8 : end]
    padded[: len(raw)] = raw
    return padded.view("<u8")
