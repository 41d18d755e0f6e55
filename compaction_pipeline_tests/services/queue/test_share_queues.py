"""Runs of Dagster leave a queue to its optimizers, and take from the others in turn. What a person waits for is never left for long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from compaction_pipeline.core.capacity.scaling.action import Action, ActionKind, Direction, Outcome
from compaction_pipeline.core.capacity.scaling.record import Scale, ScalingRecord
from compaction_pipeline.core.capacity.scaling.target import Target
from compaction_pipeline.core.ids import AttemptId
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.drain import Drain, Takes
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.core.queue.merge_version import MERGE_VERSION
from compaction_pipeline.core.queue.optimizer import SILENCE, Optimizer, Registration
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.queue.watchers import LONGEST_GAP
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.merging.engine import InProcessMergeEngine
from compaction_pipeline.process import heartbeat
from compaction_pipeline.services.queue.share_queues import PATIENCE
from compaction_pipeline.services.queue.work_on_queue import WorkOnQueue
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.serving import serving

FORCED = PlanRequest(types=(CompactionType.MINOR,), nodes=frozenset({TableNode(0)}), force=True)
NONE = timedelta(0)
Launch = Callable[[House, LakeTable], None]


class Noting:
    """An engine that notes which queue each task came from and when. It calls `after` when a merge has ended."""

    def __init__(self, house: House, after: Callable[[], object] = lambda: None) -> None:
        self.merged: list[tuple[str, datetime]] = []
        self._house = house
        self._after = after

    @property
    def queues(self) -> list[str]:
        return [queue for queue, _ in self.merged]

    def must_start(self, task: MergeInput[Work] | None) -> bool:
        return task is None

    def ready(self) -> None: ...

    def merge(self, tasks: Sequence[MergeInput[Work]], file_io: Mapping[str, str]) -> Iterator[MergeResult]:
        self.merged.append((self._house.services.stores.tasks.task(tasks[0].task_id).queue, self._house.now))
        results = list(InProcessMergeEngine().merge(tasks, file_io))
        self._after()
        yield from results

    def used_so_far(self, attempt_id: AttemptId) -> None: ...

    def close(self) -> None: ...


def optimizer_of(house: House, group: str) -> Optimizer:
    """An optimizer that has registered, and takes nothing by itself."""
    return house.services.serve_optimizers.register(Registration(group, "host", "1", "1.0", MERGE_VERSION, 2))


def waiting(house: House, **queues: int) -> dict[str, list[TableIdentifier]]:
    """So many tables of each queue, each with one waiting task."""
    made: dict[str, list[TableIdentifier]] = {}
    for queue, number in queues.items():
        house.services.stores.groups.add(ResourceGroup(queue))
        for each in range(number):
            table = house.fragmented(f"{queue}{each}", **{"self-optimizing.group": queue})
            assert house.services.one_table.plan_nodes(table.identifier, PlanRequest()).tasks
            made.setdefault(queue, []).append(table.identifier)
    return made


def noting(house: House, after: Callable[[], object] = lambda: None) -> Noting:
    engine = Noting(house, after)
    house.services.engine_override = engine
    house.services.work_on_queue._task_slots = None
    return engine


def statuses(house: House, table: TableIdentifier) -> list[TaskStatus]:
    return [task.status for task in house.services.stores.tasks.tasks(table)]


def drain(house: House) -> None:
    house.services.compact_tables.carry_out({}, serving(until=lambda: False, linger=NONE))


def test_the_queue_of_a_live_optimizer_is_left_to_it(house: House) -> None:
    engine = noting(house)
    tables = waiting(house, heavy=1, light=1)
    optimizer_of(house, "heavy")
    assert house.services.share_queues.unserved() == ("light",)
    drain(house)
    assert engine.queues == ["light"]
    assert statuses(house, tables["heavy"][0]) == [TaskStatus.PENDING]


@pytest.mark.parametrize("end", ["silent", "drains", "gone"])
def test_an_optimizer_that_takes_no_tasks_keeps_nobody_from_them(house: House, end: str) -> None:
    engine = noting(house)
    waiting(house, heavy=1)
    optimizer = optimizer_of(house, "heavy")
    if end == "silent":
        house.pass_time(SILENCE.total_seconds())
    elif end == "drains":
        house.services.serve_optimizers.drain(optimizer.optimizer_id)
    else:
        house.services.serve_optimizers.leave(optimizer.optimizer_id)
    drain(house)
    assert engine.queues == ["heavy"]


def test_a_scaled_group_without_optimizers_is_left_to_them_while_a_server_starts_some(house: House) -> None:
    waiting(house, heavy=1)
    stores, served = house.services.stores, house.services.share_queues
    nothing, one = Target(0, 2), Target(1, 2)
    scale = Scale("heavy", 1, nothing, nothing, "as people say")
    assert stores.scaling.change(scale)
    assert served.unserved() == ("heavy",)
    house.services.keep_watch.note_server("a server")
    assert served.unserved() == ()
    # Its optimizers do not start.
    action = Action(ActionKind.OPTIMIZERS, Direction.OUT, nothing, one, "a task waits")
    record = ScalingRecord("r1", "heavy", house.now, "p", action, "s").closed(Outcome.FAILED, "no such image", house.now, nothing)
    assert stores.scaling.change(scale.to(nothing), record)
    assert served.unserved() == ("heavy",)
    assert stores.scaling.change(scale.to(one).to(one), replace(record, record_id="r2", at=house.now + LONGEST_GAP, outcome=Outcome.DONE))
    assert served.unserved() == ()
    house.pass_time(LONGEST_GAP.total_seconds() + 1)
    assert served.unserved() == ("heavy",)


def test_queues_without_an_optimizer_have_their_turns(house: House) -> None:
    engine = noting(house)
    waiting(house, a=3, b=3, c=1)
    drain(house)
    assert engine.queues == ["a", "b", "c", "a", "b", "a", "b"]


def test_a_run_ends_after_its_task_when_optimizers_appear(house: House) -> None:
    engine = noting(house, after=lambda: optimizer_of(house, "heavy"))
    tables = waiting(house, heavy=3)
    house.services.compact_tables.carry_out({}, serving(until=lambda: False, linger=timedelta(hours=1)))
    assert engine.queues == ["heavy"]
    assert sorted(status for table in tables["heavy"] for status in statuses(house, table)) == [
        TaskStatus.COMMITTED,
        TaskStatus.PENDING,
        TaskStatus.PENDING,
    ]


def launched(house: House, table: LakeTable) -> None:
    """What a launched partition does."""
    done = house.services.compact_tables.compact(table.identifier, FORCED, help_others=True)
    assert (len(done.records), done.failed) == (1, {})


def asked(house: House, table: LakeTable) -> None:
    """What `compact_job` does with names."""
    failed = house.services.compact_tables.carry_out({table.identifier: FORCED}, serving(until=lambda: True, linger=NONE)).failed
    assert failed == {}


@pytest.mark.parametrize("launch", [launched, asked])
def test_without_an_optimizer_a_launch_does_not_wait(house: House, launch: Launch) -> None:
    engine, table = noting(house), house.fragmented()
    began = house.now
    launch(house, table)
    assert engine.merged == [("default", began)]


@pytest.mark.parametrize("launch", [launched, asked])
def test_a_launch_merges_by_itself_what_no_optimizer_takes_in_time(house: House, launch: Launch) -> None:
    engine, table = noting(house), house.fragmented()
    optimizer, began = optimizer_of(house, "default"), house.now

    def touched(seconds: float) -> None:
        house.pass_time(seconds)
        house.services.serve_optimizers.touch(optimizer.optimizer_id, [])

    house.services.sleep = touched
    launch(house, table)
    ((_, at),) = engine.merged
    assert PATIENCE <= at - began < PATIENCE + timedelta(seconds=2)
    assert statuses(house, table.identifier) == [TaskStatus.COMMITTED]


@pytest.mark.parametrize("launch", [launched, asked])
def test_a_launch_commits_what_an_optimizer_merged_for_it(house: House, launch: Launch) -> None:
    engine, table = noting(house), house.fragmented()
    optimizer = optimizer_of(house, "default").optimizer_id
    services = house.services
    worker = WorkOnQueue(services.serve_tasks, InProcessMergeEngine(), services.clock, heartbeat, None)

    def merged_elsewhere(seconds: float) -> None:
        house.pass_time(seconds)
        worker.drain(optimizer, Drain(Takes(queues=lambda: ("default",))))

    house.services.sleep = merged_elsewhere
    launch(house, table)
    assert engine.merged == []
    (task,) = services.stores.tasks.tasks(table.identifier)
    assert task.status is TaskStatus.COMMITTED
    assert [attempt.owner for attempt in services.stores.tasks.attempts(task.task_id)] == [optimizer]


def test_a_task_that_a_person_waits_for_goes_before_those_of_machines(house: House) -> None:
    (table,) = waiting(house, default=1)["default"]
    services = house.services
    (first,) = services.stores.tasks.tasks(table)
    services.stores.tasks.cancel([first.task_id], first.end_reason, "so that a tick plans it", house.now)  # type: ignore[arg-type]
    house.pass_time(3600)
    by_machine = services.plan_tables.plan(table).tasks
    mine = house.fragmented("mine")
    by_person = services.one_table.plan_nodes(mine.identifier, FORCED).tasks
    house.pass_time(10)
    assert by_machine
    assert by_person
    assert services.stores.tasks.first_waiting("default") == mine.identifier


def test_a_table_that_is_forgotten_is_no_longer_left_to_optimizers(house: House) -> None:
    [table] = waiting(house, heavy=1)["heavy"]
    optimizer_of(house, "heavy")
    ids = [task.task_id for task in house.services.stores.tasks.tasks(table)]
    left = house.services.share_queues.left_to_optimizers(ids)
    worked_off = house.services.await_tasks.worked_off(ids)
    assert left()
    assert not worked_off()
    house.services.stores.index.forget(table)
    assert not left()
    assert worked_off()
