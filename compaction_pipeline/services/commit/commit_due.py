"""Commits several tables in turn: those that are due, or those that a caller names. One that fails keeps no other from its turn."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

from compaction_pipeline.core.commit.backoff import is_waiting
from compaction_pipeline.core.commit.commit_interval import commit_due, may_come_early
from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.insight.listener import SILENT, CompactionListener
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.planning.budget import is_held_back
from compaction_pipeline.core.queue.drain import never
from compaction_pipeline.core.queue.open_work import OpenTasks, PreparedWork
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.services.commit.carry_out_record import Commit
from compaction_pipeline.services.commit.commit_tables import CommitTables
from compaction_pipeline.services.commit.known_commits import KnownCommits

log = logging.getLogger(__name__)


class CommitDue:
    """Says which tables are due, and has two verbs: commit what is due, and commit in turn."""

    def __init__(self, tasks: TaskStore, reader: TableReader, known: KnownCommits, commit_tables: CommitTables, clock: Clock) -> None:
        self._tasks = tasks
        self._reader = reader
        self._known = known
        self._commit_tables = commit_tables
        self._clock = clock

    def due(self) -> Sequence[TableIdentifier]:
        """Return the tables whose Prepared tasks should be committed now; `core/commit/commit_interval.py` decides.

        Tables of a catalog that is only observed are never due.
        """
        waiting = sorted(self._tasks.prepared_work().items())
        return [table for table, prepared in waiting if not self._known.is_observed(table) and self._is_due(table, prepared)]

    def held_back(self) -> Mapping[TableIdentifier, str]:
        """Return the tables with Prepared tasks that are not due for a commit now, each with the reason."""
        due = set(self.due())
        waiting = sorted(self._tasks.prepared_work().items())
        return {table: self._why_held_back(table, prepared) for table, prepared in waiting if table not in due}

    def _why_held_back(self, table: TableIdentifier, prepared: PreparedWork) -> str:
        if self._known.is_observed(table):
            return f"catalog {table.catalog} is only observed"
        commits = self._known.of(table)
        if is_waiting(commits.retry_at, self._clock()):
            return f"its last commit failed, and the next try is at {commits.retry_at:%H:%M:%S} UTC"
        if not prepared.tasks:
            return "a commit of them has begun, and is not settled yet"
        last = commits.last_committed_at
        until = f", which ends at {last + self._known.properties(table).commit_interval:%H:%M:%S} UTC" if last is not None else ""
        return f"they wait for 'self-optimizing.commit.interval'{until}"

    def _is_due(self, table: TableIdentifier, prepared: PreparedWork) -> bool:
        now, last = self._clock(), self._known.of(table).last_committed_at
        if self._known.is_waiting(table):
            return False  # The last commit failed, and the pause after that failure is not over.
        interval = self._known.properties(table).commit_interval
        if commit_due(prepared, last, interval, now) or not prepared.tasks or last is None or not may_come_early(last, now):
            return commit_due(prepared, last, interval, now)
        return commit_due(prepared, last, interval, now, holds_back=self._holds_back(table))

    def _holds_back(self, table: TableIdentifier) -> bool:
        """Return whether Prepared tasks hold the files of a node that the last plan called due."""
        held = {node.node for node in self._reader.nodes(table) if node.verdict is not None and is_held_back(node.verdict)}
        if not held:
            return False
        return any(task.work.node in held and task.record_id is None for task in self._tasks.tasks(table, (TaskStatus.PREPARED,)))

    def commit(
        self, run_id: str | None = None, listener: CompactionListener = SILENT, in_a_hurry: Callable[[], bool] = never
    ) -> Iterator[CompactionRecord]:
        """Commit every table that is due. Yield each record when it is made. The first error is raised after the last table.

        `listener` only hears which table is committed now. Tables whose turn comes while `in_a_hurry()` is true are left to others.
        """
        due = ((table, self._tasks.open_tasks(table).get(table, OpenTasks()).merged) for table in self.due())
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
