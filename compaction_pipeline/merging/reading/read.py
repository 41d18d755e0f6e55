"""Streams the rows of a data file, projected to the output schema, within a limit of memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField

from compaction_pipeline.core.errors import MergeFailed, MergeRefused
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.formats.arrow_fields import children, field_id
from compaction_pipeline.formats.file_io.ranges import RangedFile
from compaction_pipeline.merging.reading.evolution import Constants, Projection, constant, identified, name_mapping_of, schema_of
from compaction_pipeline.merging.reading.file_access import FileAccess, in_words

MAX_BATCH_ROWS = 131_072
MIN_BATCH_ROWS = 256


@dataclass(frozen=True)
class TableShape:
    """The parsed JSON texts of a layout: schemas, specs and name mapping of the task's table."""

    layout: TableLayout
    schemas: Mapping[int, Schema]
    specs: Mapping[int, PartitionSpec]
    name_mapping: NameMapping | None

    @classmethod
    def of(cls, layout: TableLayout) -> TableShape:
        return cls(
            layout,
            {number: schema_of(text) for number, text in layout.schemas.items()},
            {number: PartitionSpec.model_validate_json(text) for number, text in layout.specs.items()},
            name_mapping_of(layout.properties),
        )

    def schema_of_plan(self, schema_id: int) -> Schema:
        """The schema of the snapshot that a task was planned from. Raises MergeFailed when the metadata no longer has it."""
        if schema_id not in self.schemas:
            raise MergeFailed(f"schema {schema_id} of the plan's snapshot is not in the table's metadata; plan the task again")
        return self.schemas[schema_id]

    def newest_with(self, number: int) -> Schema:
        """The current schema if it has the field, otherwise the latest schema that had it before it was dropped."""
        current = self.layout.schema_id
        for schema_id in sorted(self.schemas, key=lambda each: (each == current, each), reverse=True):
            if number in self.schemas[schema_id].field_ids:
                return self.schemas[schema_id]
        raise MergeRefused(f"field id {number} is in no schema of the table's metadata; its type is unknown")

    def partition_constants(self, file: LiveFile) -> Constants:
        """The values of identity partition columns, by source field id. They are used for columns that a file lacks."""
        spec = self.specs[file.spec_id]
        constants = {}
        for field, value in zip(spec.fields, file.partition, strict=True):
            if isinstance(field.transform, IdentityTransform):
                source = self.newest_with(field.source_id).find_field(field.source_id)
                constants[field.source_id] = constant(source.field_type, value.value)
        return constants


@dataclass
class OpenFile:
    """A data file that is being read. It gives its rows batch by batch, in several projections at once.

    At most `held_bytes` of a row group of a large file on an object store are fetched ahead, in few requests.
    """

    path: str
    parquet: pq.ParquetFile
    schema: pa.Schema
    rows: int
    batch_bytes: int
    source: Any = None
    held_bytes: int = 0

    def batches(self, projections: Sequence[Projection], groups: range | None = None) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yields (position of its first row, record batch) for these row groups, or for all.

        A batch holds the columns that the projections need.
        """
        metadata = self.parquet.metadata
        chosen = range(metadata.num_row_groups) if groups is None else groups
        position = first = sum(metadata.row_group(number).num_rows for number in range(chosen.start))
        expected = self.rows if groups is None else sum(metadata.row_group(number).num_rows for number in chosen)
        with in_words(f"file {self.path}", "unreadable", self.path):
            for batch in self._batches(projections, None if groups is None else list(groups)):
                yield position, batch
                position += batch.num_rows
        if position - first != expected:
            raise MergeFailed(
                f"file {self.path}: its footer says {expected} rows, but {position - first} could be read; the file is damaged"
            )

    def _batches(self, projections: Sequence[Projection], groups: list[int] | None) -> Iterator[pa.RecordBatch]:
        names = sorted({name for projection in projections for name in projection.source_columns})
        # Without source columns, only the number of rows is wanted. The first column tells it.
        names = names or self.schema.names[:1]
        every = None if len(names) == len(self.schema.names) else names
        if self.held_bytes == 0 or not isinstance(self.source, RangedFile):
            yield from self.parquet.iter_batches(self._batch_rows(), row_groups=groups, columns=every, use_threads=False)
            return
        for number in range(self.parquet.metadata.num_row_groups) if groups is None else groups:
            self.hold(self._spans(number, frozenset(names)))
            yield from self.parquet.iter_batches(self._batch_rows(), row_groups=[number], columns=every, use_threads=False)

    def hold(self, spans: Sequence[tuple[int, int]]) -> None:
        """Fetch these ranges (start, length) of a large object ahead, in few requests, unless they are too many bytes to hold."""
        if self.held_bytes and isinstance(self.source, RangedFile):
            with in_words(f"file {self.path}", "unreadable", self.path):
                self.source.hold(spans, self.held_bytes)

    def _spans(self, number: int, names: frozenset[str]) -> list[tuple[int, int]]:
        """The ranges (start, length) of a row group's chunks that belong to these top-level columns."""
        group = self.parquet.metadata.row_group(number)
        tops = [field.name for field in self.schema for _ in _leaf_ids(field)]
        every = len(tops) != group.num_columns
        return [chunk_span(group.column(index)) for index in range(group.num_columns) if every or tops[index] in names]

    def _batch_rows(self) -> int:
        metadata = self.parquet.metadata
        unpacked = sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))
        # A dictionary page counts once in the footer, but its values take memory once for each row.
        row_bytes = max(16 * metadata.num_columns, 2 * unpacked // max(self.rows, 1))
        return int(max(MIN_BATCH_ROWS, min(MAX_BATCH_ROWS, self.batch_bytes // row_bytes)))

    @property
    def never_null(self) -> frozenset[int]:
        """The ids of the primitive top-level columns that the file itself declares as required."""
        schema = self.parquet.schema
        if len(schema) != len(self.schema):
            return frozenset()
        # `Projection` finds columns in the same way: if two columns have one id, the last one counts.
        by_id = {field_id(each): number for number, each in enumerate(self.schema)}
        return frozenset(each for each, number in by_id.items() if each is not None and schema.column(number).max_definition_level == 0)

    @property
    def dictionary_encoded(self) -> frozenset[int]:
        """Ids of the leaf columns that the file's first row group dictionary-encodes."""
        metadata = self.parquet.metadata
        if metadata.num_row_groups == 0:
            return frozenset()
        group = metadata.row_group(0)
        leaves = [number for field in self.schema for number in _leaf_ids(field)]
        if len(leaves) != metadata.num_columns:
            return frozenset()
        return frozenset(number for index, number in enumerate(leaves) if number is not None and group.column(index).has_dictionary_page)


class DataReader:
    """Opens the data files and delete files of one task."""

    def __init__(self, files: FileAccess, shape: TableShape, memory_bytes: int) -> None:
        self._files = files
        self._shape = shape
        self._memory_bytes = memory_bytes

    def expect(self, files: Iterable[LiveFile]) -> None:
        """Announce files that will be opened, in about this order."""
        self._files.expect((file.path, file.file_size_bytes) for file in files)

    def open(self, file: LiveFile, *, keep_dictionaries: bool = False) -> _Opened:
        """A context manager that gives the OpenFile. It checks that the file has as many rows as its manifest entry says.

        With `keep_dictionaries`, text with few distinct values is read as Arrow dictionaries. These are far cheaper to read, to digest and
        to write again.
        """
        return _Opened(self._files, self._shape, file, self._memory_bytes, keep_dictionaries)

    def never_null(self, files: Sequence[LiveFile], schema: Schema) -> frozenset[int]:
        """The ids of the schema's optional columns that every one of these files declares as required. It opens only as many files as
        needed."""
        found = frozenset(field.field_id for field in schema.fields if field.optional and field.field_type.is_primitive)
        for file in files:
            if not found:
                break
            with self.open(file) as opened:
                found &= opened.never_null
        return found

    def projection(self, opened: OpenFile, file: LiveFile, fields: Sequence[NestedField], *, keep_dictionaries: bool = False) -> Projection:
        """The projection of the file's columns to these fields."""
        constants = self._shape.partition_constants(file) if file.is_data else {}
        return Projection(opened.schema, fields, constants, file.path, keep_dictionaries=keep_dictionaries)


class _Opened:
    def __init__(self, files: FileAccess, shape: TableShape, file: LiveFile, memory_bytes: int, keep_dictionaries: bool) -> None:
        self._shape = shape
        self._file = file
        self._memory_bytes = memory_bytes
        # If the column chunks of a file could not all be held at once, the file is streamed through small buffers.
        streamed = file.file_size_bytes > memory_bytes // 8
        self._held_bytes = 0 if streamed else memory_bytes // 8
        self._context = files.parquet(
            file.path,
            file.file_size_bytes,
            read_ahead_bytes=256 * 1024 if streamed else 0,
            dictionaries=_few_values if keep_dictionaries else None,
        )

    def __enter__(self) -> OpenFile:
        parquet, source = self._context.__enter__()
        try:
            file = self._file
            rows = int(parquet.metadata.num_rows)
            if rows != file.record_count:
                raise MergeRefused(
                    f"file {file.path} holds {rows} rows, but its manifest entry says {file.record_count}; the entry describes another file"
                )
            schema = identified(parquet.schema_arrow, self._shape.name_mapping, file.path)
            return OpenFile(file.path, parquet, schema, rows, self._memory_bytes // 32, source, self._held_bytes)
        except BaseException:
            self._context.__exit__(None, None, None)
            raise

    def __exit__(self, *exc_info: object) -> None:
        self._context.__exit__(None, None, None)


def chunk_start(chunk: Any) -> int:
    """Where a column chunk of PyArrow's metadata begins in its file: at its dictionary, when it has one."""
    dictionary = chunk.dictionary_page_offset
    return int(dictionary if chunk.has_dictionary_page and dictionary else chunk.data_page_offset)


def chunk_span(chunk: Any) -> tuple[int, int]:
    """(Start, length in bytes) of a column chunk in its file, its dictionary included."""
    return chunk_start(chunk), int(chunk.total_compressed_size)


def _few_values(parquet: pq.ParquetFile) -> list[str]:
    """Top-level text columns with small dictionaries: their pages take at most 12 bits for each value."""
    metadata = parquet.metadata
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    if not groups or metadata.num_columns != len(parquet.schema_arrow.names):
        return []
    return [
        field.name
        for index, field in enumerate(parquet.schema_arrow)
        if field.type == pa.string()
        and all(chunk.has_dictionary_page and 2 * chunk.total_uncompressed_size <= 3 * chunk.num_values for chunk in _chunks(groups, index))
    ]


def _chunks(groups: Sequence[pq.RowGroupMetaData], index: int) -> list[pq.ColumnChunkMetaData]:
    return [group.column(index) for group in groups]


def _leaf_ids(field: pa.Field) -> list[int | None]:
    inner = children(field.type)
    if not inner:
        return [field_id(field)]
    return [number for child in inner for number in _leaf_ids(child)]
