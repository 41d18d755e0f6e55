"""Which rows of a task's inputs are deleted, by position or by equality, by the spec's rules.

Equality is Java's: NULL equals NULL, NaN equals NaN, −0.0 does not equal 0.0. Columns are found by id, also those renamed or
dropped since. Key sets are built once per task; sets estimated at more than 80 % of the task's memory are not held at all:
keys and rows are parted by hash on local disk, each part is joined in turn, and what is kept is one bit per row.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import LongType, NestedField, StringType

from compaction_pipeline.core.files.delete_index import DeleteIndex
from compaction_pipeline.core.model.data_file import FileContent, LiveFile
from compaction_pipeline.core.model.task import TaskWork
from compaction_pipeline.spark.evolution import Projection
from compaction_pipeline.spark.keys import KeyColumns, KeySet, KeySetBuilder, hashes_of
from compaction_pipeline.spark.read import DataReader, OpenFile, TableShape
from compaction_pipeline.spark.spill import PartedRows

PATH_FIELD = NestedField(2147483546, "file_path", StringType(), required=True)
POSITION_FIELD = NestedField(2147483545, "pos", LongType(), required=True)
ONE_PASS_SHARE = 0.8
"""Delete sets estimated at most at this share of the task's memory are held whole."""

Mask = NDArray[np.bool_]


class Bits:
    """One bit per row of a file."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._bytes = np.zeros(-(-rows // 8), dtype=np.uint8)

    def set(self, positions: NDArray[np.int64]) -> None:
        """Set these rows; positions outside of the file are none of its rows."""
        inside = positions[(positions >= 0) & (positions < self.rows)]
        np.bitwise_or.at(self._bytes, inside >> 3, np.left_shift(1, inside & 7).astype(np.uint8))

    def part(self, start: int, length: int) -> Mask:
        """The bits of `length` rows from `start` on."""
        first = start >> 3
        last = -(-(start + length) // 8)
        bits = np.unpackbits(self._bytes[first:last], bitorder="little")
        return bits[start - first * 8 :][:length].astype(bool)

    def positions(self) -> NDArray[np.int64]:
        """The rows that are set, ascending."""
        return np.flatnonzero(self.part(0, self.rows)).astype(np.int64)


@dataclass(frozen=True)
class _Probe:
    """A key set to ask for one file, and the projection that finds its key columns there."""

    columns: KeyColumns
    projection: Projection
    keys: Sequence[KeySet]
    sequence: int


class FileMasks:
    """The deleted rows of one input, batch by batch."""

    def __init__(self, positional: Bits | None, equal: Bits | None, probes: Sequence[_Probe]) -> None:
        self._positional = positional
        self._equal = equal
        self._probes = probes
        self.projections = [probe.projection for probe in probes]

    def deleted(self, position: int, batch: Any) -> tuple[Mask | None, Mask | None]:
        """(Deleted by position, deleted by equality) of a batch of the file's own columns; None: no row is."""
        positional, equal = self.marked(position, batch.num_rows)
        for probe in self._probes:
            found = _probed(probe, batch)
            equal = found if equal is None else equal | found
        return positional, equal

    def marked(self, position: int, rows: int) -> tuple[Mask | None, Mask | None]:
        """What `deleted` says of rows without looking into them: the deletes that `projections` are needed for do not count."""
        positional = self._positional.part(position, rows) if self._positional is not None else None
        equal = self._equal.part(position, rows) if self._equal is not None else None
        return positional, equal


def _probed(probe: _Probe, batch: Any) -> Mask:
    columns = probe.columns.canonical(probe.projection.arrays(batch))
    found = np.zeros(batch.num_rows, dtype=bool)
    for keys in probe.keys:
        found |= keys.matches(columns, batch.num_rows, probe.sequence)
    return found


# Equality deletes that share their field ids and reach (one partition of one spec, or all of the table).
_Scope = tuple[tuple[int, ...], object]


class TaskDeletes:
    """All deletes of one task; `of` gives the masks of one input.

    `only` names the delete files that count (a conversion's); all of the task's by default.
    """

    def __init__(
        self, work: TaskWork, shape: TableShape, reader: DataReader, memory_bytes: int, only: frozenset[str] | None = None
    ) -> None:
        self._shape = shape
        self._reader = reader
        self._memory_bytes = memory_bytes
        counted = [delete for delete in work.deletes if only is None or delete.path in only]
        index = DeleteIndex(counted, shape.layout.unpartitioned_spec_ids)
        self._applied = {file.path: index.of(file) for file in work.inputs}
        self._inputs = {file.path: file for file in work.inputs}
        self._positions = self._read_positions()
        scopes: dict[_Scope, dict[str, LiveFile]] = defaultdict(dict)
        for deletes in self._applied.values():
            for delete in deletes:
                if delete.content is FileContent.EQUALITY_DELETES:
                    scopes[self._scope(delete)][delete.path] = delete
        self._columns = {ids: KeyColumns.of(ids, shape) for ids, _ in scopes}
        self._files = {scope: tuple(files.values()) for scope, files in scopes.items()}
        self._equal: dict[str, Bits] = {}
        self._keys: dict[_Scope, KeySet] = {}
        limit = int(memory_bytes * ONE_PASS_SHARE)
        if self._estimated_bytes() <= limit:
            self._keys = {scope: self._build(scope) for scope in self._files}
        else:
            for scope in self._files:
                self._mark_by_parts(scope, limit)

    def of(self, file: LiveFile, opened: OpenFile) -> FileMasks:
        """The deleted rows of an input that is being read."""
        return FileMasks(self._positions.get(file.path), self._equal.get(file.path), self._probes(file, opened, self._keys))

    def _probes(self, file: LiveFile, opened: OpenFile, keys: Mapping[_Scope, KeySet]) -> list[_Probe]:
        by_ids: dict[tuple[int, ...], list[KeySet]] = defaultdict(list)
        for scope in dict.fromkeys(self._scope(delete) for delete in self._equalities(file)):
            if scope in keys:
                by_ids[scope[0]].append(keys[scope])
        return [
            _Probe(
                self._columns[ids],
                self._reader.projection(opened, file, self._columns[ids].fields),
                sets,
                file.data_sequence_number,
            )
            for ids, sets in by_ids.items()
        ]

    def _equalities(self, file: LiveFile) -> list[LiveFile]:
        return [delete for delete in self._applied[file.path] if delete.content is FileContent.EQUALITY_DELETES]

    def _scope(self, delete: LiveFile) -> _Scope:
        everywhere = delete.spec_id in self._shape.layout.unpartitioned_spec_ids
        return tuple(sorted(delete.equality_ids)), None if everywhere else (delete.spec_id, delete.partition)

    def _estimated_bytes(self) -> int:
        return sum(
            self._columns[ids].estimated_bytes(delete.record_count, delete.file_size_bytes)
            for (ids, _), files in self._files.items()
            for delete in files
        )

    # ---- by equality

    def _key_batches(self, scope: _Scope) -> Iterator[tuple[list[Any], int, int]]:
        """(Canonical key columns, number of keys, sequence) of every batch of a scope's delete files."""
        columns = self._columns[scope[0]]
        for delete in self._files[scope]:
            with self._reader.open(delete) as opened:
                projection = self._reader.projection(opened, delete, columns.fields)
                for _, batch in opened.batches([projection]):
                    yield columns.canonical(projection.arrays(batch)), batch.num_rows, delete.data_sequence_number

    def _build(self, scope: _Scope) -> KeySet:
        builder = KeySetBuilder()
        for columns, length, sequence in self._key_batches(scope):
            builder.add(columns, np.full(length, sequence, dtype=np.int64))
        return builder.build()

    def _mark_by_parts(self, scope: _Scope, limit: int) -> None:
        """Find the rows that a large delete set deletes: keys and rows parted by hash on disk, then part against part."""
        columns = self._columns[scope[0]]
        total = sum(columns.estimated_bytes(delete.record_count, delete.file_size_bytes) for delete in self._files[scope])
        parts = max(2, -(-total // max(limit // 3, 1)))
        reached = [file for file in self._inputs.values() if any(self._scope(delete) == scope for delete in self._equalities(file))]
        with tempfile.TemporaryDirectory(prefix="compaction-deletes-") as folder:
            keys = PartedRows(Path(folder) / "keys.arrow", parts, limit // 10)
            for arrays, length, sequence in self._key_batches(scope):
                keys.add(_tagged(arrays, [np.full(length, sequence, dtype=np.int64)]), _part_codes(arrays, length, parts))
            keys.finish()
            rows = PartedRows(Path(folder) / "rows.arrow", parts, limit // 10)
            for number, file in enumerate(reached):
                self._part_rows(file, number, columns, rows, parts)
            rows.finish()
            for part in range(parts):
                self._mark_part(keys.part(part), rows.part(part), reached)
        pa.default_memory_pool().release_unused()

    def _part_rows(self, file: LiveFile, number: int, columns: KeyColumns, rows: PartedRows, parts: int) -> None:
        with self._reader.open(file) as opened:
            self._equal.setdefault(file.path, Bits(opened.rows))
            projection = self._reader.projection(opened, file, columns.fields)
            for position, batch in opened.batches([projection]):
                arrays, length = columns.canonical(projection.arrays(batch)), batch.num_rows
                tags = [np.full(length, number, dtype=np.int64), np.arange(position, position + length, dtype=np.int64)]
                rows.add(_tagged(arrays, tags), _part_codes(arrays, length, parts))

    def _mark_part(self, keys: Iterator[Any], rows: Iterator[Any], reached: Sequence[LiveFile]) -> None:
        builder = KeySetBuilder()
        for batch in keys:
            builder.add(batch.columns[:-1], batch.column(batch.num_columns - 1).to_numpy())
        keyset = builder.build()
        sequences = np.array([file.data_sequence_number for file in reached], dtype=np.int64)
        for batch in rows:
            *arrays, tags, places = batch.columns
            numbers = tags.to_numpy()
            found = keyset.matches(arrays, batch.num_rows, sequences[numbers])
            for number in np.unique(numbers[found]).tolist():
                self._equal[reached[number].path].set(places.to_numpy()[found & (numbers == number)])

    # ---- by position

    def _read_positions(self) -> dict[str, Bits]:
        applies: dict[str, list[str]] = defaultdict(list)
        files: dict[str, LiveFile] = {}
        for path, deletes in self._applied.items():
            for delete in deletes:
                if delete.content is FileContent.POSITION_DELETES:
                    applies[delete.path].append(path)
                    files[delete.path] = delete
        bits: dict[str, Bits] = {}
        for delete_path, paths in applies.items():
            wanted = pa.array(paths, pa.string())
            with self._reader.open(files[delete_path]) as opened:
                projection = self._reader.projection(opened, files[delete_path], [PATH_FIELD, POSITION_FIELD])
                for _, batch in opened.batches([projection]):
                    named, positions = projection.arrays(batch)
                    which = pc.index_in(named, wanted).fill_null(-1).to_numpy(zero_copy_only=False)
                    values = positions.to_numpy(zero_copy_only=False)
                    for number in np.unique(which[which >= 0]).tolist():
                        path = paths[number]
                        if path not in bits:
                            bits[path] = Bits(self._inputs[path].record_count)
                        bits[path].set(values[which == number].astype(np.int64))
        return bits


_PART_SEED = 0x5DEECE66D


def _part_codes(columns: Sequence[Any], length: int, parts: int) -> NDArray[np.int64]:
    hashes = hashes_of(columns, length, _PART_SEED)
    codes: NDArray[np.int64] = ((hashes >> np.uint64(32)) % np.uint64(parts)).astype(np.int64)
    return codes


def _tagged(columns: Sequence[Any], tags: Sequence[NDArray[np.int64]]) -> Any:
    arrays = [*columns, *(pa.array(tag) for tag in tags)]
    return pa.RecordBatch.from_arrays(arrays, names=[str(number) for number in range(len(arrays))])
