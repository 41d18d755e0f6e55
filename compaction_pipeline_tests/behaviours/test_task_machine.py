"""Compares the task store with a plain model, under any order of polls, renewals, reports, lost attempts, claims and commits."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from compaction_pipeline.core.capacity.costs import CostKey
from compaction_pipeline.core.errors import IllegalTransition, StaleAttempt
from compaction_pipeline.core.queue.attempts import Tries, after_attempt
from compaction_pipeline.core.queue.order import priority_order
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline_tests.behaviours.example_tasks import LEASE, example, failed, prepared
from compaction_pipeline_tests.builders import NOW, TABLE
from compaction_pipeline_tests.state import sqlite_stores

_GROUPS = ("", "", "g")
_MAX_ATTEMPTS = 2
RETRY = timedelta(seconds=45)
TIMEOUT = timedelta(seconds=90)


@dataclass(frozen=True)
class Expected:
    """The model's view of one task."""

    number: int
    group: str
    status: TaskStatus = TaskStatus.PENDING
    attempt: int = 0
    held: CompactionTask | None = None
    expires: datetime | None = None
    record: str | None = None
    tries: Tries = Tries()
    began: datetime | None = None
    retry_at: datetime | None = None
    files: tuple[str, ...] = ()
    since: datetime = NOW

    @property
    def is_to_be_merged(self) -> bool:
        return self.status in (TaskStatus.PENDING, TaskStatus.EXECUTING) or self.retry_at is not None

    @property
    def waits(self) -> bool:
        return self.status is TaskStatus.PENDING or self.retry_at is not None


class TaskMachine(RuleBasedStateMachine):
    """The state machine. A subclass makes the stores in `fresh`.

    `polled` holds every attempt, also the lost ones, because a process that was thought dead may still report.
    """

    stores: Stores

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.expected: dict[str, Expected] = {}
        self.polled: list[CompactionTask] = []
        self.records: list[str] = []
        self.numbers = count(1)
        self.charged: dict[str, float] = {}

    @initialize()
    def open(self) -> None:
        self.stores = self.fresh()

    def fresh(self) -> Stores:
        raise NotImplementedError

    @rule(group=st.sampled_from(_GROUPS))
    def insert(self, group: str) -> None:
        number = next(self.numbers)
        task_id = f"t{number:03}"
        task = example(task_id, group=group, max_attempts=_MAX_ATTEMPTS, created_at=self.now)
        assert self.stores.tasks.insert([task], [], self.now)
        self.expected[task_id] = Expected(number, group, files=(f"{task_id}-a", f"{task_id}-b"), since=self.now)

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def replace_by_a_newer_plan(self, data: st.DataObject) -> None:
        task_id = data.draw(st.sampled_from(sorted(self.expected)))
        number = next(self.numbers)
        newer = example(f"t{number:03}", files=(f"{task_id}-a",), max_attempts=_MAX_ATTEMPTS, created_at=self.now)
        before = self.expected[task_id]
        in_use = self.stores.tasks.in_use(TABLE)
        free = f"{task_id}-a" not in in_use.paths and in_use.pending.get(f"{task_id}-a", task_id) == task_id
        done = self.stores.tasks.insert([newer], [task_id], self.now)
        mine = in_use.failed.get(f"{task_id}-a") == task_id
        assert done == (before.waits and (free or mine))
        if done:
            self.expected[task_id] = replace(before, status=TaskStatus.CANCELED, retry_at=None)
            # The newer task takes the place in line only of a task from which it takes a file.
            taken = f"{task_id}-a"
            since = before.since if taken in before.files else self.now
            self.expected[newer.task_id] = Expected(number, "", files=(taken,), since=since)

    @rule(lease=st.sampled_from((LEASE, LEASE / 2)))
    def poll(self, lease: timedelta) -> None:
        waiting = [(task_id, each) for task_id, each in self.expected.items() if each.status is TaskStatus.PENDING]
        # Each example has one delete file beside its data files, and all of them are small.
        pending = [
            task_id for task_id, each in sorted(waiting, key=lambda one: priority_order(0, len(one[1].files) + 1, one[1].since, one[0]))
        ]
        task = self.stores.tasks.poll(None, "me", self.now, lease)
        assert (task.task_id if task else None) == (pending[0] if pending else None)
        if task is not None:
            before = self.expected[task.task_id]
            assert task.attempt == before.attempt + 1
            assert task.attempt_id not in {each.attempt_id for each in self.polled}
            self.polled.append(task)
            self.expected[task.task_id] = replace(
                before, status=TaskStatus.EXECUTING, attempt=task.attempt, held=task, expires=self.now + lease, began=self.now
            )

    @rule(seconds=st.sampled_from((1, 30, 60)))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @precondition(lambda self: self.polled)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from(self.polled))
        held = self.stores.tasks.renew([str(task.attempt_id)], self.now, LEASE)
        assert held == ((task.attempt_id,) if self._holds(task) else ())
        if held:
            self.expected[task.task_id] = replace(self.expected[task.task_id], expires=self.now + LEASE)

    @precondition(lambda self: self.polled)
    @rule(
        data=st.data(),
        end=st.sampled_from((EndReason.MERGED, EndReason.FAILED, EndReason.INTERRUPTED)),
        retry_after=st.sampled_from((timedelta(0), RETRY)),
    )
    def complete(self, data: st.DataObject, end: EndReason, retry_after: timedelta) -> None:
        task = data.draw(st.sampled_from(self.polled))
        before = self.expected[task.task_id]
        works = end is EndReason.MERGED
        result = prepared(task) if works else replace(failed(task), end_reason=end)
        if not self._holds(task):
            again = works and before.held is task and self.stores.tasks.task(task.task_id).result == result
            if again:
                assert self.stores.tasks.complete(result, self.now, retry_after) is before.status
            else:
                with pytest.raises(StaleAttempt):
                    self.stores.tasks.complete(result, self.now, retry_after)
            return
        self._charge(before, self.now)
        after = self._after(before, end, retry_after)
        after = replace(after, held=before.held) if works else after
        assert self.stores.tasks.complete(result, self.now, retry_after) is after.status
        self.expected[task.task_id] = after

    @rule()
    def release_expired(self) -> None:
        late = [task_id for task_id, each in sorted(self.expected.items()) if each.expires is not None and each.expires <= self.now]
        assert list(self.stores.tasks.release_expired(self.now)) == late
        for task_id in late:
            expires = self.expected[task_id].expires
            assert expires is not None
            # Nobody heard of it after the last renewal of its lease.
            self._charge(self.expected[task_id], expires - LEASE)
            self.expected[task_id] = self._after(self.expected[task_id], EndReason.LOST, RETRY)

    @rule()
    def end_overdue(self) -> None:
        overdue = [
            task_id
            for task_id, each in sorted(self.expected.items())
            if each.status is TaskStatus.EXECUTING and each.began is not None and each.began <= self.now - TIMEOUT
        ]
        assert list(self.stores.tasks.end_overdue(self.now, TIMEOUT, RETRY)) == overdue
        for task_id in overdue:
            self._charge(self.expected[task_id], self.now)
            self.expected[task_id] = self._after(self.expected[task_id], EndReason.TIMED_OUT, RETRY)

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        asked = data.draw(st.lists(st.sampled_from(sorted(self.expected)), unique=True))
        waiting = [task_id for task_id in asked if self.expected[task_id].retry_at is not None]
        assert list(self.stores.tasks.retry(asked)) == waiting
        for task_id in waiting:
            self.expected[task_id] = replace(self.expected[task_id], status=TaskStatus.PENDING, retry_at=None)

    @precondition(lambda self: self.expected)
    @rule(data=st.data(), running=st.booleans())
    def cancel(self, data: st.DataObject, running: bool) -> None:
        task_id = data.draw(st.sampled_from(sorted(self.expected)))
        before = self.expected[task_id]
        may = before.waits or (running and before.status is TaskStatus.EXECUTING)
        assert bool(self.stores.tasks.cancel([task_id], EndReason.GIVEN_UP, "asked", self.now, running=running)) is may
        if may:
            if before.status is TaskStatus.EXECUTING:
                self._charge(before, self.now)
            self.expected[task_id] = replace(before, status=TaskStatus.CANCELED, retry_at=None, held=None, expires=None)

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        task_id = data.draw(st.sampled_from(sorted(self.expected)))
        before = self.expected[task_id]
        if before.status in (TaskStatus.EXECUTING, TaskStatus.PREPARED):
            self.stores.tasks.fail(task_id, EndReason.CONFLICT, "conflict", self.now)
            if before.status is TaskStatus.EXECUTING:
                self._charge(before, self.now)
            self.expected[task_id] = replace(before, status=TaskStatus.FAILED, expires=None)
        else:
            with pytest.raises(IllegalTransition):
                self.stores.tasks.fail(task_id, EndReason.CONFLICT, "conflict", self.now)

    @rule()
    def claim(self) -> None:
        waiting = {each.group for each in self.expected.values() if each.is_to_be_merged} - {""}
        free = [
            task_id
            for task_id, each in sorted(self.expected.items())
            if each.status is TaskStatus.PREPARED and each.record is None and each.group not in waiting
        ]
        record_id = f"r{next(self.numbers)}"
        assert [task.task_id for task in self.stores.tasks.claim(TABLE, record_id)] == free
        self.records.append(record_id)
        for task_id in free:
            self.expected[task_id] = replace(self.expected[task_id], record=record_id)

    @precondition(lambda self: self.records)
    @rule(data=st.data(), committed=st.booleans())
    def end_a_commit(self, data: st.DataObject, committed: bool) -> None:
        record_id = data.draw(st.sampled_from(self.records))
        held = [task_id for task_id, each in self.expected.items() if each.record == record_id and each.status is TaskStatus.PREPARED]
        if committed:
            self.stores.tasks.commit(held, self.now)
        else:
            self.stores.tasks.unclaim(record_id)
        for task_id in held:
            changes = {"status": TaskStatus.COMMITTED} if committed else {"record": None}
            self.expected[task_id] = replace(self.expected[task_id], **changes)  # type: ignore[arg-type]

    @invariant()
    def the_store_says_what_the_model_says(self) -> None:
        if not hasattr(self, "stores"):
            return
        found = {
            task.task_id: (task.status, task.attempt, task.lease_expires_at, task.record_id, task.retry_at, task.failures, task.losses)
            for task in self.stores.tasks.tasks()
        }
        assert found == {
            task_id: (each.status, each.attempt, each.expires, each.record, each.retry_at, each.tries.failures, each.tries.losses)
            for task_id, each in self.expected.items()
        }
        due = [task_id for task_id, each in self.expected.items() if each.retry_at is not None and each.retry_at <= self.now]
        assert {task.task_id for task in self.stores.tasks.waiting_for_retry(self.now, 1_000)} == set(due)

    @invariant()
    def a_data_file_is_in_one_open_task(self) -> None:
        if not hasattr(self, "stores"):
            return
        paths = [file.path for task in self.stores.tasks.tasks(TABLE) if not task.is_final for file in task.work.inputs]
        assert len(paths) == len(set(paths))

    @invariant()
    def every_attempt_that_ended_is_charged_once(self) -> None:
        if not hasattr(self, "stores"):
            return
        found = self.stores.costs.sums(CostKey.GROUP, NOW.date(), self.now.date())
        assert sum(each.attempts for each in found) == len(self.charged)
        assert sum(each.slot_seconds for each in found) == pytest.approx(sum(self.charged.values()))

    def _charge(self, before: Expected, ended: datetime) -> None:
        assert before.held is not None
        assert before.began is not None
        attempt_id = str(before.held.attempt_id)
        assert attempt_id not in self.charged
        self.charged[attempt_id] = max((ended - before.began).total_seconds(), 0.0)

    def _holds(self, task: CompactionTask) -> bool:
        now = self.expected[task.task_id]
        return now.status is TaskStatus.EXECUTING and now.held is task

    def _after(self, before: Expected, end: EndReason, retry_after: timedelta) -> Expected:
        after = after_attempt(before.tries, _MAX_ATTEMPTS, end, self.now, retry_after)
        return replace(before, status=after.status, held=None, expires=None, tries=after.tries, retry_at=after.retry_at)


class SqliteMachine(TaskMachine):
    _folder = tempfile.TemporaryDirectory()
    _names = count(1)

    def fresh(self) -> Stores:
        return sqlite_stores(Path(self._folder.name), str(next(self._names)))


TestSqliteTasks = SqliteMachine.TestCase
TestSqliteTasks.settings = settings(max_examples=20, stateful_step_count=40)
