"""Draws the line that the GB-hours of each team reach, over those of its tables that a tick is going to plan one by one."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.planning.benefit import DueNode
from compaction_pipeline.core.planning.cost_cut import reached
from compaction_pipeline.core.planning.plan import CostLimit, PlanRequest
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.services.planning.due_nodes import DueNodes
from compaction_pipeline.services.planning.payers import Payer, Payers
from compaction_pipeline.services.planning.plan_tables import PlanTables

log = logging.getLogger(__name__)


class DrawLines:
    """One verb: draw."""

    def __init__(
        self, reader: TableReader, catalogs: CatalogStore, payers: Payers, plan_tables: PlanTables, due_nodes: DueNodes, clock: Clock
    ) -> None:
        self._reader = reader
        self._catalogs = catalogs
        self._payers = payers
        self._plan_tables = plan_tables
        self._due_nodes = due_nodes
        self._clock = clock
        self._last: TableIdentifier | None = None

    def draw(self, requests: Mapping[TableIdentifier, PlanRequest], deadline: datetime) -> Mapping[TableIdentifier, CostLimit | None]:
        """Return what bounds the plan of each of these tables; None where its team has no limit of GB-hours, or begins nothing now.

        Tables of teams with a limit that had no turn before the deadline are left out: nobody knows what their work is worth. The next call
        begins with them. The first one is looked at even without time, so that every tick gets on.
        """
        limits: dict[TableIdentifier, CostLimit | None] = dict.fromkeys(requests)
        book = self._payers.book()
        if not book.is_limited:
            return limits
        teams: dict[str, _Due] = {}
        for table in self._in_turn(requests):
            try:
                known = self._reader.state(table)
                payer = self._payers.of(known, self._catalogs.entry(table.catalog).properties, book)
                if payer.left is None or payer.held is not None:
                    continue
                if teams and self._clock() >= deadline:
                    del limits[table]
                    continue
                self._last = table
                team = teams.setdefault(payer.team, _Due(payer))
                team.tables.append(table)
                fits = self._payers.fits(table, self._clock())
                due = self._due_nodes.of(known, self._plan_tables.wanted(known, requests[table]), fits.get)
                (team.denied if known.planning.is_denied else team.nodes).extend(due)
            except Exception as error:
                # Nothing of the table is reached. Its plan meets the same error, and shows it on the table.
                log.info("table=%s is left out of the line of its team: %s", table, error)
        for team in teams.values():
            limits.update(team.limits(self._clock()))
        return limits

    def _in_turn(self, requests: Mapping[TableIdentifier, PlanRequest]) -> Sequence[TableIdentifier]:
        """The tables, from the one after the last that was looked at."""
        tables = list(requests)
        start = tables.index(self._last) + 1 if self._last is not None and self._last in requests else 0
        return [*tables[start:], *tables[:start]]


@dataclass
class _Due:
    """The tables of a team that were looked at, and what is due on them. `denied` is what is due where nobody could write last."""

    payer: Payer
    tables: list[TableIdentifier] = field(default_factory=list)
    nodes: list[DueNode] = field(default_factory=list)
    denied: list[DueNode] = field(default_factory=list)

    def limits(self, now: datetime) -> Mapping[TableIdentifier, CostLimit]:
        left, whole = self.payer.left or 0.0, self.payer.gb_hours or 0.0
        within = list(reached(self.nodes, left, whole, now))
        # A table that may not be written would hold its hours for ever, so it gets those that the others leave.
        within += reached(self.denied, left - sum(one.gb_hours for one in within), whole, now)
        nodes: dict[TableIdentifier, set[TableNode]] = {table: set() for table in self.tables}
        costs: dict[TableIdentifier, dict[TableNode, float]] = {table: {} for table in self.tables}
        for one in within:
            nodes[one.table].add(one.node)
        for one in (*self.nodes, *self.denied):
            costs[one.table][one.node] = costs[one.table].get(one.node, 0.0) + one.gb_hours
        return {table: CostLimit(self.payer.team, left, frozenset(nodes[table]), costs[table]) for table in self.tables}
