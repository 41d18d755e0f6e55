"""A worker: a pool of slots, each of which takes a task from a `TaskQueue`, merges it and reports it, again and again.

A slot takes the next task, of whatever table, as soon as it is free. What the caller does meanwhile (commits) holds no slot up.
The worker knows the queue and the merge engine only, so it runs wherever these two can be reached.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from queue import Empty, SimpleQueue

from compaction_pipeline.core.errors import CompactionError, StaleAttempt, StorageUnavailable
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.leases.ports import Clock, Heartbeat
from compaction_pipeline.core.queue.assignment import Assignment, EndedAttempt
from compaction_pipeline.core.queue.failures import why_ended
from compaction_pipeline.core.queue.ports import MergeEngine, TaskListener, TaskQueue
from compaction_pipeline.core.queue.task import CompactionTask, EndReason, MergeResult, TaskStatus

log = logging.getLogger(__name__)

IDLE_WAIT_SECONDS = 0.5
"""Between two looks of a free slot at an empty queue."""
_POLLED_AMONG = 1_000


@dataclass
class Drained:
    """What a drain did: ids of Prepared tasks, reasons of failed attempts by task id, and how many tasks it took."""

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


class _Nobody(TaskListener):
    """Nobody listens."""

    def task_ended(self, task: CompactionTask, status: TaskStatus) -> None:
        return


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a caller asks of a drain; `WorkOnQueue.drain` says what each part means."""

    owner: str
    queue: str | None
    task_ids: Sequence[TaskId] | None
    until: Callable[[], bool]
    linger: timedelta
    meanwhile: Callable[[], None]
    listener: TaskListener


class _Drain:
    """What the slots of one drain share: what is still wanted, and the ends of attempts on their way to the caller."""

    def __init__(self, asked: _Asked, slots: int) -> None:
        self.asked = asked
        self.done = Drained()
        self.ends: SimpleQueue[_Ended | BaseException] = SimpleQueue()
        self.closed = threading.Event()
        self._ids = None if asked.task_ids is None else dict.fromkeys(asked.task_ids)
        self._idle = [False] * slots
        self._idle_since: datetime | None = None

    def wanted(self) -> Iterator[Sequence[TaskId] | None]:
        """The tasks to poll among, a batch at a time: most polls find one in the first batch."""
        if self._ids is None:
            yield None
            return
        ids = list(self._ids)
        for start in range(0, len(ids), _POLLED_AMONG):
            yield ids[start : start + _POLLED_AMONG]

    def found(self, slot: int, something: bool) -> None:
        """A slot looked at the queue, and something waited there or not."""
        self._idle[slot] = not something

    def tell(self, ended: _Ended) -> None:
        """Account for an attempt's end, and tell it to whoever listens; in the caller's thread."""
        done, task_id = self.done, ended.task.task_id
        done.polled += 1
        if self._ids is not None and ended.status not in (TaskStatus.PENDING, None):
            self._ids.pop(task_id, None)
        if ended.reason is not None:
            done.failed[task_id] = ended.reason
        elif ended.status is not None:
            done.failed.pop(task_id, None)
            done.prepared.append(task_id)
        if ended.status is not None:
            self.asked.listener.task_ended(replace(ended.task, result=ended.result, status=ended.status), ended.status)

    @property
    def idle(self) -> bool:
        """Whether every slot looked, found nothing to merge, and told all that it did."""
        return all(self._idle) and self.ends.empty()

    def lingered(self, now: datetime, idle: bool) -> bool:
        """Whether the drain has been idle for as long as it should wait for more; to be asked again and again."""
        if not idle:
            self._idle_since = None
            return False
        self._idle_since = self._idle_since or now
        return now - self._idle_since >= self.asked.linger


class WorkOnQueue:
    """One verb: drain."""

    def __init__(
        self,
        queue: TaskQueue,
        engine: MergeEngine,
        clock: Clock,
        heartbeat: Heartbeat,
        task_slots: int,
        on_step: Callable[[str], None] = lambda step: None,
        sleep: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """`task_slots`: tasks merged at a time; one is merged in the caller's thread."""
        self._queue = queue
        self._engine = engine
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
        linger: timedelta = timedelta(0),
        meanwhile: Callable[[], None] = lambda: None,
        listener: TaskListener | None = None,
    ) -> Drained:
        """Merge waiting tasks of all tables, each slot taking the next one as soon as it is free.

        The drain ends when no task has waited for `linger`, or when `until()` is true; merges that have begun are finished first.
        `task_ids` limits it to these tasks; `queue` None takes from every queue. A task whose attempt failed and that has retries left
        is taken again by this same drain. `meanwhile` is called again and again in the caller's thread, beside the merges; `listener`
        is told there too.

        An engine that does not start raises its error and costs no task an attempt. After an error or an interrupt the attempts of
        this `owner` are given back at once, and it can take no further task.
        """
        asked = _Asked(owner, queue, task_ids, until, linger, meanwhile, listener or _Nobody())
        drain = _Drain(asked, self._task_slots)
        try:
            if self._task_slots == 1:
                self._work_alone(drain)
            else:
                self._work_in_slots(drain)
        except BaseException as error:
            drain.closed.set()
            end_reason = EndReason.FAILED if isinstance(error, Exception) else EndReason.INTERRUPTED
            self._queue.give_back(owner, end_reason, why_ended(error))
            raise
        return drain.done

    def _work_alone(self, drain: _Drain) -> None:
        asked = drain.asked
        while not asked.until():
            taken = self._take(drain, 0)
            if taken is not None:
                drain.tell(self._work(taken))
            asked.meanwhile()
            if drain.lingered(self._clock(), idle=taken is None):
                return
            if taken is None:
                self._sleep(IDLE_WAIT_SECONDS)

    def _work_in_slots(self, drain: _Drain) -> None:
        asked = drain.asked
        # Daemons: a process that is told to end does not wait for a merge, whose attempt is given back.
        slots = [
            threading.Thread(target=self._slot, args=(drain, number), name=f"slot-{number}", daemon=True)
            for number in range(self._task_slots)
        ]
        opened = False
        while not asked.until():
            if not opened and self._any_waits(drain):
                # In the caller's thread, which is the one that a person interrupts: a JVM that starts must not be cut off.
                self._engine.ready()
                opened = True
                for slot in slots:
                    slot.start()
            self._tell_next(drain)
            asked.meanwhile()
            if drain.lingered(self._clock(), idle=not opened or drain.idle):
                break
        drain.closed.set()
        while any(slot.is_alive() for slot in slots) or not drain.ends.empty():
            self._tell_next(drain)
            asked.meanwhile()

    def _tell_next(self, drain: _Drain) -> None:
        """Tell the ends that came, or the next one that comes within a moment."""
        try:
            ended = drain.ends.get(timeout=IDLE_WAIT_SECONDS)
            while True:
                if isinstance(ended, BaseException):
                    raise ended
                drain.tell(ended)
                ended = drain.ends.get_nowait()
        except Empty:
            return

    def _slot(self, drain: _Drain, number: int) -> None:
        """One slot: take, merge, report, until the drain is closed."""
        try:
            while not drain.closed.is_set():
                taken = self._take(drain, number)
                if taken is None:
                    drain.closed.wait(IDLE_WAIT_SECONDS)
                else:
                    drain.ends.put(self._work(taken))
        except BaseException as error:
            drain.ends.put(error)

    def _take(self, drain: _Drain, slot: int) -> Assignment | EndedAttempt | None:
        """The next task, polled for this drain; None when there is none now."""
        asked = drain.asked
        for ids in drain.wanted():
            if not self._queue.waits(asked.queue, ids):
                continue
            drain.found(slot, something=True)
            self._engine.ready()
            taken = None if drain.closed.is_set() else self._queue.poll(asked.owner, asked.queue, ids)
            if taken is not None:
                return taken
        drain.found(slot, something=False)
        return None

    def _any_waits(self, drain: _Drain) -> bool:
        """Whether there is anything to poll: an engine is not started for nothing."""
        return any(self._queue.waits(drain.asked.queue, ids) for ids in drain.wanted())

    def _work(self, taken: Assignment | EndedAttempt) -> _Ended:
        """Merge a task and report it, with a heartbeat of its own beside."""
        task = taken.task
        if isinstance(taken, EndedAttempt):
            return _failed(task, taken.result, taken.status)
        log.info(
            "table=%s task=%s attempt=%s starts (%s of %s)", task.table, task.task_id, task.attempt_id, task.attempt, task.max_attempts
        )
        self._on_step("claimed")
        with self._heartbeat(partial(self._queue.renew, [taken.attempt_id])):
            return self._reported(task, self._merged(taken))

    def _merged(self, assignment: Assignment) -> MergeResult:
        """The engine's answer; an error of the engine, or no answer, becomes a failure in words."""
        task = assignment.task
        reason = "the merge engine ended without an answer for this task"
        try:
            for result in self._engine.merge([task], assignment.layout, assignment.file_io):
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
            status = self._queue.complete(task, result)
        except StorageUnavailable as error:
            # The report may have landed with its answer lost: then these files are a Prepared task's. Its lease tells.
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
