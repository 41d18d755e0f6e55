"""A pool of slots, each looping poll → merge → report with a heartbeat of its own. An optimizer runs the same on another TaskStore.

A slot takes the next task, of whatever table, as soon as it is free; what the caller does meanwhile (commits) holds no slot up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from queue import Empty, SimpleQueue

from compaction_pipeline.core.commit.ports import Committer
from compaction_pipeline.core.errors import CompactionError, NotFoundError, StaleAttempt, StorageUnavailable
from compaction_pipeline.core.ids import AttemptId, TaskId
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock, Heartbeat
from compaction_pipeline.core.leases.timeouts import LEASE
from compaction_pipeline.core.queue.ports import MergeEngine, TaskStore
from compaction_pipeline.core.queue.task import CompactionTask, EndReason, MergeResult, TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier

log = logging.getLogger(__name__)

IDLE_WAIT_SECONDS = 0.5
"""Between two looks of a free slot at an empty queue."""
_POLLED_AMONG = 1_000
_FILE_IO_AGE = timedelta(seconds=30)
INTERRUPTED = "interrupted"
"""Reason of an attempt, or of a waiting task, whose process was told to end."""


@dataclass
class Dispatch:
    """What a drain did: ids of Prepared tasks, reasons of failed attempts by task id, tasks polled."""

    prepared: list[TaskId] = field(default_factory=list)
    failed: dict[TaskId, str] = field(default_factory=dict)
    polled: int = 0


@dataclass(frozen=True, slots=True)
class _Ended:
    """How an attempt ended. `status` is what its report made of the task, None when the report changed nothing."""

    task: CompactionTask
    result: MergeResult
    status: TaskStatus | None
    reason: str | None = None


class _Drain:
    """What the slots of one drain share: what is still wanted, who merges, and the ends of attempts on their way to the caller."""

    def __init__(self, owner: str, queue: str | None, task_ids: Sequence[TaskId] | None, most: int | None, slots: int) -> None:
        self.owner = owner
        self.queue = queue
        self.done = Dispatch()
        self.ends: SimpleQueue[_Ended | BaseException] = SimpleQueue()
        self.closed = threading.Event()
        # Held while a slot polls: once the drain is closed under it, no further attempt begins.
        self.polling = threading.Lock()
        self._ids = None if task_ids is None else dict.fromkeys(task_ids)
        self._most = most
        self._idle = [False] * slots
        self._file_io: dict[TableIdentifier, tuple[datetime, Mapping[str, str]]] = {}

    def wanted(self) -> Iterator[Sequence[TaskId] | None]:
        """The tasks to poll among, a batch at a time: most polls find one in the first."""
        if self._ids is None:
            yield None
            return
        ids = list(self._ids)
        for start in range(0, len(ids), _POLLED_AMONG):
            yield ids[start : start + _POLLED_AMONG]

    def may_poll(self) -> bool:
        return not self.closed.is_set() and self._most != 0

    def taken(self, slot: int) -> None:
        self._idle[slot] = False
        self.done.polled += 1
        if self._most is not None:
            self._most -= 1

    def found_nothing(self, slot: int) -> None:
        self._idle[slot] = True

    def told(self, ended: _Ended) -> None:
        """Account for an attempt's end; in the caller's thread."""
        done, task_id = self.done, ended.task.task_id
        if self._ids is not None and ended.status not in (TaskStatus.PENDING, None):
            self._ids.pop(task_id, None)
        if ended.reason is not None:
            done.failed[task_id] = ended.reason
        elif ended.status is not None:
            done.failed.pop(task_id, None)
            done.prepared.append(task_id)

    @property
    def idle(self) -> bool:
        """Whether every slot looked, found nothing to merge, and told all it did."""
        return all(self._idle) and self.ends.empty()

    def file_io(self, table: TableIdentifier, now: datetime, ask: Callable[[TableIdentifier], Mapping[str, str]]) -> Mapping[str, str]:
        """What opens the table's files, asked for anew after a while: credentials end."""
        known = self._file_io.get(table)
        if known is None or now - known[0] >= _FILE_IO_AGE:
            known = self._file_io[table] = (now, ask(table))
        return known[1]


class DispatchTasks:
    """One verb: drain."""

    def __init__(
        self,
        tables: TableReader,
        tasks: TaskStore,
        engine: MergeEngine,
        committer: Committer,
        note_denied: Callable[[TableIdentifier, str], None],
        clock: Clock,
        heartbeat: Heartbeat,
        task_slots: int,
        on_step: Callable[[str], None] = lambda step: None,
        sleep: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """`task_slots`: tasks merged at a time; one is merged in the caller's thread.

        `note_denied` shows on a table that its storage let a merge not in.
        """
        self._note_denied = note_denied
        self._tables = tables
        self._tasks = tasks
        self._engine = engine
        self._committer = committer
        self._clock = clock
        self._heartbeat = heartbeat
        self._task_slots = task_slots
        self._on_step = on_step
        self._sleep = sleep

    def drain(
        self,
        owner: str,
        *,
        queue: str | None = None,
        task_ids: Sequence[TaskId] | None = None,
        until: Callable[[], bool] = lambda: False,
        most: int | None = None,
        linger: timedelta = timedelta(0),
        meanwhile: Callable[[], None] = lambda: None,
        on_result: Callable[[CompactionTask, TaskStatus], None] = lambda task, status: None,
    ) -> Dispatch:
        """Merge Pending tasks of all tables, each slot taking the next as soon as it is free, until there was none for `linger`, or
        `until()`, or so many were taken (`most`).

        `task_ids` limits it to these; `queue` None takes from every queue. A task whose attempt failed and that has
        retries left is polled again by this same loop. An engine that does not start raises its error and costs no task an attempt.
        `meanwhile` is called again and again in the caller's thread, beside the merges; so is `on_result`.
        One drain at a time may have an `owner`: what it holds when it is interrupted is given back at once.
        """
        drain = _Drain(owner, queue, task_ids, most, self._task_slots)
        try:
            if self._task_slots == 1:
                self._work_alone(drain, until, linger, meanwhile, on_result)
            else:
                self._work_in_slots(drain, until, linger, meanwhile, on_result)
        except BaseException as error:
            drain.closed.set()
            with drain.polling:
                self._give_back(owner, error)
            raise
        return drain.done

    def _work_alone(
        self,
        drain: _Drain,
        until: Callable[[], bool],
        linger: timedelta,
        meanwhile: Callable[[], None],
        on_result: Callable[[CompactionTask, TaskStatus], None],
    ) -> None:
        idle_since: datetime | None = None
        while drain.may_poll() and not until():
            task = self._take(drain, 0)
            if task is not None:
                idle_since = None
                self._tell(drain, self._work(drain, task), on_result)
            meanwhile()
            if task is None:
                idle_since = idle_since or self._clock()
                if self._clock() - idle_since >= linger:
                    return
                self._sleep(IDLE_WAIT_SECONDS)

    def _work_in_slots(
        self,
        drain: _Drain,
        until: Callable[[], bool],
        linger: timedelta,
        meanwhile: Callable[[], None],
        on_result: Callable[[CompactionTask, TaskStatus], None],
    ) -> None:
        idle_since: datetime | None = None
        # Daemons: a process that is told to end does not wait for a merge, whose attempt is given back.
        slots = [
            threading.Thread(target=self._slot, args=(drain, number), name=f"slot-{number}", daemon=True)
            for number in range(self._task_slots)
        ]
        opened = False
        while drain.may_poll() and not until():
            if not opened and self._any_waits(drain):
                # In the caller's thread, which is the one that a person interrupts: a JVM that starts must not be cut off.
                self._engine.ready()
                opened = True
                for slot in slots:
                    slot.start()
            self._tell_next(drain, on_result)
            meanwhile()
            if opened and not drain.idle:
                idle_since = None
                continue
            idle_since = idle_since or self._clock()
            if self._clock() - idle_since >= linger:
                break
        drain.closed.set()
        while any(slot.is_alive() for slot in slots) or not drain.ends.empty():
            self._tell_next(drain, on_result)
            meanwhile()

    def _tell_next(self, drain: _Drain, on_result: Callable[[CompactionTask, TaskStatus], None]) -> None:
        """Tell the ends that came, or the next one that comes within a moment."""
        try:
            ended = drain.ends.get(timeout=IDLE_WAIT_SECONDS)
            while True:
                if isinstance(ended, BaseException):
                    raise ended
                self._tell(drain, ended, on_result)
                ended = drain.ends.get_nowait()
        except Empty:
            return

    def _tell(self, drain: _Drain, ended: _Ended, on_result: Callable[[CompactionTask, TaskStatus], None]) -> None:
        drain.told(ended)
        if ended.status is not None:
            on_result(replace(ended.task, result=ended.result, status=ended.status), ended.status)

    def _slot(self, drain: _Drain, number: int) -> None:
        """One slot: take, merge, report, until the drain is closed."""
        try:
            while drain.may_poll():
                task = self._take(drain, number)
                if task is None:
                    drain.found_nothing(number)
                    drain.closed.wait(IDLE_WAIT_SECONDS)
                else:
                    drain.ends.put(self._work(drain, task))
        except BaseException as error:
            drain.ends.put(error)

    def _take(self, drain: _Drain, slot: int) -> CompactionTask | None:
        """The next task, polled for this drain; None when there is none now."""
        for ids in drain.wanted():
            if not self._tasks.waits(drain.queue, ids):
                continue
            self._engine.ready()
            with drain.polling:
                if not drain.may_poll():
                    return None
                task = self._tasks.poll(drain.queue, drain.owner, self._clock(), LEASE, ids)
                if task is None:
                    continue
                drain.taken(slot)
            log.info(
                "table=%s task=%s attempt=%s starts (%s of %s)", task.table, task.task_id, task.attempt_id, task.attempt, task.max_attempts
            )
            return task
        return None

    def _any_waits(self, drain: _Drain) -> bool:
        """Whether there is anything to poll: an engine is not started for nothing."""
        return any(self._tasks.waits(drain.queue, ids) for ids in drain.wanted())

    def _work(self, drain: _Drain, task: CompactionTask) -> _Ended:
        """Merge a polled task and report it, with a heartbeat of its own beside."""
        self._on_step("claimed")
        with self._heartbeat(partial(self._renew, [task.current_attempt_id])):
            return self._reported(task, self._merged(drain, task))

    def _give_back(self, owner: str, error: BaseException) -> None:
        """End the attempts that this drain still holds: nobody works on them, and nobody should wait until their leases end.

        Files that such an attempt writes all the same are nobody's. What was reported already is refused as stale, and stays.
        """
        reason = why_ended(error)
        end_reason = EndReason.FAILED if isinstance(error, Exception) else EndReason.INTERRUPTED
        try:
            held = [task for task in self._tasks.tasks(statuses=(TaskStatus.EXECUTING,)) if task.owner == owner]
        except CompactionError as failure:
            log.warning("owner=%s its attempts were not given back, their leases end: %s", owner, failure)
            return
        for task in held:
            try:
                ended = MergeResult(task.task_id, task.current_attempt_id, end_reason=end_reason, error=reason)
                status = self._tasks.complete(ended, self._clock())
                log.info("table=%s task=%s attempt=%s %s, now %s", task.table, task.task_id, task.attempt_id, reason, status.value)
            except CompactionError as failure:
                log.warning("table=%s task=%s attempt=%s not given back: %s", task.table, task.task_id, task.attempt_id, failure)

    def _renew(self, attempt_ids: Sequence[AttemptId]) -> None:
        self._tasks.renew(attempt_ids, self._clock(), LEASE)

    def _merged(self, drain: _Drain, task: CompactionTask) -> MergeResult:
        """The engine's answer; none, or a table that cannot be opened, becomes a failure in words."""
        reason = "the merge engine ended without an answer for this task"
        try:
            layout = self._tables.state(task.table).layout
            if layout is None:
                raise StaleAttempt(f"table {task.table} was recreated since the task was planned")
            file_io = drain.file_io(task.table, self._clock(), self._committer.file_io)
            for result in self._engine.merge([task], layout, file_io):
                if result.task_id == task.task_id:
                    return result
        except CompactionError as error:
            reason = str(error)
        except Exception as error:
            log.exception("table=%s the merge engine failed", task.table)
            reason = f"{type(error).__name__}: {error}"
        return MergeResult(task.task_id, task.current_attempt_id, error=reason)

    def _reported(self, task: CompactionTask, result: MergeResult) -> _Ended:
        self._on_step("merged")
        try:
            status = self._tasks.complete(result, self._clock())
        except StorageUnavailable as error:
            # The report may have landed with its answer lost: then these files are a Prepared task's. Its lease tells.
            log.warning("table=%s task=%s attempt=%s not reported: %s", task.table, task.task_id, result.attempt_id, error)
            return _Ended(task, result, None, str(error))
        except (StaleAttempt, NotFoundError) as error:
            # The task went to somebody else while this attempt ran: its files are nobody's.
            log.warning("table=%s task=%s attempt=%s %s", task.table, task.task_id, result.attempt_id, error)
            self._discard(task, result)
            return _Ended(task, result, None)
        self._on_step("prepared")
        if result.end_reason is EndReason.NO_ACCESS and status is TaskStatus.PENDING:
            status = self._put_aside(task, result)
        if result.error is not None:
            log.warning(
                "table=%s task=%s attempt=%s failed, now %s: %s", task.table, task.task_id, result.attempt_id, status.value, result.error
            )
        return _Ended(task, result, status, result.error)

    def _put_aside(self, task: CompactionTask, result: MergeResult) -> TaskStatus:
        """Nothing is gained by more attempts before somebody mends the right or the key: the table waits, and is planned again then."""
        reason = result.error or "the store does not let us in"
        try:
            self._note_denied(task.table, reason)
            canceled = self._tasks.cancel([task.task_id], EndReason.NO_ACCESS, reason, self._clock())
        except CompactionError as error:
            # A table that was forgotten meanwhile, or a state database that did not answer, ends no other table's work.
            log.warning("table=%s task=%s not put aside: %s", task.table, task.task_id, error)
            canceled = ()
        return TaskStatus.CANCELED if canceled else TaskStatus.PENDING

    def _discard(self, task: CompactionTask, result: MergeResult) -> None:
        try:
            self._committer.delete_orphans(task.table, task.table_uuid, [output.path for output in result.outputs])
        except CompactionError as error:
            log.warning("table=%s attempt=%s leftovers stay for now: %s", task.table, result.attempt_id, error)


def why_ended(error: BaseException) -> str:
    """What ended a process's work, for what it leaves behind."""
    if isinstance(error, CompactionError):
        return str(error)
    return f"its process failed: {type(error).__name__}: {error}" if isinstance(error, Exception) else INTERRUPTED


def failures_in_words(failed: Mapping[TaskId, str], limit: int = 3) -> str:
    """The reasons of failed attempts as one sentence, for a run or a command that ends red."""
    shown = "; ".join(f"{task_id}: {reason}" for task_id, reason in list(failed.items())[:limit])
    more = len(failed) - limit
    return f"{len(failed)} task(s) failed: {shown}" + (f"; and {more} more" if more > 0 else "")
