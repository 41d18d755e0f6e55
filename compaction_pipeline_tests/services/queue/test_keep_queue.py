"""Failed tasks wait a minute, the keeper puts them back, and whoever waits for their end does not wait that minute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from compaction_pipeline.core.ids import AttemptId, TaskId
from compaction_pipeline.core.insight.listener import CompactionListener
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.assignment import Assignment
from compaction_pipeline.core.queue.attempts import is_tried_again
from compaction_pipeline.core.queue.group import CompactionQueue, ResourceGroup
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.index import Failed, Refused
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.merging.engine import InProcessMergeEngine
from compaction_pipeline.services.queue import keep_queue
from compaction_pipeline_tests.behaviours.example_tasks import example
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.serving import serving

NODE = TableNode(0)


class Failing:
    """An engine whose first merges fail, `failures` of them, and whose later merges succeed."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def must_start(self, task: MergeInput[Work] | None) -> bool:
        return task is None

    def ready(self) -> None: ...

    def merge(self, tasks: Sequence[MergeInput[Work]], file_io: Mapping[str, str]) -> Iterator[MergeResult]:
        if self.failures > 0:
            self.failures -= 1
            yield MergeResult(tasks[0].task_id, tasks[0].attempt_id, error="footer unreadable")
        else:
            yield from InProcessMergeEngine().merge(tasks, file_io)

    def used_so_far(self, attempt_id: AttemptId) -> None: ...

    def close(self) -> None: ...


class Heard(CompactionListener):
    """Keeps the status after each attempt, and whether the listener could tell that the task is tried again."""

    def __init__(self) -> None:
        self.ends: list[tuple[TaskStatus, bool]] = []

    def task_ended(self, task: CompactionTask, status: TaskStatus) -> None:
        self.ends.append((status, is_tried_again(task)))


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path, retry_interval_seconds=60)
    yield house
    house.services.close()


def a_task_of_a_tick(house: House, failures: int, files: int = 12) -> tuple[LakeTable, CompactionTask]:
    """A table with one planned task, whose first attempts fail."""
    house.services.engine_override = Failing(failures)
    table = house.fragmented(files=files)
    house.services.refresh_files.refresh(table.identifier)
    [(_, planned)] = house.services.sweep_tables.plan_due([table.identifier], timedelta(minutes=1))
    (task,) = planned.tasks
    return table, task


def drain(house: House) -> list[tuple[TaskStatus, bool]]:
    heard = Heard()
    done = house.services.compact_tables.carry_out({}, serving(until=lambda: False, linger=timedelta(0), listener=heard)).drained
    assert done.failed == {}
    return heard.ends


def test_a_task_that_failed_in_a_tick_waits_a_minute_and_is_then_merged(house: House) -> None:
    table, task = a_task_of_a_tick(house, failures=1)
    assert drain(house) == [(TaskStatus.FAILED, True)]
    stored = house.services.stores.tasks.task(task.task_id)
    assert (stored.retry_at, stored.reason) == (house.now + timedelta(seconds=60), "footer unreadable")
    queue = house.services.read_tasks.queue_counts()
    assert (queue.retrying, queue.failed, queue.pending, queue.open) == (1, 0, 0, 1)
    house.pass_time(59)
    assert house.services.keep_watch.keep().retried == ()
    assert drain(house) == []
    house.pass_time(1)
    assert house.services.keep_watch.keep().retried == (task.task_id,)
    assert drain(house) == [(TaskStatus.PREPARED, False)]
    assert table.live_ids() == list(range(12))
    assert len(table.files()) == 1


def test_a_drain_alone_puts_tasks_back_whose_time_has_come(house: House) -> None:
    _, task = a_task_of_a_tick(house, failures=1)
    drain(house)
    heard = Heard()

    def later() -> bool:
        house.pass_time(5)
        return bool(heard.ends)

    house.services.compact_tables.carry_out({}, serving(until=later, linger=timedelta(minutes=5), listener=heard))
    assert heard.ends == [(TaskStatus.PREPARED, False)]
    assert house.services.stores.tasks.task(task.task_id).status is TaskStatus.COMMITTED


def test_a_tick_plans_nothing_on_the_files_of_a_waiting_failed_task(house: House) -> None:
    table, task = a_task_of_a_tick(house, failures=1)
    drain(house)
    table.ids(20, 21)
    house.pass_time(50)
    house.services.refresh_files.refresh(table.identifier)
    for _, planned in house.services.sweep_tables.plan_due([table.identifier], timedelta(minutes=1)):
        assert planned.plan.replaces == ()
        assert not {file.path for each in planned.tasks for file in each.work.inputs} & {file.path for file in task.work.inputs}
    assert house.services.stores.tasks.task(task.task_id).waits_for_retry


def test_a_command_tries_its_own_tasks_again_at_once(house: House) -> None:
    house.services.engine_override = Failing(3)
    table, heard = house.fragmented(files=12), Heard()
    began = house.now
    done = house.services.compact_tables.compact(table.identifier, listener=heard)
    assert heard.ends == [(TaskStatus.PENDING, True)] * 3 + [(TaskStatus.PREPARED, False)]
    assert (done.failed, len(done.committed)) == ({}, 1)
    assert house.now - began < timedelta(seconds=5)


def test_a_command_gives_up_after_the_retries_without_waiting(house: House) -> None:
    house.services.engine_override = Failing(9)
    table, began = house.fragmented(files=12), house.now
    done = house.services.compact_tables.compact(table.identifier)
    assert list(done.failed.values()) == ["footer unreadable"]
    (task,) = house.services.stores.tasks.tasks(table.identifier)
    assert (task.failures, task.is_final) == (4, True)
    assert house.now - began < timedelta(seconds=5)


def test_a_launch_of_nodes_tries_its_own_tasks_again_at_once(house: House) -> None:
    house.services.engine_override = Failing(2)
    table, heard = house.fragmented(files=12), Heard()
    asked = {table.identifier: PlanRequest(nodes=frozenset({NODE}))}
    failed = house.services.compact_tables.carry_out(asked, serving(until=lambda: True, linger=timedelta(0), listener=heard)).failed
    assert failed == {}
    assert heard.ends == [(TaskStatus.PENDING, True)] * 2 + [(TaskStatus.PREPARED, False)]


def test_a_command_tries_a_task_again_that_another_worker_failed_meanwhile(house: House) -> None:
    house.services.engine_override = Failing(0)
    table = house.fragmented(files=12)
    services = house.services
    taken: list[Assignment] = []

    class Thief(CompactionListener):
        def planned(self, table: TableIdentifier, tasks: Sequence[CompactionTask], reason: str) -> None:
            assignment = services.serve_tasks.poll("another worker", None)
            assert isinstance(assignment, Assignment)
            taken.append(assignment)

    def fail() -> None:
        if len(taken) == 1:
            (held,) = taken
            failure = MergeResult(held.task.task_id, held.attempt_id, error="out of memory")
            assert services.serve_tasks.complete(held.task, failure) is TaskStatus.FAILED
            taken.append(held)

    waits = house.before_sleep(fail)
    began = house.now
    assert len(services.compact_tables.compact(table.identifier, listener=Thief()).committed) == 1
    assert waits
    assert house.now - began < timedelta(seconds=30)


def test_a_command_takes_over_a_waiting_failed_task_of_a_tick(house: House) -> None:
    table, task = a_task_of_a_tick(house, failures=1)
    drain(house)
    began = house.now
    assert house.services.compact_tables.compact(table.identifier).committed == (task.task_id,)
    assert house.now - began < timedelta(seconds=5)


def test_a_forced_plan_of_a_person_replaces_a_waiting_failed_task(house: House) -> None:
    table, task = a_task_of_a_tick(house, failures=1)
    drain(house)
    done = house.services.compact_tables.compact(table.identifier, PlanRequest(force=True))
    assert len(done.committed) == 1
    ended = house.services.stores.tasks.task(task.task_id)
    assert (ended.status, ended.end_reason) == (TaskStatus.CANCELED, EndReason.REPLACED)
    assert table.live_ids() == list(range(12))


def test_a_task_whose_file_is_gone_from_the_table_is_canceled_and_its_node_is_judged_again(house: House) -> None:
    table, task = a_task_of_a_tick(house, failures=1, files=14)
    drain(house)
    table.table.refresh()
    table.table.delete("id = 3")
    house.pass_time(60)
    services = house.services
    services.refresh_files.refresh(table.identifier)
    assert services.keep_watch.keep().retried == ()
    ended = services.stores.tasks.task(task.task_id)
    assert (ended.status, ended.end_reason) == (TaskStatus.CANCELED, EndReason.OUTDATED)
    assert "no longer part of the table" in str(ended.reason)
    (node,) = services.stores.tables.nodes(table.identifier)
    assert node.verdict is not None
    assert node.verdict.type is not None, "the node is due again"
    [(_, planned)] = services.sweep_tables.plan_due([table.identifier], timedelta(minutes=1))
    assert len(planned.tasks) == 1


def test_a_task_waits_on_while_its_table_is_being_read(house: House) -> None:
    table, task = a_task_of_a_tick(house, failures=1)
    drain(house)
    house.pass_time(60)
    house.services.stores.commits.note_landed(table.identifier, house.now)
    assert house.services.keep_watch.keep().retried == ()
    assert house.services.stores.tasks.task(task.task_id).waits_for_retry
    house.services.refresh_files.refresh(table.identifier)
    assert house.services.keep_watch.keep().retried == (task.task_id,)


def test_an_attempt_that_never_ends_is_failed_by_the_keeper(house: House) -> None:
    _, task = a_task_of_a_tick(house, failures=0)
    services = house.services
    taken = services.serve_tasks.poll("slow", None)
    assert taken is not None
    for _ in range(60):
        house.pass_time(60)
        services.serve_tasks.renew([taken.task.current_attempt_id])
    assert services.keep_watch.keep().returned == (task.task_id,)
    assert services.stores.tasks.task(task.task_id).end_reason is EndReason.TIMED_OUT
    assert services.serve_tasks.renew([taken.task.current_attempt_id]) == ()


def test_a_task_of_a_table_that_was_forgotten_disturbs_no_other(house: House) -> None:
    table, _ = a_task_of_a_tick(house, failures=1)
    drain(house)
    house.pass_time(60)
    keeper = house.services.keep_queue
    waits = house.services.stores.tasks.waiting_for_retry(house.now, 9)
    house.services.stores.index.forget(table.identifier)
    assert keeper._live_paths(table.identifier, waits) is None
    assert house.services.keep_watch.keep().retried == ()


def test_tasks_whose_tables_are_being_read_keep_no_other_waiting(house: House) -> None:
    services = house.services
    tasks = services.stores.tasks
    # At most two tasks are looked at in one round.
    tasks.instead(waiting_for_retry=lambda due, limit, without=(): tasks.real.waiting_for_retry(due, min(limit, 2), without))
    stuck = []
    for name in ("a", "b", "c"):
        table = house.fragmented(name)
        services.refresh_files.refresh(table.identifier)
        services.plan_tables.plan(table.identifier, PlanRequest())
        task = services.stores.tasks.poll(None, "worker", house.now, timedelta(minutes=1))
        assert task is not None
        house.pass_time(1)
        failed = MergeResult(task.task_id, task.current_attempt_id, error="a file is locked")
        services.stores.tasks.complete(failed, house.now, timedelta(minutes=1))
        stuck.append(table.identifier)
    last = stuck.pop()
    for table in stuck:
        index = services.stores.tables.state(table)
        services.stores.index.save(replace(index.index, state=Failed("unreadable")), index.index_version)
    house.pass_time(100)
    services.keep_queue.keep()
    [pending] = services.stores.tasks.tasks(statuses=(TaskStatus.PENDING,))
    assert pending.table == last


def test_a_waiting_task_of_a_table_that_is_refused_now_is_canceled(house: House) -> None:
    services = house.services
    table = house.fragmented().identifier
    services.refresh_files.refresh(table)
    services.plan_tables.plan(table, PlanRequest())
    task = services.stores.tasks.poll(None, "worker", house.now, timedelta(minutes=1))
    assert task is not None
    failed = MergeResult(task.task_id, task.current_attempt_id, error="a file is locked")
    services.stores.tasks.complete(failed, house.now, timedelta(minutes=1))
    index = services.stores.tables.state(table)
    services.stores.index.save(replace(index.index, state=Refused("it has a branch")), index.index_version)
    house.pass_time(100)
    kept = services.keep_queue.keep()
    assert kept.outdated == (task.task_id,)
    assert services.stores.tasks.task(task.task_id).status is TaskStatus.CANCELED


def test_waiting_tasks_follow_their_table_to_its_new_group_once_it_exists(house: House) -> None:
    services = house.services
    table = house.fragmented()
    services.one_table.refresh(table.identifier)
    [task] = services.plan_tables.plan(table.identifier).tasks
    with table.table.transaction() as transaction:
        transaction.set_properties({"self-optimizing.group": "heavy"})
    services.one_table.refresh(table.identifier)
    services.keep_watch.keep()
    assert services.stores.tasks.task(task.task_id).queue == "default"
    services.manage_groups.add(ResourceGroup("heavy", queue=CompactionQueue(1)))
    services.stores.tasks.insert([example("other", queue="heavy")], [], house.now)
    services.keep_watch.keep()
    # A move may exceed the capacity, because the task would have no worker otherwise.
    assert services.stores.tasks.task(task.task_id).queue == "heavy"
    services.stores.tasks.cancel([TaskId("other")], EndReason.GIVEN_UP, "a person", house.now)
    services.work_on_queue.drain("worker")
    assert services.one_table.commit_now(table.identifier).record is not None
    assert table.live_ids() == list(range(12))


def test_a_group_that_is_deleted_while_tasks_move_to_it_does_not_end_the_round(house: House) -> None:
    services = house.services
    services.manage_groups.add(ResourceGroup("heavy"))
    table = house.fragmented()
    services.one_table.refresh(table.identifier)
    [task] = services.plan_tables.plan(table.identifier).tasks
    with table.table.transaction() as transaction:
        transaction.set_properties({"self-optimizing.group": "heavy"})
    services.one_table.refresh(table.identifier)
    services.stores.groups.instead(group=lambda name: services.stores.groups.remove(name))
    assert services.keep_queue.keep() == keep_queue.KeptQueue()
    assert services.stores.tasks.task(task.task_id).queue == "default"
