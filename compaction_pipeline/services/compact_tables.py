"""Strings the use cases together: refresh → plan → merge → commit. The only service that calls others.

Used by the command line, `compacted_files`, `compact_job` and the sensors, so that each means the same by "compact".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from compaction_pipeline.core.errors import CommitStateUnknown, CompactionError, NotFoundError, StorageUnavailable
from compaction_pipeline.core.lifecycle.holders import LeaseHolder, held_in_words
from compaction_pipeline.core.model.node import TableNode
from compaction_pipeline.core.model.plan import CompactionPlan, PlanReasonCode, PlanRequest
from compaction_pipeline.core.model.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.model.table import TableIdentifier
from compaction_pipeline.core.model.task import CompactionTask, EndReason, TaskStatus
from compaction_pipeline.core.ports import Clock, TableStore, TaskStore
from compaction_pipeline.core.words import count_text
from compaction_pipeline.services.commit_tables import Commit, CommitTables, in_words
from compaction_pipeline.services.dispatch_tasks import Dispatch, DispatchTasks, failures_in_words, why_ended
from compaction_pipeline.services.plan_tables import Planned, PlanTables
from compaction_pipeline.services.refresh_files import Refresh, RefreshFiles

log = logging.getLogger(__name__)

CONFLICT_ROUNDS = 3
"""How often an entry that planned nodes plans them again after a commit rejected some."""
BUSY_WAITS = 120
BUSY_WAIT_SECONDS = 0.5
COMMIT_LOOK = timedelta(seconds=2)
"""How often a drain looks which tables are due for a commit."""
_OWN_REASONS = frozenset(
    {
        PlanReasonCode.REFUSED,
        PlanReasonCode.LIVE_TWICE,
        PlanReasonCode.PAUSED,
        PlanReasonCode.OBSERVED,
        PlanReasonCode.DISABLED,
        PlanReasonCode.INVALID_PROPERTY,
        PlanReasonCode.NO_ACCESS,
        PlanReasonCode.BEING_READ,
        PlanReasonCode.EMPTY_TABLE,
    }
)
"""Why nothing is planned, whatever others do."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """How `compact` ended: the last plan, the records it made (newest last), tasks planned, and what failed (task id → reason).

    `refused` are those of the failed tasks that no further attempt can merge.
    """

    table: TableIdentifier
    plan: CompactionPlan
    records: tuple[CompactionRecord, ...] = ()
    tasks: tuple[CompactionTask, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    waiting: str | None = None
    refused: frozenset[str] = frozenset()

    @property
    def committed(self) -> tuple[str, ...]:
        return tuple(task_id for record in self.records for task_id in record.committed_task_ids)

    @property
    def conflicts(self) -> Mapping[str, str]:
        return {task_id: reason for record in self.records for task_id, reason in record.conflicts.items()}

    @property
    def unknown(self) -> bool:
        return any(record.status is RecordStatus.UNKNOWN for record in self.records)

    @property
    def reason(self) -> str:
        """One sentence: why nothing was done, or what went wrong; else the plan's own reason."""
        if self.failed:
            return failures_in_words(self.failed)
        if self.waiting is not None:
            return self.waiting
        if self.records:
            return self.records[-1].reason or in_words(self.records[-1])
        return self.plan.reason.text


@dataclass(frozen=True, slots=True)
class Sweep:
    """One round over tables within a time budget. `cursor` is the table to go on from, None when the round was whole.

    `unmoved`: how many tables stood still, as their catalog said at once.
    """

    refreshed: tuple[Refresh, ...] = ()
    cursor: str | None = None
    unmoved: int = 0


@dataclass(frozen=True, slots=True)
class Kept:
    """What keeping found: tasks whose lost attempts were returned, records that were settled."""

    returned: tuple[str, ...] = ()
    settled: tuple[CompactionRecord, ...] = ()


@dataclass
class _Done:
    """What a compaction has done so far."""

    on_commit: Callable[[CompactionRecord], None]
    records: list[CompactionRecord] = field(default_factory=list)
    tasks: list[CompactionTask] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, record: CompactionRecord, tasks: Sequence[CompactionTask]) -> None:
        """One more record, and those of its tasks that were not planned here."""
        known = {task.task_id for task in self.tasks}
        self.tasks += [task for task in tasks if task.task_id not in known]
        self.records.append(record)
        self.on_commit(record)


class CompactTables:
    """The verbs that the doors use."""

    def __init__(
        self,
        tables: TableStore,
        tasks: TaskStore,
        refresh_files: RefreshFiles,
        plan_tables: PlanTables,
        dispatch_tasks: DispatchTasks,
        commit_tables: CommitTables,
        clock: Clock,
        new_owner: Callable[[], str],
        sleep: Callable[[float], None],
    ) -> None:
        self._tables = tables
        self._tasks = tasks
        self._refresh_files = refresh_files
        self._plan_tables = plan_tables
        self._dispatch_tasks = dispatch_tasks
        self._commit_tables = commit_tables
        self._clock = clock
        self._new_owner = new_owner
        self._sleep = sleep

    # ---- one table, now ----------------------------------------------------------------------------------------------

    def refresh(self, table: TableIdentifier) -> Refresh:
        """Bring one table to its head, whole, waiting for another process that is at it. Raises StorageUnavailable."""
        for _ in range(BUSY_WAITS):
            refresh = self._refresh_files.refresh(table)
            if not refresh.busy:
                return refresh
            self._sleep(BUSY_WAIT_SECONDS)
        raise StorageUnavailable(f"{held_in_words(refresh.held_by, f'reading {table}')}, for over a minute now: try again later")

    def explain(self, table: TableIdentifier, request: PlanRequest | None = None) -> CompactionPlan:
        """The plan that `compact` would carry out now; nothing is planned or done."""
        for _ in range(BUSY_WAITS):
            refresh = self.refresh(table)
            plan = self._plan_tables.explain(table, request)
            if plan.reason.code is not PlanReasonCode.BEING_READ or refresh.problem is not None:
                break
            # A tick began to read the table again since.
            self._sleep(BUSY_WAIT_SECONDS)
        return plan

    def compact(
        self,
        table: TableIdentifier,
        request: PlanRequest | None = None,
        *,
        run_id: str | None = None,
        on_plan: Callable[[Sequence[CompactionTask]], None] = lambda tasks: None,
        on_result: Callable[[CompactionTask, TaskStatus], None] = lambda task, status: None,
        on_commit: Callable[[CompactionRecord], None] = lambda record: None,
        until: Callable[[], bool] = lambda: False,
    ) -> Compaction:
        """Refresh, plan, merge and commit a table now; nodes whose tasks met a conflict are planned again, 3 times at most.

        Ended by an error or an interrupt it leaves nothing of its plan waiting. What is merged by then is committed by the next
        command or tick.
        """
        done = _Done(on_commit=on_commit)
        self._add_settled(done, table, self.keep(table).settled)
        unknown = self._commit_tables.unknown(table)
        if unknown is not None:
            raise CommitStateUnknown(
                f"commit {unknown.record_id} of {table} may still land ({unknown.reason}): nothing is done before it has ended; "
                "run the command again, it reads the table to find out"
            )
        try:
            return self._compact(table, request or PlanRequest(), done, run_id, on_plan, on_result, until)
        except BaseException as error:
            self._give_up(done.tasks, why_ended(error))
            raise

    def look_again(self, table: TableIdentifier) -> None:
        """Read and judge a table that was just worked on: nobody is told what was due before, and what failed shows on its nodes.

        What was committed stands whatever comes.
        """
        try:
            if self.refresh(table).complete:
                self._plan_tables.judge(table)
        except CompactionError as error:
            log.warning("table=%s was worked on but not looked at again: %s", table, error)

    def _compact(
        self,
        table: TableIdentifier,
        request: PlanRequest,
        done: _Done,
        run_id: str | None,
        on_plan: Callable[[Sequence[CompactionTask]], None],
        on_result: Callable[[CompactionTask, TaskStatus], None],
        until: Callable[[], bool],
    ) -> Compaction:
        waiting: str | None = None
        plan: CompactionPlan | None = None
        if not request.force:
            done.failed.update(self._drain_left(table, request, until, on_plan, on_result))
        left = self._commit_left(table, run_id)
        self._add_settled(done, table, left.settled)
        if left.record is not None:
            done.add(left.record, [self._tasks.task(task_id) for task_id in left.record.task_ids])
        for _ in range(1 + CONFLICT_ROUNDS):
            planned = self.plan_nodes(table, request)
            if plan is None or planned.tasks:
                plan = planned.plan
            if not planned.tasks:
                waiting = self._held_elsewhere(table, request, planned.plan)
                break
            done.tasks += planned.tasks
            on_plan(planned.tasks)
            ids = [task.task_id for task in planned.tasks]
            done.failed.update(self._drain_own(ids, until, on_result))
            commit = self._commit_own(table, ids, run_id)
            self._add_settled(done, table, commit.settled)
            # Another process that serves the queue may have committed them first.
            records = [commit.record] if commit.record is not None else self._commit_tables.records_of(ids)
            for record in records:
                done.add(record, [self._tasks.task(task_id) for task_id in record.task_ids])
            if not records:
                waiting = commit.reason
                if not done.failed and all(self._tasks.task(task_id).status is TaskStatus.CANCELED for task_id in ids):
                    continue  # A newer plan took their files.
                break
            rejected = {task_id for record in records for task_id in record.conflicts}
            conflicts = {task.work.node for task in planned.tasks if task.task_id in rejected}
            if not conflicts or any(record.status is RecordStatus.UNKNOWN for record in records):
                break
            request = replace(request, nodes=frozenset(conflicts), force=True)
        assert plan is not None
        refused = frozenset(task_id for task_id in done.failed if self._is_refused(task_id))
        return Compaction(table, plan, tuple(done.records), tuple(done.tasks), done.failed, None if done.records else waiting, refused)

    def _is_refused(self, task_id: str) -> bool:
        """As its last attempt found, whichever process made it."""
        return self._tasks.task(task_id).end_reason is EndReason.REFUSED

    def _add_settled(self, done: _Done, table: TableIdentifier, settled: Iterable[CompactionRecord]) -> None:
        """An earlier commit that turned out to have landed is what this command has to tell."""
        for record in settled:
            if record.table == table and record.status is RecordStatus.COMMITTED:
                done.add(record, [self._tasks.task(task_id) for task_id in record.task_ids])

    def _give_up(self, tasks: Sequence[CompactionTask], reason: str) -> None:
        """Cancel what this compaction planned and nobody began: no tick may ever come, and a person who interrupts wants an end."""
        try:
            self._tasks.cancel([task.task_id for task in tasks], EndReason.GIVEN_UP, reason, self._clock())
        except CompactionError as failure:
            log.warning("its waiting tasks were not canceled: %s", failure)

    def _held_elsewhere(self, table: TableIdentifier, request: PlanRequest, plan: CompactionPlan) -> str | None:
        """Who merges the files of a plan that found nothing to take, and until when; None when nobody does."""
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
        # What the plan says counts files that others hold as missing: who waits needs to know only who, and until when.
        last = max(held, key=lambda holder: holder.expires_at)
        return held_in_words(last, f"merging {count_text(len(held), 'task')} of {table}") + "; run again after that"

    def _drain_left(
        self,
        table: TableIdentifier,
        request: PlanRequest,
        until: Callable[[], bool],
        on_plan: Callable[[Sequence[CompactionTask]], None],
        on_result: Callable[[CompactionTask, TaskStatus], None],
    ) -> dict[str, str]:
        """Merge what others planned and nobody merges: who asks wants it now, no tick may ever come, and its files cannot be planned
        again. Whoever planned it waits for this process, as it would for any that polls."""
        waiting = self._tasks.tasks(table, (TaskStatus.PENDING,))
        asked = [task for task in waiting if request.nodes is None or task.work.node in request.nodes]
        groups = {task.work.group for task in asked if task.work.group}
        left = [task for task in waiting if task in asked or task.work.group in groups]
        if not left or self._tables.state(table).paused:
            return {}
        on_plan(left)
        return self._drain_own([task.task_id for task in left], until, on_result)

    def _commit_left(self, table: TableIdentifier, run_id: str | None) -> Commit:
        """Commit what an earlier commit left Prepared when it failed (disk full, catalog away): no tick may ever come."""
        prepared = [task.task_id for task in self._tasks.tasks(table, (TaskStatus.PREPARED,)) if task.record_id is None]
        if not prepared or self._tables.state(table).paused:
            return Commit(None, f"nothing is prepared on {table}")
        return self._commit_own(table, prepared, run_id)

    def _drain_own(
        self, ids: Sequence[str], until: Callable[[], bool], on_result: Callable[[CompactionTask, TaskStatus], None]
    ) -> dict[str, str]:
        """Merge these tasks; one that another process polled is waited for until it ends. Answers the final failures."""
        owner = self._new_owner()
        failed: dict[str, str] = {}
        while not until():
            try:
                drained = self._dispatch_tasks.drain(owner, task_ids=ids, until=until, on_result=on_result)
                # Those that the store did not let in are put aside.
                failed.update({each: why for each, why in drained.failed.items() if self._tasks.task(each).status is TaskStatus.CANCELED})
            except CompactionError as error:
                if not any(self._tasks.task(task_id).status is TaskStatus.PREPARED for task_id in ids):
                    raise
                # The engine was lost on the way: what is merged is committed all the same.
                failed.update(dict.fromkeys(self._tasks.cancel(ids, EndReason.GIVEN_UP, str(error), self._clock()), str(error)))
                break
            if not any(self._tasks.task(task_id).status in (TaskStatus.PENDING, TaskStatus.EXECUTING) for task_id in ids):
                break
            self._tasks.release_expired(self._clock())
            self._sleep(BUSY_WAIT_SECONDS)
        ended = [self._tasks.task(task_id) for task_id in ids]
        # One with a record was merged, and rejected by a commit of another process: a conflict, no failure.
        failures = [task for task in ended if task.status is TaskStatus.FAILED and task.record_id is None]
        return {**failed, **{task.task_id: task.reason or "" for task in failures}}

    def _commit_own(self, table: TableIdentifier, ids: Sequence[str] | None, run_id: str | None) -> Commit:
        """Commit these tasks, waiting for another process that is committing the table."""
        commit = self._commit_tables.commit(table, ids, run_id)
        for _ in range(BUSY_WAITS):
            if not commit.busy:
                break
            self._sleep(BUSY_WAIT_SECONDS)
            commit = self._commit_tables.commit(table, ids, run_id)
        return commit

    # ---- all tables, tick by tick ------------------------------------------------------------------------------------

    def keep(self, at_once: TableIdentifier | None = None) -> Kept:
        """Return attempts whose holder is gone, settle commits that were cut off. First thing of every tick, run and command.

        `at_once`: the table that a person asks for, whose commits are settled though it may be in its pause after failed ones.
        """
        returned = self._tasks.release_expired(self._clock())
        return Kept(tuple(returned), tuple(self._commit_tables.settle(at_once)))

    def sweep(self, cursor: str | None, budget: timedelta) -> Sweep:
        """Refresh tables in order from `cursor` on until the budget is used; a table that fails harms no other."""
        unmoved = self._refresh_files.unmoved()
        deadline = self._clock() + budget
        names = sorted((table for table in self._tables.seen() if table not in unmoved), key=str)
        start = next((i for i, table in enumerate(names) if cursor is not None and str(table) >= cursor), 0)
        refreshed: list[Refresh] = []
        for table in names[start:]:
            if refreshed and self._clock() >= deadline:
                return Sweep(tuple(refreshed), str(table), len(unmoved))
            try:
                refresh = self._refresh_files.refresh(table, deadline)
            except NotFoundError:
                continue
            except Exception as error:
                refresh = Refresh(table, complete=False, problem=self._unexpected(table, "refreshed", error))
            refreshed.append(refresh)
            if not refresh.complete and not refresh.busy and refresh.problem is None:
                return Sweep(tuple(refreshed), str(table), len(unmoved))
        return Sweep(tuple(refreshed), None, len(unmoved))

    def plan_due(
        self, tables: Iterable[TableIdentifier], budget: timedelta, nodes: Mapping[TableIdentifier, frozenset[TableNode]] | None = None
    ) -> Sequence[tuple[TableIdentifier, Planned]]:
        """Plan tables by their triggers into the queue, within a time budget; a table that fails shows its problem."""
        deadline = self._clock() + budget
        planned: list[tuple[TableIdentifier, Planned]] = []
        for table in tables:
            if self._clock() >= deadline:
                break
            request = PlanRequest(nodes=nodes[table]) if nodes and table in nodes else PlanRequest()
            try:
                planned.append((table, self._plan_tables.plan(table, request)))
            except NotFoundError:
                continue
            except CompactionError as error:
                log.warning("table=%s not planned: %s", table, error)
                self._tables.update(table, {"problem": str(error)})
            except Exception as error:
                self._unexpected(table, "planned", error)
        return planned

    def _unexpected(self, table: TableIdentifier, verb: str, error: Exception) -> str:
        """Show an error that nobody foresaw on its table, and keep it there: the tables behind it have their turn."""
        log.exception("table=%s not %s", table, verb)
        problem = f"not {verb}, {type(error).__name__}: {error}; please report this"
        self._tables.update(table, {"problem": problem})
        return problem

    def plan_nodes(self, table: TableIdentifier, request: PlanRequest) -> Planned:
        """Refresh a table and plan these nodes into the queue, as a person asks, waiting for another process that is at it.

        Raises what kept the table from being read, and StorageUnavailable when it was held for a minute.
        """
        for _ in range(BUSY_WAITS):
            refresh = self.refresh(table)
            if refresh.error is not None:
                # What was read before may be planned and merged, but a table that cannot be read takes no commit either.
                raise refresh.error
            planned = self._plan_tables.plan(table, request, unlimited=True)
            if refresh.problem and planned.plan.reason.code is PlanReasonCode.BEING_READ:
                raise StorageUnavailable(refresh.problem)
            if not planned.busy:
                return planned
            self._sleep(BUSY_WAIT_SECONDS)
        raise StorageUnavailable(f"table {table} was not planned for over a minute: {planned.plan.reason.text}; try again later")

    def commit_now(self, table: TableIdentifier, run_id: str | None = None) -> Commit:
        """Commit what is Prepared on a table now, waiting for another process that is committing it.

        Raises StorageUnavailable when that lasts over a minute.
        """
        commit = self._commit_own(table, None, run_id)
        if commit.busy:
            raise StorageUnavailable(f"{commit.reason}, for over a minute now: try again later")
        return commit

    def drain(
        self,
        *,
        until: Callable[[], bool],
        linger: timedelta,
        queue: str | None = None,
        run_id: str | None = None,
        on_result: Callable[[CompactionTask, TaskStatus], None] = lambda task, status: None,
        on_commit: Callable[[CompactionRecord], None] = lambda record: None,
    ) -> Dispatch:
        """Merge what waits, commit what is due, until the queue was empty for `linger` or `until()` says so."""
        failures: list[Exception] = []
        looked_at: datetime | None = None

        def keep_and_commit() -> None:
            nonlocal looked_at
            if failures or (looked_at is not None and self._clock() - looked_at < COMMIT_LOOK):
                return
            looked_at = self._clock()
            self._tasks.release_expired(looked_at)
            try:
                for record in self.commit_due(run_id):
                    on_commit(record)
            except CompactionError as error:
                # What is being merged is merged to its end first.
                failures.append(error)

        done = self._dispatch_tasks.drain(
            self._new_owner(),
            queue=queue,
            until=lambda: bool(failures) or until(),
            linger=linger,
            meanwhile=keep_and_commit,
            on_result=on_result,
        )
        looked_at = None
        keep_and_commit()
        if failures:
            raise failures[0]
        return done

    def commit_due(self, run_id: str | None = None) -> Iterator[CompactionRecord]:
        """Commit every table whose interval passed; the records as they are made."""
        failures: list[Exception] = []
        for table in self._commit_tables.due():
            try:
                commit = self._commit_tables.commit(table, run_id=run_id)
            except Exception as error:
                # The others have their turn first.
                log.exception("table=%s not committed", table)
                failures.append(error)
                continue
            if commit.record is not None:
                yield commit.record
            else:
                log.info("table=%s not committed: %s", table, commit.reason)
        if failures:
            raise failures[0]
