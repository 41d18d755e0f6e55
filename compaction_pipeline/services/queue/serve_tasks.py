"""Serves waiting tasks to workers: this side of `TaskQueue` has the state database and the catalogs, a worker has neither.

A worker gets a task only after its table's files could be opened, so no lease runs while a slow catalog is asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from threading import Lock

from compaction_pipeline.core.commit.ports import Committer
from compaction_pipeline.core.errors import (
    AccessDenied,
    CompactionError,
    MergeRefused,
    NotFoundError,
    OutputUnusable,
    StaleAttempt,
    StateFull,
    StorageUnavailable,
)
from compaction_pipeline.core.ids import AttemptId, TaskId
from compaction_pipeline.core.insight.masking import masked_text
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.leases.timeouts import LEASE
from compaction_pipeline.core.queue.assignment import Assignment, EndedAttempt
from compaction_pipeline.core.queue.attempts import is_tried_again
from compaction_pipeline.core.queue.credentials import credentials_end, last_long_enough, says_ended, too_often
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier, TableLayout
from compaction_pipeline.core.words import printable
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.reported_paths import lie_elsewhere, own_files
from compaction_pipeline.core.work.result import MergeResult, UsedSoFar
from compaction_pipeline.services.queue.judge_reports import JudgeReports

log = logging.getLogger(__name__)

FILE_IO_AGE = timedelta(seconds=30)
"""FileIO properties are asked for anew after this time, because the credentials in them end."""


@dataclass(frozen=True, slots=True)
class _Access:
    """What opens the files of a table, or the `problem` that keeps them closed."""

    asked_at: datetime
    file_io: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None

    @property
    def ends_at(self) -> datetime | None:
        """When the credentials in `file_io` end."""
        return credentials_end(self.file_io)


@dataclass(frozen=True, slots=True)
class HandsOut:
    """How a queue hands out its tasks.

    A task whose attempt failed is handed out again after `retry_after`. `turns` returns the tables of a queue that have their turn first.
    `application` returns the id of this process's Spark application, which its own attempts keep.
    """

    retry_after: timedelta = timedelta(0)
    turns: Callable[[str | None], Sequence[TableIdentifier]] = lambda queue: ()
    application: Callable[[], str] = lambda: ""


class ServeTasks:
    """A `TaskQueue` over the state database. Several threads may use it at once."""

    def __init__(
        self,
        tables: TableReader,
        tasks: TaskStore,
        committer: Committer,
        note_denied: Callable[[TableIdentifier, str], bool],
        reports: JudgeReports,
        clock: Clock,
        hands_out: HandsOut,
    ) -> None:
        """`note_denied` shows on a table why its storage denied access to a merge. It returns False when it cannot show that now."""
        self._tables = tables
        self._tasks = tasks
        self._committer = committer
        self._note_denied = note_denied
        self._reports = reports
        self._clock = clock
        self._retry_after = hands_out.retry_after
        self._turns = hands_out.turns
        self._application = hands_out.application
        # The key has the owner too, so that a new worker asks again: the table may have been recreated, or its catalog registered again.
        self._known_access: dict[tuple[str, TableIdentifier], _Access] = {}
        self._gone: set[str] = set()
        # This lock is held while a task is claimed and while an owner leaves, so that an owner that left holds no attempt afterwards.
        self._claiming = Lock()

    def waits(self, queue: str | None, task_ids: Sequence[TaskId] | None = None) -> bool:
        return self._tasks.first_waiting(queue, task_ids) is not None

    def poll(self, owner: str, queue: str | None, task_ids: Sequence[TaskId] | None = None) -> Assignment | EndedAttempt | None:
        while (table := self._tasks.first_waiting(queue, task_ids, self._turns(queue))) is not None:
            access = {table: self._access(owner, table)}
            claimed = self._claimed(owner, lambda: self._claimed_one(owner, queue, task_ids))
            if not claimed:
                return None
            handed_out = self._handed_out(owner, claimed, access)
            if handed_out:
                return handed_out[0]
        return None

    def poll_many(self, owner: str, queue: str, most: int, token_id: str | None = None) -> Sequence[Assignment | EndedAttempt]:
        while tables := self._tasks.next_tables(queue, most, self._turns(queue)):
            access = {table: self._access(owner, table) for table in tables}
            claimed = self._claimed(owner, lambda: self._claimed_many(owner, queue, most, token_id))
            if not claimed:
                return ()
            handed_out = self._handed_out(owner, claimed, access)
            if handed_out:
                return handed_out
        return ()

    def _handed_out(
        self, owner: str, claimed: Sequence[CompactionTask], access: Mapping[TableIdentifier, _Access]
    ) -> Sequence[Assignment | EndedAttempt]:
        """Hand out claimed tasks. `access` opens the tables that came first before the claim. Raises StateFull."""
        handed_out = []
        for task in claimed:
            try:
                known = access.get(task.table)
                if known is None:
                    # Another task came first meanwhile. Its lease runs while its table is opened.
                    known = self._access(owner, task.table)
                    self._renew(task)
                handed_out.append(self._assigned(task, known))
            except StateFull:
                # Nothing else can be stored either, so the worker must end.
                raise
            except (StaleAttempt, StorageUnavailable) as error:
                # The table was forgotten, or it took longer than the lease to open it. If the state database did not answer, the lease
                # ends by itself. Other tasks wait, so neither ends the worker.
                log.warning("table=%s task=%s attempt=%s not handed out: %s", task.table, task.task_id, task.attempt_id, error)
        return handed_out

    def held(self, owner: str) -> Sequence[CompactionTask]:
        return tuple(task for task in self._tasks.tasks(statuses=(TaskStatus.EXECUTING,)) if task.owner == owner)

    def assigned(self, task: CompactionTask) -> Assignment | EndedAttempt:
        return self._assigned(task, self._access(task.owner or "", task.table))

    def renew(self, attempt_ids: Sequence[AttemptId], used: Mapping[AttemptId, UsedSoFar] | None = None) -> Sequence[AttemptId]:
        return self._tasks.renew(attempt_ids, self._clock(), LEASE, used)

    def judged(self, task: CompactionTask, result: MergeResult, *, wait: bool = True) -> MergeResult | None:
        layout = self._layout(task, result)
        if isinstance(layout, str):
            return result if result.error is not None else _unusable(result, layout)
        access = self._access(task.owner or "", task.table) if result.outputs else _Access(self._clock())
        if access.problem is not None and not self._may_own_outputs(result):
            return _unusable(result, access.problem)
        if access.problem is not None:
            raise StorageUnavailable(f"the files of table {task.table} could not be opened: {access.problem}; report again")
        try:
            return self._reports.judged(task, result, layout, access.file_io, wait=wait)
        except OutputUnusable as error:
            return _unusable(result, str(error))

    def _layout(self, task: CompactionTask, result: MergeResult) -> TableLayout | str:
        """The layout with which a report about this task is compared, or why there is none."""
        try:
            layout = self._tables.state(task.table).layout
        except NotFoundError:
            layout = None
        if layout is None:
            return _recreated(task)
        written = task.work.written_layout(layout)
        if task.schema_id not in written.schemas or task.work.output_spec_id not in written.specs:
            return f"table {task.table} lost the schema or the partition spec with which the task was planned"
        if lie_elsewhere(task.merge_input(layout), result):
            return f"its files do not lie in the data folder of table {task.table}, which may have changed meanwhile"
        return layout

    def sees(self, task: CompactionTask, end_reason: EndReason) -> bool:
        files = (*task.work.inputs, *task.work.deletes, *task.work.change_files)
        try:
            if end_reason is EndReason.FILE_GONE:
                return self._committer.look(task.table, [file.path for file in files]).absent
            if end_reason is EndReason.NO_ACCESS:
                self._committer.check_writable(task.table)
                return self._committer.look(task.table, [file.path for file in files]).denied
        except AccessDenied:
            return end_reason is EndReason.NO_ACCESS
        except CompactionError as error:
            log.warning("table=%s task=%s its files could not be looked at: %s", task.table, task.task_id, error)
        return False

    def complete(
        self, task: CompactionTask, result: MergeResult, claimed: EndReason | None = None, judged: MergeResult | None = None
    ) -> TaskStatus:
        reported, result = result, judged if judged is not None else self._judged_here(task, result)
        if result.error is not None:
            result = replace(result, error=printable(masked_text(result.error)))
            if reported.error is None:
                log.error("table=%s task=%s attempt=%s %s", task.table, task.task_id, task.attempt_id, result.error)
        if reported.end_reason in (EndReason.NO_ACCESS, EndReason.CREDENTIALS_ENDED):
            result = self._with_new_access(task, result)
        if result.end_reason is EndReason.CREDENTIALS_ENDED:
            earlier = (attempt.end_reason for attempt in self._tasks.attempts(result.task_id))
            result = too_often(result, sum(reason is EndReason.CREDENTIALS_ENDED for reason in earlier))
        try:
            status = self._tasks.complete(result, self._clock(), self._retry_after, claimed)
        except StaleAttempt:
            self._tasks.correct_cost(reported, self._clock())
            if not self._may_own_outputs(result):
                # The task went to another worker while this attempt ran, so no commit ever takes the files of this attempt.
                self._discard(task, reported)
            raise
        if result.end_reason is EndReason.NO_ACCESS and is_tried_again(replace(task, result=result, status=status)):
            return self._put_aside(task, result, status)
        return status

    def _judged_here(self, task: CompactionTask, result: MergeResult) -> MergeResult:
        """The result of an attempt, or a failure in place of one that cannot be true.

        This program merges by itself, or has no way to block a token here. So such a report uses up a retry, and never goes round for ever.
        Clean-up finds the files by the task's id in their names.
        """
        try:
            judged = self.judged(task, result)
            assert judged is not None, "it waited"
            return judged
        except MergeRefused as error:
            return _unusable(result, str(error))

    def give_back(self, owner: str, end_reason: EndReason, reason: str) -> None:
        with self._claiming:
            self._gone.add(owner)
        try:
            held = self.held(owner)
        except CompactionError as failure:
            log.warning("owner=%s its attempts were not given back, their leases end: %s", owner, failure)
            return
        for task in held:
            # If the worker's own report arrived first, it stands: `complete` then raises StaleAttempt here. Files that such an attempt
            # still writes belong to nobody.
            try:
                ended = MergeResult(task.task_id, task.current_attempt_id, end_reason=end_reason, error=reason)
                status = self._tasks.complete(ended, self._clock(), self._retry_after)
                log.info("table=%s task=%s attempt=%s %s, now %s", task.table, task.task_id, task.attempt_id, reason, status.value)
            except CompactionError as failure:
                log.warning("table=%s task=%s attempt=%s not given back: %s", task.table, task.task_id, task.attempt_id, failure)

    def _claimed(self, owner: str, claim: Callable[[], Sequence[CompactionTask]]) -> Sequence[CompactionTask]:
        with self._claiming:
            return () if owner in self._gone else claim()

    def _claimed_one(self, owner: str, queue: str | None, task_ids: Sequence[TaskId] | None) -> Sequence[CompactionTask]:
        task = self._tasks.poll(queue, owner, self._clock(), LEASE, task_ids, self._turns(queue), self._application())
        return () if task is None else (task,)

    def _claimed_many(self, owner: str, queue: str, most: int, token_id: str | None) -> Sequence[CompactionTask]:
        return self._tasks.poll_many(queue, owner, self._clock(), LEASE, most, self._turns(queue), token_id)

    def _renew(self, task: CompactionTask) -> None:
        if not self._tasks.renew([task.current_attempt_id], self._clock(), LEASE):
            raise StaleAttempt(f"attempt {task.attempt_id!r} lost task {task.task_id!r} while the files of its table were opened")

    def _assigned(self, task: CompactionTask, access: _Access) -> Assignment | EndedAttempt:
        """Hand a claimed task out; when its table cannot be opened, its attempt has failed. Raises StaleAttempt."""
        problem = access.problem
        try:
            layout = self._tables.state(task.table).layout
            if layout is None:
                problem = _recreated(task)
            elif problem is None:
                return Assignment(task, layout, access.file_io)
        except CompactionError as error:
            problem = str(error)
        result = MergeResult(task.task_id, task.current_attempt_id, error=problem)
        try:
            return EndedAttempt(task, result, self._tasks.complete(result, self._clock(), self._retry_after))
        except StateFull:
            raise
        except StorageUnavailable as error:
            log.warning("table=%s task=%s attempt=%s not reported: %s", task.table, task.task_id, task.attempt_id, error)
            return EndedAttempt(task, result, None)

    def _access(self, owner: str, table: TableIdentifier) -> _Access:
        now = self._clock()
        known = self._known_access.get((owner, table))
        if known is not None and now - known.asked_at < FILE_IO_AGE and last_long_enough(known.ends_at, known.asked_at, now):
            return known
        try:
            access = _Access(now, self._committer.file_io(table))
        except CompactionError as error:
            return _Access(now, problem=str(error))
        except Exception as error:
            log.exception("table=%s the FileIO properties of its files are not known", table)
            return _Access(now, problem=masked_text(f"{type(error).__name__}: {error}"))
        # The mapping is replaced, never changed, because several slots read it. Entries older than FILE_IO_AGE are left out.
        recent = {each: kept for each, kept in self._known_access.items() if now - kept.asked_at < FILE_IO_AGE}
        self._known_access = {**recent, (owner, table): access}
        return access

    def _with_new_access(self, task: CompactionTask, result: MergeResult) -> MergeResult:
        """Let the next attempts of the table ask for their credentials anew, because the store refused those of this one.

        When the store says that they had ended, and the catalog gives others now, the result says so.
        """
        owner = task.owner or ""
        known = self._known_access.get((owner, task.table))
        self._known_access = {each: kept for each, kept in self._known_access.items() if each[1] != task.table}
        if known is None or not says_ended(result):
            return result
        access = self._access(owner, task.table)
        if access.problem is not None or access.file_io == known.file_io:
            return result
        return replace(result, end_reason=EndReason.CREDENTIALS_ENDED)

    def _may_own_outputs(self, result: MergeResult) -> bool:
        """Return whether the task still belongs to this attempt. Then another report of it came first, and its files may be used."""
        try:
            return self._tasks.task(result.task_id).attempt_id == result.attempt_id
        except NotFoundError:
            return False

    def _put_aside(self, task: CompactionTask, result: MergeResult, status: TaskStatus) -> TaskStatus:
        """Cancel a task that waits to be tried again, because the store denied access to its files. Return the status that it has then.

        `status` is the status that it has now.

        More attempts gain nothing before somebody mends the right or the key. The table shows the reason, and is planned again when
        somebody has mended it. When the reason cannot be shown now, a cancel would let the table be planned again at once. So the task is
        not canceled and goes on waiting. The task is tried again until the reason is shown, or until its attempts are used up.
        """
        reason = result.error or "the storage denies access"
        try:
            canceled: Sequence[TaskId] = ()
            if self._note_denied(task.table, reason):
                canceled = self._tasks.cancel([result.task_id], EndReason.NO_ACCESS, reason, self._clock())
        except CompactionError as error:
            # A table that was forgotten meanwhile, or a state database that did not answer, ends no other table's work.
            log.warning("table=%s task=%s not put aside: %s", task.table, task.task_id, error)
            canceled = ()
        return TaskStatus.CANCELED if canceled else status

    def _discard(self, task: CompactionTask, result: MergeResult) -> None:
        # The task in the state database may be gone, so the table comes from the worker. A recreated table has another uuid.
        own = own_files(result)
        if not own:
            return
        try:
            self._committer.delete_orphans(task.table, task.table_uuid, own)
        except CompactionError as error:
            log.warning("table=%s task=%s attempt=%s leftovers stay for now: %s", task.table, task.task_id, result.attempt_id, error)


def _unusable(result: MergeResult, why: str) -> MergeResult:
    """The failure that an attempt becomes whose report is not used."""
    return MergeResult(result.task_id, result.attempt_id, error=f"the report of the merge is not used: {why}")


def _recreated(task: CompactionTask) -> str:
    return f"table {task.table} was recreated since the task was planned"
