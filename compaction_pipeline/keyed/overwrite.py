"""Replaces partitions of a keyed table by new rows: begins a transaction, writes the files, and commits them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from typing import Any

import pyarrow as pa

from compaction_pipeline.core.errors import RacesLost, TableRefused
from compaction_pipeline.core.tables.keyed.changes import Batch
from compaction_pipeline.foundations import utc_now
from compaction_pipeline.iceberg.deletions import with_ban
from compaction_pipeline.iceberg.keyed.append import begin_overwrite
from compaction_pipeline.iceberg.keyed.overwrite import Overwrite, TransactionPassed, overwrite_partitions, refuse_overwrite
from compaction_pipeline.iceberg.keyed.stores import KeyedStores
from compaction_pipeline.keyed.written_files import base_target, write_files
from compaction_pipeline.merging.keyed.base_rows import base_rows, write_base_rows
from compaction_pipeline.merging.reading.file_access import FileAccess

_BEGINNINGS = 5
"""So many transactions are begun before an overwrite gives up against merges and overwrites that are always faster."""


def overwrite_rows(load: Callable[[], KeyedStores], rows: Any, batch: Batch | None) -> int | None:
    """Do what `KeyedTable.insert_overwrite` says. `load` loads the stores anew."""
    for _ in range(_BEGINNINGS - 1):
        with suppress(TransactionPassed):
            return _overwrite(load, rows, batch)
    return _overwrite(load, rows, batch)


def _overwrite(load: Callable[[], KeyedStores], rows: Any, batch: Batch | None) -> int | None:
    stores = load()
    if batch is not None and batch.has_landed(stores.marks):
        return None
    target = base_target(stores)
    if isinstance(rows, pa.Table):
        # Rows that do not fit are refused before a transaction begins: as long as it is open, it holds back the merge of later changes.
        rows = base_rows(rows, target)
        if not rows.num_rows and batch is None:
            return None
    # A transaction that has begun holds back merges, so a table that cannot be overwritten now gets none.
    refuse_overwrite(stores, utc_now())
    transaction_id = begin_overwrite(stores)
    files = FileAccess(with_ban(stores.base.io.properties, stores.base, stores.change), stores.base.metadata.location)
    with closing(files):
        outputs = write_files(target, rows, partial(write_base_rows, transaction_id=transaction_id), files)
        try:
            landed = overwrite_partitions(stores, Overwrite(transaction_id, outputs, batch), load, utc_now)
        except (RacesLost, TableRefused):
            # These two say that nothing was committed. After any other error, an interruption too, the files may be live.
            files.delete_written()
            raise
        if not landed:
            # Another writer has committed this batch meanwhile.
            files.delete_written()
            return None
        return transaction_id
