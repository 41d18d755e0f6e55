"""Compares groups, queues and their tasks with a plain model, under any order of plans, polls, ends, remaps and changes of groups.

Laws: a queue takes no more than its capacity except by moves, a task is held by one worker, nothing is in a group that does not exist,
waiting tasks follow their table and no others do, and each poll takes the task that is next by the order of its queue.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from compaction_pipeline.core.errors import NotFoundError, StaleAttempt
from compaction_pipeline.core.queue.group import CompactionQueue, QueueFull, QueueOrder, ResourceGroup
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState
from compaction_pipeline.core.queue.order import priority_order
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline_tests.behaviours.example_tasks import LEASE, example, failed, prepared
from compaction_pipeline_tests.builders import NOW
from compaction_pipeline_tests.state import sqlite_stores

NAMES = ("default", "heavy", "light")
TABLES = tuple(TableIdentifier("lake", ("shop",), name) for name in ("a", "b"))
names, tables = st.sampled_from(NAMES), st.sampled_from(TABLES)


class GroupMachine(RuleBasedStateMachine):
    """The state machine. A subclass makes the stores in `fresh`. `tasks` has every task as the model expects it."""

    stores: Stores

    def __init__(self) -> None:
        super().__init__()
        self.now: datetime = NOW
        self.groups = {"default": ResourceGroup("default")}
        self.tasks: dict[str, CompactionTask] = {}
        self.held: list[CompactionTask] = []
        self.optimizers: dict[str, str] = {}
        self.paused: set[TableIdentifier] = set()
        self.numbers = count(1)

    @initialize(orders=st.tuples(*(st.sampled_from(QueueOrder) for _ in NAMES)))
    def open(self, orders: tuple[QueueOrder, ...]) -> None:
        self.stores = self.fresh()
        for table in TABLES:
            self.stores.index.add(table)
        for name, order in zip(NAMES, orders, strict=True):
            self.add_or_change(name, 12, order)

    def fresh(self) -> Stores:
        raise NotImplementedError

    # ---- groups ----

    @rule(name=names, capacity=st.integers(1, 12), order=st.sampled_from(QueueOrder))
    def add_or_change(self, name: str, capacity: int, order: QueueOrder) -> None:
        group = ResourceGroup(name, queue=CompactionQueue(capacity, order))
        assert self.stores.groups.add(group) is (name not in self.groups)
        assert self.stores.groups.change(group)
        self.groups[name] = group

    @rule(name=names)
    def remove(self, name: str) -> None:
        held = self.stores.groups.remove(name)
        mine = [task for task in self.tasks.values() if task.queue == name and not task.is_final]
        assert held.open_tasks == (len(mine) if name in self.groups else 0)
        assert held.optimizers == tuple(sorted(each for each, group in self.optimizers.items() if group == name))
        if not held.are_any:
            self.groups.pop(name, None)

    @rule(name=names)
    def register(self, name: str) -> None:
        optimizer = Optimizer(f"o{next(self.numbers)}", name, "host", "1", "1.0", 1, self.now, self.now)
        if name not in self.groups:
            with pytest.raises(NotFoundError):
                self.stores.optimizers.add(optimizer)
            return
        self.stores.optimizers.add(optimizer)
        self.optimizers[optimizer.optimizer_id] = name

    @precondition(lambda self: self.optimizers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        optimizer = data.draw(st.sampled_from(sorted(self.optimizers)))
        assert self.stores.optimizers.move(optimizer, [OptimizerState.RUNNING], OptimizerState.ENDED, "bye")
        del self.optimizers[optimizer]

    # ---- tasks ----

    @rule(table=tables, name=names, number=st.integers(1, 4), by_person=st.booleans(), first=st.booleans(), priority=st.integers(0, 3))
    def plan(self, table: TableIdentifier, name: str, number: int, by_person: bool, first: bool, priority: int) -> None:
        made = [
            example(f"t{next(self.numbers):03}", table=table, queue=name, priority=priority, created_at=self.now, waiting_since=self.now)
            for _ in range(number)
        ]
        if name not in self.groups:
            with pytest.raises(NotFoundError):
                self.stores.tasks.insert(made, [], self.now)
            return
        # The plan was made when the queue was empty. The store counts again.
        room = self.groups[name].room(0, by_person=by_person, first=first)
        now = replace(room, taken=self._taken(name))
        if not now.admits(number):
            with pytest.raises(QueueFull):
                self.stores.tasks.insert(made, [], self.now, room)
            return
        assert self.stores.tasks.insert(made, [], self.now, room)
        assert number <= room.limit - now.taken or first
        self.tasks.update({str(task.task_id): task for task in made})

    @rule(data=st.data(), most=st.integers(1, 3))
    def poll(self, data: st.DataObject, most: int) -> None:
        # Mostly there is something to take. The other polls must find nothing.
        busy = sorted({task.queue for task in self.tasks.values() if self._has_turn(task)})
        name = data.draw(st.sampled_from([*busy, *busy, *busy, *NAMES]))
        turns = data.draw(st.lists(tables, unique=True)) if self._order(name) is QueueOrder.QUOTA else []
        waiting = [task for task in self.tasks.values() if task.queue == name and self._has_turn(task)]
        expected = sorted(waiting, key=lambda task: self._place(name, turns, task))[:most]
        assert set(self.stores.tasks.next_tables(name, most, turns)) == {task.table for task in expected}
        polled = self.stores.tasks.poll_many(name, "me", self.now, LEASE, most, turns) if most > 1 else self._polled(name, turns)
        assert [task.task_id for task in polled] == [task.task_id for task in expected]
        for task in polled:
            assert task.queue == name
            self.tasks[task.task_id] = replace(self.tasks[task.task_id], status=TaskStatus.EXECUTING, attempt_id=task.attempt_id)
            self.held.append(task)

    def _polled(self, name: str, turns: Sequence[TableIdentifier]) -> Sequence[CompactionTask]:
        task = self.stores.tasks.poll(name, "me", self.now, LEASE, None, turns)
        return [] if task is None else [task]

    @precondition(lambda self: self.held)
    @rule(data=st.data(), works=st.booleans(), later=st.booleans())
    def report(self, data: st.DataObject, works: bool, later: bool) -> None:
        task = data.draw(st.sampled_from(self.held))
        self.held.remove(task)
        result = prepared(task) if works else failed(task)
        expected = self.tasks[task.task_id]
        if expected.status is not TaskStatus.EXECUTING or expected.attempt_id != task.attempt_id:
            with pytest.raises(StaleAttempt):
                self.stores.tasks.complete(result, self.now)
            return
        status = self.stores.tasks.complete(result, self.now, timedelta(minutes=1) if later else timedelta(0))
        retry_at = self.stores.tasks.task(task.task_id).retry_at
        assert (status is TaskStatus.PREPARED) is works
        self.tasks[task.task_id] = replace(expected, status=status, retry_at=retry_at)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        self.now += LEASE
        lost = self.stores.tasks.release_expired(self.now)
        assert sorted(lost) == sorted(task_id for task_id, task in self.tasks.items() if task.status is TaskStatus.EXECUTING)
        for task_id in lost:
            found = self.stores.tasks.task(task_id)
            self.tasks[task_id] = replace(self.tasks[task_id], status=found.status, retry_at=found.retry_at)

    @rule()
    def retry(self) -> None:
        due = [task_id for task_id, task in self.tasks.items() if task.waits_for_retry]
        assert sorted(self.stores.tasks.retry(due)) == sorted(due)
        for task_id in due:
            self.tasks[task_id] = replace(self.tasks[task_id], status=TaskStatus.PENDING, retry_at=None)

    @rule(table=tables, paused=st.booleans())
    def pause(self, table: TableIdentifier, paused: bool) -> None:
        self.stores.switches.pause(table, paused)
        (self.paused.add if paused else self.paused.discard)(table)

    @rule(seconds=st.sampled_from((1, 30)))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(table=tables, name=names)
    def remap(self, table: TableIdentifier, name: str) -> None:
        moving = sorted(
            task_id
            for task_id, task in self.tasks.items()
            if task.table == table and task.queue != name and (task.status is TaskStatus.PENDING or task.waits_for_retry)
        )
        if moving and name not in self.groups:
            with pytest.raises(NotFoundError):
                self.stores.tasks.move_to_queue(table, name)
            return
        assert sorted(self.stores.tasks.move_to_queue(table, name)) == moving
        for task_id in moving:
            self.tasks[task_id] = replace(self.tasks[task_id], queue=name)

    # ---- laws ----

    @invariant()
    def the_store_says_what_the_model_says(self) -> None:
        if not hasattr(self, "stores"):
            return
        found = {task.task_id: (task.status, task.queue, task.retry_at) for task in self.stores.tasks.tasks()}
        assert found == {task_id: (task.status, task.queue, task.retry_at) for task_id, task in self.tasks.items()}
        assert {group.name: group for group in self.stores.groups.groups()} == self.groups
        for name in NAMES:
            assert self.stores.tasks.queue_taken(name) == self._taken(name)
            waiting = {task.table for task in self.tasks.values() if task.queue == name and self._has_turn(task)}
            assert set(self.stores.tasks.waiting_tables(name)) == waiting

    @invariant()
    def open_tasks_are_in_groups_that_exist(self) -> None:
        assert {task.queue for task in self.tasks.values() if not task.is_final} <= self.groups.keys()

    def _has_turn(self, task: CompactionTask) -> bool:
        return task.status is TaskStatus.PENDING and task.table not in self.paused

    def _taken(self, name: str) -> int:
        mine = [task for task in self.tasks.values() if task.queue == name]
        return sum(self._has_turn(task) or task.status is TaskStatus.EXECUTING or task.waits_for_retry for task in mine)

    def _order(self, name: str) -> QueueOrder:
        return self.groups[name].queue.order if name in self.groups else QueueOrder.PRIORITY

    def _place(self, name: str, turns: list[TableIdentifier], task: CompactionTask) -> tuple[object, ...]:
        since = task.waiting_since or task.created_at
        if self._order(name) is QueueOrder.FIFO:
            return (since, task.task_id)
        turn = turns.index(task.table) if task.table in turns else len(turns)
        return (turn, *priority_order(task.priority, task.work.small_files, since, task.task_id))


class SqliteMachine(GroupMachine):
    _folder = tempfile.TemporaryDirectory()
    _names = count(1)

    def fresh(self) -> Stores:
        return sqlite_stores(Path(self._folder.name), str(next(self._names)))


TestSqliteGroups = SqliteMachine.TestCase
TestSqliteGroups.settings = settings(max_examples=20, stateful_step_count=40)
