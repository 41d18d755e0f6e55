"""Which footers a merged file may have: only those that our own writers write for the task.

Readers believe a footer. They leave row groups out by its statistics, find rows by its offsets, and cut files into splits by its sizes.
So each field is compared with what the writers put there, or with the other fields. Fields that our writers never write are refused,
because a reader might know them: page indexes, keys and values, encryption. What only the pages show is not looked at here: whether a
statistic is that of the values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema

from compaction_pipeline.merging.copying.chunks import CREATED_BY, LeafColumn, Template, footer_of
from compaction_pipeline.merging.copying.footer import MAGIC, Chunk, Column, Footer
from compaction_pipeline.merging.copying.thrift import Struct, field
from compaction_pipeline.merging.reading.evolution import arrow_schema, schema_of
from compaction_pipeline.merging.writing.parquet_options import ParquetOptions, parquet_writer

_REQUIRED, _OPTIONAL = 0, 1
# Numbers of fields in parquet.thrift.
_FILE_FIELDS = frozenset({1, 2, 3, 4, 6, 7})
_GROUP_FIELDS = frozenset({1, 2, 3, 5, 6, 7})
_CHUNK_FIELDS = frozenset({2, 3})
_META_FIELDS = frozenset({1, 2, 3, 4, 5, 6, 7, 9, 11, 12, 13, 14, 15, 16})
_STATISTICS_FIELDS = frozenset({1, 2, 3, 5, 6, 7, 8})
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
        if not footer.meta.keys() <= _FILE_FIELDS:
            yield "it has keys and values, or is encrypted or signed"
        if not footer.trustworthy or not (footer.created_by.startswith(_ARROW) or footer.created_by.encode() == CREATED_BY):
            yield f"it names the writer {footer.created_by[:100]!r}, which is none of ours"
        yield from self._problems_of_schema(footer)
        if not all(footer.orders):
            yield "it does not say that its bounds have the order of their types"
        place = len(MAGIC)
        for group, meta in zip(footer.groups, field(footer.meta, 4, ()), strict=True):
            where = f"row group {group.number}"
            if group.rows < 1 or len(group.chunks) != len(self.template.leaves):
                yield f"{where} has {group.rows} rows and {len(group.chunks)} columns, but the schema has {len(self.template.leaves)}"
                return
            yield from (f"{where}: {each}" for each in self._problems_of_group(meta, group.number, group.chunks))
            flat = [column.flat for column in self.template.columns for _ in column.leaves]
            columns = field(meta, 1, ())
            for chunk, column, leaf, is_flat in zip(group.chunks, columns, self.template.leaves, flat, strict=True):
                name = b".".join(leaf.path).decode(errors="replace")
                problem = self._problem_of_chunk(chunk, column, leaf)
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
        if len(found) != len(wanted) or not found or field(found[0], 5) != field(wanted[0], 5):
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
        if not meta.keys() <= _GROUP_FIELDS:
            yield "it has fields that our writers do not write"
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

    def _problem_of_chunk(self, chunk: Chunk, column: Struct, leaf: LeafColumn) -> str | None:
        meta = chunk.meta
        if not column.keys() <= _CHUNK_FIELDS or not meta.keys() <= _META_FIELDS:
            return "it has a page index, or other fields that our writers do not write"
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
        return _problem_of_statistics(field(meta, 12, {}), chunk.values)


_TRAILER = 12
"""`Chunk.problem` counts the length of the footer and the magic bytes, at both ends."""


def _problem_of_statistics(statistics: Struct, values: int) -> str | None:
    if not statistics.keys() <= _STATISTICS_FIELDS:
        return "it has statistics that our writers do not write"
    if not 0 <= field(statistics, 3, 0) <= values:
        return f"{field(statistics, 3)} of its {values} values are NULL"
    # Old readers take the deprecated bounds, and newer ones the others.
    for old, new in ((1, 5), (2, 6)):
        if old in statistics and field(statistics, old) != field(statistics, new):
            return "its old bounds differ from its bounds"
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
