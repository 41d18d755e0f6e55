"""The pool of slots merges several tables at the same time and commits beside the merges. The tests also cover how it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from threading import Condition, Event, Lock, current_thread, main_thread
from threading import enumerate as enumerate_threads
from typing import NoReturn

import pytest

from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.errors import StateFull, StorageUnavailable
from compaction_pipeline.core.ids import AttemptId, TaskId
from compaction_pipeline.core.insight.listener import CompactionListener
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.assignment import Assignment, EndedAttempt
from compaction_pipeline.core.queue.drain import Drain, Ends, Hears
from compaction_pipeline.core.queue.ports.work import TaskListener, TaskQueue
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult, UsedSoFar
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.merging.engine import InProcessMergeEngine
from compaction_pipeline.process import heartbeat
from compaction_pipeline.services.queue.work_on_queue import WorkOnQueue
from compaction_pipeline_tests.builders import LAYOUT
from compaction_pipeline_tests.defs.values import task
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.serving import serving
from compaction_pipeline_tests.through_json import QueueThroughJson

LONG = 60
"""The limit in seconds for an event that must happen. No test waits that long unless it fails."""


class Held:
    """An engine whose merges of one table wait for `let_go`. Merges of other tables do not wait."""

    def __init__(self, table: LakeTable | None = None, error: BaseException | None = None) -> None:
        self.begun, self.let_go = Event(), Event()
        self.threads: set[str] = set()
        self._table = table
        self._error = error
        self._one_at_a_time = Lock()

    def must_start(self, task: MergeInput[Work] | None) -> bool:
        return task is None

    def ready(self) -> None:
        self.threads.add(current_thread().name)

    def merge(self, tasks: Sequence[MergeInput[Work]], file_io: Mapping[str, str]) -> Iterator[MergeResult]:
        (task,) = tasks
        if self._table is not None and task.layout.location == self._table.table.location():
            self.begun.set()
            assert self.let_go.wait(LONG)
            if self._error is not None:
                raise self._error
        with self._one_at_a_time:
            yield from InProcessMergeEngine().merge(tasks, file_io)

    def used_so_far(self, attempt_id: AttemptId) -> None: ...

    def close(self) -> None: ...


def planned(house: House, engine: Held, *tables: LakeTable) -> None:
    house.services.engine_override = engine
    house.services.work_on_queue._task_slots = 2
    for table in tables:
        assert house.services.one_table.plan_nodes(table.identifier, PlanRequest()).tasks


def test_tables_are_merged_and_committed_while_another_table_is_merged(house: House) -> None:
    slow, quick, third = (house.fragmented(name, files=12) for name in ("slow", "quick", "third"))
    engine = Held(slow)
    planned(house, engine, slow, quick, third)
    committed: list[str] = []

    class LetGoAfterTwo(CompactionListener):
        def committed(self, record: CompactionRecord) -> None:
            committed.append(str(record.table))
            assert current_thread() is main_thread()
            if len(committed) == 2:
                engine.let_go.set()

    # The clock moves on while the drain waits, because the drain looks for due tables every other second.
    house.services.work_on_queue._on_step = lambda step: house.pass_time(3) if step == "prepared" else None
    done = house.services.compact_tables.carry_out(
        {}, serving(until=lambda: house.pass_time(1) or False, linger=timedelta(0), listener=LetGoAfterTwo())
    ).drained  # type: ignore[func-returns-value]
    # The two quick merges run at the same time, so either may end first.
    assert sorted(committed[:2]) == ["lake.db.quick", "lake.db.third"]
    assert committed[2:] == ["lake.db.slow"]
    assert (done.polled, len(done.prepared), done.failed) == (3, 3, {})
    for table in (slow, quick, third):
        assert table.live_ids() == list(range(12))
        assert len(table.files()) == 1


@pytest.mark.parametrize("slots", [None, 2])
def test_a_worker_needs_only_values_that_cross_a_wire(house: House, slots: int | None) -> None:
    first, second = house.fragmented("first", files=12), house.fragmented("second", files=12)
    first.delete_ids(3, 4)
    planned(house, Held(), first, second)
    services = house.services
    queue = QueueThroughJson(services.serve_tasks)
    heard: list[tuple[str | None, TaskStatus]] = []

    class Listener(TaskListener):
        def task_ended(self, task: CompactionTask, status: TaskStatus) -> None:
            assert current_thread() is main_thread()
            assert task.result is not None
            heard.append((task.result.error, status))

    done = WorkOnQueue(queue, Held(), services.clock, heartbeat, slots).drain("elsewhere", Drain(hears=Hears(Listener())))
    assert (done.polled, len(done.prepared), done.failed) == (2, 2, {})
    assert heard == [(None, TaskStatus.PREPARED)] * 2
    assert {record.status for record in services.commit_due.commit()} == {RecordStatus.COMMITTED}
    assert (first.live_ids(), second.live_ids()) == ([0, 1, 2, *range(5, 12)], list(range(12)))


@pytest.mark.parametrize("slots", [None, 2])
def test_the_caller_hears_that_the_engine_starts_and_that_tasks_begin(house: House, slots: int | None) -> None:
    planned(house, Held(), house.fragmented("first", files=12), house.fragmented("second", files=12))
    services = house.services
    heard: list[str] = []

    class Listener(TaskListener):
        def engine_starts(self) -> None:
            heard.append("starts")

        def engine_started(self) -> None:
            heard.append("started")

        def task_began(self, task: CompactionTask) -> None:
            assert current_thread() is main_thread()
            heard.append(f"began {task.table.name}")

        def task_ended(self, task: CompactionTask, status: TaskStatus) -> None:
            heard.append(f"ended {task.table.name}")

    WorkOnQueue(services.serve_tasks, Held(), services.clock, heartbeat, slots).drain("elsewhere", Drain(hears=Hears(Listener())))
    assert heard[:2] == ["starts", "started"]
    assert sorted(heard[2:]) == ["began first", "began second", "ended first", "ended second"]
    for table in ("first", "second"):
        assert heard.index(f"began {table}") < heard.index(f"ended {table}")


def test_a_table_that_cannot_be_opened_fails_its_attempts_and_stops_no_other(house: House) -> None:
    closed, opened = house.fragmented("closed", files=12), house.fragmented("opened", files=12)
    planned(house, Held(), closed, opened)

    def refused(table: TableIdentifier) -> Mapping[str, str]:
        if table == closed.identifier:
            raise StorageUnavailable("the catalog vends nothing")
        return house.services.committer.real.file_io(table)

    house.services.committer.instead(file_io=refused)
    done = house.services.work_on_queue.drain("me")
    assert (done.polled, len(done.prepared), list(done.failed.values())) == (5, 1, ["the catalog vends nothing"])
    (task,) = house.services.stores.tasks.tasks(closed.identifier)
    assert (task.status, task.attempt, task.reason) == (TaskStatus.FAILED, 4, "the catalog vends nothing")


@pytest.mark.parametrize("slots", [None, 2])
def test_a_failure_that_the_state_database_does_not_take_ends_no_other_table_s_work(house: House, slots: int | None) -> None:
    closed, opened = house.fragmented("closed", files=12), house.fragmented("opened", files=12)
    planned(house, Held(), closed, opened)
    services = house.services
    services.work_on_queue._task_slots = slots

    def refused(table: TableIdentifier) -> Mapping[str, str]:
        if table == closed.identifier:
            raise StorageUnavailable("the catalog vends nothing")
        return services.committer.real.file_io(table)

    def silent(result: MergeResult, now: datetime, retry_after: timedelta, claimed: EndReason | None = None) -> TaskStatus:
        if result.error is not None:
            raise StorageUnavailable("the state database did not answer")
        return services.stores.tasks.real.complete(result, now, retry_after)

    services.committer.instead(file_io=refused)
    services.stores.tasks.instead(complete=silent)
    done = services.work_on_queue.drain("me")
    assert (done.polled, len(done.prepared), list(done.failed.values())) == (2, 1, ["the catalog vends nothing"])
    (task,) = services.stores.tasks.tasks(closed.identifier)
    assert (task.status, task.attempt) == (TaskStatus.EXECUTING, 1)
    house.pass_time(61)
    assert services.await_tasks.release() == (task.task_id,)


def test_spark_is_started_by_the_caller_s_thread(house: House) -> None:
    table = house.fragmented(files=12)
    engine = Held()
    planned(house, engine, table)
    house.services.work_on_queue.drain("me")
    assert main_thread().name in engine.threads


def test_when_time_is_up_running_merges_end_and_no_other_begins(house: House) -> None:
    first, second = house.fragmented("first", files=12), house.fragmented("second", files=12)
    engine = Held(first)
    planned(house, engine, first, second)
    house.services.work_on_queue._task_slots = 2
    until = iter([False])

    def over() -> bool:
        # The time is up while the first merge runs.
        if next(until, True):
            assert engine.begun.wait(LONG)
            engine.let_go.set()
            return True
        return False

    done = house.services.work_on_queue.drain("me", Drain(ends=Ends(over)))
    assert engine.begun.is_set()
    assert done.polled == len(done.prepared) >= 1
    left = house.services.stores.tasks.counts()
    assert left.get(TaskStatus.EXECUTING, 0) == 0
    assert left.get(TaskStatus.PENDING, 0) + left[TaskStatus.PREPARED] == 2


def test_an_interrupt_gives_the_attempts_of_all_slots_back_at_once(house: House) -> None:
    first, second = house.fragmented("first", files=12), house.fragmented("second", files=12)
    engine = Held(first)
    planned(house, engine, first, second)

    def interrupted() -> None:
        assert engine.begun.wait(LONG)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        house.services.work_on_queue.drain("me", Drain(hears=Hears(meanwhile=interrupted)))
    assert not house.services.stores.tasks.tasks(statuses=(TaskStatus.EXECUTING,))
    (task,) = house.services.stores.tasks.tasks(first.identifier)
    (attempt,) = house.services.stores.tasks.attempts(task.task_id)
    assert (task.status, attempt.end_reason, attempt.reason) == (TaskStatus.PENDING, EndReason.INTERRUPTED, "interrupted")
    engine.let_go.set()


def test_an_error_that_ends_a_slot_ends_the_drain(house: House) -> None:
    table = house.fragmented(files=12)
    engine = Held(table, KeyboardInterrupt())
    engine.let_go.set()
    planned(house, engine, table)
    with pytest.raises(KeyboardInterrupt):
        house.services.work_on_queue.drain("me")
    assert not house.services.stores.tasks.tasks(statuses=(TaskStatus.EXECUTING,))


def test_a_table_is_committed_early_when_its_merged_work_holds_due_nodes_back(house: House) -> None:
    table = house.fragmented(files=12)
    services = house.services
    assert services.compact_tables.compact(table.identifier).committed
    table.ids(20)
    services.one_table.plan_nodes(table.identifier, PlanRequest((CompactionType.FULL,), force=True))
    services.work_on_queue.drain("me")
    house.pass_time(61)
    assert services.commit_due.due() == []
    # New files make the node due, but its merged work must be committed first.
    for one in range(40, 52):
        table.ids(one)
    services.sweep_tables.sweep(None, timedelta(seconds=20))
    services.plan_tables.plan(table.identifier)
    assert services.commit_due.due() == [table.identifier]
    services.stores.commits.note_landed(table.identifier, house.now - timedelta(seconds=29))
    assert services.commit_due.due() == []


def test_merged_work_takes_no_slot_of_its_table(house: House) -> None:
    table = house.fragmented(files=24, **{"self-optimizing.quota": "1.5", "self-optimizing.target-size": "12000"})
    services = house.services
    services.one_table.refresh(table.identifier)
    assert len(services.plan_tables.plan(table.identifier).tasks) == 1
    assert services.stores.tasks.planned_work(table.identifier).tasks == 1
    services.work_on_queue.drain("me")
    assert services.stores.tasks.planned_work(table.identifier).tasks == 0


@pytest.mark.parametrize("slots", [None, 2])
def test_a_state_database_that_is_full_ends_the_drain_at_once(house: House, slots: int | None) -> None:
    table = house.fragmented()
    services = house.services
    services.work_on_queue._task_slots = slots
    asked = house.before_sleep(lambda: None)

    def full(*arguments: object) -> NoReturn:
        raise StateFull("the state database has no room")

    services.stores.tasks.instead(complete=full)
    with pytest.raises(StateFull):
        services.compact_tables.compact(table.identifier)
    assert asked == []
    (task,) = services.stores.tasks.tasks(table.identifier)
    assert task.attempt == 1


class Busy(TaskQueue):
    """A queue of 500 tasks whose workers are always a few tasks ahead of what the listener has heard."""

    MOST, AHEAD = 500, 3

    def __init__(self) -> None:
        self.polled = self.told = 0
        self.ends = False
        self._changed = Condition()

    def waits(self, queue: str | None, task_ids: Sequence[TaskId] | None = None) -> bool:
        return self.polled < self.MOST

    def poll(self, owner: str, queue: str | None, task_ids: Sequence[TaskId] | None = None) -> Assignment | EndedAttempt | None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.ends or self.polled <= self.told + self.AHEAD, LONG)
            if self.polled == self.MOST:
                return None
            self.polled += 1
            self._changed.notify_all()
            name = TaskId(f"t{self.polled}")
            return Assignment(replace(task(name), attempt_id=AttemptId(f"{name}-1")), LAYOUT, {})

    def heard(self) -> None:
        """The listener heard of an end. Wait until workers are ahead again, so that the next event has arrived already."""
        with self._changed:
            self.told += 1
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self.ends or self.polled >= min(self.told + self.AHEAD, self.MOST), LONG)

    def end(self) -> None:
        with self._changed:
            self.ends = True
            self._changed.notify_all()

    def renew(self, attempt_ids: Sequence[AttemptId], used: Mapping[AttemptId, UsedSoFar] | None = None) -> Sequence[AttemptId]:
        return attempt_ids

    def complete(self, task: CompactionTask, result: MergeResult) -> TaskStatus:
        return TaskStatus.PREPARED

    def give_back(self, owner: str, end_reason: EndReason, reason: str) -> None: ...


class Instant(Held):
    """An engine that merges without taking time."""

    def merge(self, tasks: Sequence[MergeInput[Work]], file_io: Mapping[str, str]) -> Iterator[MergeResult]:
        yield from (MergeResult(task.task_id, task.attempt_id) for task in tasks)


def test_a_drain_ends_and_commits_although_tasks_end_faster_than_its_caller_hears_of_them(house: House) -> None:
    queue, commits = Busy(), [0]

    class Slow(TaskListener):
        def task_ended(self, task: CompactionTask, status: TaskStatus) -> None:
            queue.heard()

    def until() -> bool:
        if commits[0] == 5:
            queue.end()
        return queue.ends

    def meanwhile() -> None:
        commits[0] += 1

    worker = WorkOnQueue(queue, Instant(), house.services.clock, heartbeat, 2)
    done = worker.drain("me", Drain(ends=Ends(until), hears=Hears(Slow(), meanwhile)))
    assert done.polled == queue.polled < Busy.MOST / 2


class StartsFor(InProcessMergeEngine):
    """An engine that is started for the tasks of one table only."""

    def __init__(self, table: LakeTable, start: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.started: list[bool] = []
        self._table = table
        self._start = start

    def must_start(self, task: MergeInput[Work] | None) -> bool:
        return not self.started and task is not None and task.layout.location == self._table.table.location()

    def ready(self) -> None:
        self._start()
        self.started.append(current_thread() is main_thread())


@pytest.mark.parametrize("slots", [None, 2])
def test_an_engine_starts_in_the_caller_s_thread_when_the_first_task_that_needs_it_was_taken(house: House, slots: int | None) -> None:
    small, large = house.fragmented("small", files=12), house.fragmented("large", files=12)
    engine = StartsFor(large)
    planned(house, Held(), small, large)
    heard: list[str] = []

    class Listener(TaskListener):
        def engine_starts(self) -> None:
            heard.append("starts")

        def engine_started(self) -> None:
            heard.append("started")

        def task_began(self, task: CompactionTask) -> None:
            heard.append(f"began {task.table.name}")

    services = house.services
    done = WorkOnQueue(services.serve_tasks, engine, services.clock, heartbeat, slots).drain("me", Drain(hears=Hears(Listener())))
    assert (done.polled, len(done.prepared), engine.started) == (2, 2, [True])
    assert heard.count("starts") == 1
    assert heard.index("starts") < heard.index("started") < heard.index("began large")
    only_small = house.fragmented("only_small", files=12)
    planned(house, Held(), only_small)
    untouched = StartsFor(large)
    WorkOnQueue(services.serve_tasks, untouched, services.clock, heartbeat, slots).drain("me again")
    assert untouched.started == []


@pytest.mark.parametrize("slots", [None, 2])
def test_an_engine_that_does_not_start_for_a_task_costs_no_attempt(house: House, slots: int | None) -> None:
    def fail() -> None:
        raise StorageUnavailable("Spark does not start")

    large = house.fragmented("large", files=12)
    planned(house, Held(), large)
    services = house.services
    with pytest.raises(StorageUnavailable, match="Spark does not start"):
        WorkOnQueue(services.serve_tasks, StartsFor(large, fail), services.clock, heartbeat, slots).drain("me")
    (task,) = services.stores.tasks.tasks(large.identifier)
    assert (task.status, task.failures, task.losses) == (TaskStatus.PENDING, 0, 0)
    done = WorkOnQueue(services.serve_tasks, StartsFor(large), services.clock, heartbeat, slots).drain("next")
    assert len(done.prepared) == 1


def test_the_lease_of_a_task_is_renewed_while_its_engine_starts(house: House) -> None:
    renewed: list[int] = []

    @contextmanager
    def beats(renew: Callable[[], object]) -> Iterator[None]:
        renew()
        renewed.append(len(engine.started))
        yield

    large = house.fragmented("large", files=12)
    planned(house, Held(), large)
    engine = StartsFor(large)
    services = house.services
    WorkOnQueue(services.serve_tasks, engine, services.clock, beats, 1).drain("me")
    assert renewed == [0, 1]


def test_a_slot_that_waits_for_the_engine_ends_with_its_drain(house: House) -> None:
    large = house.fragmented("large", files=12)
    planned(house, Held(), large)
    services = house.services

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        WorkOnQueue(services.serve_tasks, StartsFor(large, interrupt), services.clock, heartbeat, 1).drain("me")
    for slot in [thread for thread in enumerate_threads() if thread.name == "slot-0"]:
        slot.join(LONG)
        assert not slot.is_alive()
    (task,) = services.stores.tasks.tasks(large.identifier)
    assert (task.status, task.failures) == (TaskStatus.PENDING, 0)
