"""Writes a Parquet file from column chunks, and checks that its footer describes the bytes that went to the stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from compaction_pipeline.core.errors import MergeFailed
from compaction_pipeline.core.tables.data_file import FileContent, OutputFile
from compaction_pipeline.core.tables.node import Place
from compaction_pipeline.formats.parquet.chunks import Template, file_end, moved_chunk, row_group
from compaction_pipeline.formats.parquet.footer import MAGIC, Chunk
from compaction_pipeline.formats.parquet.thrift import Struct
from compaction_pipeline.merging.copying.proof import checksum
from compaction_pipeline.merging.reading.file_access import FileAccess, in_words
from compaction_pipeline.merging.reading.read import chunk_span
from compaction_pipeline.merging.writing.file_format import FileFormat
from compaction_pipeline.merging.writing.metrics import NanCounter, with_metrics


class AssembledFile:
    """A data file that is being written. It notes what goes to the stream, and compares this with the footer in the end."""

    def __init__(self, file_format: FileFormat, template: Template, place: Place, files: FileAccess, path: str) -> None:
        self.path = path
        self.rows = 0
        self.position = 0
        self.nans = NanCounter(file_format.schema, file_format.modes)
        self._format, self._template, self._place = file_format, template, place
        self._stack = ExitStack()
        self._stream = self._stack.enter_context(files.output(path))
        self.groups: list[Struct] = []
        # The rows of each row group, and (start, length, values) of each of its chunks, as they went to the stream.
        self.log: list[tuple[int, list[tuple[int, int, int]]]] = []
        self.write(MAGIC)

    def write(self, data: Any, before: int = 0) -> int:
        """Write bytes to the stream. Returns their checksum, continued from the checksum `before`."""
        with in_words(f"new file {self.path}", "cannot be written"):
            self._stream.write(data)
        self.position += len(data)
        return checksum(data, before)

    def group(self, rows: int) -> GroupWriter:
        """A context manager that writes one row group."""
        return GroupWriter(self, self._template, rows)

    def add_nans(self, counts: Mapping[int, int]) -> None:
        for number, count in counts.items():
            self.nans.counts[number] += count

    def close(self) -> OutputFile:
        """Write the footer, read it back with PyArrow, and compare it with what went to the stream."""
        end = file_end(self._template, self.groups)
        self.write(end)
        with in_words(f"new file {self.path}", "cannot be written"):
            if self._stream.tell() != self.position:
                raise MergeFailed(
                    f"new file {self.path}: {self._stream.tell()} bytes were written, not {self.position}; nothing of this attempt is used"
                )
            self._stack.close()
            metadata = pq.read_metadata(pa.BufferReader(MAGIC + end))
        self._check(metadata)
        spec_id, partition = self._place
        output = OutputFile(
            path=self.path,
            content=FileContent.DATA,
            spec_id=spec_id,
            partition=partition,
            file_size_bytes=self.position,
            record_count=metadata.num_rows,
            footer_bytes=len(end) - 8,
        )
        return with_metrics(output, metadata, self._format.leaves, self._format.modes, self.nans.counts)

    def _check(self, metadata: pq.FileMetaData) -> None:
        said = []
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            chunks = [group.column(index) for index in range(group.num_columns)]
            said.append((group.num_rows, [(*chunk_span(chunk), chunk.num_values) for chunk in chunks]))
        if said != self.log or metadata.num_rows != self.rows:
            raise MergeFailed(f"new file {self.path}: its footer does not describe what was written; nothing of this attempt is used")

    def abandon(self) -> None:
        # A stream that failed, for example because the disk is full, fails again when it is closed. The caller deletes the file anyway.
        with suppress(Exception):
            self._stack.close()


class GroupWriter:
    """Writes one row group of a file, one chunk after the other."""

    def __init__(self, file: AssembledFile, template: Template, rows: int) -> None:
        self._file = file
        self._template = template
        self._rows = rows
        self._start = file.position
        self._columns: list[Struct] = []
        self._log: list[tuple[int, int, int]] = []

    def __enter__(self) -> GroupWriter:
        return self

    def chunk(self, leaf: int, sources: Sequence[Chunk]) -> ChunkWriter:
        """A context manager that takes the bytes of one leaf. They are the bytes of the sources."""
        out = ChunkWriter(self._file)
        self._columns.append(moved_chunk(sources, self._template.leaves[leaf], self._template.codec, self._file.position))
        self._log.append((out.start, 0, sum(source.values for source in sources)))
        out.ended = self._note
        return out

    def _note(self, length: int) -> None:
        start, _, values = self._log[-1]
        self._log[-1] = (start, length, values)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            return
        file = self._file
        file.groups.append(row_group(self._columns, self._rows, self._start, len(file.groups)))
        file.log.append((self._rows, self._log))
        file.rows += self._rows


class ChunkWriter:
    """Passes the bytes of one chunk to the stream."""

    def __init__(self, file: AssembledFile) -> None:
        self.start = file.position
        self.length = 0
        self.ended: Any = None
        self._file = file

    def __enter__(self) -> ChunkWriter:
        return self

    def write(self, data: memoryview, before: int = 0) -> int:
        self.length += len(data)
        return self._file.write(data, before)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.ended(self.length)
