"""Parquet footers (parquet.thrift: `FileMetaData`) in the form that copying column chunks needs.

PyArrow neither reads nor writes this form. A footer may be wrong about the place and the sizes of a chunk; `Chunk.problem` and
`checked_pages` check them. Pages are copied only if their writer's own checksum proves them. So a damaged page fails the task of its file,
and does not become part of a new file. Columns are told apart by field ids, not by names.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from isal import isal_zlib

from compaction_pipeline.formats.parquet.thrift import I32, STRUCT, DamagedParquet, Struct, field, read_struct

MAGIC = b"PAR1"
DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 0, 2, 3
BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE, BYTE_ARRAY, FIXED = range(8)
DICTIONARY_ENCODINGS = frozenset({2, 8})
# PLAIN, RLE, BIT_PACKED (old levels), DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY, BYTE_STREAM_SPLIT. In these a page needs no other page.
_PAGE_ENCODINGS = frozenset({0, 3, 4, 5, 6, 9})
_VERBATIM_ENCODINGS = _PAGE_ENCODINGS | DICTIONARY_ENCODINGS
# Longer page headers are not looked for.
_HEADER_BYTES = 16 * 1024
_WRITER = re.compile(r"(parquet-mr|parquet-cpp-arrow|parquet-cpp)(?: version (\d+)\.(\d+))?")
# Older versions made mistakes: sizes left out dictionary headers, pages of one encoding depended on each other (PARQUET-246), compressed
# pages of version 2 claimed to be uncompressed (ARROW-10353), and bounds of decimals were wrong (PARQUET-1655). Readers correct these by
# `created_by`.
_SOUND = {"parquet-mr": (1, 10), "parquet-cpp-arrow": (4, 0), "parquet-cpp": (1 << 30, 0)}


@dataclass(frozen=True)
class Chunk:
    """One leaf column of one row group. `start` and `length` are in bytes and include the dictionary page."""

    meta: Struct
    start: int
    length: int
    values: int
    apart: bool
    typed_order: bool

    @classmethod
    def of(cls, column: Struct, *, typed_order: bool) -> Chunk:
        """Make it from a `ColumnChunk`. Raises DamagedParquet if the chunk is encrypted or lacks a field that is needed."""
        meta: Struct = field(column, 3, {})
        if any(number not in meta for number in (1, 4, 5, 6, 7, 9)):
            raise DamagedParquet("a column chunk's sizes are not in the footer")
        data, dictionary = field(meta, 9), field(meta, 11, 0)
        start = dictionary if 0 < dictionary < data else data
        return cls(meta, start, field(meta, 7), field(meta, 5), 1 in column or 8 in column or 9 in column, typed_order)

    @property
    def uncompressed(self) -> int:
        return int(field(self.meta, 6))

    @property
    def encodings(self) -> frozenset[int]:
        return frozenset(field(self.meta, 2, ()))

    @property
    def has_dictionary(self) -> bool:
        return field(self.meta, 11, 0) > 0 or bool(self.encodings & DICTIONARY_ENCODINGS)

    def problem(self, codec: int, rows: int, file_size: int, *, flat: bool) -> str | None:
        """Why the chunk cannot be copied as it is. None if it can be copied."""
        if self.apart:
            return "encrypted, or in another file"
        if field(self.meta, 4) != codec:
            return "another codec"
        if not self.encodings <= _VERBATIM_ENCODINGS or not self.encodings:
            return "an encoding whose pages may need each other"
        if self.start < len(MAGIC) or self.length < 0 or self.start + self.length > file_size - 12:
            return "outside of its file"
        if (flat and self.values != rows) or self.values < rows:
            return "the number of values does not fit the number of rows"
        return None

    @property
    def pages_stand_alone(self) -> bool:
        """Whether the chunk's data pages may be put behind those of another chunk. This needs a chunk without a dictionary."""
        pages = field(self.meta, 13, ())
        return not self.has_dictionary and self.encodings <= _PAGE_ENCODINGS and all(field(page, 1) != DICTIONARY_PAGE for page in pages)


@dataclass(frozen=True)
class Group:
    """A row group. `first` is the position of its first row in the file."""

    number: int
    first: int
    rows: int
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True)
class Column:
    """A top-level column: its id in the file, its leaves, and its shape without names."""

    field_id: int | None
    leaves: tuple[int, ...]
    flat: bool
    shape: tuple[Any, ...]

    @property
    def is_required(self) -> bool:
        """Whether it is a primitive column without NULLs."""
        return len(self.shape) == 1 and self.shape[0][2] == 0


@dataclass(frozen=True)
class Footer:
    """The footer of a file. `elements` are its schema elements, unchanged, and `meta` is all of it, in `length` bytes."""

    elements: tuple[Struct, ...]
    orders: tuple[bool, ...]
    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    created_by: str
    meta: Struct = dataclasses.field(default_factory=dict, repr=False)
    length: int = 0

    @classmethod
    def of(cls, data: bytes, **limits: int) -> Footer:
        """Make it from the bytes of a `FileMetaData`, within the `limits` of `read_struct`. Raises DamagedParquet if they are damaged, or
        describe a file of which nothing can be copied."""
        try:
            return cls._of(*read_struct(data, **limits))
        except DamagedParquet:
            raise
        except ValueError as error:
            # Two lists of the footer do not fit each other.
            raise DamagedParquet(str(error)) from error
        except (KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise DamagedParquet(f"the footer is damaged ({error})") from error

    @classmethod
    def _of(cls, meta: Struct, length: int) -> Footer:
        elements = tuple(field(meta, 2, ()))
        columns, leaves = _columns(elements)
        orders = [1 in order for order in field(meta, 7, ())]
        typed = tuple(orders) if len(orders) == leaves else (False,) * leaves
        groups, first = [], 0
        for number, group in enumerate(field(meta, 4, ())):
            chunks = tuple(Chunk.of(column, typed_order=order) for column, order in zip(field(group, 1, ()), typed, strict=True))
            groups.append(Group(number, first, field(group, 3), chunks))
            first += field(group, 3)
        if first != field(meta, 3):
            raise DamagedParquet("its row groups do not add up to the file's row count")
        return cls(elements, typed, columns, tuple(groups), field(meta, 6, b"").decode("utf-8", "replace"), meta, length)

    @property
    def trustworthy(self) -> bool:
        """Whether readers read this file without correcting mistakes by its writer's name. A copy would not carry that name."""
        found = _WRITER.match(self.created_by)
        return found is None or (found[2] is not None and (int(found[2]), int(found[3])) >= _SOUND[found[1]])


def _columns(elements: Sequence[Struct]) -> tuple[tuple[Column, ...], int]:
    at, leaf = 1, 0
    columns = []
    for _ in range(field(elements[0], 5, 0)):
        end = _end(elements, at)
        subtree = elements[at:end]
        count = sum(1 for element in subtree if not field(element, 5, 0))
        flat = all(field(element, 3) != 2 for element in subtree)
        columns.append(Column(field(elements[at], 9), tuple(range(leaf, leaf + count)), flat, tuple(_shape(subtree))))
        at, leaf = end, leaf + count
    if at != len(elements):
        raise DamagedParquet("the schema's elements are not one tree")
    return tuple(columns), leaf


def _end(elements: Sequence[Struct], at: int) -> int:
    open_children = 1
    while open_children:
        open_children += field(elements[at], 5, 0) - 1
        at += 1
    return at


def _shape(subtree: Sequence[Struct]) -> list[Any]:
    # Type, length, repetition, children and annotation. Nested elements add their id; the id of the top one may come from a name mapping.
    return [
        (
            *(field(element, number) for number in (1, 2, 3)),
            field(element, 5, 0),
            _annotation(element),
            field(element, 9) if depth else None,
        )
        for depth, element in enumerate(subtree)
    ]


def _annotation(element: Struct) -> Any:
    logical = field(element, 10)
    if logical is not None:
        return logical
    converted = field(element, 6)
    # Only those that mean the same logical type for every writer: UTF8, MAP, LIST, DATE, DECIMAL.
    if converted in (0, 1, 3, 6):
        return {{0: 1, 1: 2, 3: 3, 6: 6}[converted]: (STRUCT, {})}
    if converted == 5:
        return {5: (STRUCT, {1: (I32, field(element, 7, 0)), 2: (I32, field(element, 8))})}
    return converted


def checked_pages(chunk: Chunk, data: memoryview) -> int:
    """Check all pages of a chunk. Returns the checksum of all its bytes.

    Raises DamagedParquet unless they are data pages without a dictionary that fill the chunk, hold as many values as the footer says, and
    match their checksums.
    """
    at = values = whole = 0
    while at < len(data):
        start = at
        header, at = read_struct(data, start)
        kind, page, length = _page(header)
        if kind not in (DATA_PAGE, DATA_PAGE_V2):
            raise DamagedParquet(f"a page of kind {kind} among data pages")
        if field(page, 2 if kind == DATA_PAGE else 4) not in _PAGE_ENCODINGS:
            raise DamagedParquet("a page whose encoding needs other pages")
        found = isal_zlib.crc32(data[at : at + length])
        if at + length > len(data) or found != _crc(header):
            raise DamagedParquet("a page is not what its checksum says")
        whole = isal_zlib.crc32_combine(isal_zlib.crc32(data[start:at], whole), found, length)
        values += field(page, 1)
        at += length
    if at != len(data) or values != chunk.values:
        raise DamagedParquet("its pages are not what the footer says")
    return whole


def checked_start(chunk: Chunk, data: memoryview) -> None:
    """Check only the first page of a chunk. It must be a dictionary page if the footer names one, and otherwise a data page. Raises
    DamagedParquet if not."""
    header, at = read_struct(data)
    kind, _, length = _page(header)
    first_data = field(chunk.meta, 9)
    has_dictionary = chunk.start < first_data
    _crc(header)
    if kind not in ((DICTIONARY_PAGE,) if has_dictionary else (DATA_PAGE, DATA_PAGE_V2)) or at + length > chunk.length:
        raise DamagedParquet(f"its first page is of kind {kind}")
    if has_dictionary and chunk.start + at + length != first_data:
        raise DamagedParquet("its dictionary does not end where its data begins")


class DamagedPages(Exception):
    """Pages that are being copied do not match their headers. Some of them have been written already."""


def proven_pages(chunk: Chunk, parts: Iterable[memoryview]) -> Iterator[memoryview]:
    """Pass the bytes of a chunk on unchanged, and check its pages and their checksums on the way. Raises DamagedPages."""
    pending, left, found, wanted, values = b"", 0, 0, 0, 0
    for part in parts:
        at = 0
        while at < len(part):
            if left:
                step = min(left, len(part) - at)
                found = isal_zlib.crc32(part[at : at + step], found)
                left, at = left - step, at + step
            else:
                head = pending + bytes(part[at : at + _HEADER_BYTES - len(pending)])
                try:
                    header, end = read_struct(head)
                    kind, page, left = _page(header)
                    wanted, found = _crc(header), 0
                except DamagedParquet as error:
                    if len(head) >= _HEADER_BYTES or at + len(head) - len(pending) < len(part):
                        raise DamagedPages(f"no page header ({error})") from error
                    pending, at = head, len(part)
                    continue
                at += end - len(pending)
                pending = b""
                values += 0 if kind == DICTIONARY_PAGE else field(page, 1)
            if not left and found != wanted:
                raise DamagedPages("a page is not what its checksum says")
        yield part
    if pending or left or values != chunk.values:
        raise DamagedPages("its pages are not what the footer says")


def _crc(header: Struct) -> int:
    """The checksum that the writer gave a page. Raises DamagedParquet if it gave none, because then nothing would
    show that the page is damaged."""
    crc = field(header, 4)
    if not isinstance(crc, int):
        raise DamagedParquet("a page without a checksum")
    return crc & 0xFFFFFFFF


def _page(header: Struct) -> tuple[int, Struct, int]:
    """The kind of a page, the header of this kind, and the page's compressed length."""
    kind, length = field(header, 1), field(header, 3)
    page = field(header, {DATA_PAGE: 5, DICTIONARY_PAGE: 7, DATA_PAGE_V2: 8}.get(kind, 0))
    if not isinstance(length, int) or length < 0 or not isinstance(page, dict) or not isinstance(field(page, 1), int):
        raise DamagedParquet("no page header")
    return kind, page, length
