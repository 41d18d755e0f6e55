"""Packs files into bins, first-fit decreasing, and says how many files come out of a bin.

The result is deterministic: items of the same size keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence


def first_fit_decreasing(sizes: Sequence[int], capacity: int) -> list[list[int]]:
    """Pack items into bins of at most `capacity`, and return the bins as lists of indexes of `sizes`.

    An item larger than `capacity` gets a bin of its own. Any two bins together hold more than `capacity`. A tree over the free space of
    the bins finds the first bin with enough room in logarithmic time.
    """
    alone: list[list[int]] = []
    opened: list[list[int]] = []
    width = 1 << max(len(sizes) - 1, 0).bit_length()
    # free[i] is the largest free space below node i of the tree. The leaves, which are the bins, start at `width`.
    free = [capacity] * (2 * width)
    for index in sorted(range(len(sizes)), key=lambda position: -sizes[position]):
        if sizes[index] > capacity:
            alone.append([index])
            continue
        place = 1
        while place < width:
            place *= 2
            if free[place] < sizes[index]:
                place += 1
        leaf = place - width
        if leaf == len(opened):
            opened.append([])
        opened[leaf].append(index)
        free[place] -= sizes[index]
        while place > 1:
            place //= 2
            free[place] = max(free[2 * place], free[2 * place + 1])
    return alone + opened


def output_count(input_bytes: int, target_bytes: int, fragment_bytes: int) -> int:
    """Return how many files of the target size hold the input.

    A remainder gets a file of its own, unless that would be a fragment: then the other files take it.
    """
    full, remainder = divmod(input_bytes, target_bytes)
    return max(full + (remainder > fragment_bytes), 1)


def nearest_count(input_bytes: int, target_bytes: int) -> int:
    """Return input / target, rounded to a whole number (a half is rounded down), and at least 1."""
    return max(-((target_bytes - 2 * input_bytes) // (2 * target_bytes)), 1)
