"""A person's compaction does its own work first and helps others beside it. Other processes that plan or commit do not make it fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from threading import Event

from compaction_pipeline.core.ids import AttemptId
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.merge_engine import MergeEngine
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.merging.engine import InProcessMergeEngine
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.services.heard import Between, Heard
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.serving import serving

LONG = 60
NODE = PlanRequest(nodes=frozenset({TableNode(0)}))
FORCED = PlanRequest(types=(CompactionType.MINOR,), nodes=frozenset({TableNode(0)}), force=True)


def _name(task: MergeInput[Work]) -> str:
    """The name of the table that is merged."""
    return task.layout.location.rpartition("/")[2]


class Waiting:
    """An engine whose merges of the table `mine` end only after a merge of another table has ended."""

    def __init__(self) -> None:
        self._other_ended = Event()

    def must_start(self, task: MergeInput[Work] | None) -> bool:
        return task is None

    def ready(self) -> None: ...

    def merge(self, tasks: Sequence[MergeInput[Work]], file_io: Mapping[str, str]) -> Iterator[MergeResult]:
        (task,) = tasks
        if _name(task) == "mine":
            assert self._other_ended.wait(LONG)
        results = list(InProcessMergeEngine().merge(tasks, file_io))
        if _name(task) != "mine":
            self._other_ended.set()
        yield from results

    def used_so_far(self, attempt_id: AttemptId) -> None: ...

    def close(self) -> None: ...


class InOrder(Between):
    """An engine that notes the order in which it merges tables. It calls a function after its first merge."""

    def __init__(self, *actions: Callable[[], object]) -> None:
        super().__init__(*actions)
        self.merged: list[str] = []

    def merge(self, tasks: Sequence[MergeInput[Work]], file_io: Mapping[str, str]) -> Iterator[MergeResult]:
        self.merged.append(_name(tasks[0]))
        return super().merge(tasks, file_io)


def mine_and_other(house: House, engine: MergeEngine | None = None, slots: int | None = None) -> tuple[LakeTable, CompactionTask]:
    """A table that a person wants to compact, and the waiting task of another table, which a tick has planned."""
    house.services.engine_override = engine
    house.services.work_on_queue._task_slots = slots
    mine, other = house.fragmented("mine", files=12), house.fragmented("other", files=12)
    (task,) = house.services.one_table.plan_nodes(other.identifier, PlanRequest()).tasks
    return mine, task


def several_tasks(house: House) -> TableIdentifier:
    """A table whose next plan has several tasks."""
    return house.fragmented(files=24, **{"self-optimizing.max-task-size-bytes": "1", "self-optimizing.target-size": "12000"}).identifier


def test_a_free_slot_merges_the_tasks_of_others_while_the_own_ones_are_merged(house: House) -> None:
    mine, other = mine_and_other(house, Waiting(), slots=2)
    done = house.services.compact_tables.compact(mine.identifier, FORCED, help_others=True)
    # The own merge waits for the other one, so the compaction could not have ended without it.
    assert [record.table.name for record in done.records] == ["mine"]
    assert done.failed == {}
    assert house.services.stores.tasks.task(other.task_id).status is TaskStatus.PREPARED


def test_own_tasks_go_first_and_the_compaction_ends_with_them(house: House) -> None:
    engine = InOrder()
    mine, other = mine_and_other(house, engine)
    assert house.services.compact_tables.compact(mine.identifier, FORCED, help_others=True).committed
    assert engine.merged == ["mine"]
    assert house.services.stores.tasks.task(other.task_id).status is TaskStatus.PENDING


def test_without_being_asked_a_compaction_leaves_the_tasks_of_others_alone(house: House) -> None:
    mine, other = mine_and_other(house, slots=2)
    assert house.services.compact_tables.compact(mine.identifier, FORCED).committed
    assert house.services.stores.tasks.task(other.task_id).status is TaskStatus.PENDING


def test_named_nodes_go_first_and_are_merged_even_when_time_is_up(house: House) -> None:
    engine = InOrder()
    mine, other = mine_and_other(house, engine)
    heard = Heard()
    failed = house.services.compact_tables.carry_out(
        {mine.identifier: NODE}, serving(until=lambda: True, linger=timedelta(0), listener=heard)
    ).failed
    assert failed == {}
    assert engine.merged == ["mine"]
    assert [event for event, _ in heard.events] == ["planned", "ended", "committed"]
    assert house.services.stores.tasks.task(other.task_id).status is TaskStatus.PENDING


def test_a_failure_of_another_s_task_is_no_failure_of_the_named_nodes(house: House) -> None:
    other_failed = Event()

    class FailsOther(InProcessMergeEngine):
        def merge(self, tasks: Sequence[MergeInput[Work]], file_io: Mapping[str, str]) -> Iterator[MergeResult]:
            if _name(tasks[0]) == "mine":
                assert other_failed.wait(LONG)
                yield from super().merge(tasks, file_io)
            else:
                other_failed.set()
                yield MergeResult(tasks[0].task_id, tasks[0].attempt_id, error="footer unreadable")

    mine, other = mine_and_other(house, FailsOther(), slots=2)
    request = {mine.identifier: NODE}
    assert house.services.compact_tables.carry_out(request, serving(until=lambda: False, linger=timedelta(0))).failed == {}
    assert house.services.stores.tasks.task(other.task_id).failures > 0


def test_a_named_table_without_named_nodes_is_planned_again_after_a_conflict(house: House) -> None:
    table = house.fragmented(files=12)
    paths = [file.path for file in table.files()]
    house.services.engine_override = Between(lambda: table.delete_positions((paths[0], 0)))
    house.services.compact_tables.carry_out({table.identifier: PlanRequest()}, serving(until=lambda: False, linger=timedelta(0)))
    assert len([file for file in table.files() if file.is_data]) == 1
    assert len(table.live_ids()) == 11


def test_what_a_newer_plan_replaced_is_planned_again(house: House) -> None:
    table = several_tasks(house)
    services = house.services

    def plan_as_a_sensor() -> None:
        # The sensor takes the tasks that have not begun yet.
        assert services.plan_tables.plan(table, FORCED, unlimited=True).plan.replaces

    class Commits(Heard):
        """It notes how many merged tasks each commit is said to have."""

        def committing(self, table: TableIdentifier, tasks: int) -> AbstractContextManager[None]:
            said.append(tasks)
            return nullcontext()

    said: list[int] = []
    services.engine_override = Between(plan_as_a_sensor)
    done = services.compact_tables.compact(table, FORCED, listener=Commits())
    assert len(done.records) == 2
    # The tasks that were replaced are not called merged.
    assert sum(said) == len(done.committed)
    assert done.failed == {}
    assert set(done.committed) == {task.task_id for task in done.tasks}
    assert services.stores.tasks.counts().get(TaskStatus.PENDING, 0) == 0


def test_named_nodes_whose_tasks_a_newer_plan_replaced_are_merged(house: House) -> None:
    table = several_tasks(house)
    services = house.services
    services.engine_override = Between(lambda: services.plan_tables.plan(table, FORCED, unlimited=True))
    heard = Heard()
    services.compact_tables.carry_out({table: FORCED}, serving(until=lambda: False, linger=timedelta(0), listener=heard))
    assert services.stores.tasks.counts().get(TaskStatus.PENDING, 0) == 0
    assert [task.status for task in services.stores.tasks.tasks(table, (TaskStatus.CANCELED,))]
    assert len(services.read_tables.nodes(table)) == 1


def test_tasks_that_another_process_committed_meanwhile_count_as_committed(house: House) -> None:
    table = several_tasks(house)
    services = house.services
    committed: list[str] = []

    def commit_the_first(step: str) -> None:
        if step == "prepared" and not committed:
            record = services.commit_tables.commit(table).record
            assert record is not None
            committed.extend(record.committed_task_ids)

    services.work_on_queue._on_step = commit_the_first
    done = services.compact_tables.compact(table, FORCED)
    assert len(committed) == 1
    assert len(done.records) == 2
    assert set(done.committed) == {task.task_id for task in done.tasks}


def test_a_tick_does_not_replace_the_task_that_a_person_waits_for(house: House) -> None:
    table = house.fragmented()
    services = house.services
    services.one_table.refresh(table.identifier)
    (mine,) = services.plan_tables.plan(table.identifier, PlanRequest(force=True), unlimited=True).tasks
    house.pass_time(3600)
    table.ids(*range(100, 103))
    for number in range(200, 212):
        table.ids(number)
    services.one_table.refresh(table.identifier)
    newer = services.plan_tables.plan(table.identifier)
    assert services.stores.tasks.task(mine.task_id).status is TaskStatus.PENDING
    # The newer files are planned beside it.
    assert {file.path for task in newer.tasks for file in task.work.inputs}.isdisjoint(file.path for file in mine.work.inputs)
    assert newer.tasks
