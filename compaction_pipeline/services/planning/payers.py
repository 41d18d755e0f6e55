"""Tells which team pays for a table, what it has left today, and what work on the table is predicted to cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from compaction_pipeline.core.capacity.calibration import Fit, fit
from compaction_pipeline.core.capacity.costs import CostStore
from compaction_pipeline.core.capacity.limits import Standing
from compaction_pipeline.core.capacity.ports import TeamStore
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.planning.calibrated import calibrated
from compaction_pipeline.core.planning.plan import CompactionPlan
from compaction_pipeline.core.tables.properties import named_team
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.tables.team_name import UNASSIGNED
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.services.planning.fits import Fits

_FITTED_EVERY = timedelta(minutes=10)
_MISSED_EVERY = timedelta(minutes=1)
"""How long types stay unknown that nobody could predict: the first attempt of a type makes it known."""


@dataclass(frozen=True, slots=True)
class Payer:
    """The team that pays for a table. `held` says why it may begin nothing more now; None while it may.

    `gb_hours` are those that it may use in a day, and `left` what its tasks leave of them today; None without a limit.
    """

    team: str
    held: str | None = None
    gb_hours: float | None = None
    left: float | None = None


@dataclass(frozen=True, slots=True)
class Book:
    """How teams stand, by name, and the teams that administrators gave to tables and catalogs."""

    standings: Mapping[str, Standing]
    mapping: Mapping[str, str]

    @property
    def is_limited(self) -> bool:
        """Whether any team has a limit of GB-hours."""
        return any(standing.allowed.gb_hours is not None for standing in self.standings.values())


class Payers:
    """Four questions: book, of, fits, predicted."""

    def __init__(self, teams: TeamStore, costs: CostStore) -> None:
        self._teams = teams
        self._costs = costs
        self._fits: tuple[datetime, Fits] | None = None

    def book(self) -> Book:
        """Return how all teams stand now, and what is mapped to them."""
        return Book(self._teams.standings(), self._teams.mapping())

    def of(self, known: KnownTable, of_catalog: Mapping[str, str], book: Book | None = None) -> Payer:
        """Return who pays for a table. Who asks for many tables may read the book once."""
        book = book or self.book()
        standings = book.standings
        name = named_team(known.table, properties_of(known), of_catalog, book.mapping)
        standing = standings.get(name) or standings.get(UNASSIGNED)
        if standing is None:
            return Payer(UNASSIGNED)
        whole = standing.allowed.gb_hours
        if whole is None:
            return Payer(standing.team.name, standing.why_held)
        left = whole - standing.use.gb_hours - self._costs.promised(standing.team.name)
        return Payer(standing.team.name, standing.why_held, whole, left)

    def fits(self, table: TableIdentifier, now: datetime) -> Mapping[CompactionType, Fit]:
        """Return what work of each type is predicted to cost; types that nobody can predict are left out."""
        # Of a table without attempts of its own, all attempts are read.
        if self._fits is None or not timedelta(0) <= now - self._fits[0] < _FITTED_EVERY:
            self._fits = now, Fits(self._costs)
        found = self._known(self._fits[1], table)
        if not found and now - self._fits[0] >= _MISSED_EVERY:
            self._fits = now, Fits(self._costs)
            found = self._known(self._fits[1], table)
        return found

    @staticmethod
    def _known(fits: Fits, table: TableIdentifier) -> Mapping[CompactionType, Fit]:
        return {kind: found for kind in CompactionType if (found := fits.of(table, kind)) is not None}

    def predicted(self, plan: CompactionPlan, table: TableIdentifier, now: datetime) -> CompactionPlan:
        """Return the plan of a table with what its tasks are predicted to write and to cost."""
        kinds = {work.type for work in plan.tasks}
        own = {kind: found for kind in kinds if (found := fit(self._costs.past(table, kind))) is not None}
        costs = {kind: found for kind, found in own.items() if found.gb is not None}
        if costs.keys() != kinds:
            costs = {**self.fits(table, now), **costs}
        return calibrated(plan, own, costs)


def properties_of(known: KnownTable) -> Mapping[str, str]:
    """Return the properties of a table as they are known; none when it was never read."""
    loaded = known.index.loaded
    return loaded.layout.properties if loaded is not None else {}
