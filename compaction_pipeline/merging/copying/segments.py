"""Segments of a row group on their way: rows or bytes of one file, and those that are held until the group is full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from compaction_pipeline.merging.copying.chunks import Piece
from compaction_pipeline.merging.copying.proof import Part


@dataclass(frozen=True)
class Segment:
    """Consecutive rows of one source. A top-level column is either in `pieces` (a piece per leaf) or in every one of `parts`.

    `nans` are the NaN of the columns in `pieces`: by column, then by field id. `file_bytes` is what the rows take in the source.
    """

    rows: int
    file_bytes: float
    pieces: Mapping[int, tuple[Piece, ...]] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    nans: Mapping[int, Mapping[int, int]] = field(default_factory=dict)

    @property
    def held_bytes(self) -> int:
        """Bytes of memory."""
        pages = sum(len(piece.data) for pieces in self.pieces.values() for piece in pieces)
        return pages + sum(int(part.batch.nbytes) for part in self.parts)

    @property
    def unpacked_bytes(self) -> int:
        """Bytes of memory of a reader that decompressed the pages."""
        pages = sum(piece.chunk.uncompressed for pieces in self.pieces.values() for piece in pieces)
        return pages + sum(int(part.batch.nbytes) for part in self.parts)

    @property
    def can_be_cut(self) -> bool:
        """Whether it is decoded in whole, every part with all of the rows."""
        return not self.pieces and all(part.batch.num_rows == self.rows for part in self.parts)

    def split(self, rows: int) -> tuple[Segment, Segment]:
        """The first rows and the others, of a segment that can be cut."""
        share = self.file_bytes / max(self.rows, 1)
        first = tuple(replace(part, batch=part.batch.slice(0, rows)) for part in self.parts)
        rest = tuple(replace(part, batch=part.batch.slice(rows)) for part in self.parts)
        return Segment(rows, share * rows, parts=first), Segment(self.rows - rows, share * (self.rows - rows), parts=rest)


@dataclass
class SegmentsAhead:
    """The last segments that are held, so far as they are decoded in whole and the same columns of all get no dictionary."""

    columns: tuple[int, ...] = ()
    parts: list[Part] = field(default_factory=list)
    held_bytes: int = 0

    @property
    def segments(self) -> int:
        return len(self.parts)

    def note(self, segment: Segment, plain: Part | None) -> None:
        """Another segment is held; `plain` is its part without dictionaries."""
        columns = plain.columns if plain is not None else ()
        if columns != self.columns:
            self.columns, self.parts, self.held_bytes = columns, [], 0
        if plain is not None:
            self.parts.append(plain)
            self.held_bytes += int(plain.batch.nbytes)
