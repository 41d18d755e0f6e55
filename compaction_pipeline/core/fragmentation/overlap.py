"""Tells how many data files of a node a look-up on the sort columns may open, from the bounds of columns alone.

Sorted files of one run do not overlap, and a look-up opens one of them. Each later append overlaps them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from compaction_pipeline.core.tables.data_file import Bounds

_MOST_COMPARED = 2_000
"""Of more files, the columns behind the first are left out. Which of so many overlap in all columns would take too long to tell."""


def overlap_depth(files: Iterable[Mapping[int, Bounds | None] | None], columns: Sequence[int]) -> int | None:
    """Return the greatest number of data files that may all hold one value of each of these columns. Of several thousand files that overlap
    in the first columns it may be too high, and never too low.

    `files` has for each data file its bounds by column, both inclusive; None for a column without bounds, whose file may hold any value.
    Return None when there are no columns, or when the bounds of a column were not read of a file.
    """
    boxes: list[Sequence[Bounds | None]] = []
    for bounds in files:
        if bounds is None or any(column not in bounds for column in columns):
            return None
        boxes.append([bounds[column] for column in columns])
    return _deepest(boxes, 0, 0) if columns else None


def _deepest(boxes: Sequence[Sequence[Bounds | None]], column: int, best: int) -> int:
    """The most boxes that share a point, in the columns from this one on; `best` when there are not more."""
    if len(boxes) <= best:
        return best
    if column + 1 == len(boxes[0]) or len(boxes) > _MOST_COMPARED:
        return max(best, _most_at_one_value([box[column] for box in boxes]))
    for sharing in sorted(_sharing(boxes, column), key=len, reverse=True):
        best = _deepest(sharing, column + 1, best)
    return best


def _most_at_one_value(intervals: Sequence[Bounds | None]) -> int:
    """The most intervals that hold one value."""
    bounded = [each for each in intervals if each is not None]
    lowers, uppers = sorted(lower for lower, _ in bounded), sorted(upper for _, upper in bounded)
    most = ended = 0
    for begun, lower in enumerate(lowers, start=1):
        while uppers[ended] < lower:
            ended += 1
        most = max(most, begun - ended)
    return most + len(intervals) - len(bounded)


def _sharing(boxes: Sequence[Sequence[Bounds | None]], column: int) -> Iterator[list[Sequence[Bounds | None]]]:
    """Each set of boxes that share a value of this column, and to which none could be added."""
    anywhere = [box for box in boxes if box[column] is None]
    bounded = sorted(((bounds, box) for box in boxes if (bounds := box[column]) is not None), key=lambda one: one[0][0])
    current: list[tuple[Bounds, Sequence[Bounds | None]]] = []
    for bounds, box in bounded:
        left = [one for one in current if one[0][1] >= bounds[0]]
        if len(left) < len(current):
            yield [*anywhere, *(each for _, each in current)]
        current = [*left, (bounds, box)]
    yield [*anywhere, *(each for _, each in current)]
