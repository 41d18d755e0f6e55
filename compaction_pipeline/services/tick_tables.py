"""Works on all tables, tick by tick. A tick is one call of a Dagster sensor, one run of a Dagster job, or one round of `run_ticks`.

The verbs, in the order of the work: `keep` frees what dead processes held, `sweep` refreshes tables, first those whose commits were
reported, `plan_due` plans them, `drain` merges tasks of the queue, and `commit_due` commits. The sensors, `compact_job`, `commit_job` and
`run_ticks` use them. This service, `compact_table`, `check_tables`, `keep_watch` and `run_ticks` are the only ones that call others. This
one also calls `compact_table`, never the reverse.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import takewhile

from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.errors import CompactionError, NotFoundError, StorageUnavailable, TableRefused
from compaction_pipeline.core.fragmentation.verdict import NOT_ADMITTED
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.insight.listener import SILENT, CompactionListener
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock, LeaseStore
from compaction_pipeline.core.planning.conflict_rounds import Requests, after_conflict, in_rounds
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.open_work import OpenTasks
from compaction_pipeline.core.queue.ports import TaskStore
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.commit_report import ReportedTable, due, most_urgent_first
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.ports import ReportStore
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import count_text
from compaction_pipeline.core.work.result import EndReason
from compaction_pipeline.services.commit.commit_tables import Commit, CommitTables
from compaction_pipeline.services.compact_table import CompactTable
from compaction_pipeline.services.held_lease import done_at, note_done
from compaction_pipeline.services.planning.plan_tables import Planned, PlanTables
from compaction_pipeline.services.queue.keep_queue import KeepQueue, KeptQueue
from compaction_pipeline.services.queue.share_queues import ShareQueues
from compaction_pipeline.services.queue.work_on_queue import Drained, WorkOnQueue
from compaction_pipeline.services.tables.refresh_files import Refresh, RefreshFiles

log = logging.getLogger(__name__)

_SWEPT = "swept"
_REMEMBERED = timedelta(days=1)

COMMIT_LOOK = timedelta(seconds=2)
"""A drain looks for tables that are due for a commit at most this often."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a sweep did. `cursor` is the table from which the next sweep goes on; None when every table had its turn.

    `unmoved` counts the tables that were not read, because their catalog said that they have not changed.
    """

    refreshed: tuple[Refresh, ...] = ()
    cursor: str | None = None
    unmoved: int = 0


@dataclass(frozen=True, slots=True)
class Kept:
    """What `keep` did.

    `returned` are the tasks that it took from dead or endless attempts, `settled` are records, and `retried` are the failed tasks that it
    put back into the queue.
    """

    returned: tuple[str, ...] = ()
    settled: tuple[CompactionRecord, ...] = ()
    retried: tuple[str, ...] = ()


class TickTables:
    """The verbs that the sensors and the draining runs use."""

    def __init__(
        self,
        tables: TableReader,
        tasks: TaskStore,
        compact_table: CompactTable,
        refresh_files: RefreshFiles,
        plan_tables: PlanTables,
        keep_queue: KeepQueue,
        work_on_queue: WorkOnQueue,
        share_queues: ShareQueues,
        commit_tables: CommitTables,
        reports: ReportStore,
        leases: LeaseStore,
        clock: Clock,
        new_owner: Callable[[], str],
    ) -> None:
        self._tables = tables
        self._tasks = tasks
        self._compact_table = compact_table
        self._refresh_files = refresh_files
        self._plan_tables = plan_tables
        self._keep_queue = keep_queue
        self._work_on_queue = work_on_queue
        self._share_queues = share_queues
        self._commit_tables = commit_tables
        self._reports = reports
        self._leases = leases
        self._clock = clock
        self._new_owner = new_owner

    def keep(self) -> Kept:
        """Keep the queue going (`KeepQueue`), and settle commits that were cut off, so that dead processes hold nothing.

        `snapshot_sensor`, `keeper_sensor`, `failure_sensor`, `compact_job` and `commit_job` do this first.
        """
        kept = self._kept_queue()
        return Kept((*kept.lost, *kept.timed_out), tuple(self._commit_tables.settle()), kept.put_back)

    def _kept_queue(self) -> KeptQueue:
        """Keep the queue, and judge the tables anew whose tasks turned out to be outdated. Their nodes may be due for other work."""
        kept = self._keep_queue.keep()
        for table in kept.to_judge:
            try:
                self._plan_tables.judge(table)
            except CompactionError as error:
                # The next plan of the table judges its nodes too.
                log.warning("table=%s not judged: %s", table, error)
        return kept

    def sweep(self, cursor: str | None, budget: timedelta) -> Sweep:
        """Refresh tables in order, from `cursor` on, until the budget is used up. When one table fails, the others go on.

        Tables with reported commits come first. They get half of the budget at most, so that reports never keep other tables waiting.
        """
        # The reports are read before the catalogs are asked. So a reported table that has not moved was read with its reported commits.
        reported = most_urgent_first(self._reports.reported())
        unmoved = self._refresh_files.unmoved()
        began = self._clock()
        note_done(self._leases, _SWEPT, began, _REMEMBERED)
        deadline = began + budget
        refreshed = self._refresh_reported(reported, began + budget / 2, unmoved)
        early = {refresh.table for refresh in refreshed}
        names = sorted((table for table in self._tables.seen() if table not in unmoved), key=str)
        start = next((i for i, table in enumerate(names) if cursor is not None and str(table) >= cursor), 0)
        in_turn = [table for table in names[start:] if table not in early]
        for number, table in enumerate(in_turn):
            if number and self._clock() >= deadline:
                return Sweep(tuple(refreshed), str(table), len(unmoved))
            refresh = self._refreshed(table, deadline)
            if refresh is None:
                continue
            refreshed.append(refresh)
            if _stopped_half_way(refresh):
                return Sweep(tuple(refreshed), str(table), len(unmoved))
        return Sweep(tuple(refreshed), None, len(unmoved))

    def swept_at(self) -> datetime | None:
        """When a sweep last began, whichever process did it; None when none did in the last day."""
        return done_at(self._leases, _SWEPT, self._clock(), _REMEMBERED)

    def sweep_reported(self, budget: timedelta) -> Sequence[Refresh]:
        """Refresh the tables whose commits were reported a second ago, the most urgent first, until the budget is used up."""
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

    def _refreshed(self, table: TableIdentifier, deadline: datetime) -> Refresh | None:
        """Refresh a table, and return what that found. Return None when the table is gone."""
        try:
            return self._refresh_files.refresh(table, deadline)
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
        deadline = self._clock() + budget
        planned: list[tuple[TableIdentifier, Planned]] = []
        for number, table in enumerate(self._plan_tables.in_line(tables)):
            if number and self._clock() >= deadline:
                break
            request = PlanRequest(nodes=nodes[table]) if nodes and table in nodes else PlanRequest()
            try:
                planned.append((table, self._plan_tables.plan(table, request)))
            except NotFoundError:
                continue
            except CompactionError as error:
                log.warning("table=%s not planned: %s", table, error)
                self._plan_tables.note_problem(table, str(error))
            except Exception as error:
                self._unexpected(table, "planned", error, self._plan_tables.note_problem)
        return planned

    def _unexpected(self, table: TableIdentifier, verb: str, error: Exception, note: Callable[[TableIdentifier, str], None]) -> str:
        """Store on the table an error that nobody foresaw, and return it as text. It is not raised, so that the other tables go on."""
        log.exception("table=%s not %s", table, verb)
        problem = f"not {verb}, {type(error).__name__}: {error}; please report this"
        note(table, problem)
        return problem

    def compact_nodes(
        self,
        asked: Requests,
        *,
        until: Callable[[], bool],
        linger: timedelta,
        in_a_hurry: Callable[[], bool] = lambda: False,
        run_id: str | None = None,
        listener: CompactionListener = SILENT,
    ) -> Mapping[TaskId, str]:
        """Plan the requested nodes (the request may be empty), then drain the queue as `drain` does. Return why tasks failed, by task id.

        With a request the drain ends when the tasks of the request are merged. Slots take these first, and free slots take others. Their
        tables are then committed at once, and the answer names only their failures. Nodes whose tasks a commit rejected, or a newer plan
        replaced, are planned again unless `until()` is true. Without a request the drain goes on until `until()` is true, and the answer
        names all failures. When a table cannot be planned, `listener` is told, and the others go on. While `in_a_hurry()` is true, no
        commit of a further table begins.
        """
        failed: dict[TaskId, str] = {}

        def work(requests: Requests) -> Requests:
            own, left = self._planned(requests, listener)
            records: list[CompactionRecord] = []
            ids = [task.task_id for task in own]
            ends = (lambda: True) if asked else until
            drained = self._drain(ends, linger, run_id, listener, records, ids, in_a_hurry)
            self._commit_merged(own, run_id, listener, records)
            failed.update({each: why for each, why in drained.failed.items() if not asked or each in ids})
            failed.update(self._compact_table.give_up_paused(ids))
            failed.update({each: why for each, why in self._failed_for_good(ids).items() if each not in failed})
            if until():
                self._tell_no_room(left, listener)
                return {}
            for table, nodes in left.items():
                mine = [task for task in own if task.table == table]
                # Nodes whose tasks failed for good would be planned again without end.
                rest = nodes - {task.work.node for task in mine if task.task_id in failed}
                if rest and mine:
                    lacking[table] = replace(requests[table], nodes=rest)
                else:
                    self._tell_no_room({table: rest}, listener)
            return self._to_plan_again(asked, own, records)

        lacking: dict[TableIdentifier, PlanRequest] = {}
        in_rounds(asked, work)
        while lacking:
            # The queue had no room for all tasks at once. Those of the last round are merged now.
            requests = dict(lacking)
            lacking.clear()
            in_rounds(requests, work)
        return failed

    def _planned(
        self, requests: Requests, listener: CompactionListener
    ) -> tuple[Sequence[CompactionTask], Mapping[TableIdentifier, frozenset[TableNode]]]:
        """Plan the requested nodes. Return the tasks, and the nodes for which the queues had no room."""
        own: list[CompactionTask] = []
        left: dict[TableIdentifier, frozenset[TableNode]] = {}
        for table, request in requests.items():
            listener.reading(table)
            try:
                planned = self._compact_table.plan_nodes(table, request)
            except CompactionError as error:
                listener.not_planned(table, error)
                continue
            if planned.plan.reason.code in NOT_ADMITTED:
                listener.not_planned(table, TableRefused(planned.plan.reason.text))
                continue
            own += planned.tasks
            left[table] = planned.plan.without_room
            listener.planned(table, planned.tasks, planned.plan.reason.text)
        return own, left

    def _commit_merged(
        self, own: Sequence[CompactionTask], run_id: str | None, listener: CompactionListener, records: list[CompactionRecord]
    ) -> None:
        """Commit the tables of these tasks that are not due yet. The caller asked for the tasks, and waits for their commits."""
        merged = Counter(task.table for task in own if self._tasks.task(task.task_id).status is TaskStatus.PREPARED)
        for record in self._commits_of(merged.items(), lambda table: self._compact_table.commit_now(table, run_id), listener):
            records.append(record)
            listener.committed(record)

    def _failed_for_good(self, task_ids: Iterable[TaskId]) -> Mapping[TaskId, str]:
        """Return why these tasks failed, whichever worker took them. A failed task with a record is a conflict, and is planned again."""
        ended = map(self._tasks.task, task_ids)
        return {
            task.task_id: task.reason or ""
            for task in ended
            if task.status is TaskStatus.FAILED and task.is_final and task.record_id is None
        }

    def _tell_no_room(self, left: Mapping[TableIdentifier, Collection[TableNode]], listener: CompactionListener) -> None:
        for table, nodes in left.items():
            if nodes:
                number = count_text(len(nodes), "requested node")
                listener.not_planned(table, StorageUnavailable(f"the queue of {table} has no room for {number}; launch it again later"))

    def _to_plan_again(self, asked: Requests, own: Sequence[CompactionTask], records: Iterable[CompactionRecord]) -> Requests:
        """Return new requests for the requested nodes whose tasks these commits rejected, or a newer plan replaced."""
        rejected: dict[TableIdentifier, set[TableNode]] = defaultdict(set)
        for record in records:
            rejected[record.table].update(self._tasks.task(task_id).work.node for task_id in record.conflicts)
        for task in own:
            if self._tasks.task(task.task_id).end_reason is EndReason.REPLACED:
                rejected[task.table].add(task.work.node)
        again: dict[TableIdentifier, PlanRequest] = {}
        for table, request in asked.items():
            nodes = rejected[table] if request.nodes is None else rejected[table] & request.nodes
            if nodes:
                again[table] = after_conflict(request, nodes)
        return again

    def under_way(self) -> Callable[[], bool]:
        """Return a function that says whether a worker is still needed for a task that waits or is merged now. Later tasks do not count."""
        tasks = self._tasks.tasks(statuses=(TaskStatus.PENDING, TaskStatus.EXECUTING))
        worked_off = self._compact_table.worked_off(task.task_id for task in tasks)
        return lambda: not worked_off()

    def drain(
        self,
        *,
        until: Callable[[], bool],
        linger: timedelta,
        run_id: str | None = None,
        listener: CompactionListener = SILENT,
    ) -> Drained:
        """Merge waiting tasks and commit tables that are due, until no task has waited for `linger`, or until `until()` is true.

        Slots take tasks, in turn, only from the queues from which no optimizer takes any. The drain also ends when optimizers take the
        tasks of all queues that wait.
        """
        return self._drain(until, linger, run_id, listener, [], ())

    def _drain(
        self,
        until: Callable[[], bool],
        linger: timedelta,
        run_id: str | None,
        listener: CompactionListener,
        records: list[CompactionRecord],
        first: Sequence[TaskId],
        in_a_hurry: Callable[[], bool] = lambda: False,
    ) -> Drained:
        """Do the same as `drain`, take the tasks of `first` before others, and add the records of the commits to `records`.

        The drain does not end before the tasks of `first` are merged; optimizers may take them too. While `in_a_hurry()` is true, no
        commit of a further table begins.
        """
        failures: list[Exception] = []
        looked_at: datetime | None = None
        worked_off, share = self._compact_table.worked_off(first), self._share_queues

        def keep_and_commit() -> None:
            nonlocal looked_at
            if failures or (looked_at is not None and self._clock() - looked_at < COMMIT_LOOK):
                return
            looked_at = self._clock()
            self._kept_queue()
            # A caller waits for the tasks of `first`. Those that another worker failed are tried again at once.
            self._tasks.retry(first)
            try:
                for record in self.commit_due(run_id, listener, in_a_hurry):
                    records.append(record)
                    listener.committed(record)
            except CompactionError as error:
                # The error is raised after the merges that have begun are finished.
                failures.append(error)

        done = self._work_on_queue.drain(
            self._new_owner(),
            queues=share.unserved,
            first=first,
            leaves=share.left_to_optimizers(first),
            waits_for=lambda: not worked_off(),
            until=lambda: bool(failures) or (worked_off() and (until() or share.all_served())),
            linger=linger,
            meanwhile=keep_and_commit,
            retry=lambda task_id: bool(self._tasks.retry([task_id])),
            listener=listener,
        )
        looked_at = None
        keep_and_commit()
        if failures:
            raise failures[0]
        return done

    def commit_due(
        self, run_id: str | None = None, listener: CompactionListener = SILENT, in_a_hurry: Callable[[], bool] = lambda: False
    ) -> Iterator[CompactionRecord]:
        """Commit every table that is due. Yield each record when it is made. The first error is raised after the last table.

        `listener` only hears which table is committed now. Tables whose turn comes while `in_a_hurry()` is true are left to others.
        """
        due = ((table, self._tasks.open_tasks(table).get(table, OpenTasks()).merged) for table in self._commit_tables.due())
        return self._commits_of(
            takewhile(lambda _: not in_a_hurry(), due), lambda table: self._commit_tables.commit(table, run_id=run_id), listener
        )

    def _commits_of(
        self,
        tables: Iterable[tuple[TableIdentifier, int]],
        commit: Callable[[TableIdentifier], Commit],
        listener: CompactionListener,
    ) -> Iterator[CompactionRecord]:
        """Commit tables, each given with its number of merged tasks. The first error is raised after the last table."""
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


def _stopped_half_way(refresh: Refresh) -> bool:
    """Return whether the time was up before the table was read to the end. The next refresh goes on from there."""
    return not refresh.complete and not refresh.busy and refresh.problem is None
