"""Writes the rows of a task as Parquet files whose column chunks are bytes of the sources wherever this is possible.

Rows come as segments. A segment holds consecutive rows of one source. It has some columns as the bytes of their pages, and the others
decoded. As many
segments as fit make a row group, column by column: bytes are put one behind the other, and decoded columns are encoded by Arrow in memory.
A row has the same place in every column, and both sides of the proof include this place. A row group of a source that is large enough goes
to the file whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from compaction_pipeline.core.errors import MergeFailed
from compaction_pipeline.core.tables.data_file import OutputFile
from compaction_pipeline.core.tables.node import Place
from compaction_pipeline.core.tables.output_names import FilePaths
from compaction_pipeline.formats.parquet.chunks import Piece, Template, footer_of, in_memory
from compaction_pipeline.formats.parquet.footer import Chunk
from compaction_pipeline.formats.parquet.levels import DEFAULT_LEVEL, best_level
from compaction_pipeline.formats.parquet.segments import Part, Segment, SegmentsAhead
from compaction_pipeline.merging.copying.assembled_file import AssembledFile
from compaction_pipeline.merging.copying.proof import CopyProof, checksum, handed_digest, part_of
from compaction_pipeline.merging.memory import release_while_tight
from compaction_pipeline.merging.reading.evolution import Projection
from compaction_pipeline.merging.reading.file_access import FileAccess, in_words
from compaction_pipeline.merging.reading.read import MAX_BATCH_ROWS
from compaction_pipeline.merging.writing.file_format import FileFormat
from compaction_pipeline.merging.writing.metrics import NanCounter
from compaction_pipeline.merging.writing.parquet_options import MIB, ParquetOptions, parquet_writer
from compaction_pipeline.merging.writing.sizing import FileEnds, FileSizing, Progress, rows_to_hold
from compaction_pipeline.merging.writing.write import rejoined

# When the decoded rows that are held have this many bytes per column (three usual pages), they are encoded, even if their row group is not
# full. Starting an encoder costs as much as encoding a page.
_AHEAD_BYTES = 3 * MIB


class Assembler:
    """Takes segments and row groups of one partition. `finish` gives the files.

    `source` is the proof of the reading side: columns that are decoded here are added to it. `digest` is the proof of the writing side.
    """

    def __init__(
        self,
        files: FileAccess,
        file_format: FileFormat,
        names: FilePaths,
        sizing: FileSizing,
        progress: Progress,
        place: Place,
        source: CopyProof,
    ) -> None:
        self.format = file_format
        empty = footer_of(_empty(file_format.arrow, file_format.options))[0]
        self.template = Template.of(empty, file_format.schema, file_format.options.codec)
        self._place = place
        self.digest = CopyProof()
        self.outputs: list[OutputFile] = []
        self._source = source
        self._files = files
        self._names = names
        self._progress = progress
        self._numbers = 0
        self._verbatim = 0
        self._next_row = 0
        self._held: list[Segment] = []
        self._held_rows = 0
        self._ahead = SegmentsAhead()
        self._held_bytes = 0
        self._held_unpacked_bytes = 0
        self._held_file_bytes = 0.0
        # The best level of each leaf, for the row group that is being collected. The values of the next one may differ.
        self._best_levels: dict[int, int] = {}
        self._file: AssembledFile | None = None
        self._ends = FileEnds(sizing, progress)
        self.limit_bytes = sizing.held_bytes(self.format.options.row_group_bytes)
        """Bytes of memory in which a row group is collected."""

    def add(self, segment: Segment) -> None:
        """Put a segment's rows into a file."""
        if not segment.can_be_cut:
            self._roll_before(segment.rows, segment.file_bytes)
            self._hold(segment)
            return
        while segment.rows:
            # Decoded rows can be cut where a file is full.
            segment = replace(segment, file_bytes=segment.rows * self._ends.bytes_per_row)
            room = self._ends.cut(segment.rows, self._taken_bytes())
            if room is None:
                self._hold_cut(segment)
                return
            first, segment = segment.split(room) if room < segment.rows else (segment, Segment(0, 0.0))
            self._hold_cut(first)
            self._flush()
            if self._ends.is_full(self._taken_bytes()):
                self._roll()

    def add_row_group(self, rows: int, chunks: Sequence[Chunk], data: Sequence[Iterable[memoryview]], nans: Mapping[int, int]) -> None:
        """Put a whole row group into a file without changing its bytes. `data` gives the bytes of each leaf in turn."""
        self._roll_before(rows, sum(chunk.length for chunk in chunks))
        number = self._verbatim
        self._verbatim += 1
        file = self._opened()
        with file.group(rows) as group:
            for leaf, (chunk, parts) in enumerate(zip(chunks, data, strict=True)):
                read = length = written = 0
                with group.chunk(leaf, [chunk]) as out:
                    for part in parts:
                        read, length = checksum(part, read), length + len(part)
                        written = out.write(part, written)
                self._source.add_verbatim(number, leaf, rows, length, read)
                self.digest.add_verbatim(number, leaf, rows, out.length, written)
        file.add_nans(nans)
        self._learn()

    def finish(self) -> tuple[OutputFile, ...]:
        """Close the last file. Call once, at the end."""
        self._flush()
        self._roll()
        return tuple(self.outputs)

    def abort(self) -> None:
        """Release the open file without finishing it. The caller deletes what was written."""
        if self._file is not None:
            self._file.abandon()

    def _taken_bytes(self) -> float:
        written = self._file.position if self._file is not None else 0
        return written + self._held_file_bytes

    def _roll_before(self, rows: int, file_bytes: float) -> None:
        """Begin another file if the open one ends before these rows, which cannot be cut (`FileEnds.ends_before`)."""
        begun = self._file is not None or bool(self._held)
        if begun and self._ends.ends_before(rows, file_bytes, self._taken_bytes()):
            self._flush()
            self._roll()

    def _hold_cut(self, segment: Segment) -> None:
        """Hold decoded rows. They are cut where a row group is full."""
        while segment.rows:
            rows = rows_to_hold(segment.rows, segment.held_bytes / segment.rows, self.limit_bytes - self._held_bytes)
            first, segment = segment.split(rows) if rows < segment.rows else (segment, Segment(0, 0.0))
            self._hold(first)

    def _hold(self, segment: Segment) -> None:
        full = self._held_bytes + segment.held_bytes > self.limit_bytes
        # Pages that compress well would otherwise make row groups that are too large for readers.
        wide = self._held_unpacked_bytes + segment.unpacked_bytes > self.format.options.row_group_bytes
        if self._held and segment.pieces and (full or wide):
            self._flush()
        self._held.append(segment)
        self._held_rows += segment.rows
        self._held_unpacked_bytes += segment.unpacked_bytes
        self._held_bytes += segment.held_bytes
        self._held_file_bytes += segment.file_bytes
        self._ahead.note(segment, self._plain_part(segment))
        if self._ahead.held_bytes >= _AHEAD_BYTES * max(len(self._ahead.columns), 1):
            self._encode_ahead()
        if self._held_bytes >= self.limit_bytes:
            self._flush()

    def _plain_part(self, segment: Segment) -> Part | None:
        """The part of a decoded segment whose columns get no dictionary. None if the segment has no such part."""
        dictionaries = self.dictionary_columns()
        if segment.pieces or not segment.can_be_cut:
            return None
        return next((part for part in segment.parts if not any(self.wants_dictionary(top, dictionaries) for top in part.columns)), None)

    def wants_dictionary(self, top: int, dictionaries: frozenset[int]) -> bool:
        """Whether one of the leaves of a top-level column gets a dictionary."""
        return any(leaf in dictionaries for leaf in self.template.columns[top].leaves)

    def _encode_ahead(self) -> None:
        """Encode those columns of the last decoded rows that get no dictionary, before their row group is full.

        The rows are still in the CPU's cache now, and encoded pages take less memory than decoded rows.
        """
        ahead, self._ahead = self._ahead, SegmentsAhead()
        dictionaries = self.dictionary_columns()
        if not ahead.columns or any(self.wants_dictionary(top, dictionaries) for top in ahead.columns):
            return
        segments = self._held[-ahead.segments :]
        rows = sum(segment.rows for segment in segments)
        plain = [replace(segment, parts=(part,)) for segment, part in zip(segments, ahead.parts, strict=True)]
        pieces, nans = _Group(self, plain, self._next_row + self._held_rows - rows).ahead(ahead.columns, self.digest)
        rest = tuple(part for segment in segments for part in segment.parts if part.columns != ahead.columns)
        self._held[-ahead.segments :] = [Segment(rows, sum(segment.file_bytes for segment in segments), pieces, rest, nans)]

    def _opened(self) -> AssembledFile:
        if self._file is None:
            path = self._names(self._place[1], self._numbers)
            self._numbers += 1
            self._file = AssembledFile(self.format, self.template, self._place, self._files, path)
        return self._file

    def _roll(self) -> None:
        if self._file is not None:
            output = self._file.close()
            self.digest.rows += output.record_count
            self.outputs.append(output)
            self._file = None

    def _learn(self) -> None:
        assert self._file is not None
        self._ends.learn(self._file.position, self._file.rows)
        # The allocator would keep the memory of the row group. If the task has little memory, it must give it back.
        release_while_tight()

    def _flush(self) -> None:
        """Write the held rows as one row group."""
        if not self._held:
            return
        if any(segment.pieces for segment in self._held):
            # Encode the decoded segments together now. In a row group that also holds copied bytes, each would be encoded alone.
            self._encode_ahead()
        file = self._opened()
        segments, self._held, self._ahead = self._held, [], SegmentsAhead()
        self._held_rows, self._held_bytes, self._held_unpacked_bytes, self._held_file_bytes = 0, 0, 0, 0.0
        rows = sum(segment.rows for segment in segments)
        content = _Group(self, segments, self._next_row)
        with file.group(rows) as group:
            for leaf, pieces in enumerate(content.pieces(file.nans, self._source, self.digest)):
                first = self._next_row
                with group.chunk(leaf, [piece.chunk for piece in pieces]) as out:
                    for piece in pieces:
                        self.digest.add_bytes(leaf, first, piece.rows, len(piece.data), out.write(piece.data))
                        first += piece.rows
                if first != self._next_row + rows:
                    raise MergeFailed(
                        f"new file {file.path}: a column of {first - self._next_row} rows in a row group of {rows}; "
                        "nothing of this attempt is used"
                    )
        self._next_row += rows
        self._best_levels = {}
        self._learn()

    def dictionary_columns(self) -> frozenset[int]:
        """The leaves that get a dictionary where they are encoded again."""
        voted = self._progress.dictionary_columns()
        return frozenset(number for number, leaf in enumerate(self.format.leaves) if leaf.field_id in voted)

    def _levels(self, table: pa.Table, columns: Sequence[int], positions: Sequence[int], dictionaries: frozenset[int]) -> dict[str, int]:
        """The compression levels of these leaves, by path. Empty if the table sets a level."""
        if not self.format.options.levels_are_free:
            return {}
        for top, column in zip(columns, table.columns, strict=True):
            for number in self.template.columns[top].leaves:
                if number not in self._best_levels:
                    self._best_levels[number] = DEFAULT_LEVEL if number in dictionaries else best_level(column)
        return {self.format.leaves[number].parquet_path: self._best_levels[number] for number in positions}

    def encoded(self, table: pa.Table, columns: Sequence[int], dictionaries: frozenset[int], first: int) -> dict[int, Piece]:
        """Encode these top-level columns with Arrow: a piece for each leaf. `first` is the number of the first row in the task."""
        positions = [number for number, leaf in enumerate(self.template.leaves) if leaf.top in columns]
        paths = [self.format.leaves[number].parquet_path for number in positions if number in dictionaries]
        sink = pa.BufferOutputStream()
        writer = parquet_writer(
            sink, table.schema, self.format.options, paths, [], levels=self._levels(table, columns, positions, dictionaries)
        )
        writer.write_table(table, row_group_size=max(table.num_rows, 1))
        writer.close()
        footer, data = footer_of(sink.getvalue())
        [group] = footer.groups
        if group.rows != table.num_rows:
            raise MergeFailed(f"the encoder wrote {group.rows} rows of {table.num_rows}; nothing of this attempt is used")
        pieces = {}
        for number, chunk in zip(positions, group.chunks, strict=True):
            pages = data[chunk.start : chunk.start + chunk.length]
            self._source.add_bytes(number, first, group.rows, len(pages), checksum(pages))
            pieces[number] = Piece(pages, chunk, group.rows)
        return pieces


class _Group:
    """Makes the columns of one row group from its segments."""

    def __init__(self, owner: Assembler, segments: Sequence[Segment], first: int) -> None:
        self._owner = owner
        self._segments = list(segments)
        self._first = first
        self._dictionaries = owner.dictionary_columns()
        # By part, then by column: the array that was handed to Arrow, and the row number (in the task) at which it begins.
        self._handed: dict[int, dict[int, tuple[int, pa.RecordBatch]]] = {}

    def pieces(self, nans: NanCounter, source: CopyProof, digest: CopyProof) -> list[list[Piece]]:
        """The pieces of every leaf, in the order of the rows."""
        owner = self._owner
        count = len(owner.template.columns)
        together, found = [], {}
        for top in range(count):
            copied = [segment for segment in self._segments if top in segment.pieces]
            if copied and len(copied) < len(self._segments) and self._owner.wants_dictionary(top, self._dictionaries):
                self._decode(top, source, digest)
                copied = []
            if copied:
                found[top] = self._side_by_side(top, nans)
            else:
                together.append(top)
        if together:
            encoded = self._encoded_together(together, dict.fromkeys(together, nans))
            for top in together:
                found[top] = [[encoded[leaf]] for leaf in owner.template.columns[top].leaves]
        self._prove(digest)
        return [pieces for top in range(count) for pieces in found[top]]

    def _decode(self, top: int, source: CopyProof, digest: CopyProof) -> None:
        """Decode a column that some segments hold as bytes. Most files have a dictionary for it, so the new file gets one too."""
        owner = self._owner
        copied = [number for number, segment in enumerate(self._segments) if top in segment.pieces]
        groups = [(self._segments[number].rows, self._segments[number].pieces[top]) for number in copied]
        firsts = [self._first + sum(segment.rows for segment in self._segments[:number]) for number in copied]
        for first, (_, pieces) in zip(firsts, groups, strict=True):
            for leaf, piece in zip(owner.template.columns[top].leaves, pieces, strict=True):
                digest.add_bytes(leaf, first, piece.rows, len(piece.data), checksum(piece.data))
        with in_words("pages held in memory", "unreadable"), pa.BufferReader(in_memory(owner.template, [top], groups)) as file:
            parquet = pq.ParquetFile(file)
            projection = Projection(parquet.schema_arrow, [owner.format.schema.fields[top]], {}, "held in memory")
            for place, number in enumerate(copied):
                segment, first, parts = self._segments[number], firsts[place], []
                for batch in parquet.iter_batches(MAX_BATCH_ROWS, row_groups=[place], use_threads=False):
                    part = part_of((top,), projection.apply(batch), first, source)
                    parts.append(part)
                    first += batch.num_rows
                if first != firsts[place] + segment.rows:
                    raise MergeFailed(
                        f"{first - firsts[place]} rows could be read from pages of {segment.rows} rows; nothing of this attempt is used"
                    )
                kept = {each: pieces for each, pieces in segment.pieces.items() if each != top}
                self._segments[number] = replace(segment, pieces=kept, parts=(*segment.parts, *parts))

    def _arrays(self, segment: Segment, top: int) -> list[tuple[Part, pa.Array]]:
        return [(part, part.batch.column(part.columns.index(top))) for part in segment.parts if top in part.columns]

    def ahead(self, columns: Sequence[int], digest: CopyProof) -> tuple[dict[int, tuple[Piece, ...]], dict[int, dict[int, int]]]:
        """Encode segments that hold only these columns, decoded. Returns the pieces and the number of NaN by column."""
        owner = self._owner
        nans = {top: NanCounter(owner.format.schema, owner.format.modes) for top in columns}
        encoded = self._encoded_together(columns, nans)
        self._prove(digest)
        pieces = {top: tuple(encoded[leaf] for leaf in owner.template.columns[top].leaves) for top in columns}
        return pieces, {top: dict(each.counts) for top, each in nans.items() if top in each.columns}

    def _encoded_together(self, columns: Sequence[int], nans: Mapping[int, NanCounter]) -> dict[int, Piece]:
        """Encode columns that no segment holds as bytes, as one table."""
        fields, chunked = [], []
        for top in columns:
            found = [pair for segment in self._segments for pair in self._arrays(segment, top)]
            column = rejoined([array for _, array in found], self._owner.format.arrow.field(top))
            self._hand(top, self._first, [part for part, _ in found], column)
            if top in nans[top].columns:
                nans[top].add_column(top, column)
            fields.append(self._owner.format.arrow.field(top).with_type(column.type))
            chunked.append(column)
        table = pa.Table.from_arrays(chunked, schema=pa.schema(fields))
        return self._owner.encoded(table, columns, self._dictionaries, self._first)

    def _side_by_side(self, top: int, nans: NanCounter) -> list[list[Piece]]:
        """Make a column that some segments hold as bytes. The decoded rows between them are encoded without a dictionary."""
        owner = self._owner
        arrow = owner.format.arrow.field(top)
        placed: list[list[Piece]] = [[] for _ in owner.template.columns[top].leaves]
        row = self._first
        for segment in self._segments:
            pieces: Sequence[Piece]
            if top in segment.pieces:
                pieces = segment.pieces[top]
                for number, count in segment.nans.get(top, {}).items():
                    nans.counts[number] += count
            else:
                found = self._arrays(segment, top)
                plain = [array.dictionary_decode() if pa.types.is_dictionary(array.type) else array for _, array in found]
                column = pa.chunked_array(plain, arrow.type)
                self._hand(top, row, [part for part, _ in found], column)
                if top in nans.columns:
                    nans.add_column(top, column)
                table = pa.Table.from_arrays([column], schema=pa.schema([arrow]))
                encoded = owner.encoded(table, [top], frozenset(), row)
                pieces = [encoded[leaf] for leaf in owner.template.columns[top].leaves]
            for place, piece in zip(placed, pieces, strict=True):
                place.append(piece)
            row += segment.rows
        return placed

    def _hand(self, top: int, first: int, parts: Sequence[Part], column: pa.Array) -> None:
        """Note which array of an encoded column stands for each part, and at which row."""
        for part, array in zip(parts, column.chunks, strict=True):
            self._handed.setdefault(id(part), {})[top] = (first, array)
            first += len(array)

    def _prove(self, digest: CopyProof) -> None:
        for part in (part for segment in self._segments for part in segment.parts):
            handed = self._handed.get(id(part), {})
            firsts = {first for first, _ in handed.values()}
            if tuple(sorted(handed)) != tuple(sorted(part.columns)) or len(firsts) != 1:
                raise MergeFailed(
                    "the columns of some rows would begin at different rows of the new row group; nothing of this attempt is used"
                )
            arrays = [handed[top][1] for top in part.columns]
            schema = pa.schema(
                [self._owner.format.arrow.field(top).with_type(array.type) for top, array in zip(part.columns, arrays, strict=True)]
            )
            digest.add(handed_digest(part, pa.RecordBatch.from_arrays(arrays, schema=schema), firsts.pop()))


def _empty(schema: pa.Schema, options: ParquetOptions) -> pa.Table:
    sink = pa.BufferOutputStream()
    parquet_writer(sink, schema, options, [], []).close()
    return sink.getvalue()
