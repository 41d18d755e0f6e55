"""Refreshes, plans and commits all tables, tick by tick. A tick is one call of a Dagster sensor, or one round of `run_ticks`.

Each verb works for a time that its caller gives. The next tick goes on with the tables that had no turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from compaction_pipeline.core.capacity.own_work import OwnKind
from compaction_pipeline.core.errors import CompactionError, NotFoundError
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.insight.masking import masked_text
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.tables.commit_report import ReportedTable, due, most_urgent_first
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.ports.reports import ReportStore
from compaction_pipeline.core.tables.table import TableHead, TableIdentifier
from compaction_pipeline.services.commit.commit_due import CommitDue
from compaction_pipeline.services.held_lease import Leases
from compaction_pipeline.services.planning.plan_tables import Planned, PlanTables
from compaction_pipeline.services.planning.tables_in_line import TablesInLine
from compaction_pipeline.services.tables.refresh_chunks import CHUNK, RefreshChunks
from compaction_pipeline.services.tables.refresh_files import Refresh, RefreshFiles

log = logging.getLogger(__name__)

_SWEPT = "swept"
_TICK = OwnKind.TICK.value
_REMEMBERED = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a sweep did. `cursor` is the table from which the next sweep goes on; None when every table had its turn.

    `unmoved` counts the tables that were not read, because their catalog said that they have not changed.
    """

    refreshed: tuple[Refresh, ...] = ()
    cursor: str | None = None
    unmoved: int = 0


class SweepTables:
    """The verbs sweep and plan_due, and two that do more at once: plan_and_commit, and look_at_reported."""

    def __init__(
        self,
        chunks: RefreshChunks,
        refresh_files: RefreshFiles,
        plan_tables: PlanTables,
        tables_in_line: TablesInLine,
        commit_due: CommitDue,
        reports: ReportStore,
        leases: Leases,
    ) -> None:
        self._chunks = chunks
        self._refresh_files = refresh_files
        self._plan_tables = plan_tables
        self._tables_in_line = tables_in_line
        self._commit_due = commit_due
        self._reports = reports
        self._leases = leases
        self._clock = leases.clock

    def sweep(self, cursor: str | None, budget: timedelta) -> Sweep:
        """Refresh tables in order, from `cursor` on, until the budget is used up. When one table fails, the others go on.

        Tables with reported commits come first. They get half of the budget at most, so that reports never keep other tables waiting.
        """
        with self._leases.measured(_TICK):
            return self._sweep(cursor, budget)

    def _sweep(self, cursor: str | None, budget: timedelta) -> Sweep:
        # The reports are read before the catalogs are asked. So a reported table that has not moved was read with its reported commits.
        reported = most_urgent_first(self._reports.reported())
        unmoved = self._refresh_files.unmoved()
        began = self._clock()
        self._leases.note_done(_SWEPT, _REMEMBERED)
        deadline = began + budget
        refreshed = self._refresh_reported(reported, began + budget / 2, unmoved)
        early = {refresh.table for refresh in refreshed}
        places = self._chunks.places()
        names = [table for table in places if table not in unmoved]
        start = next((i for i, table in enumerate(names) if cursor is not None and str(table) >= cursor), 0)
        in_turn = [table for table in names[start:] if table not in early]
        still, number = len(unmoved), 0
        for begin in range(0, len(in_turn), CHUNK):
            if begin and self._clock() >= deadline:
                return Sweep(tuple(refreshed), str(in_turn[begin]), still)
            chunk = self._chunks.look({table: places[table] for table in in_turn[begin : begin + CHUNK]}, self._clock())
            still += len(chunk.unmoved)
            refreshed += chunk.first
            for table, looked_at in chunk.moved.items():
                if number and self._clock() >= deadline:
                    return Sweep(tuple(refreshed), str(table), still)
                number += 1
                refresh = self._refreshed(table, deadline, looked_at)
                if refresh is None:
                    continue
                refreshed.append(refresh)
                if _stopped_half_way(refresh):
                    return Sweep(tuple(refreshed), str(table), still)
        return Sweep(tuple(refreshed), None, still)

    def swept_at(self) -> datetime | None:
        """When a sweep last began, whichever process did it; None when none did in the last day."""
        return self._leases.done_at(_SWEPT, _REMEMBERED)

    def sweep_reported(self, budget: timedelta) -> Sequence[Refresh]:
        """Refresh the tables whose commits were reported `TOGETHER` ago, the most urgent first, until the budget is used up."""
        now = self._clock()
        return self._refresh_reported(due(self._reports.reported(), now), now + budget)

    def _refresh_reported(
        self, reported: Iterable[ReportedTable], deadline: datetime, unmoved: Collection[TableIdentifier] = ()
    ) -> list[Refresh]:
        """Refresh reported tables. Their reports are answered unless the table was not read to the end, or another process reads it."""
        refreshed: list[Refresh] = []
        for one in reported:
            if refreshed and self._clock() >= deadline:
                break
            refresh = self._refreshed(one.table, deadline) if one.table not in unmoved else None
            if refresh is not None:
                refreshed.append(refresh)
                if refresh.busy or _stopped_half_way(refresh):
                    continue
            self._reports.answer(one)
        return refreshed

    def _refreshed(
        self, table: TableIdentifier, deadline: datetime, looked_at: tuple[KnownTable, TableHead] | None = None
    ) -> Refresh | None:
        """Refresh a table, and return what that found. Return None when the table is gone."""
        try:
            return self._refresh_files.refresh(table, deadline, looked_at)
        except NotFoundError:
            return None
        except Exception as error:
            problem = self._unexpected(table, "refreshed", error, self._refresh_files.note_problem)
            return Refresh(table, complete=False, problem=problem)

    def plan_due(
        self, tables: Iterable[TableIdentifier], budget: timedelta, nodes: Mapping[TableIdentifier, frozenset[TableNode]] | None = None
    ) -> Sequence[tuple[TableIdentifier, Planned]]:
        """Plan tables by their triggers, and queue the tasks, until the budget is used up. A table whose plan fails shows the problem.

        `nodes` limits the plans of some tables to these nodes. The first table is planned even without a budget, so that every call gets
        on.
        """
        with self._leases.measured(_TICK):
            return self._planned(tables, self._clock() + budget, nodes)

    def _planned(
        self, tables: Iterable[TableIdentifier], deadline: datetime, nodes: Mapping[TableIdentifier, frozenset[TableNode]] | None
    ) -> Sequence[tuple[TableIdentifier, Planned]]:
        planned: list[tuple[TableIdentifier, Planned]] = []
        requests = {table: PlanRequest(nodes=nodes[table]) if nodes and table in nodes else PlanRequest() for table in tables}
        for number, (table, cost) in enumerate(self._tables_in_line.in_turn(requests, deadline)):
            if number and self._clock() >= deadline:
                break
            try:
                planned.append((table, self._plan_tables.plan(table, requests[table], cost=cost)))
            except NotFoundError:
                continue
            except CompactionError as error:
                log.warning("table=%s not planned: %s", table, error)
                self._plan_tables.note_problem(table, str(error))
            except Exception as error:
                self._unexpected(table, "planned", error, self._plan_tables.note_problem)
        return planned

    def plan_and_commit(self, budget: timedelta) -> None:
        """Plan what may be due until the budget is used up, and commit what is due. The first error of a commit is raised at the end."""
        with self._leases.measured(_TICK):
            self.plan_due(self._tables_in_line.worth_planning(), budget)
            for record in self._commit_due.commit():
                log.info("table=%s record=%s %s", record.table, record.record_id, record.status.value)

    def look_at_reported(self, budget: timedelta) -> None:
        """Refresh and plan the tables whose commits were reported just now. Both have this budget.

        This is a shortcut: when it does not happen, the next tick does the same.
        """
        with self._leases.measured(_TICK):
            refreshed = self.sweep_reported(budget)
            changed = {refresh.table: frozenset(refresh.changed) for refresh in refreshed if refresh.changed}
            self.plan_due(changed, budget, nodes=changed)

    def _unexpected(self, table: TableIdentifier, verb: str, error: Exception, note: Callable[[TableIdentifier, str], None]) -> str:
        """Store on the table an error that nobody foresaw, and return it as text. It is not raised, so that the other tables go on."""
        log.exception("table=%s not %s", table, verb)
        problem = masked_text(f"not {verb}, {type(error).__name__}: {error}; please report this")
        note(table, problem)
        return problem


def _stopped_half_way(refresh: Refresh) -> bool:
    """Return whether the time was up before the table was read to the end. The next refresh goes on from there."""
    return not refresh.complete and not refresh.busy and refresh.problem is None
