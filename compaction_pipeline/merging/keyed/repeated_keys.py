"""Finds a key that has several live rows in one node of a keyed table. The rows are those that readers see (merge-on-read).

The keys are split by their hash on local disk, and each part is then held alone. So a node of any size takes about the same memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_pipeline.core.tables.keyed.merge_on_read import NodeRead
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.merging.deletes.keys import KeyColumns, hashes_of
from compaction_pipeline.merging.deletes.spill import PartedRows
from compaction_pipeline.merging.keyed.merge_on_read import KeyedReader
from compaction_pipeline.merging.reading.file_access import FileAccess
from compaction_pipeline.merging.reading.read import TableShape

MEMORY_BYTES = 256 * 1024 * 1024
"""The limit for batches, for the deletes of a node, and for the keys that are held at once, each."""
_SEED = 0x2545F491
_MOST_PARTS = 4096


@dataclass(frozen=True, slots=True)
class NodeKeys:
    """The number of live rows, and a key that several of them have, with their number; None when each row has a key of its own."""

    rows: int
    repeated: tuple[str, int] | None


class KeyCounter:
    """Counts the live rows of each key."""

    def __init__(
        self, files: FileAccess, base: TableLayout, change: TableLayout, key: Sequence[int], memory_bytes: int = MEMORY_BYTES
    ) -> None:
        self._memory_bytes = memory_bytes
        shape = TableShape.of(base)
        self._key = KeyColumns.of(tuple(key), shape)
        self._reader = KeyedReader(files, shape, TableShape.of(change), key, self._key.fields, memory_bytes, memory_bytes)

    def count(self, group: Sequence[NodeRead]) -> NodeKeys:
        """Count in nodes whose rows may have one key. Raises MergeFailed for a file that cannot be read."""
        inputs = [each.file for read in group for each in (*read.base, *read.inserts)]
        estimated = sum(self._key.estimated_bytes(file.record_count, file.file_size_bytes) for file in inputs)
        parts = min(max(-(-estimated // self._memory_bytes), 1), _MOST_PARTS)
        rows = 0
        with tempfile.TemporaryDirectory(prefix="compaction-keys-") as folder:
            parted = PartedRows(Path(folder) / "keys.arrow", parts, self._memory_bytes // 4)
            for read in group:
                for batch in self._reader.batches(read):
                    keys = self._key.canonical(batch.columns)
                    codes = (hashes_of(keys, batch.num_rows, _SEED) >> np.uint64(32)) % np.uint64(parts)
                    names = [str(number) for number in range(len(keys))]
                    # The values themselves go along, because the canonical form of a key is not fit for a message.
                    columns = [*keys, *batch.columns]
                    names += [field.name + " " for field in self._key.fields]
                    parted.add(pa.RecordBatch.from_arrays(columns, names=names), codes.astype(np.int64))
                    rows += batch.num_rows
            parted.finish()
            for part in range(parts):
                repeated = self._repeated(list(parted.part(part)))
                if repeated is not None:
                    return NodeKeys(rows, repeated)
        return NodeKeys(rows, None)

    def _repeated(self, batches: list[pa.RecordBatch]) -> tuple[str, int] | None:
        if not batches:
            return None
        table = pa.Table.from_batches(batches)
        canonical = table.column_names[: len(table.column_names) - len(self._key.fields)]
        counted = table.select(canonical).group_by(canonical).aggregate([([], "count_all")])
        several = counted.filter(pc.greater(counted.column("count_all"), 1)).slice(0, 1)
        if not several.num_rows:
            return None
        same = None
        for name in canonical:
            value = several.column(name)[0]
            equal = pc.equal(table.column(name), value).fill_null(False) if value.is_valid else table.column(name).is_null()
            same = equal if same is None else pc.and_(same, equal)
        first = table.filter(same).slice(0, 1).to_pylist()[0]
        return ", ".join(f"{field.name}={first[field.name + ' ']!r}" for field in self._key.fields), several.column("count_all")[0].as_py()
