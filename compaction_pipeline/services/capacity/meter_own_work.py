"""Measures planning, commits and ticks in this process, and adds their sums to the ledger once a minute."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone

from compaction_pipeline.core.capacity.costs import CostStore
from compaction_pipeline.core.capacity.own_work import OwnKind, OwnWork, own_work_of
from compaction_pipeline.core.capacity.ports import TeamStore
from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.properties import named_team
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.tables.team_name import UNASSIGNED

log = logging.getLogger(__name__)

WRITTEN_EVERY = timedelta(minutes=1)
Spent = Callable[[], tuple[float, float]]
"""The seconds of a clock that never goes back, and the CPU seconds of the thread that asks."""


@dataclass(slots=True)
class _Under:
    """What is measured in a thread now. `within` is what work inside it has used, which is not its own."""

    kind: OwnKind
    within: tuple[float, float] = (0.0, 0.0)


@dataclass(slots=True)
class _Sum:
    times: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0


@dataclass
class _Stack(threading.local):
    """The work of each thread, the innermost last."""

    of: list[_Under] = field(default_factory=list)


class MeterOwnWork:
    """Two verbs: measured, and write. What a process that is killed has measured since it last wrote is lost."""

    def __init__(
        self, ledger: CostStore, teams: TeamStore, catalogs: CatalogStore, tables: TableReader, clock: Clock, spent: Spent
    ) -> None:
        self._ledger = ledger
        self._teams = teams
        self._catalogs = catalogs
        self._tables = tables
        self._clock = clock
        self._spent = spent
        self._stack = _Stack()
        self._lock = threading.Lock()
        self._sums: dict[tuple[date, OwnKind, str], _Sum] = {}
        self._written_at: datetime | None = None

    @contextmanager
    def measured(self, lease: str) -> Iterator[None]:
        """Measure the block, which is done under this lease. Work inside it that is measured itself is not counted twice."""
        found, stack = own_work_of(lease), self._stack.of
        # A tick within a tick is a part of it.
        if found is None or (stack and stack[-1].kind is found[0]):
            yield
            return
        under = _Under(found[0])
        stack.append(under)
        began = self._spent()
        try:
            yield
        finally:
            ended = self._spent()
            whole = (ended[0] - began[0], ended[1] - began[1])
            stack.pop()
            if stack:
                stack[-1].within = (stack[-1].within[0] + whole[0], stack[-1].within[1] + whole[1])
            self._add(*found, max(0.0, whole[0] - under.within[0]), max(0.0, whole[1] - under.within[1]))
            if not stack:
                self._write_sometimes()

    def _add(self, kind: OwnKind, table: str, seconds: float, cpu_seconds: float) -> None:
        with self._lock:
            one = self._sums.setdefault((self._clock().astimezone(timezone.utc).date(), kind, table), _Sum())
            one.times += 1
            one.seconds += seconds
            one.cpu_seconds += cpu_seconds

    def _write_sometimes(self) -> None:
        now = self._clock()
        with self._lock:
            written, self._written_at = self._written_at, self._written_at or now
            if written is None or timedelta(0) <= now - written < WRITTEN_EVERY:
                return
            self._written_at = now
        self.write()

    def write(self) -> None:
        """Add what was measured to the ledger. When that fails, it is kept for the next time, because the work itself is done."""
        with self._lock:
            sums, self._sums = self._sums, {}
        if not sums:
            return
        try:
            self._ledger.add_own(self._charged(sums))
        except Exception:
            # Whoever planned or committed must not fail for a figure.
            log.exception("the cost of planning, commits and ticks was not written; it is tried again")
            with self._lock:
                for key, one in sums.items():
                    kept = self._sums.setdefault(key, _Sum())
                    kept.times, kept.seconds = kept.times + one.times, kept.seconds + one.seconds
                    kept.cpu_seconds += one.cpu_seconds

    def _charged(self, sums: dict[tuple[date, OwnKind, str], _Sum]) -> list[OwnWork]:
        mapping, names = self._teams.mapping(), {team.name for team in self._teams.teams()}
        teams = {table: self._team(table, mapping, names) for _, _, table in sums if table}
        return [
            OwnWork(day, kind, table, teams.get(table, ""), one.times, one.seconds, one.cpu_seconds)
            for (day, kind, table), one in sums.items()
        ]

    def _team(self, table: str, mapping: Mapping[str, str], names: Collection[str]) -> str:
        identifier, own, of_catalog = TableIdentifier.parse(table), dict[str, str](), dict[str, str]()
        # A catalog that is gone, or whose secrets cannot be read, must not keep the sums of all others.
        with suppress(CompactionError):
            of_catalog = dict(self._catalogs.entry(identifier.catalog).properties)
            loaded = self._tables.state(identifier).index.loaded
            own = dict(loaded.layout.properties) if loaded is not None else {}
        named = named_team(identifier, own, of_catalog, mapping)
        return named if named in names else UNASSIGNED
