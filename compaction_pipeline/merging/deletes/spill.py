"""Splits rows by hash into parts on local disk, so that each part can be held in memory in turn (the first half of a grace hash join)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from compaction_pipeline.core.errors import MergeFailed


class PartedRows:
    """One Arrow file. Rows are collected into chunks, and each chunk is written as one record batch for each part."""

    def __init__(self, path: Path, parts: int, chunk_bytes: int) -> None:
        self._path = path
        self._parts = parts
        self._chunk_bytes = chunk_bytes
        self._held: list[pa.RecordBatch] = []
        self._codes: list[NDArray[np.int64]] = []
        self._held_bytes = 0
        self._chunks = 0
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None

    def add(self, batch: pa.RecordBatch, codes: NDArray[np.int64]) -> None:
        """Take rows. `codes` holds the number of each row's part."""
        self._held.append(batch)
        self._codes.append(codes)
        self._held_bytes += batch.nbytes + codes.nbytes
        if self._held_bytes >= self._chunk_bytes:
            self._write_chunk()

    def finish(self) -> None:
        """Write the rows that are still held. Parts can be read afterwards."""
        if self._held:
            self._write_chunk()
        if self._writer is not None:
            self._writer.close()

    def part(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of one part, batch by batch."""
        if self._writer is None:
            return
        with pa.OSFile(str(self._path), "rb") as source:
            reader = pa.ipc.open_file(source)
            for chunk in range(self._chunks):
                batch = reader.get_batch(chunk * self._parts + number)
                if batch.num_rows:
                    yield batch

    def _write_chunk(self) -> None:
        table = pa.Table.from_batches(self._held).combine_chunks()
        codes = np.concatenate(self._codes)
        self._held, self._codes, self._held_bytes = [], [], 0
        if self._writer is None:
            self._writer = pa.ipc.new_file(str(self._path), table.schema)
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(self._parts + 1))
        for start, end in pairwise(bounds.tolist()):
            rows = table.take(pa.array(order[start:end])).combine_chunks().to_batches()
            if len(rows) > 1:
                # The text of a part is more than 2 GiB. A part must be one batch, and no key may be left out.
                raise MergeFailed(
                    f"{end - start} rows of a delete set do not fit one Arrow batch; lower 'compaction.task.memory' below 16 GiB"
                )
            self._writer.write_batch(rows[0] if rows else pa.RecordBatch.from_pylist([], schema=table.schema))
        self._chunks += 1
