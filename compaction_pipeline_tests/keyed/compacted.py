"""A keyed table whose changes are merged into its base store."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotsUpdate

from compaction_pipeline_tests.keyed.change_logs import ChangeLog, row
from compaction_pipeline_tests.keyed.compactions import Compactions
from compaction_pipeline_tests.reference_reader import Row


class Compacted(ChangeLog):
    """A keyed table, and its compactions."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/wh", "catalog-name": "lake"}
        self.compactions = Compactions(self.catalog, properties)

    def insert(self, *rows: Row) -> None:
        self.commit(self.changes(1, "I", 0, [(each, number) for number, each in enumerate(rows)]))

    def end_of_base(self) -> int:
        snapshot = self.base.refresh().current_snapshot()
        assert snapshot is not None
        return snapshot.snapshot_id

    def lose_sequences(self) -> None:
        """Another program appends to the base store, and expires the snapshots before, as if it were a plain table."""
        flagged = self.end_of_base()
        self.commit_base(self.base_rows(1, 0, [row(9)], name="other-1"))
        expire(self.base, flagged)


def expire(table: Table, snapshot_id: int) -> None:
    table.refresh()._do_commit(
        updates=(RemoveSnapshotsUpdate(snapshot_ids=[snapshot_id]),), requirements=(AssertTableUUID(uuid=table.metadata.table_uuid),)
    )
    table.refresh()
