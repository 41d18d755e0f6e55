"""Sorts rows by an Iceberg sort order: in memory, or in sorted runs on local disk that are merged at the end.

The order is the spec's. NULL comes first or last, as the field says. Of floats, −0.0 comes before 0.0, and NaN comes last. Text and
bytes are compared by unsigned bytes. The runs are Arrow IPC files, and a merge compares only key columns, so values of every type
keep their bits. (The external sort of an SQL engine would turn −0.0, NaN and UUIDs into values of its own types.)
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder

from compaction_pipeline.merging.writing.transforms import Convert, column_path, transformed

RUN_BATCH_ROWS = 4096
EMIT_ROWS = 65_536


@dataclass(frozen=True)
class SortKey:
    """One field of a sort order. `of` computes its key from a batch."""

    of: Callable[[pa.RecordBatch], pa.Array]
    descending: bool
    nulls_first: bool


def sort_keys(order: SortOrder, schema: Schema) -> list[SortKey] | None:
    """The keys of an order over rows of this schema. None if the order is empty, or if the schema lacks one of its columns."""
    keys = []
    for field in order.fields:
        path = column_path(schema, field.source_id)
        if path is None:
            return None
        transform = transformed(field.transform, schema.find_field(field.source_id).field_type)
        if transform is None:
            return None

        def key(batch: pa.RecordBatch, path: tuple[int, ...] = path, transform: Convert = transform) -> pa.Array:
            column = batch.column(path[0])
            return _sortable(transform(pc.struct_field(column, list(path[1:])) if len(path) > 1 else column))

        keys.append(SortKey(key, field.direction is SortDirection.DESC, field.null_order is NullOrder.NULLS_FIRST))
    return keys or None


def _sortable(array: pa.Array) -> pa.Array:
    """The values of an array in a form that Arrow sorts as the spec wants."""
    arrow = array.type
    if isinstance(arrow, pa.BaseExtensionType):
        return _sortable(array.storage)
    if pa.types.is_dictionary(arrow):
        return _sortable(array.dictionary_decode())
    if pa.types.is_boolean(arrow):
        return array.cast(pa.int8())
    if pa.types.is_fixed_size_binary(arrow):
        return array.cast(pa.binary())
    if not pa.types.is_floating(arrow):
        return array
    doubles = array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    bits = np.where(np.isnan(doubles), np.int64(0x7FF8000000000000), doubles.view(np.int64))
    # The bits of negative doubles are in reverse order. With all bits but the sign flipped, the integers have the order of the values.
    ordered = np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(ordered, pa.int64(), mask=mask)


def sorted_indices(table: pa.Table, keys: Sequence[SortKey]) -> pa.Array:
    """The row numbers of a table in sorted order. Equal rows keep their order. Each column of the table must be one chunk."""
    batch = table.to_batches()[0] if isinstance(table, pa.Table) else table
    columns: dict[str, pa.Array] = {}
    by: list[tuple[str, str]] = []
    for number, key in enumerate(keys):
        values = key.of(batch)
        if values.null_count:
            # Arrow puts NULL in the same place for all keys. A column of its own says for each key where NULL goes.
            columns[f"null{number}"] = pc.cast(values.is_null(), pa.int8())
            by.append((f"null{number}", "descending" if key.nulls_first else "ascending"))
        columns[f"key{number}"] = values
        by.append((f"key{number}", "descending" if key.descending else "ascending"))
    return pc.sort_indices(pa.table(columns), sort_keys=by)


class Sorter:
    """Takes batches and gives them back sorted. It holds about `limit_bytes` at most, and twice as much while it sorts.

    Without `spill`, a sorter that reaches its limit gives up: `gave_up` becomes True, and rows come back in the order in which they came.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[SortKey], limit_bytes: int, *, spill: bool) -> None:
        self._schema = schema
        self._keys = keys
        self._limit_bytes = max(limit_bytes, 1)
        self._spill = spill
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._runs: list[Path] = []
        self.gave_up = False

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take a batch. Rows come back here only after the sorter gave up."""
        if self.gave_up:
            yield batch
            return
        self._held.append(batch)
        self._held_bytes += batch.nbytes
        if self._held_bytes < self._limit_bytes:
            return
        if self._spill:
            self._write_run()
        else:
            self.gave_up = True
            yield from self._held
            self._held, self._held_bytes = [], 0

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The rows that have not come back yet, sorted."""
        if not self._runs:
            yield from self._sorted_held()
            return
        if self._held:
            self._write_run()
        yield from self._merged()

    def close(self) -> None:
        """Remove the runs."""
        if self._folder is not None:
            self._folder.cleanup()

    def _sorted_held(self) -> Iterator[pa.RecordBatch]:
        if not self._held:
            return
        table = pa.Table.from_batches(self._held, schema=self._schema).combine_chunks()
        self._held, self._held_bytes = [], 0
        indices = sorted_indices(table, self._keys)
        for start in range(0, len(indices), EMIT_ROWS):
            yield from table.take(indices.slice(start, EMIT_ROWS)).to_batches()

    def _write_run(self) -> None:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="compaction-sort-")
        path = Path(self._folder.name) / f"run-{len(self._runs)}.arrow"
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_file(str(path), self._schema, options=options) as run:
            for batch in self._sorted_held():
                for start in range(0, batch.num_rows, RUN_BATCH_ROWS):
                    run.write_batch(batch.slice(start, RUN_BATCH_ROWS))
        self._runs.append(path)

    def _merged(self) -> Iterator[pa.RecordBatch]:
        block_bytes = self._limit_bytes // len(self._runs)
        runs = [_Run(path, block_bytes) for path in self._runs]
        try:
            # Every run is filled before each step. A run that was left out would be merged too late.
            while filled := [run for run in runs if run.fill()]:
                yield from self._merge_step(filled)
        finally:
            for run in runs:
                run.close()

    def _merge_step(self, runs: list[_Run]) -> Iterator[pa.RecordBatch]:
        table = pa.concat_tables([run.held for run in runs]).combine_chunks()
        indices = sorted_indices(table, self._keys).to_numpy()
        ranks = np.empty(len(indices), dtype=np.int64)
        ranks[indices] = np.arange(len(indices))
        ends = np.cumsum([run.held.num_rows for run in runs])
        # All rows of a run that are still on disk come after the run's last row in memory. So everything up to the lowest of these last
        # rows, one of each run, is in its final order.
        open_ends = [int(ranks[end - 1]) for run, end in zip(runs, ends, strict=True) if not run.exhausted]
        count = min(open_ends) + 1 if open_ends else len(indices)
        chosen = indices[:count]
        for start in range(0, count, EMIT_ROWS):
            yield from table.take(pa.array(chosen[start : start + EMIT_ROWS])).to_batches()
        emitted = np.diff(np.searchsorted(np.sort(chosen), np.concatenate([[0], ends])))
        for run, number in zip(runs, emitted, strict=True):
            run.held = run.held.slice(int(number))


class _Run:
    """One sorted run on disk, of which about `block_bytes` are held."""

    def __init__(self, path: Path, block_bytes: int) -> None:
        self._file = pa.OSFile(str(path), "rb")
        self._reader = pa.ipc.open_file(self._file)
        self._block_bytes = block_bytes
        self._next = 0
        # `empty_table` cannot make a UUID inside a struct, list or map.
        self.held = pa.Table.from_batches([], self._reader.schema)

    @property
    def exhausted(self) -> bool:
        return bool(self._next >= self._reader.num_record_batches)

    def fill(self) -> bool:
        """Read on until the block is full. Returns False if the run is at its end and no rows are held."""
        parts = [self.held]
        held_bytes = self.held.nbytes
        while not self.exhausted and (held_bytes < self._block_bytes or not self.held.num_rows):
            batch = self._reader.get_batch(self._next)
            self._next += 1
            parts.append(pa.Table.from_batches([batch]))
            held_bytes += batch.nbytes
            if held_bytes >= self._block_bytes:
                break
        self.held = pa.concat_tables(parts)
        return bool(self.held.num_rows)

    def close(self) -> None:
        self._file.close()
