"""Commits merged change files to a change store, in place of exactly the files that were merged."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation

from compaction_pipeline.core.errors import CommitConflict
from compaction_pipeline.core.tables.data_file import LiveFile, OutputFile
from compaction_pipeline.iceberg.failures import translated
from compaction_pipeline.iceberg.head_reader import HeadReader
from compaction_pipeline.iceberg.keyed.stores import KeyedStores
from compaction_pipeline.iceberg.keyed.write_commits import commit_write
from compaction_pipeline.iceberg.manifests.entries import data_file_of
from compaction_pipeline.iceberg.manifests.partitions import partition_struct
from compaction_pipeline.iceberg.rewrite_files import AddedFile, SnapshotChange, Transaction


def replace_changes(
    stores: KeyedStores, replaced: Sequence[LiveFile], files: Sequence[OutputFile], sleep: Callable[[float], None] = time.sleep
) -> int:
    """Commit the merged `files` in place of the change files in `replaced`: all of it, or nothing. Returns the snapshot's sequence number.

    `stores` are those that the merge was planned with. The merged files get the highest data sequence number of the replaced ones, because
    readers skip a change file by this number. Each attempt looks at the newest metadata. Raises CommitConflict when a replaced file is no
    longer live as it was: nothing was committed then, and the merge has to be planned again. Else it raises as `commit_write` does.
    """
    change, name = stores.change, f"change store {'.'.join(stores.change.name())}"
    sequence = max(file.data_sequence_number for file in replaced)
    _check_places(name, replaced, files)
    # It keeps what it has read, so a further attempt reads only what other writers have added. Otherwise busy writers would always win.
    reader = HeadReader(change.io)

    def stage(summary: Mapping[str, str], attempt: int) -> Transaction:
        with translated(name):
            # PyIceberg refuses a store that was dropped and created anew.
            change.refresh()
        with translated(f"table {stores.name}"):
            # Its properties say by which keys readers look for watermarks in both stores.
            stores.base.refresh()
        with translated(name):
            live = reader.live_files(change.metadata, change.metadata.snapshot_by_name(MAIN_BRANCH))
        removed = _live_now(name, replaced, live)
        transaction = Transaction(change, attempt=attempt, reader=reader, watermarks_by=stores.base.metadata.properties)
        structs = {file.spec_id: partition_struct(change.metadata, file.spec_id) for file in files}
        added = [AddedFile(data_file_of(file, structs[file.spec_id]), sequence) for file in files]
        # The log of changes loses rows that later changes outdo, so a reader of changes must not take the snapshot for a `replace`.
        transaction.stage(SnapshotChange(Operation.OVERWRITE, added, removed, summary))
        return transaction

    committed = commit_write(change, name, stage, sleep)
    assert committed is not None, "each attempt stages a snapshot"
    return committed.sequence_number or 0


def _check_places(name: str, replaced: Sequence[LiveFile], files: Sequence[OutputFile]) -> None:
    """A merged file in another partition would part deletes from their rows."""
    places = {(file.spec_id, file.partition) for file in replaced}
    stray = next((file.path for file in files if (file.spec_id, file.partition) not in places), None)
    if stray is not None:
        raise CommitConflict(f"{name}: merged file {stray} is of another partition than the files that it replaces; merge them again")


def _live_now(name: str, replaced: Sequence[LiveFile], live: Sequence[LiveFile]) -> list[LiveFile]:
    """The replaced files as the head lists them. Raises CommitConflict unless each is live once, with the sequence number that it had."""
    by_path: dict[str, list[LiveFile]] = defaultdict(list)
    for file in live:
        by_path[file.path].append(file)
    removed = []
    for file in replaced:
        found = by_path[file.path]
        if len(found) != 1:
            text = "no longer live: another merge took it, or somebody removed it" if not found else "live more than once"
            raise CommitConflict(f"{name}: change file {file.path} is {text}; plan the merge again")
        if found[0].data_sequence_number != file.data_sequence_number:
            raise CommitConflict(
                f"{name}: change file {file.path} has the data sequence number {found[0].data_sequence_number}, but it had "
                f"{file.data_sequence_number} at the plan; plan the merge again"
            )
        removed += found
    return removed
