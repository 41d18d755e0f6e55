"""The live files of a keyed table, as one look at both stores found them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.keyed.optimized_sequence import OptimizedSequences
from compaction_pipeline.core.tables.keyed.transactions import BegunTransaction


@dataclass(frozen=True, slots=True)
class TransactionSpan:
    """The lowest and the highest transaction of the rows of a file that tells the transaction of each row."""

    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class KeyedFiles:
    """The live files of both stores of a keyed table. The change store was read first, at `change_snapshot_id`.

    `base` has the base store's own delete files too. `row_spans` has the bounds of the transactions in each change file with a column that
    tells the transaction of each row. `sequences` are those of the base store.
    """

    base: tuple[LiveFile, ...]
    changes: tuple[LiveFile, ...]
    sequences: OptimizedSequences
    change_snapshot_id: int
    row_spans: Mapping[str, TransactionSpan] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeyedContent:
    """What a plan of change merges is made from: the files, and the transactions that have begun and not ended.

    `held_by_sinks` are the paths of change files that a sink means to merge with each other itself.
    """

    files: KeyedFiles
    open_transactions: tuple[BegunTransaction, ...] = ()
    held_by_sinks: frozenset[str] = frozenset()
