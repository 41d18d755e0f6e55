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

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from compaction_pipeline.core.commit.backoff import is_waiting, retry_at
from compaction_pipeline.core.commit.commit_interval import commit_due, may_come_early
from compaction_pipeline.core.commit.done_work import done_work
from compaction_pipeline.core.commit.late_requests import LATE_REQUEST, may_arrive
from compaction_pipeline.core.commit.ports import CommitOutcome, CommitsStore, CommitState, Committer, RecordStore
from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus, opened, timed, with_changes
from compaction_pipeline.core.commit.rewrite_decision import by_store
from compaction_pipeline.core.commit.table_commits import TableCommits
from compaction_pipeline.core.commit.waited import waited_for
from compaction_pipeline.core.errors import (
    CommitStateUnknown,
    CompactionError,
    ConfigError,
    NotFoundError,
    RacesLost,
    StorageUnavailable,
    TableRefused,
)
from compaction_pipeline.core.ids import RecordId, TaskId
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.holders import held_in_words
from compaction_pipeline.core.leases.ports import Clock, Heartbeat, LeaseStore
from compaction_pipeline.core.planning.budget import is_held_back
from compaction_pipeline.core.queue.open_work import PreparedWork
from compaction_pipeline.core.queue.ports import TaskStore
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.ports import CatalogStore, NodeKeyStore
from compaction_pipeline.core.tables.properties import TableProperties, properties_or_defaults
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.result import EndReason
from compaction_pipeline.services.held_lease import Renew, held_lease

log = logging.getLogger(__name__)

_NOT_COMMITTED = tuple(status for status in TaskStatus if status is not TaskStatus.COMMITTED)


@dataclass(frozen=True, slots=True)
class Commit:
    """How a call of `commit` ended.

    `record` is None when no commit was tried; a commit that was tried and failed has a record too. `reason` is a sentence about the end.
    `busy` is True when another process commits the table. `settled` are earlier records of the table that were closed on the way.
    """

    record: CompactionRecord | None
    reason: str
    busy: bool = False
    settled: tuple[CompactionRecord, ...] = ()


class CommitTables:
    """Three verbs: commit one table, find the tables that are due, and settle commits that were cut off."""

    def __init__(
        self,
        catalogs: CatalogStore,
        reader: TableReader,
        commits: CommitsStore,
        tasks: TaskStore,
        records: RecordStore,
        leases: LeaseStore,
        node_keys: NodeKeyStore,
        committer: Committer,
        clock: Clock,
        heartbeat: Heartbeat,
        new_id: Callable[[], str],
        new_owner: Callable[[], str],
        on_step: Callable[[str], None] = lambda step: None,
        undisturbed: Callable[[], AbstractContextManager[None]] = nullcontext,
        late: timedelta = LATE_REQUEST,
    ) -> None:
        """`undisturbed` opens a block. An interrupt waits until the block ends, so that tasks and record are stored after a commit.

        `late` is how long a request without an answer may still arrive. The files of such a request stay for that long.
        """
        self._late = late
        self._catalogs = catalogs
        self._reader = reader
        self._commits = commits
        self._tasks = tasks
        self._records = records
        self._leases = leases
        self._node_keys = node_keys
        self._committer = committer
        self._clock = clock
        self._heartbeat = heartbeat
        self._new_id = new_id
        self._new_owner = new_owner
        self._on_step = on_step
        self._undisturbed = undisturbed

    def due(self) -> Sequence[TableIdentifier]:
        """Return the tables whose Prepared tasks should be committed now; `core/commit/commit_interval.py` decides.

        Tables of a catalog that is only observed are never due.
        """
        waiting = sorted(self._tasks.prepared_work().items())
        return [table for table, prepared in waiting if not self._is_observed(table) and self._is_due(table, prepared)]

    def held_back(self) -> Mapping[TableIdentifier, str]:
        """Return the tables with Prepared tasks that are not due for a commit now, each with the reason."""
        due = set(self.due())
        waiting = sorted(self._tasks.prepared_work().items())
        return {table: self._why_held_back(table, prepared) for table, prepared in waiting if table not in due}

    def _why_held_back(self, table: TableIdentifier, prepared: PreparedWork) -> str:
        if self._is_observed(table):
            return f"catalog {table.catalog} is only observed"
        commits = self._commits_of(table)
        if is_waiting(commits.retry_at, self._clock()):
            return f"its last commit failed, and the next try is at {commits.retry_at:%H:%M:%S} UTC"
        if not prepared.tasks:
            return "a commit of them has begun, and is not settled yet"
        last = commits.last_committed_at
        until = f", which ends at {last + self._properties(table).commit_interval:%H:%M:%S} UTC" if last is not None else ""
        return f"they wait for 'self-optimizing.commit.interval'{until}"

    def _is_due(self, table: TableIdentifier, prepared: PreparedWork) -> bool:
        now, last = self._clock(), self._commits_of(table).last_committed_at
        if self._is_waiting(table, now):
            return False  # The last commit failed, and the pause after that failure is not over.
        interval = self._properties(table).commit_interval
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
        self, table: TableIdentifier, task_ids: Sequence[TaskId] | None = None, run_id: str | None = None, *, at_once: bool = False
    ) -> Commit:
        """Commit the Prepared tasks of a table now, or only those of them that are in `task_ids`. `run_id` is the Dagster run that asks.

        With `at_once` somebody asked for this commit, due or not, and its record says so. Nothing is committed when the table's catalog is
        only observed. Its tasks may be older than that setting.
        """
        if self._is_observed(table):
            return Commit(None, f"catalog {table.catalog} is only observed, so nothing is committed to {table}")
        with self._lease(table) as renew:
            if renew is None:
                holder = self._leases.holder(_lease_name(table), self._clock())
                return Commit(None, held_in_words(holder, f"committing {table}"), busy=True)
            settled, unsettled = self._settle_table(table)
            if unsettled is not None:
                return Commit(None, unsettled, settled=settled)
            with self._undisturbed():
                return self._commit_all(table, task_ids, run_id, at_once, settled)

    def unknown(self, table: TableIdentifier) -> CompactionRecord | None:
        """Return a record of the table whose commit may still land; None when there is none."""
        return next((record for record in self._records.records(table, unsettled=True) if record.status is RecordStatus.UNKNOWN), None)

    def records_of(self, task_ids: Sequence[TaskId]) -> Sequence[CompactionRecord]:
        """Return the closed records of these tasks, oldest first. Any process may have made them."""
        tasks = [self._tasks.task(task_id) for task_id in task_ids]
        records = [self._records.record(record_id) for record_id in dict.fromkeys(task.record_id for task in tasks if task.record_id)]
        return sorted((record for record in records if record.ended_at is not None), key=lambda record: record.created_at)

    def settle(self, at_once: TableIdentifier | None = None) -> Sequence[CompactionRecord]:
        """Settle the records whose process died, or whose answer got lost. Return those that are closed now.

        A table in the pause after a failed commit is skipped, except `at_once`, which a person asked for.
        """
        settled: list[CompactionRecord] = []
        now = self._clock()
        cut_off = {record.table: None for record in self._records.records(unsettled=True)}
        # A process that was killed before it wrote the record leaves only claimed tasks.
        cut_off.update((table, None) for table, prepared in self._tasks.prepared_work().items() if prepared.claimed)
        for table in cut_off:
            if table != at_once and self._is_waiting(table, now):
                continue
            with self._lease(table) as renew:
                if renew is not None:
                    settled += self._settle_table(table)[0]
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
            commit = self._commit(table, ids, run_id, at_once)
            if commit.record is None or commit.record.ended_at is None:
                return replace(commit, settled=settled)
            settled = (*settled, commit.record)
        return replace(commit, settled=settled[:-1])

    def _commit(self, table: TableIdentifier, task_ids: Sequence[TaskId] | None, run_id: str | None, at_once: bool) -> Commit:
        record_id = RecordId(self._new_id())
        tasks = self._tasks.claim(table, record_id, task_ids)
        self._on_step("claimed-for-commit")
        if not tasks:
            return Commit(None, f"nothing is prepared on {table}")
        now, commits = self._clock(), self._commits_of(table)
        keys = self._node_keys.keys(table, {task.work.node for task in tasks}).values()
        interval, before = self._properties(table).commit_interval, self._records.records(table, limit=1)
        merged_at = [task.prepared_at for task in tasks if task.prepared_at is not None]
        waited = waited_for(merged_at, now, commits, interval, before, at_once)
        record = replace(opened(record_id, table, tasks, keys, now), run_id=run_id, waited=waited)
        self._records.save(record)
        self._on_step("record-opened")
        return self._attempt(record, tasks)

    def _attempt(self, record: CompactionRecord, tasks: Sequence[CompactionTask]) -> Commit:
        try:
            outcome = self._committer.commit(record.table, record.record_id, tasks)
        except (NotFoundError, TableRefused) as error:
            # The table is gone, or it became one that is never compacted. Certainly nothing was committed.
            outcome = CommitOutcome(CommitState.NOTHING, conflicts={task.task_id: str(error) for task in tasks}, reason=str(error))
        except (StorageUnavailable, ConfigError) as error:
            # Nothing was committed. A catalog that cannot be opened any more raises ConfigError, and it was never asked.
            if not isinstance(error, RacesLost):
                self._note_failure(record.table, str(error))
            if record.status is RecordStatus.UNKNOWN:
                # This try committed nothing, but the earlier one may still land.
                return Commit(record, str(error))
            self._tasks.unclaim(record.record_id)
            return self._closed(replace(record, status=RecordStatus.FAILED, reason=str(error), answered=True))
        except CommitStateUnknown as error:
            outcome = CommitOutcome(CommitState.UNKNOWN, reason=str(error))
        except Exception as error:
            log.exception("table=%s record=%s the committer failed", record.table, record.record_id)
            outcome = CommitOutcome(CommitState.UNKNOWN, reason=f"{type(error).__name__}: {error}")
        if record.status is RecordStatus.UNKNOWN and outcome.state is CommitState.NOTHING:
            # This try changed nothing. Whether the earlier try landed is still open, and only the table can tell.
            return self._settled_after(record, tasks, outcome)
        return self._close(replace(record, answered=record.status is RecordStatus.OPEN and not outcome.unanswered), tasks, outcome)

    def _settled_after(self, record: CompactionRecord, tasks: Sequence[CompactionTask], outcome: CommitOutcome) -> Commit:
        try:
            earlier = self._committer.settle(record.table, record.record_id, tasks)
        except NotFoundError:
            return self._close(record, tasks, outcome)
        except CompactionError as error:
            return Commit(record, str(error))
        if earlier.state is CommitState.UNKNOWN:
            return Commit(record, f"{outcome.reason}; {earlier.reason}")
        return self._close(record, tasks, outcome if earlier.state is CommitState.NOTHING else earlier)

    def _close(self, record: CompactionRecord, tasks: Sequence[CompactionTask], outcome: CommitOutcome) -> Commit:
        now = self._clock()
        record = replace(
            timed(record, tasks, now),
            conflicts=dict(outcome.conflicts),
            snapshot_before=outcome.snapshot_before,
            snapshot_after=outcome.snapshot_after,
            figures=with_changes(outcome.figures, (task for task in tasks if task.task_id in set(outcome.committed))),
            attempts=outcome.attempts,
            reason=outcome.reason,
            failed=self._failed_beside(record.table, tasks),
        )
        if outcome.state is CommitState.UNKNOWN:
            record = replace(record, status=RecordStatus.UNKNOWN, answered=False)
            self._records.save(record)
            self._note_failure(record.table, record.reason or "the outcome of the commit is unknown")
            log.warning("table=%s record=%s outcome unknown: %s", record.table, record.record_id, outcome.reason)
            return Commit(record, record.reason or "the outcome of the commit is unknown; the next tick reads the table to find out")
        committed = [task for task in tasks if task.task_id in set(outcome.committed)]
        if outcome.state is CommitState.COMMITTED:
            self._on_step("committed-in-table")
            # First the index becomes outdated, then the files are freed. So a plan made in between is refused: either the files are still
            # in use, or the index is outdated.
            self._note_landed(record.table, now)
            # When a record is settled, some of its tasks may be COMMITTED already.
            self._tasks.commit([task.task_id for task in committed if task.status is TaskStatus.PREPARED], now)
            self._on_step("tasks-committed")
            self._commits.mark_done(record.table, self._done(record.table, committed), now)
        self._fail_conflicts(record, tasks, outcome, now)
        results = [task.result for task in committed if task.result is not None]
        record = replace(
            record,
            status=RecordStatus.COMMITTED if outcome.state is CommitState.COMMITTED else RecordStatus.FAILED,
            committed_task_ids=tuple(task.task_id for task in committed),
            rows=sum(result.rows_written for result in results),
            rows_deleted=sum(result.rows_deleted_by_position + result.rows_deleted_by_equality for result in results),
        )
        return self._closed(record)

    def _done(self, table: TableIdentifier, committed: Sequence[CompactionTask]) -> list[tuple[TableNode, CompactionType]]:
        is_full = any(task.work.type is CompactionType.FULL for task in committed)
        moved = any(task.work.merged_place is not None for task in committed)
        unfinished = self._tasks.tasks(table, _NOT_COMMITTED) if is_full else ()
        return done_work(committed, unfinished, [state.node for state in self._reader.nodes(table)] if moved else ())

    def _failed_beside(self, table: TableIdentifier, tasks: Sequence[CompactionTask]) -> dict[TaskId, str]:
        """Return why tasks of the same plans were never merged, by task id. The record shows them, so that nobody misses them."""
        plans = {task.plan_id for task in tasks}
        failed = [
            task
            for task in self._tasks.tasks(table, (TaskStatus.FAILED,))
            if task.plan_id in plans and task.is_final and task.record_id is None
        ]
        return {task.task_id: task.reason or "" for task in reversed(failed)}

    def _closed(self, record: CompactionRecord) -> Commit:
        record = replace(record, ended_at=self._clock())
        self._records.save(record)
        self._on_step("record-closed")
        log.info(
            "table=%s record=%s %s: %d of %d task(s), snapshot %s → %s",
            record.table,
            record.record_id,
            record.status.value,
            len(record.committed_task_ids),
            len(record.task_ids),
            record.snapshot_before,
            record.snapshot_after,
        )
        return Commit(record, record.reason or record.summary)

    def _fail_conflicts(self, record: CompactionRecord, tasks: Sequence[CompactionTask], outcome: CommitOutcome, now: datetime) -> None:
        by_id = {task.task_id: task for task in tasks}
        kept = self._files_kept(record, now) if outcome.conflicts else frozenset()
        for task_id, reason in outcome.conflicts.items():
            if self._tasks.task(task_id).status is TaskStatus.PREPARED:
                end_reason = EndReason.FAILED if task_id in outcome.unusable else EndReason.CONFLICT
                self._tasks.fail(task_id, end_reason, reason if task_id in outcome.unusable else f"conflict: {reason}", now)
            task = by_id[task_id]
            if task.result is None or task_id in kept:
                continue
            try:
                self._committer.delete_orphans(record.table, task.table_uuid, [output.path for output in task.result.outputs])
            except CompactionError as error:
                log.warning("table=%s task=%s its files stay for now: %s", record.table, task_id, error)

    def _files_kept(self, record: CompactionRecord, now: datetime) -> frozenset[TaskId]:
        """Return the tasks whose files a late request would need. Upkeep removes these files when no such request can come any more."""
        records = [record, *(other for other in self._records.records(record.table) if other.record_id != record.record_id)]
        return frozenset(task_id for one in records if may_arrive(one, now, self._late) for task_id in one.task_ids)

    def _settle_table(self, table: TableIdentifier) -> tuple[tuple[CompactionRecord, ...], str | None]:
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
                self._note_failure(table, str(error))
                return tuple(ended), f"record {record.record_id} cannot be settled yet: {error}"
            if outcome.state is CommitState.UNKNOWN:
                # Commit the same record again. That finds the earlier try in the table, or shuts it out: only one of the two can land.
                unknown = replace(record, status=RecordStatus.UNKNOWN, reason=outcome.reason)
                self._records.save(unknown)
                with self._undisturbed():
                    again = self._attempt(unknown, tasks)
                if again.record is not None and again.record.status is RecordStatus.UNKNOWN:
                    return tuple(ended), f"record {record.record_id} of {table} may still land: {again.reason}"
            elif outcome.state is CommitState.NOTHING and not outcome.conflicts:
                # The commit is not in the table, and cannot land unless the table is rolled back to the snapshot on which it was built. So
                # its tasks may be committed under another record.
                self._tasks.unclaim(record.record_id)
                why = outcome.reason or "its process ended first"
                reason = f"cut off before the table was changed ({why}); what it would have committed goes into a later record"
                self._closed(replace(record, status=RecordStatus.FAILED, reason=reason))
            else:
                self._close(record, tasks, outcome)
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

    def _note_failure(self, table: TableIdentifier, problem: str) -> None:
        """Store on the table why its commit failed. Ticks then leave the table alone for a while."""
        failures = self._commits_of(table).failures + 1
        try:
            self._commits.note_failure(table, problem, failures, retry_at(failures, self._clock()))
        except NotFoundError:
            log.warning("table=%s was forgotten while it was committed", table)

    def _is_waiting(self, table: TableIdentifier, now: datetime) -> bool:
        return is_waiting(self._commits_of(table).retry_at, now)

    def _commits_of(self, table: TableIdentifier) -> TableCommits:
        """Return how the commits of a table went. For a table that was forgotten, return an empty value."""
        try:
            return self._reader.state(table).commits
        except NotFoundError:
            return TableCommits()

    def _note_landed(self, table: TableIdentifier, now: datetime) -> None:
        try:
            self._commits.note_landed(table, now)
        except NotFoundError:
            log.warning("table=%s was forgotten while it was committed", table)

    def _is_observed(self, table: TableIdentifier) -> bool:
        return any(entry.observe for entry in self._catalogs.entries() if entry.name == table.catalog)

    def _properties(self, table: TableIdentifier) -> TableProperties:
        """Return the table's properties; the defaults when one breaks its rule, so that merged tasks are still committed."""
        try:
            layout = self._reader.state(table).layout
            return properties_or_defaults(layout.properties if layout is not None else {}, self._catalogs.entry(table.catalog).properties)
        except CompactionError:
            return TableProperties()

    def _lease(self, table: TableIdentifier) -> AbstractContextManager[Renew | None]:
        """Hold the table's commit lease, and renew it beside the block. Yield how to renew it, or None when another process holds it."""
        return held_lease(self._leases, self._clock, self._heartbeat, _lease_name(table), self._new_owner())


def _lease_name(table: TableIdentifier) -> str:
    return f"commit:{table}"
