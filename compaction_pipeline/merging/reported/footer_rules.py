"""Which footers a merged file may have: only those that our own writers write for the task.

Readers believe a footer. They leave row groups out by its statistics, find rows by its offsets, and cut files into splits by its sizes.
So each field is compared with what the writers put there, or with the other fields. Fields that our writers never write are refused,
because a reader might know them: page indexes, keys and values, encryption. What only the pages show is not looked at here: whether a
statistic is that of the values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema

from compaction_pipeline.formats.parquet.chunks import CREATED_BY, LeafColumn, Template, decoded_bound, footer_of
from compaction_pipeline.formats.parquet.footer import FIXED, MAGIC, Chunk, Column, Footer
from compaction_pipeline.formats.parquet.thrift import BINARY, FALSE, I16, I32, I64, LIST, SET, STRUCT, TRUE, DamagedParquet, Struct, field
from compaction_pipeline.merging.reading.evolution import arrow_schema, schema_of
from compaction_pipeline.merging.writing.parquet_options import ParquetOptions, parquet_writer

_REQUIRED, _OPTIONAL = 0, 1
_Kinds = Mapping[int, Any]
"""The kind of each field that a struct may have, by its number in parquet.thrift; of a list, LIST and the kind of its elements."""
_FILE_FIELDS: _Kinds = {1: I32, 2: (LIST, STRUCT), 3: I64, 4: (LIST, STRUCT), 6: BINARY, 7: (LIST, STRUCT)}
_GROUP_FIELDS: _Kinds = {1: (LIST, STRUCT), 2: I64, 3: I64, 5: I64, 6: I64, 7: I16}
_CHUNK_FIELDS: _Kinds = {2: I64, 3: STRUCT}
_META_FIELDS: _Kinds = {
    **dict.fromkeys((1, 4, 15), I32),
    **dict.fromkeys((5, 6, 7, 9, 11, 14), I64),
    **dict.fromkeys((12, 16), STRUCT),
    2: (LIST, I32),
    3: (LIST, BINARY),
    13: (LIST, STRUCT),
}
_STATISTICS_FIELDS: _Kinds = {1: BINARY, 2: BINARY, 3: I64, 5: BINARY, 6: BINARY, 7: TRUE, 8: TRUE}
_PAGES_FIELDS: _Kinds = {1: I32, 2: I32, 3: I32}
_BITS = {I16: 16, I32: 32, I64: 64}
_CODECS = frozenset({0, 1, 2, 4, 6, 7})
_ARROW = "parquet-cpp-arrow version "
_BLOOM_FILTER = frozenset({14, 15})


@dataclass(frozen=True)
class FooterRules:
    """What the footers of the files of one schema may say. `bloom_filters` says whether the table asks for such filters."""

    template: Template
    bloom_filters: bool

    @classmethod
    def of(cls, schema: Schema, *, bloom_filters: bool) -> FooterRules:
        """The rules for files of this schema."""
        return cls(_template(schema.model_dump_json()), bloom_filters)

    def problems(self, footer: Footer, end: int) -> Iterator[str]:
        """Why no writer of ours has written this footer. `end` is the position in the file where it begins."""
        if not _fits(footer.meta, _FILE_FIELDS) or 1 not in footer.meta:
            yield "it has no version, keys and values, a field of another kind, or is encrypted or signed"
        if not footer.trustworthy or not (footer.created_by.startswith(_ARROW) or footer.created_by.encode() == CREATED_BY):
            yield f"it names the writer {footer.created_by[:100]!r}, which is none of ours"
        yield from self._problems_of_schema(footer)
        if not all(footer.orders):
            yield "it does not say that its bounds have the order of their types"
        place = len(MAGIC)
        lengths = [field(element, 2) for element in self.template.elements[1:] if not field(element, 5, 0)]
        for group, meta in zip(footer.groups, field(footer.meta, 4, ()), strict=True):
            where = f"row group {group.number}"
            if group.rows < 1 or len(group.chunks) != len(self.template.leaves):
                yield f"{where} has {group.rows} rows and {len(group.chunks)} columns, but the schema has {len(self.template.leaves)}"
                return
            yield from (f"{where}: {each}" for each in self._problems_of_group(meta, group.number, group.chunks))
            flat = [column.flat for column in self.template.columns for _ in column.leaves]
            columns = field(meta, 1, ())
            for chunk, column, leaf, is_flat, length in zip(group.chunks, columns, self.template.leaves, flat, lengths, strict=True):
                name = b".".join(leaf.path).decode(errors="replace")
                problem = self._problem_of_chunk(chunk, column, leaf, length)
                if problem is None and is_flat and footer.columns[leaf.top].is_required and field(field(chunk.meta, 12, {}), 3, 0):
                    problem = "it is required, and is said to hold NULLs"
                problem = problem or chunk.problem(field(chunk.meta, 4), group.rows, end + _TRAILER, flat=is_flat)
                if problem is None and chunk.start < place:
                    problem = "it begins in the bytes of another one"
                if problem is not None:
                    yield f"{where}, column {name}: {problem}"
                place = chunk.start + chunk.length

    def _problems_of_schema(self, footer: Footer) -> Iterator[str]:
        wanted, found = self.template.elements, footer.elements
        if len(found) != len(wanted) or not found or found[0] != wanted[0]:
            yield f"its schema has {len(found)} elements, but that of the task {len(wanted)}"
            return
        tops = _tops(self.template.columns)
        for number in range(1, len(wanted)):
            expected, given = wanted[number], found[number]
            if number in tops and field(expected, 3) == _OPTIONAL and field(given, 3) == _REQUIRED:
                # Bytes of a column that all inputs declare as required are copied into a required column.
                given = {**given, 3: expected[3]}
            if given != expected:
                name = field(expected, 4, b"").decode(errors="replace")
                yield f"element {number} of its schema is not column {name!r} of the task's schema: another type, id, name or nullability"

    def _problems_of_group(self, meta: Struct, number: int, chunks: Sequence[Chunk]) -> Iterator[str]:
        if not _fits(meta, _GROUP_FIELDS) or 2 not in meta:
            yield "it has no size before compression, or fields that our writers do not write"
            return
        # Java finds the rows of a split by the middle of a row group, which it computes from these.
        first, length = chunks[0].start, sum(chunk.length for chunk in chunks)
        wanted: dict[int, tuple[str, Any]] = {
            2: ("bytes before compression", sum(chunk.uncompressed for chunk in chunks)),
            5: ("offset", first),
            6: ("bytes", length),
            7: ("number", number),
        }
        for key, (name, value) in wanted.items():
            if field(meta, key, value) != value:
                yield f"its {name} is {field(meta, key)}, but its columns say {value}"

    def _problem_of_chunk(self, chunk: Chunk, column: Struct, leaf: LeafColumn, length: int | None) -> str | None:
        """Why a chunk is none of ours. `length` is that of its values, where all have one length."""
        meta = chunk.meta
        if not _fits(column, _CHUNK_FIELDS) or 2 not in column or not _fits(meta, _META_FIELDS):
            return "it has no place, a page index, or other fields that our writers do not write"
        if _BLOOM_FILTER & meta.keys() and not self.bloom_filters:
            return "it has a bloom filter, which the table does not ask for"
        if field(meta, 1) != leaf.physical or tuple(field(meta, 3, ())) != leaf.path:
            return "it has another type or name than the schema"
        if field(meta, 4) not in _CODECS:
            return f"codec {field(meta, 4)} is none that readers have"
        if chunk.length < 1 or not chunk.start <= field(meta, 9) < chunk.start + chunk.length:
            return "its first page lies outside of it"
        if 11 in meta and not 0 < field(meta, 11) < field(meta, 9):
            return "its dictionary does not lie before its data"
        if not all(_fits(pages, _PAGES_FIELDS) for pages in field(meta, 13, ())):
            return "its numbers of pages have other fields than our writers write"
        return _problem_of_statistics(field(meta, 12, {}), chunk.values) or _problem_of_bounds(field(meta, 12, {}), leaf, length)


_TRAILER = 12
"""`Chunk.problem` counts the length of the footer and the magic bytes, at both ends."""


def _fits(found: Struct, kinds: _Kinds) -> bool:
    """Whether a struct has only these fields, each of its kind.

    Other readers pass over a field of another kind, as if it was not there, and cut a number that is too long. Then the manifest would tell
    something else than what they see in the file.
    """
    return all(kinds.get(number) == _kind(kind, value) for number, (kind, value) in found.items())


def _kind(kind: int, value: Any) -> Any:
    if kind in (LIST, SET):
        return kind, value[0]
    if kind in _BITS:
        return kind if -(1 << _BITS[kind] - 1) <= value < 1 << _BITS[kind] - 1 else None
    return TRUE if kind == FALSE else kind


def _problem_of_statistics(statistics: Struct, values: int) -> str | None:
    if not _fits(statistics, _STATISTICS_FIELDS):
        return "it has statistics that our writers do not write"
    if not 0 <= field(statistics, 3, 0) <= values:
        return f"{field(statistics, 3)} of its {values} values are NULL"
    # Old readers take the deprecated bounds, and newer ones the others.
    for old, new in ((1, 5), (2, 6)):
        if old in statistics and field(statistics, old) != field(statistics, new):
            return "its old bounds differ from its bounds"
    return None


def _problem_of_bounds(statistics: Struct, leaf: LeafColumn, length: int | None) -> str | None:
    """Why the bounds of a chunk are none. All are looked at, also those that no manifest holds: PyArrow ends the whole process of a reader
    when a bound is shorter than its type."""
    # Arrow leaves out a bound that is too long, and keeps the other one.
    found = [field(statistics, number) for number in (6, 5) if number in statistics]
    try:
        values = [decoded_bound(leaf, each) for each in found]
    except DamagedParquet:
        return "it has a bound that is no value of its type"
    if leaf.physical == FIXED and any(len(each) != length for each in found):
        return "it has a bound that is no value of its type"
    if len(values) < 2:
        return None
    low, high = values
    # This is false for NaN too.
    if not low <= high:
        return "its lower bound is above its upper one, or is NaN"
    # A bound of zero stands for both zeros (parquet.thrift), but readers of the manifest tell one from the other.
    if isinstance(low, float) and ((low == 0 and math.copysign(1, low) > 0) or (high == 0 and math.copysign(1, high) < 0)):
        return "one of its bounds is a zero that leaves out the other zero"
    return None


def _tops(columns: Sequence[Column]) -> frozenset[int]:
    """The places of the top-level columns among the schema elements. The root is the first element."""
    places, at = [], 1
    for column in columns:
        places.append(at)
        at += len(column.shape)
    return frozenset(places)


@lru_cache(maxsize=32)
def _template(schema: str) -> Template:
    """What Arrow writes for this schema. Codec and sizes do not matter for its elements."""
    parsed, options = schema_of(schema), ParquetOptions.of({})
    sink = pa.BufferOutputStream()
    parquet_writer(sink, arrow_schema(parsed.fields), options, [], []).close()
    return Template.of(footer_of(sink.getvalue())[0], parsed, options.codec)
