"""Describes column chunks that are made of the bytes of other chunks: one chunk moved, or data pages put one behind the other.

The new footer says only what is true of all pages of a chunk. It never has page indexes, bloom filters or sizes of values. Statistics
stay only if every source has them in the order that the spec defines. Numbers of fields are those of parquet.thrift.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, DoubleType, FixedType, FloatType, PrimitiveType, StringType
from pyiceberg.utils.decimal import decimal_required_bytes

from compaction_pipeline.formats.parquet.footer import BOOLEAN, BYTE_ARRAY, DOUBLE, FIXED, FLOAT, INT32, INT64, MAGIC, Chunk, Column, Footer
from compaction_pipeline.formats.parquet.leaves import leaves
from compaction_pipeline.formats.parquet.thrift import BINARY, I16, I32, I64, LIST, STRUCT, DamagedParquet, Struct, field, write_struct

CREATED_BY = b"compaction-pipeline version 1.0.0 (build copied)"
"""The `created_by` of files with copied bytes. Readers look it up to work around bugs of known writers, and list none for this name."""
_CODECS = {"none": 0, "snappy": 1, "gzip": 2, "brotli": 4, "zstd": 6, "lz4": 7}


_UUID_BYTES = 16


@dataclass(frozen=True)
class LeafColumn:
    """A leaf of the output: its physical Parquet type, its path, and the Iceberg type by which its bounds are compared."""

    physical: int
    path: tuple[bytes, ...]
    kind: PrimitiveType
    top: int


@dataclass(frozen=True)
class Template:
    """What all files of a task share: schema elements, columns and leaves. They come from an empty file that Arrow wrote."""

    elements: tuple[Struct, ...]
    columns: tuple[Column, ...]
    leaves: tuple[LeafColumn, ...]
    codec: int

    @classmethod
    def of(cls, empty: Footer, schema: Schema, codec: str) -> Template:
        paths = list(_paths(empty.elements))
        tops = [top for top, column in enumerate(empty.columns) for _ in column.leaves]
        columns = [
            LeafColumn(physical, path, leaf.type, top) for (physical, path), leaf, top in zip(paths, leaves(schema), tops, strict=True)
        ]
        return cls(empty.elements, empty.columns, tuple(columns), _CODECS[codec])


def _paths(elements: Sequence[Struct]) -> Iterator[tuple[int, tuple[bytes, ...]]]:
    """The physical type and the path in the schema of every leaf."""
    stack: list[tuple[tuple[bytes, ...], int]] = []
    path: tuple[bytes, ...] = ()
    left = field(elements[0], 5, 0)
    for element in elements[1:]:
        while not left:
            path, left = stack.pop()
        left -= 1
        name = field(element, 4)
        inner = field(element, 5, 0)
        if not inner:
            yield field(element, 1), (*path, name)
            continue
        stack.append((path, left))
        path, left = (*path, name), inner


@dataclass(frozen=True)
class Piece:
    """The bytes of one leaf for `rows` rows. `data` holds the pages of the chunk, in memory."""

    data: memoryview
    chunk: Chunk
    rows: int


def footer_of(data: pa.Buffer) -> tuple[Footer, memoryview]:
    """The footer and the bytes of a Parquet file in memory. Only for files that we have just written."""
    view = memoryview(data).cast("B")
    length = int.from_bytes(view[-8:-4], "little")
    return Footer.of(bytes(view[-8 - length : -8])), view


def moved_chunk(sources: Sequence[Chunk], leaf: LeafColumn, codec: int, offset: int) -> Struct:
    """The `ColumnChunk` of a new file. Its bytes are those of the sources, one behind the other, and begin at `offset`."""
    encodings = sorted(frozenset().union(*(source.encodings for source in sources)))
    meta: Struct = {
        1: (I32, leaf.physical),
        2: (LIST, (I32, encodings)),
        3: (LIST, (BINARY, list(leaf.path))),
        4: (I32, codec),
        5: (I64, sum(source.values for source in sources)),
        6: (I64, sum(source.uncompressed for source in sources)),
        7: (I64, sum(source.length for source in sources)),
        9: (I64, offset),
    }
    if len(sources) == 1 and sources[0].start < field(sources[0].meta, 9):
        meta[9] = (I64, offset + field(sources[0].meta, 9) - sources[0].start)
        meta[11] = (I64, offset)
    statistics = _statistics(sources, leaf)
    if statistics:
        meta[12] = (STRUCT, statistics)
    pages = _page_counts(sources)
    if pages:
        meta[13] = (LIST, (STRUCT, [{1: (I32, page), 2: (I32, encoding), 3: (I32, count)} for (page, encoding), count in pages]))
    return {2: (I64, 0), 3: (STRUCT, meta)}


def _page_counts(sources: Sequence[Chunk]) -> list[tuple[tuple[int, int], int]]:
    counts: Counter[tuple[int, int]] = Counter()
    for source in sources:
        pages = field(source.meta, 13)
        if not pages:
            return []
        for page in pages:
            counts[field(page, 1), field(page, 2)] += field(page, 3)
    return sorted(counts.items())


def _statistics(sources: Sequence[Chunk], leaf: LeafColumn) -> Struct:
    found = [(source, field(source.meta, 12, {})) for source in sources if source.values]
    merged: Struct = {}
    counts = [field(statistics, 3) for _, statistics in found]
    if found and all(count is not None for count in counts):
        merged[3] = (I64, sum(counts))
    # Chunks that hold only NULLs say nothing about the lowest and the highest value.
    bounded = [(source, each) for source, each in found if field(each, 3) != source.values]
    try:
        bounds = [_bounds(source, each, leaf) for source, each in bounded]
    except DamagedParquet:
        return merged
    if bounds and all(each is not None for each in bounds):
        low = min((each[0] for each in bounds if each is not None), key=lambda bound: bound[0])
        high = max((each[1] for each in bounds if each is not None), key=lambda bound: bound[0])
        merged[5], merged[6] = (BINARY, high[1]), (BINARY, low[1])
        for number, exact in ((7, high[2]), (8, low[2])):
            if exact is not None:
                merged[number] = (1, exact)
    return merged


_Bound = tuple[Any, bytes, bool | None]


def _bounds(source: Chunk, statistics: Struct, leaf: LeafColumn) -> tuple[_Bound, _Bound] | None:
    low, high = field(statistics, 6), field(statistics, 5)
    # Writers compared the deprecated `min` and `max` in different ways.
    if not source.typed_order or low is None or high is None:
        return None
    # A bound that was cut is none where all values have one length: PyArrow would read behind its end.
    if leaf.physical == FIXED and {len(low), len(high)} != {_length(leaf.kind)}:
        return None
    least, greatest = decoded_bound(leaf, low), decoded_bound(leaf, high)
    if isinstance(leaf.kind, (FloatType, DoubleType)):
        if math.isnan(least) or math.isnan(greatest):
            return None
        # A bound of zero may stand for both zeros (parquet.thrift).
        least = low if least else struct.pack("<f" if leaf.physical == FLOAT else "<d", -0.0)
        greatest = high if greatest else struct.pack("<f" if leaf.physical == FLOAT else "<d", 0.0)
        low, high = least, greatest
        least, greatest = decoded_bound(leaf, low), decoded_bound(leaf, high)
    if greatest < least:
        return None
    return (least, low, field(statistics, 8)), (greatest, high, field(statistics, 7))


def _length(kind: PrimitiveType) -> int:
    """The length of the values of a type that Parquet stores with one length."""
    if isinstance(kind, DecimalType):
        return decimal_required_bytes(kind.precision)
    return len(kind) if isinstance(kind, FixedType) else _UUID_BYTES


def decoded_bound(leaf: LeafColumn, raw: bytes) -> Any:
    """A value to compare a raw bound by. Raises DamagedParquet for bytes that are not of the type.

    The length of values that all have one length is not looked at.
    """
    try:
        return _decoded(leaf, raw)
    except (UnicodeDecodeError, struct.error) as error:
        raise DamagedParquet(str(error)) from error


def _decoded(leaf: LeafColumn, raw: bytes) -> Any:
    physical = leaf.physical
    if physical in (INT32, INT64):
        return struct.unpack("<i" if physical == INT32 else "<q", raw)[0]
    if physical in (FLOAT, DOUBLE):
        return struct.unpack("<f" if physical == FLOAT else "<d", raw)[0]
    if physical == BOOLEAN:
        return struct.unpack("<?", raw)[0]
    if isinstance(leaf.kind, StringType):
        # A writer may have cut a bound inside a character. Such a bound is not used.
        raw.decode()
    if physical in (BYTE_ARRAY, FIXED):
        return int.from_bytes(raw, "big", signed=True) if isinstance(leaf.kind, DecimalType) else raw
    raise DamagedParquet(f"physical type {physical} has no order")


def row_group(columns: Sequence[Struct], rows: int, offset: int, number: int) -> Struct:
    """A `RowGroup` of chunks that lie one behind the other and begin at `offset`."""
    metas = [field(column, 3) for column in columns]
    group: Struct = {
        1: (LIST, (STRUCT, list(columns))),
        2: (I64, sum(field(meta, 6) for meta in metas)),
        3: (I64, rows),
        5: (I64, offset),
        6: (I64, sum(field(meta, 7) for meta in metas)),
    }
    if number < 1 << 15:
        group[7] = (I16, number)
    return group


def file_end(template: Template, groups: Sequence[Struct]) -> bytes:
    """The end of a file with these row groups: its footer, the footer's length and the magic bytes."""
    meta: Struct = {
        1: (I32, 2),
        2: (LIST, (STRUCT, list(template.elements))),
        3: (I64, sum(field(group, 3) for group in groups)),
        4: (LIST, (STRUCT, list(groups))),
        6: (BINARY, CREATED_BY),
        # TYPE_ORDER for every column: all bounds come from Arrow, or from sources that declare this order.
        7: (LIST, (STRUCT, [{1: (STRUCT, {})} for _ in template.leaves])),
    }
    data = write_struct(meta)
    return data + len(data).to_bytes(4, "little") + MAGIC


def in_memory(template: Template, columns: Sequence[int], groups: Sequence[tuple[int, Sequence[Piece]]]) -> pa.Buffer:
    """A Parquet file in memory of some top-level columns. Each group holds its number of rows, and the pieces of its leaves in order."""
    positions = [number for number, leaf in enumerate(template.leaves) if leaf.top in columns]
    kept = Template(_elements_of(template, columns), (), tuple(template.leaves[number] for number in positions), template.codec)
    parts: list[bytes | memoryview] = [MAGIC]
    offset = len(MAGIC)
    written = []
    for number, (rows, pieces) in enumerate(groups):
        first, chunks = offset, []
        for leaf, piece in zip(kept.leaves, pieces, strict=True):
            chunks.append(moved_chunk([piece.chunk], leaf, template.codec, offset))
            parts.append(piece.data)
            offset += len(piece.data)
        written.append(row_group(chunks, rows, first, number))
    return pa.py_buffer(b"".join([*parts, file_end(kept, written)]))


def _elements_of(template: Template, columns: Sequence[int]) -> tuple[Struct, ...]:
    kept: list[Struct] = [{**template.elements[0], 5: (I32, len(columns))}]
    at = 1
    for number, column in enumerate(template.columns):
        length = len(column.shape)
        if number in columns:
            kept += template.elements[at : at + length]
        at += length
    return tuple(kept)
