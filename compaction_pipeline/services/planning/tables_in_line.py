"""Says which tables ticks plan, in which order, and what the GB-hours of their teams let them plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from compaction_pipeline.core.fragmentation.clock import may_be_due_from
from compaction_pipeline.core.fragmentation.verdict import NodeState
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.planning.line import in_line
from compaction_pipeline.core.planning.plan import CostLimit, PlanRequest
from compaction_pipeline.core.tables.policies import inherited
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.properties import properties_or_defaults
from compaction_pipeline.core.tables.table import TableIdentifier, TableLayout
from compaction_pipeline.services.planning.draw_lines import DrawLines
from compaction_pipeline.services.remembered import Remembered

_Worth = tuple[Sequence[NodeState], Mapping[str, str], Mapping[str, str], bool]
# Each tick asks for every table from which time on a plan is worth making. Most tables have not changed since the last tick, so the answers
# are remembered.
_WORTH: Remembered[TableIdentifier, _Worth, datetime | None] = Remembered()


class TablesInLine:
    """Two questions: which tables are worth planning, and which are planned in turn."""

    def __init__(
        self,
        catalogs: CatalogStore,
        reader: TableReader,
        reached_from_elsewhere: Callable[[TableIdentifier, TableLayout], bool],
        draw_lines: DrawLines,
        clock: Clock,
    ) -> None:
        """`reached_from_elsewhere` says whether deletes of an unpartitioned spec reach nodes of other specs of a table."""
        self._catalogs = catalogs
        self._reader = reader
        self._reached_from_elsewhere = reached_from_elsewhere
        self._draw_lines = draw_lines
        self._clock = clock

    def worth_planning(self) -> Sequence[TableIdentifier]:
        """Return the tables that may have become due although nobody wrote to them, and those that wait in line for room in their queue.

        Ticks skip all other tables that did not change.
        """
        nodes = self._reader.nodes_of_tables()
        catalogs = {entry.name: entry.properties for entry in self._catalogs.entries()}
        sources: dict[TableIdentifier, _Worth] = {}
        in_line: set[TableIdentifier] = set()
        for known in self._reader.states():
            if (whole := known.whole) is not None:
                layout = whole.loaded.layout
                reached = self._reached_from_elsewhere(known.table, layout)
                if known.planning.queue_full_since is not None:
                    # Somebody else may have done its work. Its next plan takes it out of the line.
                    in_line.add(known.table)
                sources[known.table] = (
                    nodes.get(known.table, ()),
                    layout.properties,
                    inherited(catalogs.get(known.table.catalog, {}), known.policies),
                    reached,
                )
        now = self._clock()
        worth = _WORTH.made(sources, _worth_from).items()
        return [table for table, since in worth if table in in_line or (since is not None and since <= now)]

    def in_turn(
        self, requests: Mapping[TableIdentifier, PlanRequest], deadline: datetime
    ) -> Sequence[tuple[TableIdentifier, CostLimit | None]]:
        """Return these tables with their limits, in the order in which a tick plans them: those that wait for room in their queue go first.

        Half of the time until the deadline may go into looking at what is due on them. Tables for which that was too short are left out.
        """
        # A server asks for this several times a second, most often about no table.
        if not requests:
            return ()
        now = self._clock()
        ordered = {table: requests[table] for table in in_line(requests, self._reader.waiting_for_room())}
        limits = self._draw_lines.draw(ordered, now + (deadline - now) / 2)
        return [(table, limits[table]) for table in ordered if table in limits]


def _worth_from(source: _Worth) -> datetime | None:
    nodes, properties, of_catalog, global_deletes = source
    return may_be_due_from(nodes, properties_or_defaults(properties, of_catalog), global_deletes=global_deletes)
