"""Which rows of a task's inputs are deleted, by position or by equality, by the spec's rules.

Equality is Java's: NULL equals NULL, NaN equals NaN, −0.0 does not equal 0.0. Columns are found by id, also those renamed or
dropped since. Key sets are built once per task; sets estimated at more than 80 % of the task's memory are not held at all:
their keys are split by hash, each part is held in turn and asked for every input, and what is kept is one bit per row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
        positional = self._positional.part(position, batch.num_rows) if self._positional is not None else None
        equal = self._equal.part(position, batch.num_rows) if self._equal is not None else None
        for probe in self._probes:
            found = _probed(probe, batch)
            equal = found if equal is None else equal | found
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

    def _build(self, scope: _Scope, chosen: Callable[[NDArray[np.uint64]], Mask] | None = None) -> KeySet:
        builder = KeySetBuilder()
        for columns, length, sequence in self._key_batches(scope):
            if chosen is None:
                builder.add(columns, length, sequence)
                continue
            mask = chosen(hashes_of(columns, length, _PART_SEED))
            if mask.any():
                kept = pa.array(mask)
                builder.add([column.filter(kept) for column in columns], int(mask.sum()), sequence)
        return builder.build()

    def _mark_by_parts(self, scope: _Scope, limit: int) -> None:
        """Find the rows that a large delete set deletes with a part of its keys in memory at a time."""
        columns = self._columns[scope[0]]
        total = sum(columns.estimated_bytes(delete.record_count, delete.file_size_bytes) for delete in self._files[scope])
        parts = max(1, -(-total // max(limit // 2, 1)))
        reached = [file for file in self._inputs.values() if any(self._scope(delete) == scope for delete in self._equalities(file))]
        for part in range(parts):

            def of_part(hashes: NDArray[np.uint64], part: int = part) -> Mask:
                chosen: Mask = (hashes >> np.uint64(40)) % np.uint64(parts) == np.uint64(part)
                return chosen

            keys = {scope: self._build(scope, of_part)}
            for file in reached:
                with self._reader.open(file) as opened:
                    bits = self._equal.setdefault(file.path, Bits(opened.rows))
                    probe = next(probe for probe in self._probes(file, opened, keys) if probe.columns is columns)
                    for position, batch in opened.batches([probe.projection]):
                        bits.set(np.flatnonzero(_probed(probe, batch)) + position)

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
