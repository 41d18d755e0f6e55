"""Tasks are taken from silent holders only when these could have been heard: after a break, everybody gets one lease to be heard again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from compaction_pipeline.core.leases.timeouts import LEASE
from compaction_pipeline.core.queue.assignment import Assignment
from compaction_pipeline.core.queue.merge_version import MERGE_VERSION
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState, Registration
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.queue.watchers import MOST_PATIENCE
from compaction_pipeline_tests.services.house import House

STEP_SECONDS = 20
EVERY = timedelta(seconds=5)


class Watched:
    """A house with one planned task. Time passes in steps, and whoever is there does its part at each step."""

    def __init__(self, folder: Path) -> None:
        self.house = House(folder)
        self.services = self.house.services
        table = self.house.fragmented()
        self.services.refresh_files.refresh(table.identifier)
        [task] = self.services.plan_tables.plan(table.identifier).tasks
        self.task_id = task.task_id
        self.server: str | None = "server 1"
        self.keeps = True
        self.pass_time(LEASE)

    def pass_time(self, time: timedelta) -> None:
        for _ in range(round(time.total_seconds() / STEP_SECONDS)):
            self.house.pass_time(STEP_SECONDS)
            self.act()

    def act(self) -> None:
        if self.server is not None:
            self.services.keep_watch.note_server(self.server)
        if self.keeps:
            self.services.keep_watch.watch(EVERY)

    def registered(self) -> Optimizer:
        registration = Registration("default", "host", "1", self.services.version, MERGE_VERSION, 1)
        return self.services.serve_optimizers.register(registration)

    def taken(self, owner: str) -> Assignment:
        assignment = self.services.serve_tasks.poll(owner, None)
        assert isinstance(assignment, Assignment)
        return assignment

    @property
    def status(self) -> TaskStatus:
        return self.services.stores.tasks.task(self.task_id).status

    def state(self, optimizer: Optimizer) -> OptimizerState:
        found = self.services.stores.optimizers.optimizer(optimizer.optimizer_id)
        assert found is not None
        return found.state


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    yield made
    made.services.close()


def test_an_optimizer_that_is_silent_beside_its_server_loses_its_task_after_one_lease(watched: Watched) -> None:
    optimizer = watched.registered()
    watched.taken(optimizer.optimizer_id)
    watched.pass_time(LEASE - timedelta(seconds=STEP_SECONDS))
    assert (watched.status, watched.state(optimizer)) == (TaskStatus.EXECUTING, OptimizerState.RUNNING)
    watched.pass_time(timedelta(seconds=STEP_SECONDS))
    assert (watched.status, watched.state(optimizer)) == (TaskStatus.PENDING, OptimizerState.LOST)


def test_an_optimizer_whose_server_is_away_keeps_its_task_and_goes_on_when_a_server_is_back(watched: Watched) -> None:
    optimizer = watched.registered()
    attempt = watched.taken(optimizer.optimizer_id).attempt_id
    watched.server = None
    watched.pass_time(5 * LEASE)
    assert (watched.status, watched.state(optimizer)) == (TaskStatus.EXECUTING, OptimizerState.RUNNING)
    # A command on the same state database does not take the task away either.
    assert watched.services.await_tasks.release() == ()
    watched.server = "server 2"
    watched.act()
    touched = watched.services.serve_optimizers.touch(optimizer.optimizer_id, [attempt])
    assert (touched.lost, touched.drain) == ((), False)
    lease_ends = watched.services.stores.tasks.task(watched.task_id).lease_expires_at
    assert lease_ends == watched.house.now + LEASE


def test_an_optimizer_that_does_not_come_back_with_its_server_is_lost_one_lease_later(watched: Watched) -> None:
    optimizer = watched.registered()
    watched.taken(optimizer.optimizer_id)
    watched.server = None
    watched.pass_time(3 * LEASE)
    watched.server = "server 2"
    watched.act()
    watched.pass_time(LEASE - timedelta(seconds=STEP_SECONDS))
    assert (watched.status, watched.state(optimizer)) == (TaskStatus.EXECUTING, OptimizerState.RUNNING)
    watched.pass_time(timedelta(seconds=STEP_SECONDS))
    assert (watched.status, watched.state(optimizer)) == (TaskStatus.PENDING, OptimizerState.LOST)


def test_servers_are_waited_for_ten_minutes(watched: Watched) -> None:
    optimizer = watched.registered()
    watched.taken(optimizer.optimizer_id)
    watched.server = None
    watched.pass_time(MOST_PATIENCE - timedelta(seconds=STEP_SECONDS))
    assert (watched.status, watched.state(optimizer)) == (TaskStatus.EXECUTING, OptimizerState.RUNNING)
    watched.pass_time(timedelta(seconds=STEP_SECONDS))
    assert (watched.status, watched.state(optimizer)) == (TaskStatus.PENDING, OptimizerState.LOST)


def test_a_server_that_dies_again_and_again_keeps_no_task_for_ever(watched: Watched) -> None:
    optimizer = watched.registered()
    watched.taken(optimizer.optimizer_id)
    for number in range(33):
        watched.server = f"server {number + 2}"
        watched.pass_time(timedelta(seconds=STEP_SECONDS))
        # Another life of the server begins before the last one was there for a whole lease.
        assert watched.status is TaskStatus.EXECUTING or number * STEP_SECONDS >= MOST_PATIENCE.total_seconds()
    watched.server = "server 99"
    watched.pass_time(timedelta(seconds=STEP_SECONDS))
    assert (watched.status, watched.state(optimizer)) == (TaskStatus.PENDING, OptimizerState.LOST)


def test_a_dead_run_loses_its_task_after_one_lease_while_no_server_is_there(watched: Watched) -> None:
    watched.server = None
    watched.pass_time(2 * LEASE)
    watched.registered()
    watched.taken("Dagster run 1")
    watched.pass_time(LEASE)
    assert watched.status is TaskStatus.PENDING


def test_a_keeper_that_was_away_lets_holders_renew_late_leases_first(watched: Watched) -> None:
    attempt = watched.taken("Dagster run 1").attempt_id
    watched.keeps = False
    # For example, the state database was away.
    watched.pass_time(3 * LEASE)
    watched.keeps = True
    watched.act()
    assert watched.status is TaskStatus.EXECUTING
    assert watched.services.serve_tasks.renew([attempt]) == (attempt,)
    watched.pass_time(LEASE - timedelta(seconds=STEP_SECONDS))
    assert watched.status is TaskStatus.EXECUTING
    watched.pass_time(timedelta(seconds=STEP_SECONDS))
    assert watched.status is TaskStatus.PENDING


def test_a_task_whose_lease_ended_long_ago_is_taken_by_the_first_look_of_a_keeper(watched: Watched) -> None:
    watched.taken("Dagster run 1")
    watched.keeps = False
    watched.pass_time(LEASE + MOST_PATIENCE)
    watched.keeps = True
    watched.act()
    assert watched.status is TaskStatus.PENDING


def test_a_keeper_that_looks_rarely_has_no_breaks(watched: Watched) -> None:
    watched.keeps = False
    rarely = timedelta(minutes=2)
    watched.services.keep_watch.watch(rarely)
    watched.house.pass_time(rarely.total_seconds())
    watched.services.keep_watch.watch(rarely)
    watched.taken("Dagster run 1")
    watched.house.pass_time(rarely.total_seconds())
    watched.services.keep_watch.watch(rarely)
    assert watched.status is TaskStatus.PENDING
