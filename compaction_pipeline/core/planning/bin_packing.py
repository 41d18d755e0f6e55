"""First-fit decreasing bins, and how many files come out of one.

Deterministic: items of one size keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence


def first_fit_decreasing(sizes: Sequence[int], capacity: int) -> list[list[int]]:
    """Indexes of `sizes` in bins of at most `capacity`; an item larger than that gets a bin of its own.

    Any two bins together hold more than `capacity`. A tree over the bins' free space finds the first that fits in log time.
    """
    alone: list[list[int]] = []
    opened: list[list[int]] = []
    width = 1 << max(len(sizes) - 1, 0).bit_length()
    # free[i] is the largest free space below node i of the tree; its leaves start at `width`.
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
    """Files that come out: full ones, and a remainder that is folded into the last when it would be a fragment."""
    full, remainder = divmod(input_bytes, target_bytes)
    return max(full + (remainder > fragment_bytes), 1)


def nearest_count(input_bytes: int, target_bytes: int) -> int:
    """Files of even size whose size is nearest to the target; never more than bins of the target size would give."""
    return max(-((target_bytes - 2 * input_bytes) // (2 * target_bytes)), 1)
