"""Decides which bytes of an input can be copied, and reads them.

A column can be copied if its schema elements (names apart), its codec and its encodings are those of the output. A row group that is large
enough moves whole, with its dictionaries. Of a smaller row group, a column is copied only if each of its pages can be read alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from compaction_pipeline.core.errors import FileUnreadable
from compaction_pipeline.formats.arrow_fields import field_id
from compaction_pipeline.formats.file_io.ranges import RangedFile
from compaction_pipeline.formats.parquet.chunks import Template
from compaction_pipeline.formats.parquet.footer import MAGIC, Chunk, Footer, Group, checked_pages, checked_start, proven_pages
from compaction_pipeline.formats.parquet.thrift import DamagedParquet, field
from compaction_pipeline.merging.reading.file_access import in_words
from compaction_pipeline.merging.reading.read import OpenFile

MIB = 1024 * 1024
_TAIL_BYTES = 64 * 1024
_HEADER_BYTES = 16 * 1024
_STREAMED_BYTES = MIB
_GAP_BYTES = 128 * 1024
# Reading one byte of a footer takes as long as decoding about 25 bytes of data. A footer may be 1/50 of its file, so reading it takes
# at most half as long as decoding the file.
_SMALL_FOOTER_BYTES = 16 * 1024
_FOOTER_SHARE = 50


@dataclass(frozen=True)
class CopyLimits:
    """Limits in bytes. A row group of at least `verbatim` moves whole. A page of at least `page` is worth keeping. A held row group takes
    at most `held`."""

    verbatim: int
    page: int
    held: int

    @classmethod
    def nothing(cls) -> CopyLimits:
        """Limits with which every row is decoded."""
        return cls(sys.maxsize, sys.maxsize, 0)

    @classmethod
    def of(cls, target: int, held: int) -> CopyLimits:
        """Limits for a target file size. Row groups of 8 MiB move whole, or those of 1/16 of the target if this is less."""
        return cls(min(8 * MIB, max(target // 16, 1)), min(16 * 1024, max(target // 8192, 1)), held)


@dataclass(frozen=True)
class Way:
    """How a row group is copied: whole, or only these top-level columns while the others are decoded."""

    whole: bool
    columns: tuple[int, ...]


class CopySource:
    """The bytes of one input file that can be copied."""

    def __init__(self, opened: OpenFile, stream: ByteStream, footer: Footer, columns: Sequence[int | None], template: Template) -> None:
        self.groups = footer.groups
        self._opened = opened
        self._stream = stream
        self._footer = footer
        self._columns = columns
        self._template = template

    @classmethod
    def of(cls, opened: OpenFile, template: Template, ids: Sequence[int]) -> CopySource | None:
        """None if nothing of the file can be copied. `ids` are the field ids of the output's top-level columns."""
        stream = ByteStream(opened.source, opened.path)
        footer = stream.footer()
        if footer is None:
            return None
        metadata = opened.parquet.metadata
        if (
            not footer.trustworthy
            or len(footer.columns) != len(opened.schema)
            or metadata.num_columns != len(footer.orders)
            or [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)] != [group.rows for group in footer.groups]
        ):
            return None
        found: dict[int, int | None] = {}
        for place, each in enumerate(opened.schema):
            number = field_id(each)
            if number is not None:
                found[number] = None if number in found else place
        columns: list[int | None] = []
        for top, wanted in enumerate(ids):
            index = found.get(wanted)
            same = index is not None and footer.columns[index].shape == template.columns[top].shape
            columns.append(index if same else None)
        return cls(opened, stream, footer, columns, template) if any(index is not None for index in columns) else None

    def chunks(self, group: Group, top: int) -> list[Chunk]:
        """The file's chunks of one of the output's top-level columns. The file must have the column."""
        index = self._columns[top]
        assert index is not None
        return [group.chunks[leaf] for leaf in self._footer.columns[index].leaves]

    def way(self, group: Group, limits: CopyLimits) -> Way | None:
        """How to copy a row group that no delete touches. None if it is decoded."""
        total = sum(chunk.length for chunk in group.chunks)
        sound = [top for top, index in enumerate(self._columns) if index is not None and self._is_sound(group, top)]
        if group.rows and len(sound) == len(self._columns):
            length = sum(chunk.length for top in sound for chunk in self.chunks(group, top))
            if length >= limits.verbatim:
                self._opened.hold([(chunk.start, chunk.length) for top in sound for chunk in self.chunks(group, top)])
                if self._begins_well(group):
                    return Way(True, tuple(sound))
        alone = [top for top in sound if all(_stands_alone(chunk, limits) for chunk in self.chunks(group, top))]
        copied = sum(chunk.length for top in alone for chunk in self.chunks(group, top))
        decoded = len(self._columns) - len(alone)
        # If most bytes are decoded anyway, decoding all rows is cheaper. And held segments must leave room for others.
        if not group.rows or 4 * copied < total or 2 * total > limits.held or 8 * group.rows * decoded > limits.held:
            return None
        return Way(False, tuple(alone))

    def _is_sound(self, group: Group, top: int) -> bool:
        flat = self._template.columns[top].flat
        return all(
            chunk.problem(self._template.codec, group.rows, self._stream.size, flat=flat) is None for chunk in self.chunks(group, top)
        )

    def _begins_well(self, group: Group) -> bool:
        try:
            for top in range(len(self._columns)):
                for chunk in self.chunks(group, top):
                    checked_start(chunk, self._stream.read(chunk.start, min(_HEADER_BYTES, chunk.length)))
        except DamagedParquet:
            return False
        return True

    def whole(self, group: Group) -> tuple[list[Chunk], list[Iterator[memoryview]]]:
        """The chunks of all leaves of the output, and the bytes of each in small parts. A part is valid only until the next one is read."""
        chunks = [chunk for top in range(len(self._columns)) for chunk in self.chunks(group, top)]
        return chunks, [proven_pages(chunk, self._stream.parts(chunk.start, chunk.length)) for chunk in chunks]

    def pages(self, group: Group, columns: Sequence[int]) -> dict[int, list[tuple[Chunk, memoryview, int]]]:
        """The chunks, bytes and checksums of these top-level columns. Columns whose pages do not match the footer are left out."""
        data = self._stream.ranges([(chunk.start, chunk.length) for top in columns for chunk in self.chunks(group, top)])
        found: dict[int, list[tuple[Chunk, memoryview, int]]] = {}
        for top in columns:
            pairs = [(chunk, data[chunk.start, chunk.length]) for chunk in self.chunks(group, top)]
            with suppress(DamagedParquet):
                found[top] = [(chunk, view, checked_pages(chunk, view)) for chunk, view in pairs]
        return found


def _stands_alone(chunk: Chunk, limits: CopyLimits) -> bool:
    pages = sum(field(page, 3) for page in field(chunk.meta, 13, ()))
    return chunk.pages_stand_alone and chunk.uncompressed >= limits.page * max(pages, 1)


class ByteStream:
    """Reads the bytes of an input, beside PyArrow."""

    def __init__(self, source: Any, path: str) -> None:
        self._source = source
        self._path = path
        self._arrow = isinstance(source, pa.NativeFile)
        self._buffers = self._arrow or isinstance(source, RangedFile)
        with in_words(f"file {path}", "unreadable", path):
            self.size = int(source.size() if self._arrow else source.seek(0, 2))

    def read(self, start: int, length: int) -> memoryview:
        """These bytes, in one read. Raises FileUnreadable if the file ends before them."""
        with in_words(f"file {self._path}", "unreadable", self._path):
            self._source.seek(start)
            data = memoryview(self._source.read_buffer(length) if self._buffers else self._source.read(length)).cast("B")
        if len(data) != length:
            raise self._cut(f"only {len(data)} of {length} bytes could be read at byte {start}")
        return data

    def _cut(self, how: str) -> FileUnreadable:
        return FileUnreadable(
            f"file {self._path}: unreadable ({how})", self._path, "restore the file, or remove its entry from the table's metadata"
        )

    def parts(self, start: int, length: int) -> Iterator[memoryview]:
        """These bytes in order, in parts. A part is valid only until the next one is read."""
        if not self._arrow:
            while length:
                data = self.read(start, min(length, 8 * _STREAMED_BYTES))
                yield data
                start, length = start + len(data), length - len(data)
            return
        buffer = memoryview(bytearray(min(length, _STREAMED_BYTES)))
        while length:
            with in_words(f"file {self._path}", "unreadable", self._path):
                self._source.seek(start)
                count = self._source.readinto(buffer[: min(length, len(buffer))])
            if not count:
                raise self._cut(f"it ends at {start}, {length} bytes early")
            yield buffer[:count]
            start, length = start + count, length - count

    def ranges(self, spans: Sequence[tuple[int, int]]) -> dict[tuple[int, int], memoryview]:
        """The bytes of each (start, length). Ranges that lie close together are read at once."""
        found: dict[tuple[int, int], memoryview] = {}
        joined: list[tuple[int, int]] = []
        end = 0
        for start, length in [*sorted(spans), (self.size + 2 * _GAP_BYTES, 0)]:
            if joined and start - end > _GAP_BYTES:
                base = joined[0][0]
                data = self.read(base, end - base)
                found.update({span: data[span[0] - base : span[0] - base + span[1]] for span in joined})
                joined = []
            joined.append((start, length))
            end = max(end if len(joined) > 1 else 0, start + length)
        return found

    def footer(self) -> Footer | None:
        """The footer of the file; None if it is not one to copy by. PyArrow will then read the file, or say what is wrong with it."""
        if self.size < 12:
            return None
        tail = self.read(max(self.size - _TAIL_BYTES, 0), min(self.size, _TAIL_BYTES))
        length = int.from_bytes(tail[-8:-4], "little")
        if tail[-4:] != MAGIC or length + 12 > self.size:
            return None
        if length > _SMALL_FOOTER_BYTES and _FOOTER_SHARE * length > self.size:
            # Reading the footer would take more than half as long as decoding the rows.
            return None
        whole = tail[len(tail) - 8 - length : -8] if length + 8 <= len(tail) else self.read(self.size - 8 - length, length)
        try:
            return Footer.of(bytes(whole))
        except DamagedParquet:
            return None
