"""Segments of a row group: rows or bytes of one file, held until the row group is full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from compaction_pipeline.formats.parquet.chunks import Piece


@dataclass(frozen=True)
class ReadRows:
    """A batch as it was read. `first` is the number of its first row in the task."""

    batch: pa.RecordBatch
    first: int

    def rows(self, first: int, count: int) -> pa.RecordBatch:
        """These rows by their numbers. Empty if the batch does not hold all of them."""
        start = first - self.first
        return self.batch.slice(start, count) if 0 <= start <= self.batch.num_rows - count else self.batch.slice(0, 0)


@dataclass(frozen=True)
class Part:
    """Decoded columns (places of top-level columns) of consecutive rows. `read` is the batch as it was read, for the comparison."""

    columns: tuple[int, ...]
    batch: pa.RecordBatch
    read: ReadRows


@dataclass(frozen=True)
class Segment:
    """Consecutive rows of one source. A top-level column is either in `pieces` (one for each leaf), or in every one of `parts`.

    `nans` counts the NaN of the columns in `pieces`, by column and then by field id. `file_bytes` is the size of the rows in the source.
    """

    rows: int
    file_bytes: float
    pieces: Mapping[int, tuple[Piece, ...]] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    nans: Mapping[int, Mapping[int, int]] = field(default_factory=dict)

    @property
    def held_bytes(self) -> int:
        """The bytes of memory that the segment takes."""
        pages = sum(len(piece.data) for pieces in self.pieces.values() for piece in pieces)
        return pages + sum(int(part.batch.nbytes) for part in self.parts)

    @property
    def unpacked_bytes(self) -> int:
        """The bytes of memory that a reader needs after it has decompressed the pages."""
        pages = sum(piece.chunk.uncompressed for pieces in self.pieces.values() for piece in pieces)
        return pages + sum(int(part.batch.nbytes) for part in self.parts)

    @property
    def can_be_cut(self) -> bool:
        """Whether all columns are decoded, and every part holds all of the rows."""
        return not self.pieces and all(part.batch.num_rows == self.rows for part in self.parts)

    def split(self, rows: int) -> tuple[Segment, Segment]:
        """The first `rows` rows, and the others. Only for a segment that can be cut."""
        share = self.file_bytes / max(self.rows, 1)
        first = tuple(replace(part, batch=part.batch.slice(0, rows)) for part in self.parts)
        rest = tuple(replace(part, batch=part.batch.slice(rows)) for part in self.parts)
        return Segment(rows, share * rows, parts=first), Segment(self.rows - rows, share * (self.rows - rows), parts=rest)


@dataclass
class SegmentsAhead:
    """The longest run of held segments, up to the newest, that are decoded and have the same columns without a dictionary."""

    columns: tuple[int, ...] = ()
    parts: list[Part] = field(default_factory=list)
    held_bytes: int = 0

    @property
    def segments(self) -> int:
        return len(self.parts)

    def note(self, segment: Segment, plain: Part | None) -> None:
        """Note another segment that is held. `plain` is its part that gets no dictionary."""
        columns = plain.columns if plain is not None else ()
        if columns != self.columns:
            self.columns, self.parts, self.held_bytes = columns, [], 0
        if plain is not None:
            self.parts.append(plain)
            self.held_bytes += int(plain.batch.nbytes)
