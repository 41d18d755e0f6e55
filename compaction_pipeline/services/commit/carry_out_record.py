"""Commits the tasks of a record to its table, and records how that ended: the steps 5 to 8 of `commit_tables`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from compaction_pipeline.core.commit.late_requests import may_arrive
from compaction_pipeline.core.commit.ports import CommitMaker, CommitOutcome, CommitState, RecordStore
from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus, timed, with_changes
from compaction_pipeline.core.errors import (
    CommitStateUnknown,
    CompactionError,
    ConfigError,
    NotFoundError,
    RacesLost,
    StorageUnavailable,
    TableRefused,
)
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.insight.masking import masked_text
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.known_task import KnownTask
from compaction_pipeline.core.queue.prepared_tasks import PreparedTasks
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.services.commit.known_commits import KnownCommits

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Commit:
    """How a call of `CommitTables.commit` ended.

    `record` is None when no commit was tried; a commit that was tried and failed has a record too. `reason` is a sentence about the end.
    `busy` is True when another process commits the table. `settled` are earlier records of the table that were closed on the way.
    """

    record: CompactionRecord | None
    reason: str
    busy: bool = False
    settled: tuple[CompactionRecord, ...] = ()


class CarryOutRecord:
    """Three verbs: carry a record out, close it when it is known how its commit ended, and call it closed."""

    def __init__(
        self,
        tasks: PreparedTasks[KnownTask],
        records: RecordStore,
        committer: CommitMaker,
        known: KnownCommits,
        clock: Clock,
        on_step: Callable[[str], None],
        late: timedelta,
    ) -> None:
        """`late` is how long a request without an answer may still arrive. The files of such a request stay for that long."""
        self._tasks = tasks
        self._records = records
        self._committer = committer
        self._known = known
        self._clock = clock
        self._on_step = on_step
        self._late = late

    def carry_out(self, record: CompactionRecord, tasks: Sequence[KnownTask]) -> Commit:
        """Commit the tasks of a record to its table, also when an earlier try of the same record may still land."""
        try:
            outcome = self._committer.commit(record.table, record.record_id, tasks)
        except (NotFoundError, TableRefused) as error:
            # The table is gone, or it became one that is never compacted. Certainly nothing was committed.
            outcome = CommitOutcome(CommitState.NOTHING, conflicts={task.task_id: str(error) for task in tasks}, reason=str(error))
        except (StorageUnavailable, ConfigError) as error:
            # Nothing was committed. A catalog that cannot be opened any more raises ConfigError, and it was never asked.
            if not isinstance(error, RacesLost):
                self._known.note_failure(record.table, str(error))
            if record.status is RecordStatus.UNKNOWN:
                # This try committed nothing, but the earlier one may still land.
                return Commit(record, str(error))
            self._tasks.unclaim(record.record_id)
            return self.closed(replace(record, status=RecordStatus.FAILED, reason=str(error), answered=True))
        except CommitStateUnknown as error:
            outcome = CommitOutcome(CommitState.UNKNOWN, reason=str(error))
        except Exception as error:
            log.exception("table=%s record=%s the committer failed", record.table, record.record_id)
            outcome = CommitOutcome(CommitState.UNKNOWN, reason=masked_text(f"{type(error).__name__}: {error}"))
        if record.status is RecordStatus.UNKNOWN and outcome.state is CommitState.NOTHING:
            # This try changed nothing. Whether the earlier try landed is still open, and only the table can tell.
            return self._settled_after(record, tasks, outcome)
        return self.close(replace(record, answered=record.status is RecordStatus.OPEN and not outcome.unanswered), tasks, outcome)

    def _settled_after(self, record: CompactionRecord, tasks: Sequence[KnownTask], outcome: CommitOutcome) -> Commit:
        try:
            earlier = self._committer.settle(record.table, record.record_id, tasks)
        except NotFoundError:
            return self.close(record, tasks, outcome)
        except CompactionError as error:
            return Commit(record, str(error))
        if earlier.state is CommitState.UNKNOWN:
            return Commit(record, f"{outcome.reason}; {earlier.reason}")
        return self.close(record, tasks, outcome if earlier.state is CommitState.NOTHING else earlier)

    def close(self, record: CompactionRecord, tasks: Sequence[KnownTask], outcome: CommitOutcome) -> Commit:
        """Store how the commit of a record ended. The record stays open while the outcome is unknown."""
        now = self._clock()
        record = replace(
            timed(record, tasks, now),
            gb_hours=self._known.gb_hours(tasks),
            conflicts={task_id: masked_text(why) for task_id, why in outcome.conflicts.items()},
            snapshot_before=outcome.snapshot_before,
            snapshot_after=outcome.snapshot_after,
            figures=with_changes(outcome.figures, (task for task in tasks if task.task_id in set(outcome.committed))),
            attempts=outcome.attempts,
            reason=None if outcome.reason is None else masked_text(outcome.reason),
            failed=self._failed_beside(record.table, tasks),
        )
        if outcome.state is CommitState.UNKNOWN:
            record = replace(record, status=RecordStatus.UNKNOWN, answered=False)
            self._records.save(record)
            self._known.note_failure(record.table, record.reason or "the outcome of the commit is unknown")
            log.warning("table=%s record=%s outcome unknown: %s", record.table, record.record_id, outcome.reason)
            return Commit(record, record.reason or "the outcome of the commit is unknown; the next tick reads the table to find out")
        committed = [task for task in tasks if task.task_id in set(outcome.committed)]
        if outcome.state is CommitState.COMMITTED:
            self._on_step("committed-in-table")
            # First the index becomes outdated, then the files are freed. So a plan made in between is refused: either the files are still
            # in use, or the index is outdated.
            self._known.note_landed(record.table, now)
            # When a record is settled, some of its tasks may be COMMITTED already.
            self._tasks.commit([task.task_id for task in committed if task.status is TaskStatus.PREPARED], now)
            self._on_step("tasks-committed")
            self._known.note_done(record.table, committed, now)
        self._fail_conflicts(record, tasks, outcome, now)
        results = [task.result for task in committed if task.result is not None]
        record = replace(
            record,
            status=RecordStatus.COMMITTED if outcome.state is CommitState.COMMITTED else RecordStatus.FAILED,
            committed_task_ids=tuple(task.task_id for task in committed),
            rows=sum(result.rows_written for result in results),
            rows_deleted=sum(result.rows_deleted_by_position + result.rows_deleted_by_equality for result in results),
        )
        return self.closed(record)

    def _failed_beside(self, table: TableIdentifier, tasks: Sequence[KnownTask]) -> dict[TaskId, str]:
        """Return why tasks of the same plans were never merged, by task id. The record shows them, so that nobody misses them."""
        plans = {task.plan_id for task in tasks}
        failed = [
            task
            for task in self._tasks.tasks(table, (TaskStatus.FAILED,))
            if task.plan_id in plans and task.is_final and task.record_id is None
        ]
        return {task.task_id: task.reason or "" for task in reversed(failed)}

    def closed(self, record: CompactionRecord) -> Commit:
        """Store a record as ended now."""
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

    def _fail_conflicts(self, record: CompactionRecord, tasks: Sequence[KnownTask], outcome: CommitOutcome, now: datetime) -> None:
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
