"""What people and programs ask about upkeep: what was done to tables. Reads the state database only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.commit_record import UpkeepCommit
from compaction_pipeline.core.upkeep.orphan_looks import OrphanDeletion
from compaction_pipeline.core.upkeep.ports.orphans import OrphanStore
from compaction_pipeline.core.upkeep.ports.snapshots import UpkeepStore
from compaction_pipeline.core.upkeep.record import UpkeepRecord

AnyRecord: TypeAlias = UpkeepRecord | UpkeepCommit | OrphanDeletion
"""An expiry, a work that committed, or a batch of orphan files that were deleted."""


class ReadUpkeep:
    """One verb: records."""

    def __init__(self, tables: TableReader, memory: UpkeepStore, orphans: OrphanStore) -> None:
        self._tables = tables
        self._memory = memory
        self._orphans = orphans

    def records(self, table: TableIdentifier | None = None, limit: int = 20) -> Sequence[AnyRecord]:
        """Return the records of all works in all tables, or in one, newest first, at most `limit`.

        Raises NotFoundError for a table that nobody knows, and of which there is no record.
        """
        records: list[AnyRecord] = [
            *self._memory.records(table, limit),
            *self._memory.commits(table, limit),
            *self._orphans.deletions(table, limit),
        ]
        if table is not None and not records:
            self._tables.state(table)
        return sorted(records, key=lambda one: (one.created_at, one.record_id), reverse=True)[:limit]
