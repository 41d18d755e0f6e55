"""A Bloom filter of 64-bit hashes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_FILTER_STEP = 65_536


class HashFilter:
    """A Bloom filter in which each hash sets one bit. It recognises most hashes that were not added.

    It has at least 16 bits for each of the `expected` hashes, but takes at most `most_bytes`.
    """

    def __init__(self, expected: int, most_bytes: int) -> None:
        # The number of bits is a power of two, because the highest bits of a hash select its bit.
        bits = min((16 * max(expected, 4) - 1).bit_length(), (8 * max(most_bytes, 8)).bit_length() - 1)
        self._shift = np.uint64(64 - bits)
        self._bits = np.zeros(1 << bits >> 3, dtype=np.uint8)

    def add(self, hashes: NDArray[np.uint64]) -> None:
        for start in range(0, len(hashes), _FILTER_STEP):
            slots = hashes[start : start + _FILTER_STEP] >> self._shift
            places, bits = (slots >> np.uint64(3)).view(np.int64), slots.astype(np.uint8) & np.uint8(7)
            # Each of the eight bits is set in a step of its own. Within a step a byte may occur twice, and `bitwise_or.at` would take five
            # times as long.
            places = places[np.argsort(bits, kind="stable")]
            ends = np.cumsum(np.bincount(bits, minlength=8))
            for bit, named in enumerate(np.split(places, ends[:-1])):
                self._bits[named] |= np.uint8(1 << bit)

    def add_sorted(self, hashes: NDArray[np.uint64]) -> None:
        """The same as `add`, but faster. The hashes must be in ascending order."""
        for start in range(0, len(hashes), _FILTER_STEP):
            slots = hashes[start : start + _FILTER_STEP] >> self._shift
            places = (slots >> np.uint64(3)).view(np.int64)
            begins = np.flatnonzero(np.append(True, places[1:] != places[:-1]))
            self._bits[places[begins]] |= np.bitwise_or.reduceat(_bit(slots), begins)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._bits.nbytes

    def may_hold(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """For each hash: False means that it was never added, True that it may have been."""
        slots = hashes >> self._shift
        there: NDArray[np.bool_] = (self._bits.take((slots >> np.uint64(3)).view(np.int64)) & _bit(slots)) != 0
        return there


def _bit(slots: NDArray[np.uint64]) -> NDArray[np.uint8]:
    bit: NDArray[np.uint8] = np.left_shift(np.uint8(1), slots.astype(np.uint8) & np.uint8(7))
    return bit
