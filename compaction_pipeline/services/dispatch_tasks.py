"""The loop poll → merge → report, with a heartbeat beside it. An optimizer runs the same loop on another TaskStore."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby

from compaction_pipeline.core.errors import CompactionError, NotFoundError, StaleAttempt, StorageUnavailable
from compaction_pipeline.core.lifecycle.timeouts import LEASE
from compaction_pipeline.core.model.table import TableIdentifier
from compaction_pipeline.core.model.task import CompactionTask, MergeResult, TaskStatus
from compaction_pipeline.core.ports import Clock, Committer, Heartbeat, MergeEngine, TableStore, TaskStore

log = logging.getLogger(__name__)

INTERRUPTED = "interrupted"
"""Reason of an attempt, or of a waiting task, whose process was told to end."""


@dataclass
class Dispatch:
    """What a drain did: ids of Prepared tasks, reasons of failed attempts by task id, tasks polled."""

    prepared: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    polled: int = 0

    def add(self, other: Dispatch) -> None:
        """Take another drain's outcome in."""
        self.polled += other.polled
        for task_id in other.prepared:
            self.failed.pop(task_id, None)
        self.prepared += other.prepared
        self.failed.update(other.failed)


class DispatchTasks:
    """One verb: drain."""

    def __init__(
        self,
        tables: TableStore,
        tasks: TaskStore,
        engine: MergeEngine,
        committer: Committer,
        clock: Clock,
        heartbeat: Heartbeat,
        task_slots: int,
        on_step: Callable[[str], None] = lambda step: None,
    ) -> None:
        self._tables = tables
        self._tasks = tasks
        self._engine = engine
        self._committer = committer
        self._clock = clock
        self._heartbeat = heartbeat
        self._task_slots = task_slots
        self._on_step = on_step

    def drain(
        self,
        owner: str,
        *,
        queue: str | None = None,
        task_ids: Sequence[str] | None = None,
        until: Callable[[], bool] = lambda: False,
        rounds: int | None = None,
        on_result: Callable[[CompactionTask, TaskStatus], None] = lambda task, status: None,
    ) -> Dispatch:
        """Merge Pending tasks, a slot's worth at a time, until there is none, or `until()`, or after so many rounds.

        `task_ids` limits it to these; `queue` None takes from every queue. A task whose attempt failed and that has
        retries left is polled again by this same loop. An engine that does not start raises its error and costs no task an attempt.
        One drain at a time may have an `owner`: what it holds when it is interrupted is given back at once.
        """
        done = Dispatch()
        try:
            while not until() and rounds != 0:
                rounds = None if rounds is None else rounds - 1
                if not self._any_waits(queue, task_ids):
                    break
                self._engine.ready()
                polled = self._poll(owner, queue, task_ids)
                if not polled:
                    break
                done.polled += len(polled)
                self._on_step("claimed")
                attempts = [task.attempt_id or "" for task in polled]
                with self._heartbeat(partial(self._renew, attempts)):
                    for table, group in groupby(sorted(polled, key=lambda task: task.table), key=lambda task: task.table):
                        members = {task.task_id: task for task in group}
                        for result in self._merge(table, list(members.values())):
                            self._report(members[result.task_id], result, done, on_result)
        except BaseException as error:
            self._give_back(owner, error)
            raise
        return done

    def _any_waits(self, queue: str | None, task_ids: Sequence[str] | None) -> bool:
        """Whether there is anything to poll: an engine is not started for nothing."""
        if task_ids is not None:
            return any(self._tasks.task(task_id).status is TaskStatus.PENDING for task_id in task_ids)
        waiting = self._tasks.tasks(statuses=(TaskStatus.PENDING,), limit=1 if queue is None else None)
        return any(queue in (None, task.queue) for task in waiting)

    def _give_back(self, owner: str, error: BaseException) -> None:
        """End the attempts that this drain still holds: nobody works on them, and nobody should wait until their leases end.

        Files that such an attempt writes all the same are nobody's. What was reported already is refused as stale, and stays.
        """
        reason = why_ended(error)
        try:
            held = [task for task in self._tasks.tasks(statuses=(TaskStatus.EXECUTING,)) if task.owner == owner]
        except CompactionError as failure:
            log.warning("owner=%s its attempts were not given back, their leases end: %s", owner, failure)
            return
        for task in held:
            try:
                status = self._tasks.complete(MergeResult(task.task_id, task.attempt_id or "", error=reason), self._clock())
                log.info("table=%s task=%s attempt=%s %s, now %s", task.table, task.task_id, task.attempt_id, reason, status.value)
            except CompactionError as failure:
                log.warning("table=%s task=%s attempt=%s not given back: %s", task.table, task.task_id, task.attempt_id, failure)

    def _renew(self, attempt_ids: Sequence[str]) -> None:
        self._tasks.renew(attempt_ids, self._clock(), LEASE)

    def _poll(self, owner: str, queue: str | None, task_ids: Sequence[str] | None) -> list[CompactionTask]:
        polled: list[CompactionTask] = []
        while len(polled) < self._task_slots:
            task = self._tasks.poll(queue, owner, self._clock(), LEASE, task_ids)
            if task is None:
                break
            log.info(
                "table=%s task=%s attempt=%s starts (%s of %s)", task.table, task.task_id, task.attempt_id, task.attempt, task.max_attempts
            )
            polled.append(task)
        return polled

    def _merge(self, table: TableIdentifier, tasks: Sequence[CompactionTask]) -> Iterator[MergeResult]:
        """Results of all tasks: what the engine does not answer, or a table that cannot be opened, becomes a failure in words."""
        waiting = {task.task_id: task for task in tasks}
        reason = "the merge engine ended without an answer for this task"
        try:
            layout = self._tables.state(table).layout
            if layout is None:
                raise StaleAttempt(f"table {table} was recreated since the task was planned")
            for result in self._engine.merge(tasks, layout, self._committer.file_io(table)):
                if waiting.pop(result.task_id, None) is not None:
                    yield result
        except CompactionError as error:
            reason = str(error)
        except Exception as error:
            log.exception("table=%s the merge engine failed", table)
            reason = f"{type(error).__name__}: {error}"
        for task in waiting.values():
            yield MergeResult(task.task_id, task.attempt_id or "", error=reason)

    def _report(
        self,
        task: CompactionTask,
        result: MergeResult,
        done: Dispatch,
        on_result: Callable[[CompactionTask, TaskStatus], None],
    ) -> None:
        self._on_step("merged")
        try:
            status = self._tasks.complete(result, self._clock())
        except StorageUnavailable as error:
            # The report may have landed with its answer lost: then these files are a Prepared task's. Its lease tells.
            log.warning("table=%s task=%s attempt=%s not reported: %s", task.table, task.task_id, result.attempt_id, error)
            done.failed[task.task_id] = str(error)
            return
        except (StaleAttempt, NotFoundError) as error:
            # The task went to somebody else while this attempt ran: its files are nobody's.
            log.warning("table=%s task=%s attempt=%s %s", task.table, task.task_id, result.attempt_id, error)
            self._discard(task, result)
            return
        self._on_step("prepared")
        if result.error is not None:
            done.failed[task.task_id] = result.error
            log.warning(
                "table=%s task=%s attempt=%s failed, now %s: %s", task.table, task.task_id, result.attempt_id, status.value, result.error
            )
        else:
            done.failed.pop(task.task_id, None)
            done.prepared.append(task.task_id)
        on_result(replace(task, result=result, status=status), status)

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


def failures_in_words(failed: Mapping[str, str], limit: int = 3) -> str:
    """The reasons of failed attempts as one sentence, for a run or a command that ends red."""
    shown = "; ".join(f"{task_id}: {reason}" for task_id, reason in list(failed.items())[:limit])
    more = len(failed) - limit
    return f"{len(failed)} task(s) failed: {shown}" + (f"; and {more} more" if more > 0 else "")
