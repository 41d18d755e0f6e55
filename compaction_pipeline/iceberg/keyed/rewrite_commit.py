"""What a commit to the change store of a keyed table needs besides the commit of a plain table."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.table.refs import MAIN_BRANCH

from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.iceberg.keyed.stores import KeyedStores, files_of


def files_of_readers(stores: KeyedStores, changes: Sequence[LiveFile]) -> list[LiveFile]:
    """The files that readers of the table open: those of the base store, and the change files that are not in it yet.

    `changes` are files of the change store.
    """
    sequences = stores.sequences(to_write=False)
    base = files_of(stores.base, stores.base.metadata.snapshot_by_name(MAIN_BRANCH))
    return [*base, *(file for file in changes if file.data_sequence_number > (sequences.of_spec(file.spec_id).of(file.partition) or 0))]
