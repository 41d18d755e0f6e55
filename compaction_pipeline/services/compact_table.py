"""Compacts one table now: it refreshes, plans, merges and commits.

The command line and launched partitions both use it, so that "compact" means the same in both. This service, `tick_tables`,
`check_tables` and `run_ticks` are the only ones that call others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TypeVar

from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.errors import CommitStateUnknown, CompactionError, NotFoundError, StorageUnavailable
from compaction_pipeline.core.fragmentation.verdict import NOT_ADMITTED, PlanReasonCode
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.insight.compaction import Compaction
from compaction_pipeline.core.insight.listener import SILENT, CompactionListener
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.holders import LeaseHolder, held_in_words
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.planning.conflict_rounds import Requests, after_conflict, in_rounds
from compaction_pipeline.core.planning.plan import CompactionPlan, PlanRequest
from compaction_pipeline.core.queue.failures import why_ended
from compaction_pipeline.core.queue.ports import TaskStore
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import count_text
from compaction_pipeline.core.work.result import EndReason
from compaction_pipeline.services.commit.commit_tables import Commit, CommitTables
from compaction_pipeline.services.planning.plan_tables import Planned, PlanTables
from compaction_pipeline.services.queue.serve_tasks import ServeTasks
from compaction_pipeline.services.queue.share_queues import ShareQueues
from compaction_pipeline.services.queue.work_on_queue import Drained, WorkOnQueue
from compaction_pipeline.services.tables.refresh_files import Refresh, RefreshFiles

log = logging.getLogger(__name__)

T = TypeVar("T")

BUSY_WAITS = 120
BUSY_WAIT_SECONDS = 0.5
_OWN_REASONS = NOT_ADMITTED | {PlanReasonCode.LIVE_TWICE, PlanReasonCode.BEING_READ, PlanReasonCode.EMPTY_TABLE}
"""Reasons of an empty plan that have nothing to do with other processes."""


@dataclass
class _Done:
    """What a compaction has done so far."""

    listener: CompactionListener
    run_id: str | None = None
    help_others: bool = False
    records: list[CompactionRecord] = field(default_factory=list)
    tasks: list[CompactionTask] = field(default_factory=list)
    failed: dict[TaskId, str] = field(default_factory=dict)
    plan: CompactionPlan | None = None
    waiting: str | None = None
    held: str | None = None
    without_room: frozenset[TableNode] = frozenset()

    def add(self, record: CompactionRecord, tasks: Sequence[CompactionTask]) -> None:
        """Add a record and those of its tasks that are not in `tasks` yet, and tell the listener. A known record changes nothing."""
        if any(record.record_id == told.record_id for told in self.records):
            return
        known = {task.task_id for task in self.tasks}
        self.tasks += [task for task in tasks if task.task_id not in known]
        self.records.append(record)
        self.listener.committed(record)


class CompactTable:
    """The verbs that a person, a launch and a command use."""

    def __init__(
        self,
        tables: TableReader,
        tasks: TaskStore,
        refresh_files: RefreshFiles,
        plan_tables: PlanTables,
        serve_tasks: ServeTasks,
        work_on_queue: WorkOnQueue,
        share_queues: ShareQueues,
        commit_tables: CommitTables,
        clock: Clock,
        new_owner: Callable[[], str],
        sleep: Callable[[float], None],
    ) -> None:
        self._tables = tables
        self._tasks = tasks
        self._refresh_files = refresh_files
        self._plan_tables = plan_tables
        self._serve_tasks = serve_tasks
        self._work_on_queue = work_on_queue
        self._share_queues = share_queues
        self._commit_tables = commit_tables
        self._clock = clock
        self._new_owner = new_owner
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

    def explain(self, table: TableIdentifier, request: PlanRequest | None = None) -> CompactionPlan:
        """Return the plan that `compact` would carry out now. Nothing is queued."""

        def ask() -> tuple[Refresh, CompactionPlan]:
            return self.refresh(table), self._plan_tables.explain(table, request)

        # A tick may have begun to read the table again after this refresh.
        return self._asked_again(ask, lambda answer: answer[1].reason.code is PlanReasonCode.BEING_READ and answer[0].problem is None)[1]

    def compact(
        self,
        table: TableIdentifier,
        request: PlanRequest | None = None,
        *,
        run_id: str | None = None,
        listener: CompactionListener = SILENT,
        help_others: bool = False,
    ) -> Compaction:
        """Refresh, plan, merge and commit a table now. Nodes whose tasks met a conflict are planned again, 3 times at most. The same holds
        for nodes whose tasks a newer plan replaced before they began.

        With `help_others`, slots that find no waiting task of this compaction merge other tasks of the same queue until its own tasks
        are merged. This compaction does not commit those other tasks: the next commit of their tables does. Its own tasks are left to
        the optimizers of their group at first; slots take them when no optimizer has taken one for a while.

        When an error or an interrupt ends the compaction, its Pending tasks are canceled, and `listener` hears of every commit of its
        tasks that has ended. The next command or tick commits the merged ones. Raises CommitStateUnknown when an earlier commit of the
        table may still land.
        """
        done = _Done(listener, run_id, help_others)
        self._serve_tasks.release_expired()
        self._add_settled(done, table, self._commit_tables.settle(table))
        unknown = self._commit_tables.unknown(table)
        if unknown is not None:
            raise CommitStateUnknown(
                f"commit {unknown.record_id} of {table} may still land ({unknown.reason}): nothing else is done before that is known. "
                "Run the command again: it finds out from the table"
            )
        try:
            return self._compact(table, request or PlanRequest(), done)
        except BaseException as error:
            self._give_up(done.tasks, why_ended(error))
            self._tell_committed(done)
            raise

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

    def _compact(self, table: TableIdentifier, request: PlanRequest, done: _Done) -> Compaction:
        if not request.force:
            done.failed.update(self._drain_left(table, request, done))
        left = self._commit_left(table, done.run_id)
        self._add_settled(done, table, left.settled)
        if left.record is not None:
            done.add(left.record, [self._tasks.task(task_id) for task_id in left.record.task_ids])

        def work(requests: Requests) -> Requests:
            again = self._round(table, requests[table], done)
            return {} if again is None else {table: again}

        in_rounds({table: request}, work)
        while done.without_room:
            # The queue had no room for all tasks at once. The tasks of the last round are merged now.
            # Nodes whose tasks failed for good would be planned again without end.
            failed = {task.work.node for task in done.tasks if task.task_id in done.failed}
            rest, done.without_room = done.without_room - failed, frozenset()
            if rest:
                in_rounds({table: replace(request, nodes=rest)}, work)
        assert done.plan is not None
        # No attempt can ever merge these tasks.
        refused = frozenset(task_id for task_id in done.failed if self._is_ended_by(task_id, EndReason.REFUSED))
        waiting = None if done.records else done.waiting
        return Compaction(table, done.plan, tuple(done.records), tuple(done.tasks), done.failed, waiting, refused, done.held)

    def _round(self, table: TableIdentifier, request: PlanRequest, done: _Done) -> PlanRequest | None:
        """Plan, merge and commit once. Return the request for what must be planned again; None when there is nothing."""
        done.listener.reading(table)
        planned = self.plan_nodes(table, request)
        if done.plan is None or planned.tasks:
            verdicts = planned.plan.verdicts if done.plan is None else done.plan.judged_again(planned.plan).verdicts
            done.plan = replace(planned.plan, verdicts=verdicts)
        if not planned.tasks:
            done.plan = done.plan.judged_again(planned.plan)
            done.waiting = done.held = self._held_elsewhere(table, request, planned.plan)
            return None
        done.tasks += planned.tasks
        done.listener.planned(table, planned.tasks, planned.plan.reason.text)
        done.failed.update(self._drain_own(planned.tasks, done))
        ids = [task.task_id for task in planned.tasks]
        done.failed.update(self.give_up_paused(ids))
        # A newer plan may have taken all files of these tasks before they began. Nothing is committed then.
        merged = sum(self._tasks.task(task_id).status is TaskStatus.PREPARED for task_id in ids)
        with done.listener.committing(table, merged) if merged else nullcontext():
            commit = self._commit_own(table, ids, done.run_id)
        self._add_settled(done, table, commit.settled)
        # Another process that serves the queue may have committed some of them, or all, before.
        found = [*self._commit_tables.records_of(ids), *([] if commit.record is None else [commit.record])]
        records = {record.record_id: record for record in found}
        for record in records.values():
            done.add(record, [self._tasks.task(task_id) for task_id in record.task_ids])
        if any(record.status is RecordStatus.UNKNOWN for record in records.values()):
            return None
        done.without_room |= planned.plan.without_room
        rejected = {task_id for record in records.values() for task_id in record.conflicts}
        # A task group with a task that failed for good would be merged again for nothing.
        hopeless = {task.work.group for task in planned.tasks if task.task_id in done.failed} - {""}
        conflicts = {task.work.node for task in planned.tasks if task.task_id in rejected and task.work.group not in hopeless}
        # A newer plan took the files of these tasks before they began, so what was asked of their nodes is planned again.
        gone = {task.task_id for task in planned.tasks if self._is_ended_by(task.task_id, EndReason.REPLACED)}
        replaced = {task.work.node for task in planned.tasks if task.task_id in gone}
        done.tasks = [task for task in done.tasks if task.task_id not in gone]
        if conflicts:
            return after_conflict(request, conflicts | replaced)
        if not records:
            done.waiting = commit.reason
        return replace(request, nodes=frozenset(replaced)) if replaced else None

    def _is_ended_by(self, task_id: TaskId, reason: EndReason) -> bool:
        """Return whether the task, or its last attempt, ended for this reason. Any process may have ended it."""
        return self._tasks.task(task_id).end_reason is reason

    def _add_settled(self, done: _Done, table: TableIdentifier, settled: Iterable[CompactionRecord]) -> None:
        """Add the settled records of this table whose commits turned out to have landed."""
        for record in settled:
            if record.table == table and record.status is RecordStatus.COMMITTED:
                done.add(record, [self._tasks.task(task_id) for task_id in record.task_ids])

    def _give_up(self, tasks: Sequence[CompactionTask], reason: str) -> None:
        """Cancel those tasks that nobody has begun. No tick may ever come, and a person who interrupts wants the work to end."""
        try:
            self._tasks.cancel([task.task_id for task in tasks], EndReason.GIVEN_UP, reason, self._clock())
        except CompactionError as failure:
            log.warning("the waiting tasks of an ended compaction were not canceled: %s", failure)

    def _tell_committed(self, done: _Done) -> None:
        """Tell the listener of commits that ended while an interrupt waited for them. Otherwise its run would count them as not done."""
        try:
            for record in self._commit_tables.records_of([task.task_id for task in done.tasks]):
                done.add(record, [self._tasks.task(task_id) for task_id in record.task_ids])
        except CompactionError as failure:
            log.warning("the commits of an ended compaction were not looked up: %s", failure)

    def _held_elsewhere(self, table: TableIdentifier, request: PlanRequest, plan: CompactionPlan) -> str | None:
        """Return a text that says which process merges the table's files, and until when. Return None when no process does.

        `plan` is an empty plan.
        """
        if plan.reason.code in _OWN_REASONS:
            return None
        tasks = self._tasks.tasks(table, (TaskStatus.EXECUTING,))
        held = [
            LeaseHolder(task.owner or "", task.lease_expires_at)
            for task in tasks
            if task.lease_expires_at is not None and (request.nodes is None or task.work.node in request.nodes)
        ]
        if not held:
            return None
        # The plan's own reason does not count files that other processes hold, so it would mislead the person who waits.
        last = max(held, key=lambda holder: holder.expires_at)
        return held_in_words(last, f"merging {count_text(len(held), 'task')} of {table}") + "; run again after that"

    def _drain_left(self, table: TableIdentifier, request: PlanRequest, done: _Done) -> dict[TaskId, str]:
        """Merge the waiting tasks that another process planned, also those that failed and wait to be tried again. Return why tasks failed,
        by task id.

        A tick may never come, and this compaction cannot plan the files of these tasks. The process that planned them waits for their
        end, whichever worker merges them.
        """
        waiting = [task for task in self._tasks.tasks(table, (TaskStatus.PENDING, TaskStatus.FAILED)) if not task.is_final]
        asked = [task for task in waiting if request.nodes is None or task.work.node in request.nodes]
        groups = {task.work.group for task in asked if task.work.group}
        left = [task for task in waiting if task in asked or task.work.group in groups]
        if not left or self._tables.state(table).paused:
            return {}
        done.listener.planned(table, left, "planned before and not begun")
        return self._drain_own(left, done)

    def _commit_left(self, table: TableIdentifier, run_id: str | None) -> Commit:
        """Commit the tasks that stayed Prepared because an earlier commit failed, for example on a full disk. A tick may never come."""
        prepared = [task.task_id for task in self._tasks.tasks(table, (TaskStatus.PREPARED,)) if task.record_id is None]
        if not prepared or self._tables.state(table).paused:
            return Commit(None, f"nothing is prepared on {table}")
        return self._commit_own(table, prepared, run_id)

    def _drain_own(self, tasks: Sequence[CompactionTask], done: _Done) -> dict[TaskId, str]:
        """Merge these tasks, and wait for those that another process took. Return why tasks failed for good, by task id."""
        owner, ids = self._new_owner(), [task.task_id for task in tasks]
        failed: dict[TaskId, str] = {}
        while True:
            # Another worker may have failed some of them. Whoever asked for this compaction waits, so they are tried again at once.
            self._tasks.retry(ids)
            try:
                drained = self._drain(owner, tasks, done)
                # A task to which the store denied access is canceled.
                denied = [each for each in drained.failed if each in ids and self._tasks.task(each).status is TaskStatus.CANCELED]
                failed.update({each: drained.failed[each] for each in denied})
            except CompactionError as error:
                if not any(self._tasks.task(task_id).status is TaskStatus.PREPARED for task_id in ids):
                    raise
                # The merge engine was lost. Tasks that are merged already are still committed.
                failed.update(dict.fromkeys(self._tasks.cancel(ids, EndReason.GIVEN_UP, str(error), self._clock()), str(error)))
                break
            if self.worked_off(ids)():
                break
            self._serve_tasks.release_expired()
            self._sleep(BUSY_WAIT_SECONDS)
        ended = [self._tasks.task(task_id) for task_id in ids]
        # A failed task with a record was merged, and a commit of another process rejected it. That is a conflict, not a failure.
        failures = [task for task in ended if task.status is TaskStatus.FAILED and task.is_final and task.record_id is None]
        return {**failed, **{task.task_id: task.reason or "" for task in failures}}

    def _drain(self, owner: str, tasks: Sequence[CompactionTask], done: _Done) -> Drained:
        """Merge these tasks, and beside them the tasks of others if `done` says so."""
        ids = [task.task_id for task in tasks]
        worked_off = self.worked_off(ids)
        if not done.help_others:
            return self._work_on_queue.drain(owner, task_ids=ids, retry=self._retry, listener=done.listener)
        return self._work_on_queue.drain(
            owner,
            queues=lambda: tuple(queue for queue in self._share_queues.unserved() if queue == tasks[0].queue),
            first=ids,
            leaves=self._share_queues.left_to_optimizers(ids),
            waits_for=lambda: not worked_off(),
            until=worked_off,
            meanwhile=lambda: self._free(ids),
            retry=self._retry,
            listener=done.listener,
        )

    def _retry(self, task_id: TaskId) -> bool:
        """Put a failed task that would wait back into the queue. Return whether it waited."""
        return bool(self._tasks.retry([task_id]))

    def _free(self, task_ids: Sequence[TaskId]) -> None:
        """Put back those of these tasks that another worker failed, and the tasks of workers that died."""
        self._serve_tasks.release_expired()
        self._tasks.retry(task_ids)

    def worked_off(self, task_ids: Iterable[TaskId]) -> Callable[[], bool]:
        """Return a function that says whether the caller need not wait for workers any longer.

        That is so when each of these tasks is merged, has ended, or has no turn because its table was paused. A task that was found in one
        of these states is not asked about again.
        """
        left = list(task_ids)[::-1]

        def needs_worker(task_id: TaskId) -> bool:
            try:
                return self._needs_worker(self._tasks.task(task_id))
            except NotFoundError:
                # The table was forgotten, and its tasks with it.
                return False

        def are_worked_off() -> bool:
            while left and not needs_worker(left[-1]):
                left.pop()
            return not left

        return are_worked_off

    def _needs_worker(self, task: CompactionTask) -> bool:
        """Return whether a worker merges the task, or may take it now."""
        if not task.is_to_be_merged:
            return False
        return task.status is TaskStatus.EXECUTING or not self._tables.state(task.table).paused

    def give_up_paused(self, task_ids: Iterable[TaskId]) -> dict[TaskId, str]:
        """Cancel those of these tasks that wait for the end of a pause, and return the reason by task id.

        Somebody who asked for this work is told that it was not done. After the pause, ticks plan what is due then.
        """
        given_up: dict[TaskId, str] = {}
        for task in map(self._tasks.task, task_ids):
            if task.is_to_be_merged and not self._needs_worker(task):
                ends = f"`resume_job` of Dagster or `compaction-pipeline resume {task.table}` ends the pause"
                reason = f"a person paused {task.table} before this task began; {ends}"
                canceled = self._tasks.cancel([task.task_id], EndReason.GIVEN_UP, reason, self._clock())
                given_up.update(dict.fromkeys(canceled, reason))
        return given_up

    def _commit_own(self, table: TableIdentifier, ids: Sequence[TaskId] | None, run_id: str | None) -> Commit:
        """Commit these tasks; None means all Prepared ones. While another process commits the table, wait, for a minute at most."""
        return self._asked_again(lambda: self._commit_tables.commit(table, ids, run_id, at_once=True), lambda answer: answer.busy)

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

    def _asked_again(self, ask: Callable[[], T], busy: Callable[[T], bool]) -> T:
        """Ask, and ask again while the answer is busy, for a minute at most. Return the last answer, which may still be busy."""
        answer = ask()
        for _ in range(BUSY_WAITS):
            if not busy(answer):
                break
            self._sleep(BUSY_WAIT_SECONDS)
            answer = ask()
        return answer

    def commit_now(self, table: TableIdentifier, run_id: str | None = None) -> Commit:
        """Commit the Prepared tasks of a table now. While another process commits the table, wait, for a minute at most.

        Raises StorageUnavailable when the other process needs longer.
        """
        commit = self._commit_own(table, None, run_id)
        if commit.busy:
            raise StorageUnavailable(f"table {table} was not committed for over a minute: {commit.reason}; try again later")
        return commit
