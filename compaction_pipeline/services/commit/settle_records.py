"""Finds out from a table how commits ended that were cut off, and closes their records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from compaction_pipeline.core.commit.ports import CommitMaker, CommitOutcome, CommitState, RecordStore
from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.errors import (
    CompactionError,
    NotFoundError,
)
from compaction_pipeline.core.queue.known_task import KnownTask
from compaction_pipeline.core.queue.prepared_tasks import PreparedTasks
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.services.commit.carry_out_record import CarryOutRecord
from compaction_pipeline.services.commit.known_commits import KnownCommits


class SettleRecords:
    """One verb: settle. Its caller holds the table's commit lease."""

    def __init__(
        self,
        tasks: PreparedTasks[KnownTask],
        records: RecordStore,
        committer: CommitMaker,
        known: KnownCommits,
        carry_out: CarryOutRecord,
        undisturbed: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._tasks = tasks
        self._records = records
        self._committer = committer
        self._known = known
        self._carry_out = carry_out
        self._undisturbed = undisturbed

    def cut_off(self, at_once: TableIdentifier | None) -> Sequence[TableIdentifier]:
        """Return the tables with commits that were cut off. Those in the pause after a failed commit are left out, except `at_once`."""
        cut_off = {record.table: None for record in self._records.records(unsettled=True)}
        # A process that was killed before it wrote the record leaves only claimed tasks.
        cut_off.update((table, None) for table, prepared in self._tasks.prepared_work().items() if prepared.claimed)
        return [table for table in cut_off if table == at_once or not self._known.is_waiting(table)]

    def settle(self, table: TableIdentifier) -> tuple[tuple[CompactionRecord, ...], str | None]:
        """Settle the records of a table. Return those that are closed now, and the reason when one of them may still land.

        The reason is None when no record may still land.
        """
        self._recover_claims(table)
        ended: list[CompactionRecord] = []
        for record in self._records.records(table, unsettled=True):
            tasks = self._tasks.tasks(table, record_id=record.record_id)
            try:
                outcome = self._committer.settle(table, record.record_id, tasks)
            except NotFoundError as error:
                outcome = CommitOutcome(CommitState.NOTHING, conflicts={task.task_id: str(error) for task in tasks}, reason=str(error))
            except CompactionError as error:
                self._records.save(replace(record, status=RecordStatus.UNKNOWN, reason=str(error)))
                self._known.note_failure(table, str(error))
                return tuple(ended), f"record {record.record_id} cannot be settled yet: {error}"
            if outcome.state is CommitState.UNKNOWN and not tasks:
                # Its tasks were freed, or forgotten, while another table had the name. Without them nothing can shut it out, and nobody
                # would ever end the doubt. Only one of it and the next commit can land: both move main from the same snapshot.
                why = f"its tasks are not its own any more, and the next commit shuts it out; until then, it may land: {outcome.reason}"
                self._carry_out.closed(replace(record, status=RecordStatus.FAILED, reason=why))
            elif outcome.state is CommitState.UNKNOWN:
                # Commit the same record again. That finds the earlier try in the table, or shuts it out: only one of the two can land.
                unknown = replace(record, status=RecordStatus.UNKNOWN, reason=outcome.reason)
                self._records.save(unknown)
                with self._undisturbed():
                    again = self._carry_out.carry_out(unknown, tasks)
                if again.record is not None and again.record.status is RecordStatus.UNKNOWN:
                    return tuple(ended), f"record {record.record_id} of {table} may still land: {again.reason}"
            elif outcome.state is CommitState.NOTHING and not outcome.conflicts:
                # The commit is not in the table, and cannot land unless the table is rolled back to the snapshot on which it was built. So
                # its tasks may be committed under another record.
                self._tasks.unclaim(record.record_id)
                why = outcome.reason or "its process ended first"
                reason = f"cut off before the table was changed ({why}); what it would have committed goes into a later record"
                self._carry_out.closed(replace(record, status=RecordStatus.FAILED, reason=reason))
            else:
                self._carry_out.close(record, tasks, outcome)
            ended.append(self._records.record(record.record_id))
        return tuple(ended), None

    def _recover_claims(self, table: TableIdentifier) -> None:
        """Free the tasks of a process that was killed after it claimed them, before it wrote the record."""
        known = {record.record_id for record in self._records.records(table, unsettled=True)}
        for task in self._tasks.tasks(table, (TaskStatus.PREPARED,)):
            if task.record_id is None or task.record_id in known:
                continue
            # Either there is no record, and nothing was sent to the catalog. Or the record is closed, and its commit left this task out.
            self._tasks.unclaim(task.record_id)
