"""Compacts tables for somebody who waits for them alone: a command, or a launched partition."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import nullcontext

from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.errors import CommitStateUnknown, CompactionError
from compaction_pipeline.core.fragmentation.verdict import NOT_ADMITTED, PlanReasonCode
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.planning.conflict_rounds import Requests
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.drain import Hears
from compaction_pipeline.core.queue.failures import why_ended
from compaction_pipeline.core.queue.known_task import KnownTask
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.services.commit.commit_tables import CommitTables
from compaction_pipeline.services.compaction.rounds import How, Outcome, Rounds
from compaction_pipeline.services.one_table import OneTable
from compaction_pipeline.services.planning.plan_tables import Planned
from compaction_pipeline.services.queue.await_tasks import AwaitTasks
from compaction_pipeline.services.queue.merge_tasks import MergeTasks

log = logging.getLogger(__name__)

_OWN_REASONS = NOT_ADMITTED | {PlanReasonCode.LIVE_TWICE, PlanReasonCode.BEING_READ, PlanReasonCode.EMPTY_TABLE}
"""Reasons of an empty plan that have nothing to do with other processes."""


class Alone(Rounds):
    """Somebody waits for these tables alone: an error ends the work, nothing else is committed, and what nobody has begun is given up."""

    def __init__(
        self,
        asked: Requests,
        how: How,
        one_table: OneTable,
        await_tasks: AwaitTasks,
        merge_tasks: MergeTasks,
        commit_tables: CommitTables,
    ) -> None:
        super().__init__(asked, how)
        self._one_table = one_table
        self._await_tasks = await_tasks
        self._merge_tasks = merge_tasks
        self._commit_tables = commit_tables

    def carry_out(self) -> Outcome:
        self._await_tasks.release()
        for table in self._asked:
            self._settle(table)
        try:
            for table, request in self._asked.items():
                self._finish_earlier(table, request)
            return super().carry_out()
        except BaseException as error:
            self._give_up(why_ended(error))
            self._tell_committed()
            raise

    def _settle(self, table: TableIdentifier) -> None:
        """Settle earlier commits of a table. Raises CommitStateUnknown when one of them may still land."""
        self._add_settled(table, self._commit_tables.settle(table))
        unknown = self._commit_tables.known.unknown(table)
        if unknown is not None:
            raise CommitStateUnknown(
                f"commit {unknown.record_id} of {table} may still land ({unknown.reason}): nothing else is done before that is known. "
                "Run the command again: it finds out from the table"
            )

    def _finish_earlier(self, table: TableIdentifier, request: PlanRequest) -> None:
        """Merge and commit what other processes planned. A tick may never come, and the files of these tasks cannot be planned now."""
        left = () if request.force else self._await_tasks.left_over(table, request.nodes)
        if left:
            self._how.listener.planned(table, left, "planned before and not begun")
            # The process that planned them waits for their end, whichever worker merges them.
            self._merge(left)
        # An earlier commit of tasks that stayed Prepared failed, for example on a full disk.
        prepared = self._await_tasks.not_committed(table)
        if prepared:
            commit = self._one_table.commit(table, prepared, self._how.run_id)
            self._add_settled(table, commit.settled)
            if commit.record is not None:
                self._add(commit.record)

    def _planned(self, table: TableIdentifier, request: PlanRequest) -> Planned:
        planned = self._one_table.plan_nodes(table, request)
        self._note(table, planned)
        own = [task.task_id for task in planned.tasks]
        held = None if planned.plan.reason.code in _OWN_REASONS else self._await_tasks.held(table, request.nodes, own)
        self._done.held[table] = held
        if planned.tasks:
            self._how.listener.planned(table, planned.tasks, planned.plan.reason.text)
        else:
            # The plan's own reason does not count files that other processes hold, so it would mislead the person who waits.
            self._done.waiting[table] = held
        return planned

    def _merge(self, own: Sequence[KnownTask]) -> None:
        ids = [task.task_id for task in own]
        failed = self._done.failed

        def free() -> None:
            """Put back those of these tasks that another worker failed, and the tasks of workers that died."""
            self._await_tasks.release()
            self._await_tasks.retry(ids)

        try:
            drained = self._merge_tasks.merge(own, self._how.beside, Hears(self._how.listener, free))
            # A task to which the store denied access is canceled.
            named = self._await_tasks.of(each for each in drained.failed if each in ids)
            failed.update({task.task_id: drained.failed[task.task_id] for task in named if task.status is TaskStatus.CANCELED})
        except CompactionError as error:
            if not any(task.status is TaskStatus.PREPARED for task in self._await_tasks.of(ids)):
                raise
            # The merge engine was lost. Tasks that are merged already are still committed.
            failed.update(dict.fromkeys(self._await_tasks.give_up(ids, str(error)), str(error)))
        failed.update(self._await_tasks.failed(ids))

    def _commit(self, own: Sequence[KnownTask]) -> frozenset[TableIdentifier]:
        self._done.failed.update(self._await_tasks.give_up_paused(task.task_id for task in own))
        tables = dict.fromkeys(task.table for task in own)
        return frozenset(table for table in tables if not self._is_settled(table, [task.task_id for task in own if task.table == table]))

    def _is_settled(self, table: TableIdentifier, ids: Sequence[TaskId]) -> bool:
        """Commit these tasks of a table. Return whether it is known of all their commits how they ended."""
        # A newer plan may have taken all files of these tasks before they began. Nothing is committed then.
        merged = sum(task.status is TaskStatus.PREPARED for task in self._await_tasks.of(ids))
        with self._how.listener.committing(table, merged) if merged else nullcontext():
            commit = self._one_table.commit(table, ids, self._how.run_id)
        self._add_settled(table, commit.settled)
        # Another process that serves the queue may have committed some of them, or all, before.
        found = [*self._commit_tables.known.records_of(ids), *([] if commit.record is None else [commit.record])]
        records = {record.record_id: record for record in found}.values()
        for record in records:
            self._add(record)
        if not records:
            self._done.waiting[table] = commit.reason
        return all(record.status is not RecordStatus.UNKNOWN for record in records)

    def _ended(self, own: Sequence[KnownTask]) -> Sequence[KnownTask]:
        return self._await_tasks.of(task.task_id for task in own)

    def _note_no_room(self, nodes: dict[TableIdentifier, frozenset[TableNode]]) -> None:
        """The plan says it."""

    def _add(self, record: CompactionRecord) -> None:
        """Add a record and those of its tasks that are not known yet, and tell the listener. A known record changes nothing."""
        if any(record.record_id == told.record_id for told in self._done.records):
            return
        known = {task.task_id for task in self._done.tasks}
        self._done.tasks += [task for task in self._await_tasks.of(record.task_ids) if task.task_id not in known]
        self._done.records.append(record)
        self._how.listener.committed(record)

    def _add_settled(self, table: TableIdentifier, settled: Iterable[CompactionRecord]) -> None:
        """Add the settled records of this table whose commits turned out to have landed."""
        for record in settled:
            if record.table == table and record.status is RecordStatus.COMMITTED:
                self._add(record)

    def _give_up(self, reason: str) -> None:
        """Cancel those tasks that nobody has begun. No tick may ever come, and a person who interrupts wants the work to end."""
        try:
            self._await_tasks.give_up([task.task_id for task in self._done.tasks], reason)
        except CompactionError as failure:
            log.warning("the waiting tasks of an ended compaction were not canceled: %s", failure)

    def _tell_committed(self) -> None:
        """Tell the listener of commits that ended while an interrupt waited for them. Otherwise its run would count them as not done."""
        try:
            for record in self._commit_tables.known.records_of([task.task_id for task in self._done.tasks]):
                self._add(record)
        except CompactionError as failure:
            log.warning("the commits of an ended compaction were not looked up: %s", failure)
