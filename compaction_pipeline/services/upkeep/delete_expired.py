"""Goes on with expiries: settles requests without an answer, and deletes the files of removed snapshots when their grace time is over."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from compaction_pipeline.core.commit.late_requests import LATE_REQUEST
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.ports.snapshots import SnapshotStores, StoreLook, UpkeepStore
from compaction_pipeline.core.upkeep.record import UNSETTLED, UpkeepRecord, UpkeepStatus, files_due_at
from compaction_pipeline.core.upkeep.refusals import why_nothing_expires
from compaction_pipeline.core.upkeep.retention import Retention
from compaction_pipeline.services.upkeep.other_tables import OtherTables

_LOG = logging.getLogger(__name__)

RetentionOf = Callable[[StoreLook], Retention]
"""What the properties of a store ask for."""


class DeleteExpired:
    """One verb: go_on. Its caller holds the table's upkeep lease."""

    def __init__(
        self, stores: SnapshotStores, memory: UpkeepStore, others: OtherTables, clock: Clock, late: timedelta = LATE_REQUEST
    ) -> None:
        """`late` is how long a request without an answer may still arrive."""
        self._stores = stores
        self._memory = memory
        self._others = others
        self._clock = clock
        self._late = late

    def go_on(
        self, table: TableIdentifier, looks: Sequence[StoreLook], retention: RetentionOf, is_over: Callable[[], bool]
    ) -> tuple[UpkeepRecord, ...]:
        """Go on with every record of a table that has not ended, oldest first, and return them as they are now.

        `looks` are the stores as they are now.
        """
        by_store = {look.store: look for look in looks}
        gone_on = []
        for record in reversed(self._memory.records(table, under_way=True)):
            look = by_store.get(record.store)
            if look is None or look.table_uuid != record.table_uuid:
                after = self._ended(record, "another table has its name now, so the files stay")
            else:
                after = self._step(table, self._settled(record, look), look, retention(look), is_over)
            if after != record:
                self._memory.save(after)
                _LOG.info("table=%s record=%s %s: %s", record.store, record.record_id, after.status.value, after.summary)
            gone_on.append(after)
        return tuple(gone_on)

    def _settled(self, record: UpkeepRecord, look: StoreLook) -> UpkeepRecord:
        """Find out from the table whether the snapshots are gone. It does not matter who removed them: files are judged by the table."""
        if record.status not in UNSETTLED:
            return record
        now = self._clock()
        snapshots = any(one.snapshot_id in look.history.snapshots for one in record.removed)
        if not snapshots and look.history.refs.keys().isdisjoint(record.dropped_refs):
            return replace(record, status=UpkeepStatus.REMOVED, removed_at=now, reason=None)
        if now - record.created_at < self._late:
            reason = record.reason or "the process ended before the catalog answered"
            return replace(record, status=UpkeepStatus.UNKNOWN, reason=reason)
        return self._ended(record, "the request never arrived")

    def _step(
        self, table: TableIdentifier, record: UpkeepRecord, look: StoreLook, retention: Retention, is_over: Callable[[], bool]
    ) -> UpkeepRecord:
        due = files_due_at(record, retention.grace)
        if due is None or due > self._clock():
            return record
        stay = self._why_files_stay(table, record, look, retention)
        if stay is not None:
            return replace(record, reason=stay)
        deletion = self._stores.delete_unreachable(look, record, self._others.paths_of(table, look), is_over)
        record = replace(record, deleted=record.deleted.again(deletion.deleted), reason=deletion.problem)
        return record if deletion.problem is not None else self._ended(record, None)

    def _why_files_stay(self, table: TableIdentifier, record: UpkeepRecord, look: StoreLook, retention: Retention) -> str | None:
        """Say why the files of a record may not go now; None when they may."""
        stay = look.refusal or look.keeps_files or why_nothing_expires(retention, look.location) or self._others.why_files_stay(table, look)
        return stay if stay is not None or record.base_known else self._stores.dropped_beside(look, record)

    def _ended(self, record: UpkeepRecord, reason: str | None) -> UpkeepRecord:
        status = UpkeepStatus.FAILED if record.status in UNSETTLED else UpkeepStatus.DONE
        return replace(record, status=status, reason=reason, ended_at=self._clock())
