"""Appends changes to a keyed table: writes the files, and commits them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table

from compaction_pipeline.core.errors import RacesLost, TableRefused
from compaction_pipeline.core.tables.data_file import OutputFile
from compaction_pipeline.core.tables.keyed.changes import Batch
from compaction_pipeline.iceberg.deletions import with_ban
from compaction_pipeline.iceberg.keyed.append import append_changes
from compaction_pipeline.iceberg.keyed.stores import KeyedStores
from compaction_pipeline.keyed.written_files import change_target, write_files
from compaction_pipeline.merging.keyed.change_rows import ChangeWriterId, write_change_rows
from compaction_pipeline.merging.keyed.change_writer import StoreTarget
from compaction_pipeline.merging.reading.file_access import FileAccess


@dataclass(frozen=True, slots=True)
class Appended:
    """Changes that were committed: the number of their transaction, the snapshot of the change store, and their files.

    `contents` has the bytes of some of these files, by path.
    """

    transaction_id: int
    snapshot_id: int
    files: Sequence[OutputFile]
    contents: Mapping[str, bytes]


def append_rows(
    stores: KeyedStores,
    rows: Any,
    order_by: str | None,
    batch: Batch | None,
    summary: Mapping[str, str] | None = None,
    hold_bytes: int = 0,
) -> Appended | None:
    """Do what `KeyedTable.write_changes` says. `summary` is added to what the snapshot's summary says.

    At most `hold_bytes` of the written files are given back, where this process itself writes them to an object store.
    """
    change = stores.change
    if batch is not None and batch.has_landed(stores.marks):
        return None
    # Changes that count as merged already would be acknowledged, and no reader would see them.
    stores.sequences()
    target = change_target(stores)
    write = partial(_write, order_by=order_by, is_ordered=order_by is not None or isinstance(rows, pa.Table))
    files = FileAccess(with_ban(change.io.properties, change, stores.base), change.metadata.location, hold_bytes=hold_bytes)
    with closing(files):
        outputs = write_files(target, rows, write, files)
        if not outputs and batch is None:
            return None
        try:
            snapshot = append_changes(stores, outputs, batch, _same_layout(change), summary or {})
        except (RacesLost, TableRefused):
            # These two say that nothing was committed. After any other error, an interruption too, the files may be live.
            files.delete_written()
            raise
        if snapshot is None:
            # Another writer has committed this batch meanwhile.
            files.delete_written()
            return None
        return Appended(snapshot.sequence_number or 0, snapshot.snapshot_id, outputs, files.held)


def _write(
    target: StoreTarget, rows: Any, files: FileAccess, writer: ChangeWriterId, *, order_by: str | None, is_ordered: bool
) -> list[OutputFile]:
    return write_change_rows(target, rows, order_by, files, writer, one_change_a_key=not is_ordered)


def _same_layout(change: Table) -> Any:
    """A check that refuses metadata with other columns or partitions than the files were written for."""
    schema_id, spec_id = change.metadata.current_schema_id, change.metadata.default_spec_id

    def check(now: Table) -> None:
        if (now.metadata.current_schema_id, now.metadata.default_spec_id) != (schema_id, spec_id):
            raise TableRefused(
                f"change store {'.'.join(now.name())} got other columns or partitions while changes were written: write them again"
            )

    return check
