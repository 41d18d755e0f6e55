"""Does the works of upkeep that are due in all tables, as far as the time allows. The next round begins with those that had no turn."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.ports.snapshots import UpkeepStore
from compaction_pipeline.core.upkeep.turns import Turn, is_due
from compaction_pipeline.core.upkeep.work_done import WorkDone
from compaction_pipeline.core.upkeep.works import WORK_IN_WORDS, UpkeepWork, asks_for
from compaction_pipeline.services.upkeep.snapshot_work import SnapshotWork

_LOG = logging.getLogger(__name__)

_NEVER = datetime.min.replace(tzinfo=timezone.utc)
BUDGET = timedelta(minutes=5)
"""A round begins no work after this time."""

Due = tuple[TableIdentifier, UpkeepWork]
"""A work that is due in a table."""
TakeTurn = Callable[[TableIdentifier, Callable[[], bool]], WorkDone]
"""Does a work in a table. Its second argument tells when to stop. It may raise any error."""


@dataclass(frozen=True, slots=True)
class Upkept:
    """What one round did. `failed` has the works that could not be done, each with the reason. `rest` counts those that had no turn."""

    done: tuple[WorkDone, ...] = ()
    failed: Mapping[Due, str] = field(default_factory=dict)
    rest: int = 0


class UpkeepTables:
    """Two verbs: run, and due."""

    def __init__(
        self,
        catalogs: CatalogStore,
        tables: TableReader,
        memory: UpkeepStore,
        snapshots: SnapshotWork,
        turns: Mapping[UpkeepWork, TakeTurn],
        clock: Clock,
        ttl: timedelta,
    ) -> None:
        """`turns` does each work, and `ttl` is how long records that have ended are kept."""
        self._catalogs = catalogs
        self._tables = tables
        self._memory = memory
        self._snapshots = snapshots
        self._take_turn = turns
        self._clock = clock
        self._ttl = ttl

    def run(self, is_over: Callable[[], bool] = lambda: False, budget: timedelta = BUDGET) -> Upkept:
        """Do the works that tables ask for, where something may be due.

        A table that did not change since the last turn, and in which no time has come, costs no request. What had no turn for the longest
        time comes first. When one work fails, the others go on. Files whose grace time is over are deleted in every table.
        """
        begun, done, failed = self._clock(), list[WorkDone](), dict[Due, str]()
        self._memory.expire(begun - self._ttl)
        known = {one.table: one for one in self._tables.states()}
        self._snapshots.end_dropped([*known.values()])
        due = self._in_turn([*known.values()])
        for number, (table, work) in enumerate(due):
            if is_over() or self._clock() - begun >= budget:
                return Upkept(tuple(done), failed, len(due) - number)
            place, next_look = known[table].metadata_location, None
            try:
                one = self._take_turn[work](table, is_over)
                done.append(one)
                place, next_look = (None if one.refusals else place), one.next_look
            except Exception as error:
                # Whatever is wrong with one table must not keep the others.
                place = None
                failed[table, work] = str(error) if isinstance(error, CompactionError) else f"{type(error).__name__}: {error}"
                unforeseen = not isinstance(error, CompactionError)
                _LOG.warning("table=%s %s: %s", table, WORK_IN_WORDS[work], error, exc_info=unforeseen)
            self._memory.note_turn(table, work, Turn(self._clock(), place, next_look))
        return Upkept(tuple(done), failed)

    def due(self) -> Sequence[Due]:
        """Return the works that a round would do now, in its order. No catalog is asked."""
        return self._in_turn(self._tables.states())

    def _in_turn(self, tables: Sequence[KnownTable]) -> list[Due]:
        """The works that are due, those first that had no turn for the longest time."""
        mine = [one for one in tables if self._may_change(one)]
        turns = {work: self._memory.turns(work) for work in UpkeepWork}
        due = {work: [one.table for one in mine if self._has_changed(one, work, turns[work])] for work in UpkeepWork}
        due[UpkeepWork.SNAPSHOTS] = list(self._snapshots.due(mine))
        in_turn = [(turns[work][table].at if table in turns[work] else _NEVER, table, work) for work in due for table in due[work]]
        return [(table, work) for _, table, work in sorted(in_turn, key=lambda one: (one[0], one[1], list(UpkeepWork).index(one[2])))]

    def _may_change(self, known: KnownTable) -> bool:
        return (
            known.layout is not None
            and known.refusal is None
            and not known.paused
            and not self._catalogs.entry(known.table.catalog).observe
        )

    def _has_changed(self, known: KnownTable, work: UpkeepWork, turns: Mapping[TableIdentifier, Turn]) -> bool:
        if not self._asks(known, work):
            return False
        if work is UpkeepWork.CHANGE_FILES and known.layout is not None and not known.layout.kind.beside:
            return False
        return is_due(turns.get(known.table), known.metadata_location, self._clock())

    def _asks(self, known: KnownTable, work: UpkeepWork) -> bool:
        properties = known.layout.properties if known.layout is not None else {}
        return asks_for(work, properties, self._catalogs.entry(known.table.catalog).properties)
