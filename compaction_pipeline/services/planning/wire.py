"""Builds the use cases that plan, each on first use."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING

from compaction_pipeline.services.wiring import Wiring

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from compaction_pipeline.core.tables.node import Place
    from compaction_pipeline.core.tables.table import TableIdentifier
    from compaction_pipeline.services.planning.due_nodes import DueNodes
    from compaction_pipeline.services.planning.plan_tables import PlanTables
    from compaction_pipeline.services.planning.queue_rooms import QueueRooms
    from compaction_pipeline.services.planning.rank_by_benefit import RankByBenefit
    from compaction_pipeline.services.planning.table_parts import TableParts
    from compaction_pipeline.services.planning.tables_in_line import TablesInLine


class PlanningServices(Wiring):
    """The use cases that plan."""

    @abstractmethod
    def _not_ready(self, table: TableIdentifier, places: Collection[Place]) -> Mapping[Place, str]:
        """Tell which of these partitions of a table are not ready, and what is missing. Readiness is another column."""

    @cached_property
    def _table_parts(self) -> TableParts:
        from compaction_pipeline.services.planning.table_parts import TableParts

        return TableParts(self._stores.files)

    @cached_property
    def tables_in_line(self) -> TablesInLine:
        from compaction_pipeline.services.planning.draw_lines import DrawLines
        from compaction_pipeline.services.planning.tables_in_line import TablesInLine

        stores = self._stores
        lines = DrawLines(stores.tables, stores.catalogs, self._rooms.payers, self.plan_tables, self._due_nodes, self.clock)
        return TablesInLine(stores.catalogs, stores.tables, self._table_parts.reached_from_elsewhere, lines, self.clock)

    @cached_property
    def plan_tables(self) -> PlanTables:
        from compaction_pipeline.services.planning.decide_plan import DecidePlan, Outside
        from compaction_pipeline.services.planning.find_waits import FindWaits
        from compaction_pipeline.services.planning.plan_tables import PlanTables

        stores = self._stores
        outside = Outside(self._scan, FindWaits(self._scan, self._not_ready))
        decide = DecidePlan(stores.catalogs, stores.tables, self._table_parts, outside, stores.tasks, self._rooms)
        return PlanTables(stores.tables, stores.planning, stores.tasks, decide, self._leases, self._new_id, self._committer.check_writable)

    @cached_property
    def rank_by_benefit(self) -> RankByBenefit:
        from compaction_pipeline.services.planning.rank_by_benefit import RankByBenefit

        stores = self._stores
        return RankByBenefit(stores.tables, stores.costs, self.plan_tables.explain, self._due_nodes, self.clock)

    @cached_property
    def _due_nodes(self) -> DueNodes:
        from compaction_pipeline.services.planning.due_nodes import DueNodes

        return DueNodes(self._stores.tables, self._stores.catalogs)

    @cached_property
    def _rooms(self) -> QueueRooms:
        from compaction_pipeline.services.planning.payers import Payers
        from compaction_pipeline.services.planning.queue_rooms import QueueRooms

        stores = self._stores
        payers = Payers(stores.teams, stores.costs)
        return QueueRooms(stores.groups, stores.optimizers, stores.tasks, stores.tables, stores.catalogs, payers, self._settings.task_slots)
