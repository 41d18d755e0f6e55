"""Expires the snapshots of all tables that ask for it, as far as the time allows. The next round begins with those that had no turn."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.tables.expiry_properties import ENABLED_KEY
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.properties import in_force
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.ports.snapshots import UpkeepStore
from compaction_pipeline.core.upkeep.record import UpkeepRecord, UpkeepStatus, files_due_at, given_up
from compaction_pipeline.core.upkeep.retention import Retention, resolve_retention
from compaction_pipeline.core.upkeep.sightings import Sightings
from compaction_pipeline.services.upkeep.expire_snapshots import Expired, ExpireSnapshots

_LOG = logging.getLogger(__name__)

_AWAY = timedelta(days=1)
_NEVER = datetime.min.replace(tzinfo=timezone.utc)
BUDGET = timedelta(minutes=5)
"""A round begins no table after this time."""


@dataclass(frozen=True, slots=True)
class Expiries:
    """What one round did. `skipped` has the tables that could not be expired, each with the reason. `rest` counts the due tables that
    had no turn."""

    expired: tuple[Expired, ...] = ()
    skipped: Mapping[TableIdentifier, str] = field(default_factory=dict)
    rest: int = 0


class ExpireTables:
    """Two verbs: expire, and due."""

    def __init__(
        self,
        catalogs: CatalogStore,
        tables: TableReader,
        memory: UpkeepStore,
        expire_snapshots: ExpireSnapshots,
        clock: Clock,
        ttl: timedelta,
    ) -> None:
        """`ttl` is how long records of expiries that have ended are kept."""
        self._catalogs = catalogs
        self._tables = tables
        self._memory = memory
        self._expire_snapshots = expire_snapshots
        self._clock = clock
        self._ttl = ttl

    def expire(self, is_over: Callable[[], bool] = lambda: False, budget: timedelta = BUDGET) -> Expiries:
        """Expire the tables whose 'table-expire.enabled' is true, and that have something old or files to delete.

        A table that did not change since the last look, and in which no time has come, costs no request. Tables that were not looked at for
        the longest time come first. When one table fails, the others go on. Files that are due are deleted in every table.
        """
        self._memory.expire(self._clock() - self._ttl)
        self._end_those_of_dropped_tables()
        begun, expired, skipped = self._clock(), list[Expired](), dict[TableIdentifier, str]()
        due = self._in_turn()
        for number, (table, enabled) in enumerate(due):
            if is_over() or self._clock() - begun >= budget:
                return Expiries(tuple(expired), skipped, len(due) - number)
            verb = self._expire_snapshots.expire if enabled else self._expire_snapshots.delete_files
            try:
                expired.append(verb(table, is_over=is_over))
            except Exception as error:
                # Whatever is wrong with one table must not keep the others.
                skipped[table] = str(error) if isinstance(error, CompactionError) else f"{type(error).__name__}: {error}"
                _LOG.warning("table=%s its snapshots were not expired: %s", table, error, exc_info=not isinstance(error, CompactionError))
        return Expiries(tuple(expired), skipped)

    def _end_those_of_dropped_tables(self) -> None:
        """End the records of tables that are not known any more, a day after they were made: a table may be away for a moment."""
        now, known = self._clock(), self._tables.states()
        names, uuids = {one.table for one in known}, {_uuid_of(one) for one in known}
        for record in self._memory.records(under_way=True):
            is_gone = record.table not in names and record.table_uuid not in uuids and record.status is not UpkeepStatus.KEPT
            if is_gone and now - record.created_at >= _AWAY:
                self._memory.save(given_up(record, "the table was dropped", now))

    def due(self) -> Sequence[TableIdentifier]:
        """Return the tables that a round would take now, in its order. No catalog is asked."""
        return [table for table, _ in self._in_turn()]

    def _in_turn(self) -> list[tuple[TableIdentifier, bool]]:
        """The tables that are due, those first that were looked at longest ago, each with whether it asks for expiry."""
        sightings, now = self._memory.all_sightings(), self._clock()
        seen = {one.metadata_location: one for one in sightings.values()}
        under_way = self._memory.records(under_way=True)
        due: list[tuple[datetime, TableIdentifier, bool]] = []
        for known in self._tables.states():
            entry = self._catalogs.entry(known.table.catalog)
            if known.layout is None or known.refusal is not None or known.paused or entry.observe:
                continue
            try:
                retention = resolve_retention(known.layout.properties, entry.properties, known.table)
            except CompactionError:
                # The run says what is wrong with the property. A table that asks for nothing is left alone.
                asks = in_force(known.layout.properties, entry.properties).get(ENABLED_KEY, "").strip().lower() == "true"
                due += [(_NEVER, known.table, True)] if asks else []
                continue
            looks = [seen.get(place) for place in (known.metadata_location or "").split(" ")]
            records = [one for one in under_way if one.table == known.table or one.table_uuid == _uuid_of(known)]
            if _has_files_due(records, retention, now) or (retention.enabled and _may_tell_something_new(looks, now)):
                due.append((_last_look(sightings.get(known.table), now), known.table, retention.enabled))
        return [(table, enabled) for _, table, enabled in sorted(due)]


def _last_look(sightings: Sightings | None, now: datetime) -> datetime:
    """When a table was looked at the last time. Both stores of a keyed table are looked at in one run, and the base store has its name."""
    looks = sightings.until(now).looks if sightings is not None else ()
    return looks[-1].at if looks else _NEVER


def _has_files_due(records: Sequence[UpkeepRecord], retention: Retention, now: datetime) -> bool:
    due = [files_due_at(one, retention.grace) for one in records if one.status is not UpkeepStatus.KEPT]
    return any(at is None or at <= now for at in due)


def _may_tell_something_new(looks: Sequence[Sightings | None], now: datetime) -> bool:
    """Whether a table changed since it was looked at, or a time has come that makes a snapshot old. Each store has a look of its own."""
    return any(one is None or (one.next_look is not None and one.next_look < now) for one in looks)


def _uuid_of(known: KnownTable) -> str:
    return known.index.loaded.table_uuid if known.index.loaded is not None else ""
