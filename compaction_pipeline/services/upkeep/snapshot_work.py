"""Snapshots as a work of upkeep: in which tables something is due, and what is done to one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.ports.snapshots import UpkeepStore
from compaction_pipeline.core.upkeep.record import UpkeepRecord, UpkeepStatus, files_due_at, given_up
from compaction_pipeline.core.upkeep.retention import Retention, resolve_retention
from compaction_pipeline.core.upkeep.sightings import Sightings
from compaction_pipeline.core.upkeep.work_done import WorkDone
from compaction_pipeline.core.upkeep.works import UpkeepWork, asks_for
from compaction_pipeline.services.upkeep.expire_snapshots import ExpireSnapshots

_AWAY = timedelta(days=1)


class SnapshotWork:
    """Three verbs: due, turn, and end_dropped."""

    def __init__(
        self, catalogs: CatalogStore, tables: TableReader, memory: UpkeepStore, expire_snapshots: ExpireSnapshots, clock: Clock
    ) -> None:
        self._catalogs = catalogs
        self._tables = tables
        self._memory = memory
        self._expire_snapshots = expire_snapshots
        self._clock = clock

    def due(self, tables: Sequence[KnownTable]) -> Sequence[TableIdentifier]:
        """Return those of these tables that ask for expiry and may have old snapshots, and those that have files to delete.

        A table that did not change since the last look, and in which no time has come, is not due. No catalog is asked.
        """
        now = self._clock()
        seen = {one.metadata_location: one for one in self._memory.all_sightings().values()}
        under_way = self._memory.records(under_way=True)
        return [known.table for known in tables if self._is_due(known, seen, under_way, now)]

    def turn(self, table: TableIdentifier, is_over: Callable[[], bool]) -> WorkDone:
        """Expire the snapshots of a table that asks for it. In another one, only delete files that are due. Raises as `ExpireSnapshots`."""
        layout = self._tables.state(table).layout
        properties = layout.properties if layout is not None else {}
        asks = asks_for(UpkeepWork.SNAPSHOTS, properties, self._catalogs.entry(table.catalog).properties)
        verb = self._expire_snapshots.expire if asks else self._expire_snapshots.delete_files
        expired = verb(table, is_over=is_over)
        records = [*expired.earlier, *(store.record for store in expired.stores if store.record is not None)]
        lines = tuple(f"{record.store}: {record.summary}" for record in records)
        refusals = tuple(f"{store.store}: nothing expires: {store.refusal}" for store in expired.stores if store.refusal is not None)
        return WorkDone(table, UpkeepWork.SNAPSHOTS, lines, refusals)

    def end_dropped(self, tables: Sequence[KnownTable]) -> None:
        """End the records of tables that are not known any more, a day after they were made: a table may be away for a moment."""
        now = self._clock()
        names, uuids = {one.table for one in tables}, {_uuid_of(one) for one in tables}
        for record in self._memory.records(under_way=True):
            is_gone = record.table not in names and record.table_uuid not in uuids and record.status is not UpkeepStatus.KEPT
            if is_gone and now - record.created_at >= _AWAY:
                self._memory.save(given_up(record, "the table was dropped", now))

    def _is_due(self, known: KnownTable, seen: Mapping[str, Sightings], under_way: Sequence[UpkeepRecord], now: datetime) -> bool:
        properties, catalog = known.layout.properties if known.layout else {}, self._catalogs.entry(known.table.catalog).properties
        try:
            retention = resolve_retention(properties, catalog, known.table)
        except CompactionError:
            # The run says what is wrong with the property. A table that asks for nothing is left alone.
            return asks_for(UpkeepWork.SNAPSHOTS, properties, catalog)
        records = [one for one in under_way if one.table == known.table or one.table_uuid == _uuid_of(known)]
        looks = [seen.get(place) for place in (known.metadata_location or "").split(" ")]
        return _has_files_due(records, retention, now) or (retention.enabled and _may_tell_something_new(looks, now))


def _has_files_due(records: Sequence[UpkeepRecord], retention: Retention, now: datetime) -> bool:
    due = [files_due_at(one, retention.grace) for one in records if one.status is not UpkeepStatus.KEPT]
    return any(at is None or at <= now for at in due)


def _may_tell_something_new(looks: Sequence[Sightings | None], now: datetime) -> bool:
    """Whether a table changed since it was looked at, or a time has come that makes a snapshot old. Each store has a look of its own."""
    return any(one is None or (one.next_look is not None and one.next_look < now) for one in looks)


def _uuid_of(known: KnownTable) -> str:
    return known.index.loaded.table_uuid if known.index.loaded is not None else ""
