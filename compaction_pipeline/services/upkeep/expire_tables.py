"""Expires the snapshots of all tables that ask for it, as far as the time allows. The next round goes on behind the last table."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.ports.snapshots import UpkeepStore
from compaction_pipeline.core.upkeep.record import UpkeepRecord, files_due_at
from compaction_pipeline.core.upkeep.retention import resolve_retention
from compaction_pipeline.core.upkeep.sightings import Sightings
from compaction_pipeline.services.upkeep.expire_snapshots import Expired, ExpireSnapshots

_LOG = logging.getLogger(__name__)

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
    """One verb: expire."""

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
        self._last: TableIdentifier | None = None

    def expire(self, is_over: Callable[[], bool] = lambda: False, budget: timedelta = BUDGET) -> Expiries:
        """Expire the tables whose 'table-expire.enabled' is true, and that have something old or files to delete.

        A table that did not change since the last look, and in which no time has come, costs no request. When one table fails, the others
        go on.
        """
        self._memory.expire(self._clock() - self._ttl)
        begun, expired, skipped = self._clock(), list[Expired](), dict[TableIdentifier, str]()
        due = self._in_turn()
        for number, table in enumerate(due):
            if is_over() or self._clock() - begun >= budget:
                return Expiries(tuple(expired), skipped, len(due) - number)
            self._last = table
            try:
                expired.append(self._expire_snapshots.expire(table, is_over=is_over))
            except CompactionError as error:
                skipped[table] = str(error)
                _LOG.warning("table=%s its snapshots were not expired: %s", table, error)
        return Expiries(tuple(expired), skipped)

    def _in_turn(self) -> list[TableIdentifier]:
        """The tables that are due, in their order, those behind the last one of the round before first."""
        looks, under_way = self._memory.all_sightings(), self._under_way()
        due = [known.table for known in self._tables.states() if self._is_due(known, looks, under_way.get(known.table, ()))]
        last = self._last
        return due if last is None else [*(one for one in due if one > last), *(one for one in due if one <= last)]

    def _under_way(self) -> Mapping[TableIdentifier, tuple[UpkeepRecord, ...]]:
        found: dict[TableIdentifier, tuple[UpkeepRecord, ...]] = {}
        for record in self._memory.records(under_way=True):
            found[record.table] = (*found.get(record.table, ()), record)
        return found

    def _is_due(self, known: KnownTable, looks: Mapping[TableIdentifier, Sightings], records: tuple[UpkeepRecord, ...]) -> bool:
        entry = self._catalogs.entry(known.table.catalog)
        if known.layout is None or known.refusal is not None or known.paused or entry.observe:
            return False
        try:
            retention = resolve_retention(known.layout.properties, entry.properties, known.table)
        except CompactionError:
            # The run says what is wrong with the property.
            return True
        if not retention.enabled:
            return False
        now = self._clock()
        if any((files_due_at(record, retention.grace) or now) <= now for record in records):
            return True
        seen = looks.get(known.table)
        moved = seen is None or known.layout.keyed is not None or seen.metadata_location != known.metadata_location
        return moved or _has_come(seen, now)


def _has_come(seen: Sightings | None, now: datetime) -> bool:
    return seen is not None and seen.next_look is not None and seen.next_look < now
