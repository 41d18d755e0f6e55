"""Commits several tables in turn: those that are due, or those that a caller names. One that fails keeps no other from its turn."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile

from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.insight.listener import SILENT, CompactionListener
from compaction_pipeline.core.queue.drain import never
from compaction_pipeline.core.queue.open_work import OpenTasks
from compaction_pipeline.core.queue.ports import TaskStore
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.services.commit.commit_tables import Commit, CommitTables

log = logging.getLogger(__name__)


class CommitDue:
    """Two verbs: commit what is due, and commit in turn."""

    def __init__(self, tasks: TaskStore, commit_tables: CommitTables) -> None:
        self._tasks = tasks
        self._commit_tables = commit_tables

    def commit(
        self, run_id: str | None = None, listener: CompactionListener = SILENT, in_a_hurry: Callable[[], bool] = never
    ) -> Iterator[CompactionRecord]:
        """Commit every table that is due. Yield each record when it is made. The first error is raised after the last table.

        `listener` only hears which table is committed now. Tables whose turn comes while `in_a_hurry()` is true are left to others.
        """
        due = ((table, self._tasks.open_tasks(table).get(table, OpenTasks()).merged) for table in self._commit_tables.due())
        in_time = takewhile(lambda _: not in_a_hurry(), due)
        return self.in_turn(in_time, lambda table: self._commit_tables.commit(table, run_id=run_id), listener)

    def in_turn(
        self,
        tables: Iterable[tuple[TableIdentifier, int]],
        commit: Callable[[TableIdentifier], Commit],
        listener: CompactionListener,
    ) -> Iterator[CompactionRecord]:
        """Commit tables, each given with its number of merged tasks. Yield each record when it is made.

        The first error is raised after the last table. `listener` only hears which table is committed now.
        """
        failures: list[Exception] = []
        for table, merged in tables:
            try:
                with listener.committing(table, merged):
                    answer = commit(table)
            except Exception as error:
                # The other tables have their turn before the error is raised.
                log.exception("table=%s not committed", table)
                failures.append(error)
                continue
            if answer.record is not None:
                yield answer.record
            else:
                log.info("table=%s not committed: %s", table, answer.reason)
        if failures:
            raise failures[0]
