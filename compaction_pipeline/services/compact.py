"""Carries out compactions, for one table, for many, or for none: then it drains the queue. Nobody else plans, merges and commits."""

from __future__ import annotations

from collections.abc import Callable

from compaction_pipeline.core.insight.compaction import Compaction
from compaction_pipeline.core.insight.listener import SILENT, CompactionListener
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.planning.conflict_rounds import Requests
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.drain import Beside
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.services.commit.commit_due import CommitDue
from compaction_pipeline.services.commit.commit_tables import CommitTables
from compaction_pipeline.services.compaction.alone import Alone
from compaction_pipeline.services.compaction.rounds import How, Outcome
from compaction_pipeline.services.compaction.serving import Look, Serving
from compaction_pipeline.services.one_table import OneTable
from compaction_pipeline.services.queue.await_tasks import AwaitTasks
from compaction_pipeline.services.queue.merge_tasks import MergeTasks


class CompactTables:
    """The verbs carry_out, for one table, many or none, and compact, for one table."""

    def __init__(
        self,
        one_table: OneTable,
        await_tasks: AwaitTasks,
        merge_tasks: MergeTasks,
        commit_tables: CommitTables,
        commit_due: CommitDue,
        keep_queue: Callable[[], object],
        clock: Clock,
    ) -> None:
        """`keep_queue` frees what dead processes held in the queue, and puts tasks back whose retry is due."""
        self._one_table = one_table
        self._await_tasks = await_tasks
        self._merge_tasks = merge_tasks
        self._commit_tables = commit_tables
        self._commit_due = commit_due
        self._keep_queue = keep_queue
        self._clock = clock

    def carry_out(self, asked: Requests, how: How) -> Outcome:
        """Plan the requested nodes, merge their tasks and commit them. Requests may be empty with EVERY_QUEUE: then the queue is drained.

        Nodes whose tasks met a conflict, or that a newer plan replaced before they began, are planned again, 3 times at most. Slots take
        the own tasks first, and free slots what `how.beside` says.

        With EVERY_QUEUE, the tables of the requests are committed whole, and every other table when it is due. `listener` hears which
        tables were not planned. An error of a commit is raised when the merges that have begun are finished, and other tables had their
        turn; tasks that wait stay in the queue.

        Otherwise only the own tasks are committed; the next commit of their tables commits those of others. Earlier work on the tables
        is finished first. When an error or an interrupt ends the compaction, its Pending tasks are canceled, and `listener` hears of
        every commit of its tasks that has ended. The next command or tick commits the merged ones. Raises CommitStateUnknown when an
        earlier commit of a table may still land.
        """
        services = self._one_table, self._await_tasks, self._merge_tasks
        if how.beside is Beside.EVERY_QUEUE:
            return Serving(asked, how, *services, self._commit_due, self._looking).carry_out()
        return Alone(asked, how, *services, self._commit_tables).carry_out()

    def _looking(self, beside: Callable[[], None], commit: Callable[[], None]) -> Look:
        def keep() -> None:
            self._keep_queue()
            beside()

        return Look(keep, commit, self._clock)

    def compact(
        self,
        table: TableIdentifier,
        request: PlanRequest | None = None,
        *,
        run_id: str | None = None,
        listener: CompactionListener = SILENT,
        help_others: bool = False,
    ) -> Compaction:
        """Refresh, plan, merge and commit a table now. Raises what `carry_out` raises.

        With `help_others`, slots that find no waiting task of this compaction merge other tasks of the same queue until its own tasks
        are merged. Its own tasks are left to the optimizers of their group at first; slots take them when no optimizer has taken one for a
        while.
        """
        beside = Beside.OWN_QUEUE if help_others else Beside.NOTHING
        done = self.carry_out({table: request or PlanRequest()}, How(beside, listener, run_id))
        # No attempt can ever merge these tasks.
        refused = frozenset(task.task_id for task in self._await_tasks.of(done.failed) if task.end_reason is EndReason.REFUSED)
        waiting = None if done.records else done.waiting.get(table)
        return Compaction(
            table, done.plans[table], tuple(done.records), tuple(done.tasks), done.failed, waiting, refused, done.held.get(table)
        )
