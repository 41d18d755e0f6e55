"""Writes a task's rows as Parquet data files of about the target size, partition by partition, with their metrics.

Invariant: every row handed in is digested as it goes to the Parquet writer (a batch untouched since it was read, by its
identity), and is in exactly one file. Field ids, compression and sizes are the table's; a column is dictionary-encoded only
where the files that were merged were (that, and zstd level 1 where the table sets no level, is what makes a merge cheap: see
the measurements in the design).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from compaction_pipeline.core.errors import ConfigError, MergeFailed
from compaction_pipeline.core.tables.bloom_filters import BloomFilter, bloom_filters
from compaction_pipeline.core.tables.data_file import FileContent, OutputFile
from compaction_pipeline.core.tables.node import Partition
from compaction_pipeline.merging.digest import RowDigest, SeenBatches
from compaction_pipeline.merging.memory import release_while_tight
from compaction_pipeline.merging.reading.evolution import arrow_schema
from compaction_pipeline.merging.reading.file_access import FileAccess, in_words
from compaction_pipeline.merging.writing.metrics import Leaf, MetricsModes, NanCounter, column_metrics, leaves

MIB = 1024 * 1024
_CODECS = {"uncompressed": "none", "none": "none", "gzip": "gzip", "snappy": "snappy", "zstd": "zstd", "brotli": "brotli", "lz4": "lz4"}


@dataclass(frozen=True)
class ParquetOptions:
    """How the table wants its Parquet files (`write.parquet.*`, `write.delete.parquet.*`)."""

    codec: str
    level: int | None
    row_group_bytes: int
    page_bytes: int
    dictionary_bytes: int
    levels_are_free: bool = False
    """The table compresses with zstd and sets no level."""

    @classmethod
    def of(cls, properties: Mapping[str, str], *, deletes: bool = False) -> ParquetOptions:
        def read(name: str, default: str) -> str:
            # Delete files have properties of their own that fall back on those of data files.
            data = properties.get(f"write.parquet.{name}", default)
            return properties.get(f"write.delete.parquet.{name}", data) if deletes else data

        codec = read("compression-codec", "zstd").strip().lower()
        if codec not in _CODECS:
            raise MergeFailed(
                f"'write.parquet.compression-codec' is {codec!r} but must be one of {', '.join(sorted(_CODECS))}; correct the property"
            )
        level = read("compression-level", "")
        levelled = codec in ("zstd", "gzip", "brotli")
        return cls(
            _CODECS[codec],
            (int(level) if level and level != "null" else 1 if codec == "zstd" else None) if levelled else None,
            _positive(read("row-group-size-bytes", str(128 * MIB)), "row-group-size-bytes"),
            _positive(read("page-size-bytes", str(MIB)), "page-size-bytes"),
            _positive(read("dict-size-bytes", str(2 * MIB)), "dict-size-bytes"),
            codec == "zstd" and level in ("", "null"),
        )


def filters_of(properties: Mapping[str, str], columns: Sequence[Leaf]) -> dict[str, BloomFilter]:
    """The bloom filters that the table asks for, by path in Parquet. Raises MergeFailed for a property that breaks its rule."""
    try:
        asked = bloom_filters(properties, {leaf.name: str(leaf.type) for leaf in columns})
    except ConfigError as error:
        raise MergeFailed(str(error)) from error
    return {leaf.parquet_path: asked[leaf.name] for leaf in columns if leaf.name in asked}


def _positive(text: str, name: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise MergeFailed(f"'write.parquet.{name}' is {text!r} but must be a whole number ≥ 1; correct the table property")
    return int(text)


@dataclass(frozen=True)
class OutputNames:
    """`<data folder>/<partition path>/<prefix>-<n>.parquet`; the prefix holds attempt, task and a random suffix."""

    folder: str
    prefix: str

    def path(self, partition: Partition, number: int, suffix: str = "") -> str:
        parts = [f"{quote_plus(value.name)}={quote_plus('null' if value.value is None else str(value.value))}" for value in partition]
        return "/".join([self.folder, *parts, f"{self.prefix}-{number:05d}{suffix}.parquet"])


@dataclass(frozen=True)
class FileSizing:
    """Sizes in bytes: `target` of a file, `fragment` below which no remainder is left, `buffer` of rows held in memory."""

    target: int
    fragment: int
    buffer: int


@dataclass
class Progress:
    """What the reading side knows so far; the writing side sizes files and chooses encodings by it."""

    rows_expected: int
    bytes_per_row: float
    rows_seen: int = 0
    rows_kept: int = 0
    files_seen: int = 0
    dictionary_votes: dict[int, int] | None = None

    def rows_left(self) -> float:
        """Live rows that are still to come, at the share that was live so far."""
        live = self.rows_kept / self.rows_seen if self.rows_seen else 1.0
        return (self.rows_expected - self.rows_seen) * live

    def dictionary_columns(self) -> frozenset[int]:
        """Leaf columns that at least half of the files read so far dictionary-encode."""
        return frozenset(number for number, votes in (self.dictionary_votes or {}).items() if 2 * votes >= self.files_seen)


class DataWriter:
    """Takes record batches of the output schema; `finish` gives the files."""

    def __init__(
        self,
        files: FileAccess,
        schema: Schema,
        properties: Mapping[str, str],
        names: OutputNames,
        sizing: FileSizing,
        progress: Progress,
        spec_id: int,
        sort_column_ids: frozenset[int] = frozenset(),
        seen: SeenBatches | None = None,
    ) -> None:
        self.digest = RowDigest(seen)
        self.rows = 0
        self.sort_order_id: int | None = None
        self._files = files
        self.schema = schema
        self.arrow = arrow_schema(schema.fields)
        self.leaves = leaves(schema)
        self.modes = MetricsModes.of(schema, properties, sort_column_ids)
        self.options = ParquetOptions.of(properties)
        self.filters = filters_of(properties, self.leaves)
        self._names = names
        self.sizing = sizing
        self.progress = progress
        self._spec_id = spec_id
        self._partitions: dict[Partition, _PartitionWriter] = {}
        self._numbers = 0
        self.outputs: list[OutputFile] = []

    def write(self, partition: Partition, batch: Any) -> None:
        """Put the rows into a file of this partition."""
        writer = self._partitions.get(partition)
        if writer is None:
            writer = self._partitions[partition] = _PartitionWriter(self, partition)
        writer.add(batch)
        # Many partitions at once share one buffer: the fullest gives up its rows first.
        while sum(each.buffered_bytes for each in self._partitions.values()) > self.sizing.buffer:
            max(self._partitions.values(), key=lambda each: each.buffered_bytes).flush()

    def finish(self) -> tuple[OutputFile, ...]:
        """Close every file. Call once, at the end."""
        for writer in self._partitions.values():
            writer.close()
        return tuple(self.outputs)

    def abort(self) -> None:
        """Let go of open files without finishing them; the caller deletes what was written."""
        for writer in self._partitions.values():
            writer.abandon()

    def open_file(self, partition: Partition, schema: Any) -> _OpenOutput:
        path = self._names.path(partition, self._numbers)
        self._numbers += 1
        return _OpenOutput(self, self._files, path, partition, self._spec_id, schema)


class _PartitionWriter:
    """One partition's rows: buffered, written as row groups, rolled into files of the target size."""

    def __init__(self, owner: DataWriter, partition: Partition) -> None:
        self._owner = owner
        self._partition = partition
        self._buffer: list[Any] = []
        self.buffered_bytes = 0
        self._buffered_rows = 0
        self._file: _OpenOutput | None = None
        self._bytes_per_row = owner.progress.bytes_per_row

    def add(self, batch: Any) -> None:
        while batch.num_rows:
            room = self._rows_to_target()
            if batch.num_rows < room or self._would_leave_a_fragment(batch.num_rows - room):
                self._hold(batch)
                return
            self._hold(batch.slice(0, room))
            self.flush()
            if self._rows_to_target() <= 1:
                self._roll()
            batch = batch.slice(room)

    def _hold(self, batch: Any) -> None:
        limit = min(self._owner.options.row_group_bytes, self._owner.sizing.buffer)
        # A batch that is held whole keeps the digest that it was read with: better a row group a little smaller than the limit.
        if batch.nbytes <= limit // 4 and self.buffered_bytes + batch.nbytes > limit:
            self.flush()
        while batch.num_rows:
            row_bytes = max(batch.nbytes / batch.num_rows, 1.0)
            rows = min(batch.num_rows, max(1, int((limit - self.buffered_bytes) / row_bytes) + 1))
            part = batch if rows == batch.num_rows else batch.slice(0, rows)
            self._buffer.append(part)
            self.buffered_bytes += part.nbytes
            self._buffered_rows += rows
            if self.buffered_bytes >= limit:
                self.flush()
            batch = batch.slice(rows)

    def _rows_to_target(self) -> int:
        held = self._file.position() if self._file is not None else 0
        return max(1, int((self._owner.sizing.target - held) / self._bytes_per_row) - self._buffered_rows)

    def _would_leave_a_fragment(self, rows: int) -> bool:
        return (rows + self._owner.progress.rows_left()) * self._bytes_per_row < self._owner.sizing.fragment

    def flush(self) -> None:
        """Write what is held as one row group."""
        if not self._buffer:
            return
        table, parts = self._assembled(), self._buffer
        self._buffer, self.buffered_bytes, self._buffered_rows = [], 0, 0
        if self._file is None:
            self._file = self._owner.open_file(self._partition, table.schema)
        self._file.write(table)
        self._owner.digest.add_assembled(table, parts)
        self._owner.rows += table.num_rows
        self._bytes_per_row = max(self._file.position() / self._file.rows, 0.01)
        # The allocator keeps what a row group took; within a tight bound of memory it must give it back.
        release_while_tight()

    def _assembled(self) -> Any:
        """The held batches as one table; a column that some batches hold as dictionaries and others not is decoded."""
        columns, fields = [], []
        for index, field in enumerate(self._owner.arrow):
            begun_plain = self._file is not None and not pa.types.is_dictionary(self._file.schema.field(index).type)
            columns.append(rejoined([batch.column(index) for batch in self._buffer], field, plain=begun_plain))
            fields.append(field.with_type(columns[-1].type))
        table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
        # A file that was begun with dictionaries goes on with them.
        return table if self._file is None or table.schema == self._file.schema else table.cast(self._file.schema)

    def _roll(self) -> None:
        if self._file is not None:
            self._owner.outputs.append(self._file.close())
            self._file = None

    def close(self) -> None:
        self.flush()
        self._roll()

    def abandon(self) -> None:
        if self._file is not None:
            self._file.abandon()
            self._file = None


class _OpenOutput:
    """A data file that is being written."""

    def __init__(self, owner: DataWriter, files: FileAccess, path: str, partition: Partition, spec_id: int, schema: Any) -> None:
        self.path = path
        self.schema = schema
        self.rows = 0
        self._owner = owner
        self._files = files
        self._partition = partition
        self._spec_id = spec_id
        self._nans = NanCounter(owner.schema, owner.modes)
        self._stack = ExitStack()
        self._stream = self._stack.enter_context(files.output(path))
        encoded = owner.progress.dictionary_columns()
        dictionaries = [leaf.parquet_path for leaf in owner.leaves if leaf.field_id in encoded]
        self._footers: list[Any] = []
        with in_words(f"new file {path}", "cannot be written"):
            filters = {
                path: {"ndv": max(1, min(each.values, owner.progress.rows_expected)), "fpp": each.fpp}
                for path, each in owner.filters.items()
            }
            self._writer = parquet_writer(self._stream, schema, owner.options, dictionaries, self._footers, filters)

    def write(self, table: Any) -> None:
        with in_words(f"new file {self.path}", "cannot be written"):
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self._nans.add(table)
        self.rows += table.num_rows

    def position(self) -> int:
        return int(self._stream.tell())

    def close(self) -> OutputFile:
        with in_words(f"new file {self.path}", "cannot be written"):
            self._writer.close()
            size = self.position()
            self._stack.close()
        metrics = column_metrics(self._footers[0], self._owner.leaves, self._owner.modes)
        return OutputFile(
            path=self.path,
            content=FileContent.DATA,
            spec_id=self._spec_id,
            partition=self._partition,
            file_size_bytes=size,
            record_count=self.rows,
            column_sizes=metrics.column_sizes,
            value_counts=metrics.value_counts,
            null_value_counts=metrics.null_value_counts,
            nan_value_counts=self._nans.counts,
            lower_bounds=self._without_nan(metrics.lower_bounds),
            upper_bounds=self._without_nan(metrics.upper_bounds),
            split_offsets=tuple(metrics.split_offsets),
            sort_order_id=self._owner.sort_order_id,
        )

    def _without_nan(self, bounds: Mapping[int, str]) -> dict[int, str]:
        # Bounds leave NaN out, and Java skips an equality delete by them: one of a NaN would not reach the row any more.
        return {number: bound for number, bound in bounds.items() if not self._nans.counts.get(number)}

    def abandon(self) -> None:
        # A writer that failed (disk full) fails again on close; the file goes anyway.
        for close in (self._writer.close, self._stack.close):
            try:
                close()
            except Exception:
                continue


def rejoined(arrays: Sequence[Any], field: Any, *, plain: bool = False) -> Any:
    """Arrays as the chunks of one column; decoded where only some are dictionaries, or with `plain`."""
    encoded = [pa.types.is_dictionary(array.type) for array in arrays]
    if all(encoded) and not plain:
        # The Parquet writer gives up on dictionaries that change within a row group.
        return pa.chunked_array(arrays).unify_dictionaries()
    decoded = [array.dictionary_decode() if is_encoded else array for array, is_encoded in zip(arrays, encoded, strict=True)]
    return pa.chunked_array(decoded, field.type)


def parquet_writer(
    stream: Any,
    schema: Any,
    options: ParquetOptions,
    dictionary_paths: Sequence[str],
    footers: list[Any],
    filters: Mapping[str, Mapping[str, float]] | None = None,
    levels: Mapping[str, int] | None = None,
) -> Any:
    """A `pyarrow.parquet.ParquetWriter` that writes what the Iceberg spec asks for; its footer is appended to `footers`.

    `filters` are PyArrow's `bloom_filter_options`: `ndv` and `fpp` by path in Parquet. `levels`: by path the level of every column.
    """
    return pq.ParquetWriter(
        stream,
        schema,
        compression=options.codec,
        compression_level=dict(levels) if levels else options.level,
        use_dictionary=list(dictionary_paths) or False,
        data_page_size=options.page_bytes,
        dictionary_pagesize_limit=options.dictionary_bytes,
        store_schema=False,
        # The next merge copies pages only where a checksum proves them.
        write_page_checksum=True,
        store_decimal_as_integer=True,
        write_statistics=True,
        metadata_collector=footers,
        # Older releases of PyArrow do not know the option.
        **({"bloom_filter_options": filters} if filters else {}),
    )
