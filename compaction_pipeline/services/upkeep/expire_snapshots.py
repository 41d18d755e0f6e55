"""Expires the snapshots of a table: takes them out of the metadata, and later deletes the files that only they reached.

These are the steps, in order. The process may be killed after any of them, and the next run goes on:

1. take the table's upkeep lease, so that nobody else expires it,
2. go on with earlier records (`delete_expired`): find out from the table what became of a request without an answer, and delete the files
   of those whose grace time is over,
3. take the table's commit lease, and look at the table,
4. write a record with the snapshots that go and what leads to their files,
5. take them out of the metadata by one request,
6. note the answer in the record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.leases.holders import held_in_words
from compaction_pipeline.core.leases.names import commit_lease, upkeep_lease
from compaction_pipeline.core.leases.ports import HeldLeases, Renew
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.consumers import Consumer, lost
from compaction_pipeline.core.upkeep.expiry import Expiry, decide_expiry
from compaction_pipeline.core.upkeep.ports.snapshots import Removal, RemovalState, SnapshotStores, StoreLook, UpkeepStore
from compaction_pipeline.core.upkeep.record import ENDED, UpkeepRecord, UpkeepStatus
from compaction_pipeline.core.upkeep.works import UpkeepWork
from compaction_pipeline.services.upkeep.delete_expired import DeleteExpired
from compaction_pipeline.services.upkeep.why_not_change import WhyNotChange

_LOG = logging.getLogger(__name__)
_STATUS = {
    RemovalState.LANDED: UpkeepStatus.REMOVED,
    RemovalState.NOTHING: UpkeepStatus.FAILED,
    RemovalState.UNKNOWN: UpkeepStatus.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class ExpiredStore:
    """What a run decided about one store: what goes and stays, or why nothing may go.

    `record` says what was done. It is None for a dry run, and when nothing is old enough. `lost_consumers` are those whose snapshots are
    gone. `grace_seconds` is how long the files stay after their snapshots left the metadata; None when nothing may go.
    """

    store: TableIdentifier
    expiry: Expiry | None = None
    refusal: str | None = None
    record: UpkeepRecord | None = None
    lost_consumers: tuple[Consumer, ...] = ()
    grace_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Expired:
    """What one run did to a table. `earlier` are the records that it went on with, as they are now."""

    table: TableIdentifier
    stores: tuple[ExpiredStore, ...]
    earlier: tuple[UpkeepRecord, ...] = ()


class ExpireSnapshots:
    """The verbs expire and records. `forget_sightings` is for a person who has set a catalog's pointer back on purpose."""

    def __init__(
        self,
        stores: SnapshotStores,
        memory: UpkeepStore,
        why_not: WhyNotChange,
        delete_expired: DeleteExpired,
        leases: HeldLeases,
        new_id: Callable[[], str],
    ) -> None:
        self._stores = stores
        self._memory = memory
        self._why_not = why_not
        self._delete_expired = delete_expired
        self._leases = leases
        self._new_id = new_id

    def expire(self, table: TableIdentifier, *, dry_run: bool = False, is_over: Callable[[], bool] = lambda: False) -> Expired:
        """Expire the snapshots of a table. With `dry_run`, say what would go, and change nothing; a table that must not be changed
        is answered too.

        `is_over` is asked between two batches of deletions. Raises StorageUnavailable while another process works on the table, and what
        the ports raise; the records then say how far the run came.
        """
        with self._holding(upkeep_lease(table), f"looking after the files of {table}") as renew:
            if dry_run:
                looks = self._stores.look(table)
                return Expired(table, tuple(self._decided(table, look, looks) for look in looks))
            refused = self._refused(table)
            if refused is not None:
                return refused
            earlier = self._delete_expired.go_on(table, lambda: self._may_go_on(table, is_over, renew))
            with self._holding(commit_lease(table), f"committing {table}"):
                # A commit may have begun since the first question, and its process may have died.
                refused = self._refused(table)
                if refused is not None:
                    return replace(refused, earlier=earlier)
                looks = self._stores.look(table)
                done = [self._expire_store(table, look, looks) for look in looks]
        return Expired(table, tuple(done), earlier)

    def delete_files(self, table: TableIdentifier, is_over: Callable[[], bool] = lambda: False) -> Expired:
        """Only go on with earlier records of a table, and remove no further snapshot. Raises as `expire`."""
        with self._holding(upkeep_lease(table), f"looking after the files of {table}") as renew:
            refused = self._refused(table)
            return refused or Expired(table, (), self._delete_expired.go_on(table, lambda: self._may_go_on(table, is_over, renew)))

    def forget_sightings(self, table: TableIdentifier) -> None:
        """Forget what was seen of a table, so that metadata that is older than that counts as its metadata."""
        for look in self._stores.look(table):
            self._memory.note(look.store, None)

    def records(self, table: TableIdentifier | None, limit: int) -> Sequence[UpkeepRecord]:
        """Return the records, or those of a table, newest first, at most `limit`."""
        return self._memory.records(table, limit)

    @contextmanager
    def _holding(self, lease: str, doing: str) -> Iterator[Renew]:
        with self._leases.hold(lease) as renew:
            if renew is None:
                raise StorageUnavailable(f"{held_in_words(self._leases.holder(lease), doing)}; try again later")
            yield renew

    def _refused(self, table: TableIdentifier) -> Expired | None:
        refusal = self._why_not.of_table(table) or self._why_not.by_policy(table, UpkeepWork.SNAPSHOTS)
        return None if refusal is None else Expired(table, (ExpiredStore(table, refusal=refusal),))

    def _may_go_on(self, table: TableIdentifier, is_over: Callable[[], bool], renew: Renew) -> bool:
        """Whether another batch may be deleted. A policy that came meanwhile is told by the next run."""
        return not is_over() and renew() and self._why_not.by_policy(table, UpkeepWork.SNAPSHOTS) is None

    def _decided(self, table: TableIdentifier, look: StoreLook, looks: Sequence[StoreLook]) -> ExpiredStore:
        refusal = self._why_not.of_store(table, look, looks)
        if refusal is not None:
            return ExpiredStore(look.store, refusal=refusal)
        history = look.history.with_absences(self._why_not.seen_before(look).absent_at())
        held, now = self._why_not.held(table, look, looks), self._leases.clock()
        gone = tuple(lost(self._memory.consumers(), look.store, look.table_uuid, history, now))
        retention = self._why_not.retention(table, look, looks)
        grace_seconds = int(retention.grace.total_seconds())
        return ExpiredStore(look.store, decide_expiry(history, retention, held, now), lost_consumers=gone, grace_seconds=grace_seconds)

    def _expire_store(self, table: TableIdentifier, look: StoreLook, looks: Sequence[StoreLook]) -> ExpiredStore:
        decided = self._decided(table, look, looks)
        for consumer in decided.lost_consumers:
            self._memory.set_consumer(consumer)
            _LOG.warning("table=%s %s", look.store, consumer.problem)
        self._why_not.note(look, decided.expiry.next_look if decided.expiry is not None else None, is_decided=True)
        if decided.expiry is None or not decided.expiry.is_due:
            return decided
        record = self._opened(table, look, decided.expiry)
        self._memory.save(record)
        removal = self._stores.remove(look, decided.expiry.removed, decided.expiry.dropped_refs.keys())
        record = _answered(record, removal, self._leases.clock())
        self._memory.save(record)
        _LOG.info("table=%s record=%s %s: %s", look.store, record.record_id, record.status.value, record.summary)
        return replace(decided, record=record)

    def _opened(self, table: TableIdentifier, look: StoreLook, expiry: Expiry) -> UpkeepRecord:
        return UpkeepRecord(
            record_id=RecordId(self._new_id()),
            table=table,
            store=look.store,
            table_uuid=look.table_uuid,
            status=UpkeepStatus.OPEN,
            created_at=self._leases.clock(),
            removed=tuple(look.leads[snapshot_id] for snapshot_id in expiry.removed),
            dropped_refs=dict(expiry.dropped_refs),
            statistics=tuple(path for snapshot_id in expiry.removed for path in look.statistics.get(snapshot_id, ())),
            kept=len(expiry.kept),
        )


def _answered(record: UpkeepRecord, removal: Removal, now: datetime) -> UpkeepRecord:
    """The record with the answer of the catalog. When only refs went, there are no files to delete."""
    landed = removal.state is RemovalState.LANDED
    status, reason = _STATUS[removal.state], removal.reason
    if landed and removal.keeps_files is not None:
        status, reason = UpkeepStatus.KEPT, removal.keeps_files
    elif landed and not record.removed:
        status = UpkeepStatus.DONE
    return replace(
        record,
        status=status,
        reason=reason,
        base_known=removal.base_known,
        removed_at=now if landed else None,
        ended_at=now if status in ENDED else None,
    )
