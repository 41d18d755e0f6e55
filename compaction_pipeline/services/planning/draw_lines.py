"""Draws the line that the GB-hours of each team reach, over all its tables, before a tick plans them one by one."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime

from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.planning.benefit import DueNode
from compaction_pipeline.core.planning.cost_cut import below_the_line
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

    def draw(self, requests: Mapping[TableIdentifier, PlanRequest], deadline: datetime) -> Mapping[TableIdentifier, CostLimit | None]:
        """Return what bounds the plan of each of these tables; None where its team has no limit of GB-hours.

        Tables of teams with a limit that had no turn before the deadline are left out: nobody knows what their work is worth. The first one
        is looked at even without time, so that every tick gets on.
        """
        limits: dict[TableIdentifier, CostLimit | None] = dict.fromkeys(requests)
        if not self._payers.are_limited():
            return limits
        tables: dict[str, list[TableIdentifier]] = defaultdict(list)
        payers: dict[str, Payer] = {}
        due: dict[str, list[DueNode]] = defaultdict(list)
        for table, request in requests.items():
            try:
                known = self._reader.state(table)
                payer = self._payers.of(known, self._catalogs.entry(table.catalog).properties)
                if payer.left is None or payer.held is not None:
                    continue
                if payers and self._clock() >= deadline:
                    del limits[table]
                    continue
                payers.setdefault(payer.team, payer)
                fits = self._payers.fits(table, self._clock())
                due[payer.team] += self._due_nodes.of(known, self._plan_tables.wanted(known, request), fits.get)
                tables[payer.team].append(table)
            except CompactionError as error:
                # The plan of the table meets the same error, and shows it on the table.
                log.info("table=%s is left out of the line of its team: %s", table, error)
        for name, payer in payers.items():
            limits.update(self._line(payer, tables[name], due[name]))
        return limits

    def _line(self, payer: Payer, tables: list[TableIdentifier], due: list[DueNode]) -> Mapping[TableIdentifier, CostLimit]:
        left, whole = payer.left or 0.0, payer.gb_hours or 0.0
        limits: dict[TableIdentifier, dict[TableNode, float]] = {table: {} for table in tables}
        for one in below_the_line(due, left, whole, self._clock()):
            limits[one.table][one.node] = limits[one.table].get(one.node, 0.0) + one.gb_hours
        return {table: CostLimit(payer.team, left, below) for table, below in limits.items()}
