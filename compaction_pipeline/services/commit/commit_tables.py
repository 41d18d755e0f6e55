"""Commits Prepared tasks of a table as one record, under the table's commit lease, and settles commits that were cut off.

These are the steps, in order. The process may be killed after any of them:

1. take the table's commit lease,
2. settle the earlier records of the table,
3. claim the tasks under a new record id,
4. write the record,
5. commit to the table,
6. note the commit on the table; an index that was read without it is outdated from then on (`KnownTable.whole`),
7. set the tasks to COMMITTED,
8. close the record.

To settle a record means to find out from the table how its commit ended, and to close the record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.commit.rewrite_decision import by_store
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.leases.holders import held_in_words
from compaction_pipeline.core.leases.names import commit_lease
from compaction_pipeline.core.leases.ports import HeldLeases, Renew
from compaction_pipeline.core.queue.known_task import KnownTask
from compaction_pipeline.core.queue.prepared_tasks import PreparedTasks
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.services.commit.carry_out_record import CarryOutRecord, Commit
from compaction_pipeline.services.commit.known_commits import KnownCommits
from compaction_pipeline.services.commit.open_record import OpenRecord
from compaction_pipeline.services.commit.settle_records import SettleRecords


class CommitTables:
    """Two verbs: commit one table, and settle commits that were cut off. `known` tells how earlier commits went."""

    def __init__(
        self,
        tasks: PreparedTasks[KnownTask],
        leases: HeldLeases,
        known: KnownCommits,
        open_record: OpenRecord,
        carry_out: CarryOutRecord,
        settle_records: SettleRecords,
        undisturbed: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`undisturbed` opens a block. An interrupt waits until the block ends, so that tasks and record are stored after a commit."""
        self._tasks = tasks
        self._leases = leases
        self.known = known
        self._open_record = open_record
        self._carry_out = carry_out
        self._settle_records = settle_records
        self._undisturbed = undisturbed

    def commit(
        self, table: TableIdentifier, task_ids: Sequence[TaskId] | None = None, run_id: str | None = None, *, at_once: bool = False
    ) -> Commit:
        """Commit the Prepared tasks of a table now, or only those of them that are in `task_ids`. `run_id` is the Dagster run that asks.

        With `at_once` somebody asked for this commit, due or not, and its record says so. Nothing is committed when the table's catalog is
        only observed. Its tasks may be older than that setting.
        """
        if self.known.is_observed(table):
            return Commit(None, f"catalog {table.catalog} is only observed, so nothing is committed to {table}")
        with self._lease(table) as renew:
            if renew is None:
                holder = self._leases.holder(commit_lease(table))
                return Commit(None, held_in_words(holder, f"committing {table}"), busy=True)
            settled, unsettled = self._settle_records.settle(table)
            if unsettled is not None:
                return Commit(None, unsettled, settled=settled)
            with self._undisturbed():
                return self._commit_all(table, task_ids, run_id, at_once, settled)

    def settle(self, at_once: TableIdentifier | None = None) -> Sequence[CompactionRecord]:
        """Settle the records whose process died, or whose answer got lost. Return those that are closed now.

        A table in the pause after a failed commit is skipped, except `at_once`, which a person asked for.
        """
        settled: list[CompactionRecord] = []
        for table in self._settle_records.cut_off(at_once):
            with self._lease(table) as renew:
                if renew is not None:
                    settled += self._settle_records.settle(table)[0]
        return settled

    def _commit_all(
        self,
        table: TableIdentifier,
        task_ids: Sequence[TaskId] | None,
        run_id: str | None,
        at_once: bool,
        settled: tuple[CompactionRecord, ...],
    ) -> Commit:
        """Commit the tasks, store by store. The records of all stores but the last one are told as settled."""
        for ids in by_store(self._tasks.tasks(table, (TaskStatus.PREPARED,)), task_ids):
            opened = self._open_record.open(table, ids, run_id, at_once)
            commit = self._carry_out.carry_out(*opened) if opened else Commit(None, f"nothing is prepared on {table}")
            if commit.record is None or commit.record.ended_at is None:
                return replace(commit, settled=settled)
            settled = (*settled, commit.record)
        return replace(commit, settled=settled[:-1])

    def _lease(self, table: TableIdentifier) -> AbstractContextManager[Renew | None]:
        """Hold the table's commit lease, and renew it beside the block. Yield how to renew it, or None when another process holds it."""
        return self._leases.hold(commit_lease(table))
