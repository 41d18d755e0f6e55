"""The worker. It has slots. Each slot takes a task from a `TaskQueue`, merges it and reports the end, again and again.

A free slot takes the next task at once, of any table. The caller may commit meanwhile, and no slot waits for that. The worker knows only
the queue and the merge engine, so it runs wherever these two can be reached.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from queue import Empty, SimpleQueue

from compaction_pipeline.core.errors import CompactionError, MergeStuck, StaleAttempt, StateFull, StorageUnavailable
from compaction_pipeline.core.insight.masking import masked_text
from compaction_pipeline.core.leases.ports import Clock, Heartbeat
from compaction_pipeline.core.queue.assignment import Assignment, EndedAttempt
from compaction_pipeline.core.queue.attempts import attempt_text, is_tried_again
from compaction_pipeline.core.queue.credentials import because_credentials_ended
from compaction_pipeline.core.queue.drain import Drain, Drained, Lingering, Wanted
from compaction_pipeline.core.queue.failures import why_ended
from compaction_pipeline.core.queue.ports.work import TaskQueue
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.secrets.keys import secret_values
from compaction_pipeline.core.secrets.known import KnownSecrets
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.merge_engine import MergeEngine
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.services.queue.watch_attempt import WatchAttempt

log = logging.getLogger(__name__)

_TABLES = 16
"""So many tables keep the credentials of their files in mind, to hide them. They may be new with each task."""

ANYTHING = Drain()
"""Merge whatever waits, and end when nothing does."""
IDLE_WAIT_SECONDS = 0.5
"""A free slot waits this long before it looks at an empty queue again."""
_TOLD_AT_ONCE = 8
"""After this many events the caller looks whether something is to be committed, and whether the drain should end."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """How an attempt ended. `status` is the one that the task has after the report; it is None when the report changed nothing."""

    task: CompactionTask
    result: MergeResult
    status: TaskStatus | None
    reason: str | None = None

    @property
    def is_tried_again(self) -> bool:
        """Whether the task runs again: it waits for a worker now, or will do so in a while."""
        return self.status is not None and is_tried_again(replace(self.task, result=self.result, status=self.status))


@dataclass(frozen=True, slots=True)
class _Began:
    """A slot has begun to merge this task."""

    task: CompactionTask


class _Needed:
    """A slot waits for the engine to be started."""


class _Draining:
    """What the slots of one drain share: the tasks that are still wanted, and the events that the caller has not heard of yet."""

    def __init__(self, owner: str, asked: Drain, slots: int) -> None:
        self.owner = owner
        self.ends = asked.ends
        self.hears = asked.hears
        self.wanted = Wanted(asked.takes)
        self.done = Drained()
        self.events: SimpleQueue[_Began | _Ended | _Needed | BaseException] = SimpleQueue()
        self.closed, self.broken, self.engine_runs = threading.Event(), threading.Event(), threading.Event()
        self.caller = threading.get_ident()
        self.opened = self.has_no_engine = False
        self.lingering = Lingering(asked.ends)
        self.stuck: dict[int, str] = {}
        """A sentence for each slot whose merge cannot be stopped."""
        self._retry = asked.takes.retry
        self._idle = [False] * slots

    def found(self, slot: int, something: bool) -> None:
        """Note whether a slot found a waiting task when it looked at the queue."""
        self._idle[slot] = not something

    def tell(self, ended: _Ended) -> None:
        """Count an attempt that ended, and tell the listener. This runs in the caller's thread."""
        done, task_id = self.done, ended.task.task_id
        done.polled += 1
        waits_for_retry = ended.is_tried_again and ended.status is TaskStatus.FAILED
        if ended.status is not None and not ended.is_tried_again:
            self.wanted.ended(task_id)
        if waits_for_retry:
            done.failed.pop(task_id, None)
        elif ended.reason is not None:
            done.failed[task_id] = ended.reason
        elif ended.status is not None:
            done.failed.pop(task_id, None)
            done.prepared.append(task_id)
        if ended.status is not None:
            self.hears.listener.task_ended(replace(ended.task, result=ended.result, status=ended.status), ended.status)

    def retried(self, ended: _Ended) -> _Ended:
        """Put one of the drain's own tasks back into the queue at once when it failed and would wait for its retry.

        The caller of the drain waits for the end of these tasks.
        """
        if ended.status is not TaskStatus.FAILED or not ended.is_tried_again or not self.wanted.goes_first(ended.task.task_id):
            return ended
        return replace(ended, status=TaskStatus.PENDING) if self._retry(ended.task.task_id) else ended

    @property
    def idle(self) -> bool:
        """Whether every slot looked and found nothing to merge, and the caller has heard of every end."""
        return all(self._idle) and self.events.empty()


class WorkOnQueue:
    """One verb: drain."""

    def __init__(
        self,
        queue: TaskQueue,
        engine: MergeEngine,
        clock: Clock,
        heartbeat: Heartbeat,
        task_slots: int | None,
        on_step: Callable[[str], None] = lambda step: None,
        sleep: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """`task_slots` is how many tasks are merged at the same time, each in a thread of its own.

        None: one after the other in the caller's thread. Then a drain cannot end while a merge goes on.
        """
        self._queue = queue
        self._engine = engine
        self._clock = clock
        self._heartbeat = heartbeat
        self._task_slots = task_slots
        self._on_step = on_step
        self._sleep = sleep
        self._secrets = KnownSecrets(_TABLES)

    def drain(self, owner: str, asked: Drain = ANYTHING) -> Drained:
        """Merge waiting tasks of all tables, as `asked` says. Each slot takes the next task as soon as it is free.

        When the engine does not start, its error is raised, and no task loses an attempt. Raises StateFull when the state database has no
        room for the report of an attempt. Raises MergeStuck when an attempt lost its task and its merge cannot be stopped. The other
        merges are finished first. Then this process must end, because the slot is never free again. After an error or an interrupt, all
        attempts of this `owner` are given back at once, and the owner can take no further task.
        """
        drain = _Draining(owner, asked, self._task_slots or 1)
        try:
            if self._task_slots is None:
                self._work_alone(drain)
            else:
                self._work_in_slots(drain, self._task_slots)
        except BaseException as error:
            drain.closed.set()
            drain.broken.set()
            is_failure = isinstance(error, Exception) and not isinstance(error, MergeStuck) and not drain.has_no_engine
            end_reason = EndReason.FAILED if is_failure else EndReason.INTERRUPTED
            self._queue.give_back(owner, end_reason, why_ended(error))
            raise
        return drain.done

    def _work_alone(self, drain: _Draining) -> None:
        while not drain.ends.until():
            taken = self._take(drain, 0)
            if taken is not None:
                self._open_engine_for(drain, taken)
                drain.hears.listener.task_began(taken.task)
                drain.tell(drain.retried(self._work(taken, log.error)))
            drain.hears.meanwhile()
            if drain.lingering.is_over(self._clock(), idle=taken is None):
                return
            if taken is None:
                self._sleep(IDLE_WAIT_SECONDS)

    def _work_in_slots(self, drain: _Draining, task_slots: int) -> None:
        # The threads are daemons, so that a process that is told to end does not wait for a merge. The attempt is given back instead.
        slots = [
            threading.Thread(target=self._slot, args=(drain, number), name=f"slot-{number}", daemon=True) for number in range(task_slots)
        ]
        while not drain.ends.until() and not drain.stuck:
            if not drain.opened and self._any_waits(drain):
                self._open_engine(drain)
                drain.opened = True
                for slot in slots:
                    slot.start()
            self._tell_next(drain)
            drain.hears.meanwhile()
            if drain.lingering.is_over(self._clock(), idle=not drain.opened or drain.idle):
                break
        drain.closed.set()
        while any(slot.is_alive() and number not in drain.stuck for number, slot in enumerate(slots)) or not drain.events.empty():
            self._tell_next(drain)
            drain.hears.meanwhile()
        if drain.stuck:
            raise MergeStuck("; ".join(drain.stuck.values()))

    def _open_engine(self, drain: _Draining, task: MergeInput[Work] | None = None) -> None:
        """Make the engine ready if it must be, for this task or before a poll.

        It starts in the caller's thread. An interrupt arrives there, and must not cut off a JVM that starts.
        """
        if not self._engine.must_start(task):
            return
        if drain.engine_runs.is_set():
            self._engine.ready()
        elif threading.get_ident() == drain.caller:
            self._start_engine(drain)
        else:
            drain.events.put(_Needed())
            while not drain.engine_runs.wait(IDLE_WAIT_SECONDS):
                if drain.broken.is_set():
                    raise StorageUnavailable("the merge engine was not started, because its worker has ended")

    def _start_engine(self, drain: _Draining) -> None:
        """Start the engine, and tell the listener. Several slots may have asked for it."""
        if drain.engine_runs.is_set():
            return
        drain.hears.listener.engine_starts()
        try:
            self._engine.ready()
        except Exception:
            drain.has_no_engine = True
            raise
        drain.engine_runs.set()
        drain.hears.listener.engine_started()

    def _open_engine_for(self, drain: _Draining, taken: Assignment | EndedAttempt) -> None:
        """Make the engine ready for a task that was taken. Its lease is renewed meanwhile, because a start may take long."""
        if isinstance(taken, Assignment) and self._engine.must_start(taken.merge_input):
            with self._heartbeat(partial(self._queue.renew, [taken.task.current_attempt_id])):
                self._open_engine(drain, taken.merge_input)

    def _tell_next(self, drain: _Draining) -> None:
        """Tell a few of the events that have arrived. When there is none, wait a moment for the next one.

        They are few, because slots may end tasks faster than the listener hears of them. If all were told, the caller would never come to
        its commits, and the drain would never end for somebody who waits.
        """
        try:
            for number in range(_TOLD_AT_ONCE):
                event = drain.events.get_nowait() if number else drain.events.get(timeout=IDLE_WAIT_SECONDS)
                if isinstance(event, BaseException):
                    raise event
                if isinstance(event, _Needed):
                    self._start_engine(drain)
                elif isinstance(event, _Began):
                    drain.hears.listener.task_began(event.task)
                else:
                    drain.tell(event)
        except Empty:
            drain.hears.listener.waits()

    def _slot(self, drain: _Draining, number: int) -> None:
        """Do the work of one slot: take a task, merge it and report it, until the drain is closed."""
        try:
            while not drain.closed.is_set():
                taken = self._take(drain, number)
                if taken is None:
                    drain.closed.wait(IDLE_WAIT_SECONDS)
                else:
                    self._open_engine_for(drain, taken)
                    drain.events.put(_Began(taken.task))
                    drain.events.put(drain.retried(self._work(taken, partial(drain.stuck.__setitem__, number))))
        except BaseException as error:
            drain.events.put(error)

    def _take(self, drain: _Draining, slot: int) -> Assignment | EndedAttempt | None:
        """Poll the next task for this drain. Return None when there is none now."""
        for queue, ids in drain.wanted.polls():
            if not self._queue.waits(queue, ids):
                continue
            drain.found(slot, something=True)
            self._open_engine(drain)
            taken = None if drain.closed.is_set() else self._queue.poll(drain.owner, queue, ids)
            if taken is not None:
                drain.wanted.took(queue, ids)
                return taken
        drain.found(slot, something=False)
        return None

    def _any_waits(self, drain: _Draining) -> bool:
        """Return whether a task waits. The engine is started only when one does."""
        return any(self._queue.waits(queue, ids) for queue, ids in drain.wanted.polls())

    def _work(self, taken: Assignment | EndedAttempt, stuck: Callable[[str], None]) -> _Ended:
        """Merge a task and report it. A thread watches the attempt meanwhile, and calls `stuck` when the merge cannot be stopped."""
        task = taken.task
        if isinstance(taken, EndedAttempt):
            return _failed(task, taken.result, taken.status)
        log.info("table=%s task=%s attempt=%s starts: attempt %s", task.table, task.task_id, task.attempt_id, attempt_text(task))
        self._on_step("claimed")
        watch = WatchAttempt(task, self._queue, self._engine, self._clock, stuck)
        with self._heartbeat(watch.renew):
            result = because_credentials_ended(self._merged(taken), taken.credentials_end_at, self._clock())
            watch.merged()
            return self._reported(task, result)

    def _merged(self, assignment: Assignment) -> MergeResult:
        """Return the engine's result. An error of the engine, or a missing result, becomes a failed result with a reason."""
        task = assignment.task
        # Libraries that open the files may repeat what they were given.
        self._secrets.know(str(task.table), secret_values(assignment.file_io))
        reason = "the merge engine ended without an answer for this task"
        try:
            for result in self._engine.merge([assignment.merge_input], assignment.file_io):
                if result.task_id == task.task_id:
                    return result if result.error is None else replace(result, error=masked_text(result.error))
        except CompactionError as error:
            reason = str(error)
        except Exception as error:
            log.exception("table=%s the merge engine failed", task.table)
            reason = masked_text(f"{type(error).__name__}: {error}")
        return MergeResult(task.task_id, task.current_attempt_id, error=reason)

    def _reported(self, task: CompactionTask, result: MergeResult) -> _Ended:
        self._on_step("merged")
        try:
            status = self._queue.complete(task, result)
        except StateFull:
            # No attempt can be reported, and each new one would wait until its lease ends. So the drain ends.
            raise
        except StorageUnavailable as error:
            # The report may have arrived although its answer got lost. In that case a Prepared task owns these files. If not, the
            # attempt's lease will end.
            log.warning("table=%s task=%s attempt=%s not reported: %s", task.table, task.task_id, result.attempt_id, error)
            return _Ended(task, result, None, str(error))
        except StaleAttempt as error:
            log.warning("table=%s task=%s attempt=%s %s", task.table, task.task_id, result.attempt_id, error)
            return _Ended(task, result, None)
        self._on_step("prepared")
        return _Ended(task, result, status) if result.error is None else _failed(task, result, status)


def _failed(task: CompactionTask, result: MergeResult, status: TaskStatus | None) -> _Ended:
    now = "not reported" if status is None else f"now {status.value}"
    log.warning("table=%s task=%s attempt=%s failed, %s: %s", task.table, task.task_id, result.attempt_id, now, result.error)
    return _Ended(task, result, status, result.error)
