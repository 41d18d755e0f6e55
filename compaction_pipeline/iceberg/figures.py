"""Counts for the record of a commit: files and bytes of the whole table before and after, and of what was merged."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from compaction_pipeline.core.commit.record import CommitFigures
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.iceberg.head_reader import HeadReader


def counted(
    before: Sequence[LiveFile],
    after: Sequence[LiveFile],
    inputs: Sequence[LiveFile],
    outputs: Sequence[LiveFile],
    dropped: int,
    added: int,
    deletes: Collection[str] = (),
) -> CommitFigures:
    """The figures of a commit with these files in the whole table before and after. It merged `inputs` into `outputs`.

    `dropped` and `added` are how many other delete files went and came. `deletes` are paths of files that hold deletes although their
    content does not say so, as in a change store.
    """
    data_before, data_after, merged, written = (
        sum(file.is_data and file.path not in deletes for file in files) for files in (before, after, inputs, outputs)
    )
    return CommitFigures(
        files_before=data_before,
        files_after=data_after,
        delete_files_before=len(before) - data_before,
        delete_files_after=len(after) - data_after,
        bytes_before=sum(file.file_size_bytes for file in before),
        bytes_after=sum(file.file_size_bytes for file in after),
        input_files=merged,
        input_bytes=sum(file.file_size_bytes for file in inputs),
        output_files=written,
        output_bytes=sum(file.file_size_bytes for file in outputs),
        delete_files_dropped=dropped + len(inputs) - merged,
        delete_files_added=added + len(outputs) - written,
    )


def figures_of_history(loaded: Table, first: Snapshot, last: Snapshot, added: set[str], removed: set[str]) -> CommitFigures:
    """The figures of a commit that was found in the table. Empty if the snapshot before it has been expired."""
    reader = HeadReader(loaded.io)
    parent = loaded.metadata.snapshot_by_id(first.parent_snapshot_id) if first.parent_snapshot_id is not None else None
    if parent is None:
        return CommitFigures()
    before = reader.live_files(loaded.metadata, parent)
    after = reader.live_files(loaded.metadata, last)
    inputs = [file for file in before if file.is_data and file.path in removed]
    outputs = [file for file in after if file.is_data and file.path in added]
    dropped = sum(1 for file in before if not file.is_data and file.path in removed)
    return counted(before, after, inputs, outputs, dropped, sum(1 for file in after if not file.is_data and file.path in added))
