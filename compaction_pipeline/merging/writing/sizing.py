"""How large output files are: where one file ends and the next begins, whether rows are encoded or copied as bytes.

A file ends near its target size. The last rows of a task stay in the last file when a file of their own would be smaller than a
fragment: the next plan would have to merge such a file again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

_LEAST_BYTES_PER_ROW = 0.01


@dataclass(frozen=True)
class FileSizing:
    """`target` is the size of a file, and `buffer` the size of the rows held in memory, in bytes.

    The last of several files has at least `fragment` bytes: when fewer are left, they go into the file before it.
    """

    target: int
    fragment: int
    buffer: int

    def held_bytes(self, row_group_bytes: int) -> int:
        """Bytes of memory in which one row group is collected; `row_group_bytes` is what the table allows."""
        return min(row_group_bytes, self.buffer)


@dataclass
class Progress:
    """What the reading side knows so far. The writing side sizes files and chooses encodings by it."""

    rows_expected: int
    bytes_per_row: float
    rows_seen: int = 0
    rows_kept: int = 0
    _files_seen: int = 0
    _dictionary_votes: dict[int, int] = field(default_factory=dict)

    def note_file(self, dictionary_encoded: Iterable[int]) -> None:
        """Note a file that is about to be read, with the ids of the leaf columns that it dictionary-encodes."""
        self._files_seen += 1
        for number in dictionary_encoded:
            self._dictionary_votes[number] = self._dictionary_votes.get(number, 0) + 1

    def rows_left(self) -> float:
        """Live rows that are still to come, when the share of live rows stays what it was so far."""
        live = self.rows_kept / self.rows_seen if self.rows_seen else 1.0
        return (self.rows_expected - self.rows_seen) * live

    def dictionary_columns(self) -> frozenset[int]:
        """Ids of the leaf columns that at least half of the files read so far dictionary-encode."""
        return frozenset(number for number, votes in self._dictionary_votes.items() if 2 * votes >= self._files_seen)


class FileEnds:
    """Decides where the files of one partition end. `taken_bytes` is always what the open file holds, rows not yet written included."""

    def __init__(self, sizing: FileSizing, progress: Progress) -> None:
        self._sizing = sizing
        self._progress = progress
        self.bytes_per_row = progress.bytes_per_row
        """How many bytes a row takes in a file: by the inputs at first, then by what was written."""

    def learn(self, file_bytes: int, rows: int) -> None:
        """Note how large the open file has become."""
        self.bytes_per_row = max(file_bytes / max(rows, 1), _LEAST_BYTES_PER_ROW)

    def cut(self, rows: int, taken_bytes: float) -> int | None:
        """How many of the next `rows` still go into the open file before it ends. None if all of them do, and the file does not end yet."""
        room = max(1, self._rows_to_target(taken_bytes))
        return None if rows < room or self._leaves_a_fragment(rows - room) else room

    def is_full(self, taken_bytes: float) -> bool:
        """Whether at most one more row fits below the target."""
        return self._rows_to_target(taken_bytes) <= 1

    def ends_before(self, rows: int, file_bytes: float, taken_bytes: float) -> bool:
        """Whether the open file ends before a row group of `file_bytes`, which cannot be cut. It does if less than half of the row group
        would fit, unless the rows that are left would make a fragment."""
        return self._sizing.target - taken_bytes < file_bytes / 2 and not self._leaves_a_fragment(rows)

    def _rows_to_target(self, taken_bytes: float) -> int:
        return int((self._sizing.target - taken_bytes) / self.bytes_per_row)

    def _leaves_a_fragment(self, rows: int) -> bool:
        return (rows + self._progress.rows_left()) * self.bytes_per_row < self._sizing.fragment


def rows_to_hold(rows: int, row_bytes: float, room_bytes: float) -> int:
    """How many of the next `rows` fill a row group that has room for `room_bytes`. It is at least 1: the row that fills the group belongs
    to it."""
    return min(rows, max(1, int(room_bytes / max(row_bytes, 1.0)) + 1))
