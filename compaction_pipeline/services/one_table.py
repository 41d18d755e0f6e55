"""Refreshes, plans or commits one table for somebody who waits for the answer.

While another process works on the table, each verb waits for that process, for a minute at most.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from compaction_pipeline.core.errors import CompactionError, StorageUnavailable
from compaction_pipeline.core.fragmentation.verdict import PlanReasonCode
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.leases.holders import held_in_words
from compaction_pipeline.core.planning.plan import CompactionPlan, PlanRequest
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.services.commit.carry_out_record import Commit
from compaction_pipeline.services.commit.commit_tables import CommitTables
from compaction_pipeline.services.planning.plan_tables import Planned, PlanTables
from compaction_pipeline.services.tables.refresh_files import Refresh, RefreshFiles

log = logging.getLogger(__name__)

T = TypeVar("T")

BUSY_WAITS = 120
BUSY_WAIT_SECONDS = 0.5


class OneTable:
    """The verbs that a person, a launch and a command use on one table, apart from its compaction."""

    def __init__(
        self, refresh_files: RefreshFiles, plan_tables: PlanTables, commit_tables: CommitTables, sleep: Callable[[float], None]
    ) -> None:
        self._refresh_files = refresh_files
        self._plan_tables = plan_tables
        self._commit_tables = commit_tables
        self._sleep = sleep

    def refresh(self, table: TableIdentifier) -> Refresh:
        """Bring the whole index of a table to its head. While another process refreshes the table, wait, for a minute at most.

        Raises StorageUnavailable when the other process needs longer.
        """
        refresh = self._asked_again(lambda: self._refresh_files.refresh(table), lambda answer: answer.busy)
        if refresh.busy:
            holder = held_in_words(refresh.held_by, f"reading {table}")
            raise StorageUnavailable(f"table {table} was not read for over a minute: {holder}; try again later")
        return refresh

    def look_again(self, table: TableIdentifier) -> Refresh:
        """Refresh a table after work on it, and judge its nodes anew, so that they show what is due now and what failed.

        The result has the nodes that changed, or the `error` that kept the table from being read. An error changes nothing that was
        committed.
        """
        try:
            refresh = self.refresh(table)
            # Verdicts would be wrong if only a part of the table's files had been read.
            if refresh.complete:
                self._plan_tables.judge(table)
            return refresh
        except CompactionError as error:
            log.warning("table=%s was worked on but not looked at again: %s", table, error)
            return Refresh(table, complete=False, problem=str(error), error=error)

    def explain(self, table: TableIdentifier, request: PlanRequest | None = None) -> CompactionPlan:
        """Return the plan that a compaction would carry out now. Nothing is queued."""

        def ask() -> tuple[Refresh, CompactionPlan]:
            return self.refresh(table), self._plan_tables.explain(table, request)

        # A tick may have begun to read the table again after this refresh.
        return self._asked_again(ask, lambda answer: answer[1].reason.code is PlanReasonCode.BEING_READ and answer[0].problem is None)[1]

    def plan_nodes(self, table: TableIdentifier, request: PlanRequest) -> Planned:
        """Refresh a table, and plan the requested nodes without a quota. While another process works on the table, wait, a minute at most.

        Raises the error that kept the table from being read, and StorageUnavailable when the other process needs longer.
        """

        def ask() -> Planned:
            refresh = self.refresh(table)
            if refresh.error is not None:
                # The files that were read before could be merged. But when a table cannot be read, it cannot be committed either.
                raise refresh.error
            planned = self._plan_tables.plan(table, request, unlimited=True)
            if refresh.problem and planned.plan.reason.code is PlanReasonCode.BEING_READ:
                raise StorageUnavailable(refresh.problem)
            return planned

        planned = self._asked_again(ask, lambda answer: answer.busy)
        if planned.busy:
            raise StorageUnavailable(f"table {table} was not planned for over a minute: {planned.plan.reason.text}; try again later")
        return planned

    def commit(self, table: TableIdentifier, task_ids: Sequence[TaskId] | None, run_id: str | None) -> Commit:
        """Commit these tasks; None means all Prepared ones. While another process commits the table, wait, for a minute at most.

        The answer is `busy` when the other process needs longer.
        """
        return self._asked_again(lambda: self._commit_tables.commit(table, task_ids, run_id, at_once=True), lambda answer: answer.busy)

    def commit_now(self, table: TableIdentifier, run_id: str | None = None) -> Commit:
        """Commit the Prepared tasks of a table now. While another process commits the table, wait, for a minute at most.

        Raises StorageUnavailable when the other process needs longer.
        """
        commit = self.commit(table, None, run_id)
        if commit.busy:
            raise StorageUnavailable(f"table {table} was not committed for over a minute: {commit.reason}; try again later")
        return commit

    def _asked_again(self, ask: Callable[[], T], busy: Callable[[T], bool]) -> T:
        """Ask, and ask again while the answer is busy, for a minute at most. Return the last answer, which may still be busy."""
        answer = ask()
        for _ in range(BUSY_WAITS):
            if not busy(answer):
                break
            self._sleep(BUSY_WAIT_SECONDS)
            answer = ask()
        return answer
