"""Tells why a work of upkeep may not commit to a table now."""

from __future__ import annotations

from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.ports.snapshots import SnapshotStores, StoreLook, UpkeepStore
from compaction_pipeline.core.upkeep.record import UpkeepStatus
from compaction_pipeline.core.upkeep.works import UpkeepWork
from compaction_pipeline.services.upkeep.shared_files import SharedFiles
from compaction_pipeline.services.upkeep.why_not_change import WhyNotChange


class WhyNotCommit:
    """One verb: of_work."""

    def __init__(self, stores: SnapshotStores, memory: UpkeepStore, why_not: WhyNotChange, shared: SharedFiles) -> None:
        self._stores = stores
        self._memory = memory
        self._why_not = why_not
        self._shared = shared

    def of_work(self, table: TableIdentifier, work: UpkeepWork) -> str | None:
        """Say why the work may not be done in a table; None when it may. Raises what a look at the table raises."""
        refusal = self._why_not.of_table(table) or self._why_not.by_policy(table, work)
        if refusal is not None:
            return refusal
        looks = self._stores.look(table)
        refusal = self._why_not.set_back(looks)
        if refusal is None and work is UpkeepWork.CHANGE_FILES:
            # Another registration of the base store has the same change store, and may not have merged as far as this one.
            refusal = self._shared.neighbours(table, looks).refusal
        return refusal or (self._open_question(looks[0]) if work is UpkeepWork.CHANGE_FILES else None)

    def _open_question(self, base: StoreLook) -> str | None:
        """Which expiry of the base store may still bring a snapshot back, which needs changes above its own number."""
        for record in self._memory.records(under_way=True):
            if record.table_uuid == base.table_uuid and (record.status is not UpkeepStatus.REMOVED or not record.base_known):
                return f"snapshots that expiry {record.record_id} removed may come back, and need change files: {record.summary}"
        return None
