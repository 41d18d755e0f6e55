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

from compaction_pipeline.core.errors import IllegalTransition, StaleAttempt
from compaction_pipeline.core.queue.task import CompactionTask, EndReason, TaskStatus
from compaction_pipeline.storage.stores import Stores, open_stores
from compaction_pipeline_tests.behaviours.example_tasks import LEASE, example, failed, prepared
from compaction_pipeline_tests.builders import NOW, TABLE
from compaction_pipeline_tests.fakes import fake_stores

_GROUPS = ("", "", "g")
_MAX_ATTEMPTS = 2


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
        self.expected[task_id] = Expected(number, group)

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
        assert done == (before.status is TaskStatus.PENDING and free)
        if done:
            self.expected[task_id] = replace(before, status=TaskStatus.CANCELED)
            self.expected[newer.task_id] = Expected(number, "")

    @rule(lease=st.sampled_from((LEASE, LEASE / 2)))
    def poll(self, lease: timedelta) -> None:
        pending = [task_id for task_id, each in sorted(self.expected.items()) if each.status is TaskStatus.PENDING]
        task = self.stores.tasks.poll(None, "me", self.now, lease)
        assert (task.task_id if task else None) == (pending[0] if pending else None)
        if task is not None:
            before = self.expected[task.task_id]
            assert task.attempt == before.attempt + 1
            assert task.attempt_id not in {each.attempt_id for each in self.polled}
            self.polled.append(task)
            self.expected[task.task_id] = replace(
                before, status=TaskStatus.EXECUTING, attempt=task.attempt, held=task, expires=self.now + lease
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
    @rule(data=st.data(), works=st.booleans())
    def complete(self, data: st.DataObject, works: bool) -> None:
        task = data.draw(st.sampled_from(self.polled))
        before = self.expected[task.task_id]
        result = prepared(task) if works else failed(task)
        if not self._holds(task):
            again = works and before.held is task and self.stores.tasks.task(task.task_id).result == result
            if again:
                assert self.stores.tasks.complete(result, self.now) is before.status
            else:
                with pytest.raises(StaleAttempt):
                    self.stores.tasks.complete(result, self.now)
            return
        after = self._after_lost(before) if not works else replace(before, status=TaskStatus.PREPARED, expires=None)
        assert self.stores.tasks.complete(result, self.now) is after.status
        self.expected[task.task_id] = after

    @rule()
    def release_expired(self) -> None:
        late = [task_id for task_id, each in sorted(self.expected.items()) if each.expires is not None and each.expires <= self.now]
        assert list(self.stores.tasks.release_expired(self.now)) == late
        for task_id in late:
            self.expected[task_id] = self._after_lost(self.expected[task_id])

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        task_id = data.draw(st.sampled_from(sorted(self.expected)))
        before = self.expected[task_id]
        if before.status in (TaskStatus.EXECUTING, TaskStatus.PREPARED):
            self.stores.tasks.fail(task_id, EndReason.CONFLICT, "conflict", self.now)
            self.expected[task_id] = replace(before, status=TaskStatus.FAILED, expires=None)
        else:
            with pytest.raises(IllegalTransition):
                self.stores.tasks.fail(task_id, EndReason.CONFLICT, "conflict", self.now)

    @rule()
    def claim(self) -> None:
        under_way = (TaskStatus.PENDING, TaskStatus.EXECUTING)
        waiting = {each.group for each in self.expected.values() if each.status in under_way} - {""}
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
        found = {task.task_id: (task.status, task.attempt, task.lease_expires_at, task.record_id) for task in self.stores.tasks.tasks()}
        assert found == {task_id: (each.status, each.attempt, each.expires, each.record) for task_id, each in self.expected.items()}

    @invariant()
    def a_data_file_is_in_one_open_task(self) -> None:
        if not hasattr(self, "stores"):
            return
        statuses = (TaskStatus.PENDING, TaskStatus.EXECUTING, TaskStatus.PREPARED)
        paths = [file.path for task in self.stores.tasks.tasks(TABLE, statuses) for file in task.work.inputs]
        assert len(paths) == len(set(paths))

    def _holds(self, task: CompactionTask) -> bool:
        now = self.expected[task.task_id]
        return now.status is TaskStatus.EXECUTING and now.held is task

    def _after_lost(self, before: Expected) -> Expected:
        status = TaskStatus.PENDING if before.attempt < _MAX_ATTEMPTS else TaskStatus.FAILED
        return replace(before, status=status, held=None, expires=None)


class FakeMachine(TaskMachine):
    def fresh(self) -> Stores:
        return fake_stores()


class SqliteMachine(TaskMachine):
    _folder = tempfile.TemporaryDirectory()
    _names = count(1)

    def fresh(self) -> Stores:
        return open_stores(f"sqlite:///{Path(self._folder.name) / f'{next(self._names)}.db'}")


TestFakeTasks = FakeMachine.TestCase
TestFakeTasks.settings = settings(max_examples=20, stateful_step_count=40)
TestSqliteTasks = SqliteMachine.TestCase
TestSqliteTasks.settings = settings(max_examples=6, stateful_step_count=30)
