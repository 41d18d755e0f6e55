"""Goes on with expiries: settles requests without an answer, and deletes the files of removed snapshots when their grace time is over."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from compaction_pipeline.core.commit.late_requests import LATE_REQUEST
from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.ports.snapshots import Doomed, SnapshotStores, StoreLook, UpkeepStore
from compaction_pipeline.core.upkeep.record import UNSETTLED, RemovedSnapshot, UpkeepRecord, UpkeepStatus, files_due_at, given_up
from compaction_pipeline.services.upkeep.other_tables import OtherTables
from compaction_pipeline.services.upkeep.shared_files import SharedFiles
from compaction_pipeline.services.upkeep.why_not_change import WhyNotChange

_LOG = logging.getLogger(__name__)


class DeleteExpired:
    """One verb: go_on. Its caller holds the table's upkeep lease."""

    def __init__(
        self,
        stores: SnapshotStores,
        memory: UpkeepStore,
        why_not: WhyNotChange,
        others: OtherTables,
        shared: SharedFiles,
        clock: Clock,
        late: timedelta = LATE_REQUEST,
    ) -> None:
        """`late` is how long a request without an answer may still arrive."""
        self._stores = stores
        self._memory = memory
        self._why_not = why_not
        self._others = others
        self._shared = shared
        self._clock = clock
        self._late = late

    def go_on(self, table: TableIdentifier, may_go_on: Callable[[], bool]) -> tuple[UpkeepRecord, ...]:
        """Go on with every record of a table that has not ended, oldest first, and return them as they are now.

        The table is looked at for each record anew: the one before may have taken hours. A record that cannot be gone on with says why, and
        does not keep the others. `may_go_on()` is asked before each batch of deletions. Raises what a look at the table raises.
        """
        gone_on = []
        uuids = {look.table_uuid for look in self._stores.look(table)} if self._memory.records(under_way=True) else set()
        for record in reversed(self._memory.records(under_way=True)):
            if record.table != table and record.table_uuid not in uuids:
                continue
            # Somebody may have renamed the table. Its files have not moved.
            after = self._gone_on(table, replace(record, table=table) if record.table_uuid in uuids else record, may_go_on)
            if after != record:
                self._memory.save(after)
                _LOG.info("table=%s record=%s %s: %s", record.store, record.record_id, after.status.value, after.summary)
            gone_on.append(after)
        return tuple(gone_on)

    def _gone_on(self, table: TableIdentifier, record: UpkeepRecord, may_go_on: Callable[[], bool]) -> UpkeepRecord:
        if record.status is UpkeepStatus.KEPT:
            return record
        try:
            looks = self._stores.look(table)
            look = next((one for one in looks if one.table_uuid == record.table_uuid), None)
            if look is None:
                # The table may live on under another name, and then a run on that name goes on with the record.
                if self._others.is_known(record.table_uuid):
                    return record
                return given_up(record, "another table has its name now", self._clock())
            refusal = self._why_not.of_store(table, look, looks)
            if refusal is not None:
                return replace(record, reason=refusal)
            record = self._settled(replace(record, store=look.store), look)
            due = files_due_at(record, self._why_not.retention(table, look).grace)
            return record if due is None or due > self._clock() else self._deleted(table, record, look, looks, may_go_on)
        except CompactionError as error:
            return replace(record, reason=str(error))

    def _settled(self, record: UpkeepRecord, look: StoreLook) -> UpkeepRecord:
        """Find out from the table whether the snapshots are gone. It does not matter who removed them: files are judged by the table."""
        now = self._clock()
        if record.status in UNSETTLED:
            if _is_there(record, look):
                if now - record.created_at >= self._late:
                    return self._ended(record, "the request never arrived")
                reason = record.reason or "the process ended before the catalog answered"
                return replace(record, status=UpkeepStatus.UNKNOWN, reason=reason)
            record = replace(record, status=UpkeepStatus.REMOVED, removed_at=now, reason=None)
            if not record.removed:
                return self._ended(record, None)
        if record.status is UpkeepStatus.REMOVED and not record.base_known:
            # The metadata of before is found now, or it is never found: each commit lets go of the oldest file of the log.
            dropped = self._stores.dropped_beside(look, record)
            if dropped is not None:
                return replace(record, status=UpkeepStatus.KEPT, reason=dropped)
            return replace(record, base_known=True)
        return record

    def _deleted(
        self, table: TableIdentifier, record: UpkeepRecord, look: StoreLook, looks: Sequence[StoreLook], may_go_on: Callable[[], bool]
    ) -> UpkeepRecord:
        if look.keeps_files is not None and (record.reason or "").startswith(look.keeps_files):
            # The files that would go were told. They go once the catalog lets them.
            return record
        # Another registration of a base store needs files of the change store, too.
        neighbours = self._shared.neighbours(table, looks)
        if neighbours.refusal is not None:
            return replace(record, reason=neighbours.refusal)
        of_others = self._shared.paths_of(table, neighbours, self._memory.records(under_way=True), lambda: not may_go_on())
        beside = [one for one in looks if one is not look]
        doomed = Doomed(look, record, beside, self._kept(table, record, look), of_others, may_go_on)
        deletion = self._stores.delete_unreachable(doomed)
        record = replace(record, deleted=record.deleted.again(deletion.deleted), reason=deletion.problem)
        return record if deletion.problem is not None else self._ended(record, None)

    def _kept(self, table: TableIdentifier, record: UpkeepRecord, look: StoreLook) -> Sequence[RemovedSnapshot]:
        """The removed snapshots of other records of this store whose files must stay: for ever, for the rest of their grace time, or until
        it is known what became of the request.

        A snapshot that this record has removed too may go with it, because no tag was dropped with this removal. Otherwise a request that
        never landed would keep it until nobody looks for it any more.
        """
        now, grace = self._clock(), self._why_not.retention(table, look).grace
        own = {one.snapshot_id for one in record.removed}
        kept: list[RemovedSnapshot] = []
        for one in self._memory.records(under_way=True):
            due = files_due_at(one, grace)
            stays = due is None or due > now or not one.base_known
            if one.table_uuid == look.table_uuid and one.record_id != record.record_id and stays:
                kept += [each for each in one.removed if one.status is UpkeepStatus.KEPT or each.snapshot_id not in own]
        return kept

    def _ended(self, record: UpkeepRecord, reason: str | None) -> UpkeepRecord:
        status = UpkeepStatus.FAILED if record.status in UNSETTLED else UpkeepStatus.DONE
        return replace(record, status=status, reason=reason, ended_at=self._clock())


def _is_there(record: UpkeepRecord, look: StoreLook) -> bool:
    """Whether the metadata still has what the record removes. Of a dropped ref, another one may have the name by now."""
    if record.removed:
        return any(one.snapshot_id in look.history.snapshots for one in record.removed)
    return not look.history.refs.keys().isdisjoint(record.dropped_refs)
