"""The deletes of one node of a keyed table: held in memory as a set of keys, or, when they are too many, found beforehand part by part."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from compaction_pipeline.merging.deletes.deleted_rows import Mask
from compaction_pipeline.merging.deletes.keys import KeySet, KeySetBuilder, hashes_of
from compaction_pipeline.merging.deletes.positions import Bits
from compaction_pipeline.merging.deletes.spill import PartedRows

_PART_SEED = 0x5DEECE66D

DeleteBatches = Iterable[tuple[Sequence[pa.Array], NDArray[np.int64]]]
"""Canonical keys of deletes, and their LSNs, batch by batch."""
RowBatches = Callable[[], Iterator[tuple[str, int, Sequence[pa.Array], int, "int | NDArray[np.int64]"]]]
"""(Path of the file, position of the first row, canonical keys, number of rows, LSNs) for each batch of the rows that may be deleted."""


class HeldDeletes:
    """All deleted keys in memory, each with its highest LSN."""

    def __init__(self, deletes: DeleteBatches) -> None:
        self._keys = _key_set(deletes)

    def of(self, path: str, position: int, keys: Sequence[pa.Array], length: int, lsn: int | NDArray[np.int64]) -> Mask:
        """The deleted rows among the `length` rows of a file from `position` on, which have these canonical keys and LSNs."""
        return self._keys.matches(keys, length, lsn)


class MarkedDeletes:
    """One bit for each row that may be deleted.

    The deletes are split by the hash of their key on local disk. Each part is then held alone, while the keys of all rows pass by.
    """

    def __init__(self, deletes: DeleteBatches, parts: int, rows: RowBatches, records: Mapping[str, int], chunk_bytes: int) -> None:
        """`records` are the numbers of rows of the files. About `chunk_bytes` are held while deletes are written to disk."""
        self._bits = {path: Bits(count) for path, count in records.items()}
        with tempfile.TemporaryDirectory(prefix="compaction-deletes-") as folder:
            parted = PartedRows(Path(folder) / "deletes.arrow", parts, chunk_bytes)
            for keys, lsns in deletes:
                arrays = [*keys, pa.array(lsns)]
                batch = pa.RecordBatch.from_arrays(arrays, names=[str(number) for number in range(len(arrays))])
                codes = (hashes_of(keys, len(lsns), _PART_SEED) >> np.uint64(32)) % np.uint64(parts)
                parted.add(batch, codes.astype(np.int64))
            parted.finish()
            for part in range(parts):
                self._mark(
                    _key_set((batch.columns[:-1], batch.column(batch.num_columns - 1).to_numpy()) for batch in parted.part(part)), rows
                )

    def _mark(self, deleted: KeySet, rows: RowBatches) -> None:
        if not len(deleted):
            return
        for path, position, keys, length, lsn in rows():
            self._bits[path].set(position + np.flatnonzero(deleted.matches(keys, length, lsn)))

    def of(self, path: str, position: int, keys: Sequence[pa.Array], length: int, lsn: int | NDArray[np.int64]) -> Mask:
        return self._bits[path].part(position, length)


NodeDeletes = HeldDeletes | MarkedDeletes
"""Tells which rows of a node are deleted."""


def _key_set(deletes: DeleteBatches) -> KeySet:
    builder = KeySetBuilder()
    for keys, lsns in deletes:
        builder.add(keys, lsns)
    return builder.build()
