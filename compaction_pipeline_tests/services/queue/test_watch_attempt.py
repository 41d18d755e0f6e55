"""A merge is stopped when its attempt has lost its task. A worker whose merge cannot be stopped finishes the other merges and ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from threading import Event, Thread, current_thread, main_thread

import pytest

from compaction_pipeline.core.errors import MergeStuck
from compaction_pipeline.core.ids import AttemptId, TaskId
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.attempts import STUCK_AFTER, is_stuck
from compaction_pipeline.core.queue.drain import Drain, Ends, Hears
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.merging.engine import InProcessMergeEngine
from compaction_pipeline.merging.reading.file_access import FileAccess
from compaction_pipeline.merging.small_first import SmallFirstEngine
from compaction_pipeline.services.queue.work_on_queue import WorkOnQueue
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.services.house import House

LONG = 60
"""The limit in seconds for an event that must happen. No test waits that long unless it fails."""


@contextmanager
def beating_fast(renew: Callable[[], object]) -> Iterator[None]:
    """A heartbeat that beats again and again without a pause."""
    stopped = Event()

    def beat() -> None:
        while not stopped.wait(0.001):
            renew()

    thread = Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


class Endless(InProcessMergeEngine):
    """The first merge of one table ends only when it is canceled, and not even then unless `obeys`."""

    def __init__(self, table: LakeTable, obeys: bool = True) -> None:
        super().__init__()
        self.begun, self.canceled, self.let_go = Event(), Event(), Event()
        self.threads: set[str] = set()
        self.table = table
        self._obeys = obeys

    def merge(self, tasks: Sequence[MergeInput[Work]], file_io: Mapping[str, str]) -> Iterator[MergeResult]:
        (task,) = tasks
        self.threads.add(current_thread().name)
        if task.layout.location == self.table.table.location() and not self.begun.is_set():
            self.begun.set()
            assert (self.canceled if self._obeys else self.let_go).wait(LONG)
            yield MergeResult(task.task_id, task.attempt_id, error="canceled")
        else:
            yield from super().merge(tasks, file_io)

    def cancel(self, attempt_id: AttemptId) -> None:
        self.canceled.set()


def planned(house: House, *tables: LakeTable) -> None:
    for table in tables:
        assert house.services.one_table.plan_nodes(table.identifier, PlanRequest()).tasks


def timing_out(house: House, engine: Endless) -> Callable[[], None]:
    """End the attempt of the endless merge, as the keeper does when the attempt took too long."""
    ended: list[TaskId] = []

    def meanwhile() -> None:
        if engine.begun.is_set() and not ended:
            tasks = house.services.stores.tasks
            (slow,) = tasks.tasks(engine.table.identifier)
            ended.append(slow.task_id)
            assert slow.task_id in tasks.end_overdue(house.now, timedelta(0), timedelta(0))

    return meanwhile


def test_a_merge_is_stuck_a_minute_after_it_was_told_to_stop() -> None:
    lost_at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    assert not is_stuck(lost_at, lost_at + STUCK_AFTER - timedelta(milliseconds=1))
    assert is_stuck(lost_at, lost_at + STUCK_AFTER)


def test_an_attempt_that_takes_too_long_is_stopped_and_its_slot_takes_the_next_task(house: House) -> None:
    slow, quick = house.fragmented("slow"), house.fragmented("quick")
    planned(house, slow, quick)
    engine = Endless(slow)
    services = house.services
    worker = WorkOnQueue(services.serve_tasks, engine, services.clock, beating_fast, 1)
    done = worker.drain("worker", Drain(hears=Hears(meanwhile=timing_out(house, engine))))
    assert engine.canceled.is_set()
    assert main_thread().name not in engine.threads
    assert {task.table for task in services.stores.tasks.tasks(statuses=(TaskStatus.PREPARED,))} == {slow.identifier, quick.identifier}
    assert (done.polled, len(done.prepared)) == (3, 2)
    (task,) = services.stores.tasks.tasks(slow.identifier)
    assert [attempt.end_reason for attempt in services.stores.tasks.attempts(task.task_id)] == [EndReason.TIMED_OUT, EndReason.MERGED]


def test_a_small_merge_in_this_process_tells_what_it_uses_and_is_stopped_when_it_takes_too_long(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, quick = house.fragmented("slow"), house.fragmented("quick")
    planned(house, slow, quick)
    watched = Endless(slow)
    opened, attempts = FileAccess._opened, []

    told = Event()

    def waits(files: FileAccess, path: str, size: int | None) -> object:
        if "/slow/" in path and not attempts:
            attempts.append(path)
            while not told.is_set():
                (task,) = services.stores.tasks.tasks(slow.identifier)
                (attempt,) = services.stores.tasks.attempts(task.task_id)
                if attempt.used is not None or not Path("/proc").exists():
                    told.set()
            watched.begun.set()
            while not files._canceled():
                watched.let_go.wait(0.001)
        return opened(files, path, size)

    services = house.services
    monkeypatch.setattr(FileAccess, "_opened", waits)
    engine = SmallFirstEngine(lambda: pytest.fail("Spark is started"), lambda: False)
    worker = WorkOnQueue(services.serve_tasks, engine, services.clock, beating_fast, 1)
    done = worker.drain("worker", Drain(hears=Hears(meanwhile=timing_out(house, watched))))
    assert told.is_set()
    assert (done.polled, len(done.prepared)) == (3, 2)
    (task,) = services.stores.tasks.tasks(slow.identifier)
    assert [attempt.end_reason for attempt in services.stores.tasks.attempts(task.task_id)] == [EndReason.TIMED_OUT, EndReason.MERGED]


def test_a_worker_whose_merge_cannot_be_stopped_finishes_the_others_and_ends(house: House) -> None:
    slow, quick = house.fragmented("slow"), house.fragmented("quick")
    planned(house, slow, quick)
    engine = Endless(slow, obeys=False)
    services = house.services
    worker = WorkOnQueue(services.serve_tasks, engine, services.clock, beating_fast, 2)
    times_out = timing_out(house, engine)

    def meanwhile() -> None:
        if services.read_tasks.queue_counts().prepared:
            times_out()
        if engine.canceled.is_set():
            # Each round of the worker takes a third of a second or more, so the house's clock goes fast.
            house.pass_time(20)

    told = house.now
    with pytest.raises(MergeStuck, match=r"attempt .* of lake\.db\.slow still runs 1 min after it was told to stop"):
        worker.drain("worker", Drain(ends=Ends(linger=timedelta(days=1)), hears=Hears(meanwhile=meanwhile)))
    engine.let_go.set()
    assert house.now - told >= STUCK_AFTER
    assert not services.stores.tasks.tasks(statuses=(TaskStatus.EXECUTING,))
    assert services.stores.tasks.tasks(quick.identifier)[0].status is TaskStatus.PREPARED
