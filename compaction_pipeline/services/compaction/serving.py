"""Compacts tables in a run that serves every queue: requested nodes first, then whatever waits. Tables are committed beside the merges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.errors import CompactionError, StorageUnavailable, TableRefused
from compaction_pipeline.core.fragmentation.verdict import NOT_ADMITTED
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.planning.conflict_rounds import Requests
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.drain import Beside, Hears
from compaction_pipeline.core.queue.known_task import KnownTask
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import count_text
from compaction_pipeline.services.commit.commit_due import CommitDue
from compaction_pipeline.services.compaction.rounds import How, Rounds
from compaction_pipeline.services.one_table import OneTable
from compaction_pipeline.services.planning.plan_tables import Planned
from compaction_pipeline.services.queue.await_tasks import AwaitTasks
from compaction_pipeline.services.queue.merge_tasks import MergeTasks

COMMIT_LOOK = timedelta(seconds=2)
"""A run looks for tables that are due for a commit at most this often."""


class Look:
    """Keeps the queue and commits what is due, beside merges. It does so at most every `COMMIT_LOOK`."""

    def __init__(self, keep: Callable[[], None], commit: Callable[[], None], clock: Clock) -> None:
        self._keep = keep
        self._commit = commit
        self._clock = clock
        self._looked_at: datetime | None = None
        self.failures: list[Exception] = []
        """An error of a commit ends the drain, and is raised after the merges that have begun are finished."""

    def now_and_then(self) -> None:
        """Look, unless that was done a moment ago."""
        if self._looked_at is None or self._clock() - self._looked_at >= COMMIT_LOOK:
            self.at_once()

    def at_once(self) -> None:
        """Look, unless an earlier look has failed."""
        if self.failures:
            return
        self._looked_at = self._clock()
        self._keep()
        try:
            self._commit()
        except CompactionError as error:
            self.failures.append(error)


NewLook = Callable[[Callable[[], None], Callable[[], None]], Look]
"""Makes a look of two functions: what it does beside keeping the queue, and how it commits."""


class Serving(Rounds):
    """A run that serves every queue, requested nodes first: other tables go on when one fails, and nothing is given up."""

    def __init__(
        self,
        asked: Requests,
        how: How,
        one_table: OneTable,
        await_tasks: AwaitTasks,
        merge_tasks: MergeTasks,
        commit_due: CommitDue,
        look: NewLook,
    ) -> None:
        super().__init__(asked, how)
        self._one_table = one_table
        self._await_tasks = await_tasks
        self._merge_tasks = merge_tasks
        self._commit_due = commit_due
        self._look = look
        self._rejected: list[TaskId] = []

    def _planned(self, table: TableIdentifier, request: PlanRequest) -> Planned | None:
        try:
            planned = self._one_table.plan_nodes(table, request)
        except CompactionError as error:
            self._how.listener.not_planned(table, error)
            return None
        if planned.plan.reason.code in NOT_ADMITTED:
            self._how.listener.not_planned(table, TableRefused(planned.plan.reason.text))
            return None
        self._note(table, planned)
        self._how.listener.planned(table, planned.tasks, planned.plan.reason.text)
        return planned

    def _merge(self, own: Sequence[KnownTask]) -> None:
        ids = [task.task_id for task in own]
        self._rejected = []

        def retry() -> None:
            # Those of the own tasks that another worker failed are tried again at once, because somebody waits for them.
            self._await_tasks.retry(ids)

        def commit() -> None:
            self._add(self._commit_due.commit(self._how.run_id, self._how.listener, self._how.in_a_hurry))

        look = self._look(retry, commit)
        drained = self._merge_tasks.merge(
            own,
            Beside.EVERY_QUEUE,
            Hears(self._how.listener, look.now_and_then),
            over=lambda: bool(self._asked) or self._how.until(),
            broken=lambda: bool(look.failures),
            linger=self._how.linger,
        )
        look.at_once()
        if look.failures:
            raise look.failures[0]
        self._done.drained = drained
        self._done.failed.update({each: why for each, why in drained.failed.items() if not self._asked or each in ids})

    def _commit(self, own: Sequence[KnownTask]) -> frozenset[TableIdentifier]:
        """Commit the tables of these tasks that are not due yet. The caller asked for the tasks, and waits for their commits."""
        ids = [task.task_id for task in own]
        merged = Counter(task.table for task in self._await_tasks.of(ids) if task.status is TaskStatus.PREPARED)
        self._add(
            self._commit_due.in_turn(merged.items(), lambda table: self._one_table.commit_now(table, self._how.run_id), self._how.listener)
        )
        failed = self._done.failed
        failed.update(self._await_tasks.give_up_paused(ids))
        failed.update({each: why for each, why in self._await_tasks.failed(ids).items() if each not in failed})
        return frozenset()

    def _ended(self, own: Sequence[KnownTask]) -> Sequence[KnownTask]:
        """Return the tasks of a round, and those of others on requested nodes that a commit of this run rejected."""
        ids = dict.fromkeys(task.task_id for task in own)
        rejected = self._await_tasks.of(each for each in self._rejected if each not in ids)
        return [*self._await_tasks.of(ids), *(task for task in rejected if self._is_asked_for(task))]

    def _is_asked_for(self, task: KnownTask) -> bool:
        request = self._asked.get(task.table)
        return request is not None and (request.nodes is None or task.work.node in request.nodes)

    def _note_no_room(self, nodes: dict[TableIdentifier, frozenset[TableNode]]) -> None:
        for table, lacking in nodes.items():
            if lacking:
                number = count_text(len(lacking), "requested node")
                error = StorageUnavailable(f"the queue of {table} has no room for {number}; launch it again later")
                self._how.listener.not_planned(table, error)

    def _add(self, records: Iterable[CompactionRecord]) -> None:
        for record in records:
            self._done.records.append(record)
            self._rejected += record.conflicts
            self._how.listener.committed(record)
