"""Serves optimizers on other hosts. They are known by their registration, and their reports are checked before they are believed."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from threading import Lock
from typing import NoReturn

from compaction_pipeline.core.access.ports import TokenStore
from compaction_pipeline.core.capacity.driver_gc import DriverGc
from compaction_pipeline.core.capacity.slot_time import SlotTotals
from compaction_pipeline.core.errors import ConfigError, MergeRefused, NotFoundError, StaleAttempt
from compaction_pipeline.core.ids import AttemptId
from compaction_pipeline.core.insight.masking import masked_text
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.leases.timeouts import expires_at
from compaction_pipeline.core.queue.application import application_id
from compaction_pipeline.core.queue.assignment import Assignment
from compaction_pipeline.core.queue.credentials import too_often
from compaction_pipeline.core.queue.group import group_name
from compaction_pipeline.core.queue.instances import LATE, is_late
from compaction_pipeline.core.queue.merge_version import MERGE_VERSION
from compaction_pipeline.core.queue.optimizer import (
    MOST_OF_ONE_TOKEN,
    NOT_ARRIVED,
    SILENCE,
    Optimizer,
    OptimizerState,
    Registration,
)
from compaction_pipeline.core.queue.ports.optimizers import OptimizerStore
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.queue.ports.work import ServedQueue
from compaction_pipeline.core.queue.reported_ends import (
    COUNTED_HOURS,
    MOST_REFUSED,
    NEED_A_WITNESS,
    REPORTED,
    interrupted_too_often,
    said_before,
    without_witness,
)
from compaction_pipeline.core.queue.task import CompactionTask, TaskAttempt, TaskStatus
from compaction_pipeline.core.words import duration_text, printable
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.result import MergeResult, UsedSoFar
from compaction_pipeline.services.queue.admit_optimizers import AdmitOptimizers

log = logging.getLogger(__name__)

_CANCELED = "a person canceled it"
_HEARD = tuple(state for state in OptimizerState if state.is_heard)


@dataclass(frozen=True, slots=True)
class Touched:
    """The answer to a heartbeat.

    `lost` are the attempts that no longer hold their task. With `drain`, the optimizer takes no more tasks; `why` says why. `log_level` and
    `stack_request` are what a person asks of it, as `Optimizer` says.
    """

    lost: tuple[AttemptId, ...]
    drain: bool
    why: str
    log_level: str = ""
    stack_request: str = ""


class OneAtATime:
    """A lock for each name, for as long as somebody uses it."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._locks: dict[str, Lock] = {}
        self._users: Counter[str] = Counter()

    @contextmanager
    def of(self, name: str, *, wait: bool = True) -> Iterator[bool]:
        """Hold the lock of this name until the block ends. Without `wait`, yield False at once when somebody else holds it."""
        with self._guard:
            lock = self._locks.setdefault(name, Lock())
            self._users[name] += 1
        held = False
        try:
            held = lock.acquire(blocking=wait)
            yield held
        finally:
            if held:
                lock.release()
            with self._guard:
                self._users[name] -= 1
                if not self._users[name]:
                    del self._users[name], self._locks[name]


class ServeOptimizers:
    """What an optimizer may ask: register, touch, poll, complete, leave. Several threads and processes may use it at once."""

    def __init__(
        self,
        optimizers: OptimizerStore,
        tokens: TokenStore,
        tasks: TaskStore,
        queue: ServedQueue,
        clock: Clock,
        new_id: Callable[[], str],
        admit: AdmitOptimizers,
    ) -> None:
        self._optimizers = optimizers
        self._tokens = tokens
        self._tasks = tasks
        self._queue = queue
        self._clock = clock
        self._new_id = new_id
        self._admit = admit
        self._polling, self._judging = OneAtATime(), OneAtATime()

    def register(self, registration: Registration) -> Optimizer:
        """Store a new optimizer. One that a container has started takes the place that waits for its resource id.

        Raises ConfigError when a value breaks its rule, or when it merges by other rules than this server, and NotFoundError when its group
        does not exist.
        """
        self._admit.check(registration)
        now = self._clock()
        optimizer = Optimizer(
            f"optimizer-{self._new_id()}",
            group_name(registration.group),
            printable(registration.host),
            printable(registration.process),
            printable(registration.version),
            registration.parallelism,
            now,
            now,
            memory_bytes=registration.memory_bytes,
            resource_id=printable(registration.resource_id),
            merge_version=registration.merge_version,
            cores=registration.cores,
        )
        optimizer = self._optimizers.register(optimizer)
        log.info("optimizer=%s group=%s host=%s registered", optimizer.optimizer_id, optimizer.group, optimizer.host)
        return optimizer

    def has_room(self, token_id: str) -> bool:
        """Return whether one more optimizer may register with this issued token."""
        live = {each.optimizer_id for each in self._optimizers.optimizers(live=True)}
        return len(live) < MOST_OF_ONE_TOKEN or len(live.intersection(self._tokens.optimizers_of(token_id))) < MOST_OF_ONE_TOKEN

    def touch(
        self,
        optimizer_id: str,
        running: Sequence[AttemptId],
        application: str = "",
        slots: SlotTotals | None = None,
        driver_gc: DriverGc | None = None,
        used: Mapping[AttemptId, UsedSoFar] | None = None,
    ) -> Touched:
        """Note that an optimizer is there, and renew the leases of the attempts that it names.

        `application` is the id of its Spark application, as it says; "" when it has started none. `slots` is how long its slots have been
        in use, as it says; None for an optimizer of an earlier release.
        `driver_gc` has the totals of its Spark driver; None when it tells none. `used` is what some of its attempts have used until now.

        An attempt that the optimizer holds, but does not name although it was claimed a while ago, is ended here. Either the answer to the
        poll was lost, or the optimizer no longer knows of the attempt. Raises NotFoundError, StorageUnavailable, and ConfigError when a
        person canceled it.
        """
        optimizer = self._optimizers.touch(optimizer_id, self._clock(), slots, driver_gc)
        if optimizer is None:
            raise self._absent(optimizer_id)
        application = application_id(application)
        if application and application != optimizer.application:
            self._optimizers.note_application(optimizer_id, application)
        optimizer = self._drained_when_outdated(optimizer)
        held = {task.current_attempt_id: task for task in self._queue.held(optimizer_id)}
        # Only what it holds is renewed, so what it tells of attempts of others is not heard.
        renewed = set(self._queue.renew([attempt for attempt in running if attempt in held], used))
        for attempt_id, task in held.items():
            if attempt_id not in running and task.started_at is not None and self._clock() - task.started_at >= NOT_ARRIVED:
                self._end(task, task.started_at)
        lost = tuple(attempt for attempt in running if attempt not in renewed)
        drains = optimizer.state is OptimizerState.DRAINING
        return Touched(lost, drains, optimizer.why, optimizer.log_level, optimizer.stack_request)

    def waits(self, group: str) -> bool:
        """Return whether a task of this group waits."""
        return self._queue.waits(group)

    def group_of(self, optimizer_id: str) -> str:
        """Return the group of a live optimizer. Raises NotFoundError."""
        return self._live(optimizer_id).group

    def poll(self, optimizer_id: str, poll_id: str, slots: int, token_id: str) -> Sequence[Assignment]:
        """Claim up to `slots` tasks of the optimizer's group. A repeated poll id gets the same answer.

        Nothing is claimed when `token_id`, the token of the poll, was revoked or blocked meanwhile. Raises NotFoundError, and ConfigError
        when a person canceled the optimizer.
        """
        # A client that was not answered in time repeats its poll while the first one may still run.
        with self._polling.of(optimizer_id):
            return self._poll(optimizer_id, poll_id, slots, token_id)

    def _poll(self, optimizer_id: str, poll_id: str, slots: int, token_id: str) -> Sequence[Assignment]:
        optimizer = self._live(optimizer_id)
        if optimizer.first_polled_at is None:
            self._optimizers.note_first_poll(optimizer_id, self._clock())
        if poll_id and poll_id == optimizer.poll_id:
            held = {task.current_attempt_id: task for task in self._queue.held(optimizer_id)}
            again = (self._queue.assigned(held[AttemptId(attempt)]) for attempt in optimizer.polled if attempt in held)
            return tuple(assignment for assignment in again if isinstance(assignment, Assignment))
        if self._drained_when_outdated(optimizer).state is not OptimizerState.RUNNING:
            return ()
        most = min(slots, optimizer.parallelism)
        taken: list[Assignment] = []
        claim = partial(self._queue.poll_many, optimizer_id, optimizer.group, token_id=token_id)
        while len(taken) < most and (polled := claim(most - len(taken))):
            taken += [each for each in polled if isinstance(each, Assignment)]
        if taken:
            self._optimizers.note_poll(optimizer_id, poll_id, [assignment.attempt_id for assignment in taken])
        return tuple(taken)

    def complete(self, optimizer_id: str, attempt_id: AttemptId, result: MergeResult) -> TaskStatus:
        """Take the report of an attempt, and return the status that its task has now.

        While it is EXECUTING, the report is looked at, or its rows are compared. The optimizer sends the report again until that has ended.
        A merge that is reported twice gets the same answer twice. Raises StaleAttempt when the attempt does not hold its task, or when it
        reported something else before: nothing is changed then. Raises ConfigError when an optimizer cannot report such an end. Raises
        MergeRefused when the report cannot be true: nothing of the attempt is used then, its task goes to another optimizer, and no file is
        deleted. Raises NotFoundError.
        """
        if result.end_reason not in REPORTED:
            known = ", ".join(sorted(reason.value for reason in REPORTED))
            raise ConfigError(f"'end_reason' is {result.end_reason.value} but an optimizer may report only {known}")
        task = self._tasks.task(result.task_id)
        attempts = self._tasks.attempts(result.task_id)
        attempt = next((each for each in attempts if each.attempt_id == attempt_id), None)
        if attempt is None or attempt.owner != optimizer_id or result.attempt_id != attempt_id:
            raise StaleAttempt(f"attempt {attempt_id!r} of task {result.task_id!r} does not belong to optimizer {optimizer_id!r}")
        if attempt.ended_at is not None:
            if task.attempt_id == attempt_id and task.result is not None and task.result.told() == result.told():
                return task.status
            self._tasks.correct_cost(result, self._clock())
            raise StaleAttempt(f"attempt {attempt_id!r} of task {result.task_id!r} has ended before; the report changes nothing")
        # Whoever waits too long for the answer reports again. To look at a thousand files once more would only delay it.
        with self._judging.of(attempt_id, wait=False) as is_first:
            return self._completed(optimizer_id, task, attempt, attempts, result) if is_first else TaskStatus.EXECUTING

    def _completed(
        self, optimizer_id: str, task: CompactionTask, attempt: TaskAttempt, attempts: Sequence[TaskAttempt], result: MergeResult
    ) -> TaskStatus:
        reported = result
        try:
            judged = self._queue.judged(task, result, wait=False)
        except MergeRefused as error:
            self._refuse(attempt, task, str(error), again=any(each.end_reason is EndReason.REPORT_REFUSED for each in attempts))
        if judged is None:
            return TaskStatus.EXECUTING
        result = judged if judged.error is None else replace(judged, error=masked_text(judged.error))
        if result.end_reason is EndReason.INTERRUPTED:
            result = interrupted_too_often(result, attempts, self._family(optimizer_id))
        counted = too_often(result, sum(each.end_reason is EndReason.CREDENTIALS_ENDED for each in attempts))
        if counted.end_reason in NEED_A_WITNESS and not self._has_witness(optimizer_id, task, counted.end_reason, attempts):
            return self._queue.complete(task, reported, counted.end_reason, without_witness(counted, optimizer_id))
        return self._queue.complete(task, reported, judged=counted)

    def _refuse(self, attempt: TaskAttempt, task: CompactionTask, problem: str, *, again: bool) -> NoReturn:
        """End an attempt whose report cannot be true. `again` says that an earlier report of the task was refused. Raises MergeRefused."""
        why = printable(f"the report of optimizer {attempt.owner} cannot be true: {problem}")
        end_reason = EndReason.FAILED if again else EndReason.REPORT_REFUSED
        self._queue.complete(task, MergeResult(task.task_id, attempt.attempt_id, end_reason=end_reason, error=why))
        log.error("table=%s task=%s attempt=%s %s", task.table, task.task_id, attempt.attempt_id, why)
        told = f"the report of attempt {attempt.attempt_id!r} is not accepted: {printable(problem)}; nothing of this attempt is used"
        if again:
            raise MergeRefused(f"{told}. An earlier report of this task was refused too, so the task has failed")
        self._distrust(attempt.owner)
        raise MergeRefused(f"{told}, and this optimizer gets no more tasks: install the version of the server on its host")

    def _has_witness(self, optimizer_id: str, task: CompactionTask, end_reason: EndReason, attempts: Sequence[TaskAttempt]) -> bool:
        """Return whether the storage, or an optimizer of another token, says the same of the task."""
        return said_before(end_reason, attempts, self._family(optimizer_id)) or self._queue.sees(task, end_reason)

    def _family(self, optimizer_id: str) -> frozenset[str]:
        """The optimizers that registered with the same token, this one included."""
        issuer = self._tokens.issuer_of(optimizer_id)
        return frozenset({optimizer_id, *(() if issuer is None else self._tokens.optimizers_of(issuer))})

    def _distrust(self, optimizer_id: str) -> None:
        """Give no more tasks to an optimizer whose report was refused, and block its token when that has happened too often."""
        why = "its report of a merge cannot be true: it may run another version, or somebody may have changed it"
        if self._optimizers.move(optimizer_id, (OptimizerState.RUNNING,), OptimizerState.DRAINING, why):
            log.warning("optimizer=%s drains: %s", optimizer_id, why)
        issuer = self._tokens.issuer_of(optimizer_id)
        if issuer is None:
            return
        family = self._tokens.optimizers_of(issuer)
        since = self._clock() - timedelta(hours=COUNTED_HOURS)
        token = self._tokens.token(issuer)
        if token is not None and token.allowed_at is not None:
            since = max(since, token.allowed_at)
        refused = sum(count for owner, count in self._tasks.refused_reports(since).items() if owner in family)
        if refused >= MOST_REFUSED and self._tokens.block(issuer, self._clock()):
            ended = self.end_all(family, f"its token {issuer} is blocked: {refused} reports within an hour cannot be true")
            log.error(
                "token=%s is blocked, %d optimizer(s) ended: %d reports within an hour cannot be true; "
                "`compaction-pipeline token allow %s` lets it register again",
                issuer,
                len(ended),
                refused,
                issuer,
            )

    def drain(self, optimizer_id: str) -> None:
        """Let an optimizer take no more tasks and end after those that it has. Raises NotFoundError when it is not live."""
        if not self._optimizers.move(optimizer_id, _HEARD, OptimizerState.DRAINING, "it was asked to end after its running tasks"):
            raise _gone(optimizer_id)

    def set_log_level(self, optimizer_id: str, level: str) -> None:
        """Let the log of an optimizer show messages of this level and worse ones, until it ends.

        Raises NotFoundError when it is not live.
        """
        if not self._optimizers.ask(optimizer_id, log_level=level):
            raise _gone(optimizer_id)

    def ask_for_stacks(self, optimizer_id: str) -> None:
        """Let an optimizer write the stacks of its threads into its log. Raises NotFoundError when it is not live."""
        if not self._optimizers.ask(optimizer_id, stack_request=self._new_id()):
            raise _gone(optimizer_id)

    def leave(self, optimizer_id: str, *, failed: bool = False, error: str = "") -> None:
        """End an optimizer. The tasks that it holds wait again. With `failed`, an error ended it, so its attempts count as failed.

        `error` says which error; passwords in its URLs are hidden.

        Raises NotFoundError when it is not live.
        """
        why = f"an error ended it{': ' * bool(error)}{printable(masked_text(error))}" if failed else "it was told to end"
        if not self._optimizers.move(optimizer_id, _HEARD, OptimizerState.ENDED, why, failed=failed):
            raise _gone(optimizer_id)
        log.log(logging.WARNING if failed else logging.INFO, "optimizer=%s ended: %s", optimizer_id, why)
        self._queue.give_back(optimizer_id, EndReason.FAILED if failed else EndReason.INTERRUPTED, f"optimizer {optimizer_id}: {why}")

    def end_all(self, optimizer_ids: Sequence[str], why: str) -> Sequence[str]:
        """End those of these optimizers that are live, because of their token, and return their ids. `why` is a sentence about it.

        Their tasks wait again.
        """
        ended = [each for each in optimizer_ids if self._optimizers.move(each, _HEARD, OptimizerState.ENDED, why)]
        for optimizer_id in ended:
            self._queue.give_back(optimizer_id, EndReason.INTERRUPTED, f"optimizer {optimizer_id}: {why}")
        return tuple(ended)

    def cancel(self, optimizer_id: str) -> None:
        """End an optimizer now, whether or not its process can be reached. Its tasks wait again at once. Raises NotFoundError.

        A process that still runs is told so at its next request, and ends.
        """
        if not self.end_all([optimizer_id], _CANCELED):
            raise _gone(optimizer_id)

    def lose_silent(self, ended_by: datetime, *, late_too: bool) -> Sequence[str]:
        """Mark as LOST the optimizers that were silent for a minute, and with `late_too` those that never registered. Return their ids.

        Their leases end by themselves. The minute ended at `ended_by` at the latest. `late_too` is for a time without servers: these ask
        the containers first, and without one nothing else would free the place.
        """
        why = f"it was silent for {duration_text(SILENCE)}"
        lost = dict.fromkeys(self._optimizers.lose_silent(ended_by - SILENCE, why), why)
        for each in self._optimizers.optimizers(live=True) if late_too else ():
            if is_late(each, self._clock()) and self._optimizers.move(
                each.optimizer_id, (OptimizerState.STARTING,), OptimizerState.LOST, LATE
            ):
                lost[each.optimizer_id] = LATE
        for optimizer_id, reason in lost.items():
            log.warning("optimizer=%s lost: %s", optimizer_id, reason)
        return tuple(lost)

    def forget(self, before: datetime) -> None:
        """Remove the optimizers that ended, or were lost, before this time."""
        self._optimizers.expire(before)

    def refused_reports(self) -> Mapping[str, int]:
        """Return how many reports of each optimizer were refused in the last hour. Optimizers without one are left out."""
        return self._tasks.refused_reports(self._clock() - timedelta(hours=COUNTED_HOURS))

    def optimizers(self, *, live: bool = False) -> Sequence[Optimizer]:
        """Return all optimizers that are remembered, or those that are live, the oldest first."""
        return self._optimizers.optimizers(live=live)

    def _live(self, optimizer_id: str) -> Optimizer:
        optimizer = self._optimizers.optimizer(optimizer_id)
        if optimizer is None or not optimizer.state.is_heard:
            raise self._absent(optimizer_id)
        return optimizer

    def _absent(self, optimizer_id: str) -> NotFoundError | ConfigError:
        """The error for an optimizer that is not live. One that a person canceled must not register again, so it gets another one."""
        optimizer = self._optimizers.optimizer(optimizer_id)
        if optimizer is not None and optimizer.why == _CANCELED:
            return ConfigError(f"a person canceled optimizer {optimizer_id!r}: its process must end, and may be started again")
        return _gone(optimizer_id)

    def _drained_when_outdated(self, optimizer: Optimizer) -> Optimizer:
        """Let an optimizer drain that merges by other rules than this server, which was upgraded after it had registered."""
        if optimizer.merge_version == MERGE_VERSION or optimizer.state is not OptimizerState.RUNNING:
            return optimizer
        why = (
            f"it merges by version {optimizer.merge_version} of the rules, but the server has version {MERGE_VERSION}: "
            f"install compaction-pipeline {self._admit.version} on its host"
        )
        if self._optimizers.move(optimizer.optimizer_id, (OptimizerState.RUNNING,), OptimizerState.DRAINING, why):
            log.warning("optimizer=%s drains: %s", optimizer.optimizer_id, why)
        return replace(optimizer, state=OptimizerState.DRAINING, why=why)

    def _end(self, task: CompactionTask, started_at: datetime) -> None:
        """End an attempt that its optimizer does not name.

        It counts as nothing when it never arrived, and as lost when the optimizer has named it before.
        """
        arrived = task.lease_expires_at is not None and task.lease_expires_at > expires_at(started_at)
        reason = "the optimizer does not name it any more" if arrived else "the answer to the poll did not reach the optimizer"
        end_reason = EndReason.LOST if arrived else EndReason.INTERRUPTED
        try:
            self._queue.complete(task, MergeResult(task.task_id, task.current_attempt_id, end_reason=end_reason, error=reason))
        except StaleAttempt:
            return
        log.warning("table=%s task=%s attempt=%s ended: %s", task.table, task.task_id, task.attempt_id, reason)


def _gone(optimizer_id: str) -> NotFoundError:
    return NotFoundError(
        f"optimizer {optimizer_id!r} does not run: it ended, was silent for too long, or has not registered yet; `optimizer "
        "list` shows those that run, and one that runs and was forgotten must register again"
    )
