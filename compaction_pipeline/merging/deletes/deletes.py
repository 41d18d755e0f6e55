"""Finds the rows of a task's inputs that are deleted, by position or by equality, with the rules of the spec.

Equality is that of Iceberg's Java library: NULL equals NULL, NaN equals NaN, and −0.0 does not equal 0.0. Columns are found by their ids,
so they may have been renamed or dropped since the delete was written.

Three ways lead from delete files to deleted rows. The first that fits the task's memory is used:

1. All keys go into one set. The process keeps it for its next tasks (`shared_deletes`).
2. Only keys that a row of the task may have go into a set. A filter of the rows' hashes finds them. This also saves time when there are
   many keys and no other task is known to need them: writers delete in the whole table, and a task holds only a few of its files.
3. Keys and rows are split by hash into parts on local disk. Each part is joined in turn, and one bit for each row is kept.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.deletes.applies import DeleteIndex
from compaction_pipeline.formats.hash_filter import HashFilter
from compaction_pipeline.merging.deletes.deleted_rows import Mask
from compaction_pipeline.merging.deletes.keys import KeyColumns, KeySet, KeySetBuilder, hashes_of
from compaction_pipeline.merging.deletes.positions import Bits, deleted_positions, kept_for_others
from compaction_pipeline.merging.deletes.shared_deletes import DeleteFile, KeyFiles, SharedDeletes
from compaction_pipeline.merging.deletes.spill import PartedRows
from compaction_pipeline.merging.reading.evolution import Projection
from compaction_pipeline.merging.reading.read import DataReader, OpenFile, TableShape

ONE_PASS_SHARE = 0.8
"""Delete sets that are estimated to take at most this share of the task's memory are held whole."""
_MANY_KEYS = 65_536
"""Up to this number of keys, building a set of all is cheaper than passing over the rows first."""
_POSITIONS_DIVISOR = 4
"""Partition-scoped position deletes may take this fraction (1/4) of the memory for deletes."""


@dataclass(frozen=True)
class _Probe:
    """A key set to look up for one file, and the projection that finds its key columns in that file."""

    columns: KeyColumns
    projection: Projection
    keys: Sequence[KeySet]
    sequence: int


class FileMasks:
    """Tells which rows of one input are deleted, batch by batch."""

    def __init__(self, positional: Bits | None, equal: Bits | None, probes: Sequence[_Probe]) -> None:
        self._positional = positional
        self._equal = equal
        self._probes = probes
        self.projections = [probe.projection for probe in probes]

    def deleted(self, position: int, batch: pa.RecordBatch) -> tuple[Mask | None, Mask | None]:
        """The rows of a batch that are deleted by position, and those deleted by equality. None means that no row is.

        The batch holds the file's own columns.
        """
        positional, equal = self.marked(position, batch.num_rows)
        for probe in self._probes:
            found = _probed(probe, batch)
            equal = found if equal is None else equal | found
        return positional, equal

    def marked(self, position: int, rows: int) -> tuple[Mask | None, Mask | None]:
        """The part of `deleted` that needs no columns. It leaves out the deletes for which `projections` have to be read."""
        positional = self._positional.part(position, rows) if self._positional is not None else None
        equal = self._equal.part(position, rows) if self._equal is not None else None
        return positional, equal


def _probed(probe: _Probe, batch: pa.RecordBatch) -> Mask:
    columns = probe.columns.canonical(probe.projection.arrays(batch))
    found = np.zeros(batch.num_rows, dtype=bool)
    for keys in probe.keys:
        found |= keys.matches(columns, batch.num_rows, probe.sequence)
    return found


# Equality deletes that have the same field ids and the same reach: one partition of one spec, or the whole table.
_Scope = tuple[tuple[int, ...], object]


class TaskDeletes:
    """The deletes of one task: those of the delete files `counted`. `of` gives the masks of one of its `inputs`."""

    def __init__(
        self,
        inputs: Sequence[LiveFile],
        counted: Sequence[LiveFile],
        shape: TableShape,
        reader: DataReader,
        memory_bytes: int,
        shared: SharedDeletes,
    ) -> None:
        self._shape = shape
        self._reader = reader
        self._shared = shared
        index = DeleteIndex(counted, shape.layout.unpartitioned_spec_ids)
        self._applied = {file.path: index.of(file) for file in inputs}
        self._inputs = {file.path: file for file in inputs}
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
        wanted = {scope: self._key_files(scope) for scope in self._files}
        whole = kept_for_others(counted, limit // _POSITIONS_DIVISOR)
        asked_before = shared.begin(list(wanted.values()), whole.values(), limit)
        # Files that earlier tasks have read are not opened again.
        known = {path for path, file in whole.items() if shared.positions(file) is not None}
        known |= {file.path for each in wanted.values() if shared.key_set(each.kind) is not None for file in each.files}
        applied = {delete.path: delete for deletes in self._applied.values() for delete in deletes if delete.path not in known}
        reader.expect([*applied.values(), *inputs])
        self._positions = deleted_positions(reader, self._inputs, self._applied, whole, shared)
        self._find_keys(wanted, asked_before, limit)

    def _find_keys(self, wanted: Mapping[_Scope, KeyFiles], asked_before: Collection[Hashable], limit: int) -> None:
        kept = {scope: keys for scope, each in wanted.items() if (keys := self._shared.key_set(each.kind)) is not None}
        fits = sum(self._estimated_bytes(scope) for scope in wanted if scope not in kept) + self._shared.nbytes <= limit
        # If not all sets fit, half of the limit stays free for finding the keys of the next scope.
        self._left_bytes = (limit if fits else limit // 2) - self._shared.nbytes
        for scope, deletes in self._files.items():
            if scope in kept:
                self._hold(scope, kept[scope], 0)
                continue
            reached = self._reached(scope)
            count, rows = (sum(file.record_count for file in files) for files in (deletes, reached))
            if fits and (count <= max(_MANY_KEYS, rows) or wanted[scope].kind in asked_before):
                keyset = self._build(self._key_batches(scope))
                self._shared.keep_key_set(wanted[scope], keyset)
                self._hold(scope, keyset, keyset.nbytes)
            else:
                self._find_by_rows(scope, reached, limit)

    def _key_files(self, scope: _Scope) -> KeyFiles:
        layout = self._shape.layout
        # The keys of a file depend on the file and on these values.
        kind = (layout.location, scope, repr(self._columns[scope[0]]), layout.properties.get("schema.name-mapping.default"))
        oldest = min(file.data_sequence_number for file in self._reached(scope))
        return KeyFiles(kind, frozenset(DeleteFile.of(delete) for delete in self._files[scope]), oldest)

    def of(self, file: LiveFile, opened: OpenFile) -> FileMasks:
        """The deleted rows of an input that is open."""
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

    def _reached(self, scope: _Scope) -> list[LiveFile]:
        return [file for file in self._inputs.values() if any(self._scope(delete) == scope for delete in self._equalities(file))]

    def _estimated_bytes(self, scope: _Scope) -> int:
        columns = self._columns[scope[0]]
        return sum(columns.estimated_bytes(delete.record_count, delete.file_size_bytes) for delete in self._files[scope])

    # ---- by equality

    def _key_batches(self, scope: _Scope) -> Iterator[tuple[list[pa.Array], NDArray[np.int64]]]:
        """The canonical key columns and the sequence number of each key, for every batch of a scope's delete files."""
        columns = self._columns[scope[0]]
        for delete in self._files[scope]:
            with self._reader.open(delete) as opened:
                projection = self._reader.projection(opened, delete, columns.fields)
                for _, batch in opened.batches([projection]):
                    yield columns.canonical(projection.arrays(batch)), np.full(batch.num_rows, delete.data_sequence_number, dtype=np.int64)

    def _row_batches(self, scope: _Scope, file: LiveFile) -> Iterator[tuple[list[pa.Array], int, int]]:
        """The canonical key columns, the position of the first row and the number of rows, for every batch of an input."""
        columns = self._columns[scope[0]]
        with self._reader.open(file) as opened:
            projection = self._reader.projection(opened, file, columns.fields)
            for position, batch in opened.batches([projection]):
                yield columns.canonical(projection.arrays(batch)), position, batch.num_rows

    def _build(self, batches: Iterable[tuple[list[pa.Array], NDArray[np.int64]]]) -> KeySet:
        builder = KeySetBuilder()
        for columns, sequences in batches:
            builder.add(columns, sequences)
        return builder.build()

    def _hold(self, scope: _Scope, keys: KeySet, size: int) -> None:
        self._left_bytes -= size
        # An empty set needs no look at the rows.
        if len(keys):
            self._keys[scope] = keys

    def _find_by_rows(self, scope: _Scope, reached: Sequence[LiveFile], limit: int) -> None:
        """Keep only the keys that a row of the task may have.

        They are held as a set. If even these are too many for a set, the deleted rows are found now and held as bits.
        """
        with tempfile.TemporaryDirectory(prefix="compaction-deletes-") as folder:
            kept = PartedRows(Path(folder) / "kept.arrow", 1, limit // 10)
            estimated = self._keep_keys_of_rows(scope, self._filter_of(scope, reached, limit // 8), kept)
            if estimated <= self._left_bytes:
                self._hold(scope, self._build(_untagged(kept.part(0))), estimated)
            else:
                self._mark_by_parts(scope, reached, kept, max(2, -(-estimated // max(limit // 3, 1))), Path(folder), limit // 10)
        pa.default_memory_pool().release_unused()

    def _filter_of(self, scope: _Scope, reached: Sequence[LiveFile], most_bytes: int) -> HashFilter:
        rows = HashFilter(sum(file.record_count for file in reached), most_bytes)
        for file in reached:
            for arrays, _, length in self._row_batches(scope, file):
                rows.add(hashes_of(arrays, length, _PART_SEED))
        return rows

    def _keep_keys_of_rows(self, scope: _Scope, rows: HashFilter, kept: PartedRows) -> int:
        """Write to local disk the keys whose hash equals that of some row. Returns the estimated bytes of a set of them."""
        count = size = 0
        for arrays, sequences in self._key_batches(scope):
            chosen = np.flatnonzero(rows.may_hold(hashes_of(arrays, len(sequences), _PART_SEED)))
            if len(chosen):
                batch = _tagged(arrays, [sequences]).take(pa.array(chosen))
                kept.add(batch, np.zeros(len(chosen), dtype=np.int64))
                count += len(chosen)
                size += batch.nbytes
        kept.finish()
        return self._columns[scope[0]].estimated_bytes(count, size // 3)

    def _mark_by_parts(
        self, scope: _Scope, reached: Sequence[LiveFile], kept: PartedRows, parts: int, folder: Path, chunk_bytes: int
    ) -> None:
        """Find the rows that a large delete set deletes: split keys and rows by hash on disk, then compare part with part."""
        keys = PartedRows(folder / "keys.arrow", parts, chunk_bytes)
        for batch in kept.part(0):
            keys.add(batch, _part_codes(batch.columns[:-1], batch.num_rows, parts))
        keys.finish()
        rows = PartedRows(folder / "rows.arrow", parts, chunk_bytes)
        for number, file in enumerate(reached):
            self._equal.setdefault(file.path, Bits(file.record_count))
            for arrays, position, length in self._row_batches(scope, file):
                tags = [np.full(length, number, dtype=np.int64), np.arange(position, position + length, dtype=np.int64)]
                rows.add(_tagged(arrays, tags), _part_codes(arrays, length, parts))
        rows.finish()
        for part in range(parts):
            self._mark_part(keys.part(part), rows.part(part), reached)

    def _mark_part(self, keys: Iterator[pa.RecordBatch], rows: Iterator[pa.RecordBatch], reached: Sequence[LiveFile]) -> None:
        keyset = self._build(_untagged(keys))
        sequences = np.array([file.data_sequence_number for file in reached], dtype=np.int64)
        for batch in rows:
            *arrays, tags, places = batch.columns
            numbers = tags.to_numpy()
            found = keyset.matches(arrays, batch.num_rows, sequences[numbers])
            for number in np.unique(numbers[found]).tolist():
                self._equal[reached[number].path].set(places.to_numpy()[found & (numbers == number)])


_PART_SEED = 0x5DEECE66D


def _part_codes(columns: Sequence[pa.Array], length: int, parts: int) -> NDArray[np.int64]:
    hashes = hashes_of(columns, length, _PART_SEED)
    codes: NDArray[np.int64] = ((hashes >> np.uint64(32)) % np.uint64(parts)).astype(np.int64)
    return codes


def _tagged(columns: Sequence[pa.Array], tags: Sequence[NDArray[np.int64]]) -> pa.RecordBatch:
    arrays = [*columns, *(pa.array(tag) for tag in tags)]
    return pa.RecordBatch.from_arrays(arrays, names=[str(number) for number in range(len(arrays))])


def _untagged(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[list[pa.Array], NDArray[np.int64]]]:
    for batch in batches:
        yield batch.columns[:-1], batch.column(batch.num_columns - 1).to_numpy()
