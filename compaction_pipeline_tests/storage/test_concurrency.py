"""Several processes and threads on one state database."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

import pytest

from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.storage.stores import open_stores
from compaction_pipeline_tests.behaviours.example_tasks import LEASE, example, prepared
from compaction_pipeline_tests.builders import NOW, TABLE, data

_TASKS = 60
_POLLERS = 4
_PATIENCE_SECONDS = 600
"""How long the test waits for the other process. Its start takes seconds, and longer on a busy machine."""


def drain(stores: Stores, owner: str) -> list[str]:
    """Poll and report until a poll finds nothing. Returns the ids of the attempts."""
    attempts = []
    while (task := stores.tasks.poll(None, owner, NOW, LEASE)) is not None:
        attempts.append(str(task.attempt_id))
        stores.tasks.complete(prepared(task), NOW)
    return attempts


def drain_in_batches(stores: Stores, owner: str) -> list[str]:
    """Do the same with several tasks a poll."""
    attempts = []
    while tasks := stores.tasks.poll_many("default", owner, NOW, LEASE, 7):
        for task in tasks:
            attempts.append(str(task.attempt_id))
            stores.tasks.complete(prepared(task), NOW)
    return attempts


def drain_in_a_process(url: str, start: Barrier, attempts: Queue[list[str]]) -> None:
    stores = open_stores(url)
    start.wait(_PATIENCE_SECONDS)
    attempts.put(drain(stores, "other"))


def check(url: str, attempts: list[list[str]]) -> None:
    stores = open_stores(url)
    flat = [attempt_id for each in attempts for attempt_id in each]
    assert len(set(flat)) == len(flat) == _TASKS
    assert stores.tasks.counts() == {TaskStatus.PREPARED: _TASKS}
    assert {task.attempt for task in stores.tasks.tasks()} == {1}


def test_threads_that_poll_never_get_the_same_attempt(state_url: str) -> None:
    stores = open_stores(state_url)
    stores.tasks.insert([example(f"t{number}") for number in range(_TASKS)], [], NOW)
    with ThreadPoolExecutor(_POLLERS) as pool:
        one_way = [drain, drain_in_batches] * (_POLLERS // 2)
        attempts = list(pool.map(lambda number: one_way[number](stores, f"me-{number}"), range(_POLLERS)))
    # On PostgreSQL a thread stops early when others have locked all tasks that are left. Such tasks may still be Pending, so drain again.
    check(state_url, [*attempts, drain(stores, "last")])


def test_processes_that_poll_never_get_the_same_attempt(state_url: str) -> None:
    stores = open_stores(state_url)
    stores.tasks.insert([example(f"t{number}") for number in range(_TASKS)], [], NOW)
    # One other process is enough, because each costs the fast tests a second of imports.
    spawn = multiprocessing.get_context("spawn")
    start, theirs = spawn.Barrier(2), spawn.Queue()
    other = spawn.Process(target=drain_in_a_process, args=(state_url, start, theirs))
    other.start()
    start.wait(_PATIENCE_SECONDS)
    attempts = [drain(stores, "me"), theirs.get(timeout=_PATIENCE_SECONDS)]
    other.join(_PATIENCE_SECONDS)
    check(state_url, [*attempts, drain(stores, "last")])


def test_one_of_many_gets_a_lease(state_url: str) -> None:
    stores = open_stores(state_url)
    with ThreadPoolExecutor(_POLLERS) as pool:
        got = list(pool.map(lambda number: stores.leases.acquire("commit t", f"me-{number}", NOW, LEASE), range(20)))
    assert Counter(got) == {True: 1, False: 19}
    assert stores.leases.acquire("commit t", "late", NOW + LEASE, timedelta(seconds=1))


def test_one_of_many_claims_a_task(state_url: str) -> None:
    stores = open_stores(state_url)
    stores.tasks.insert([example(f"t{number}") for number in range(10)], [], NOW)
    drain(stores, "me")
    with ThreadPoolExecutor(_POLLERS) as pool:
        claims = list(pool.map(lambda number: stores.tasks.claim(TABLE, f"r{number}"), range(8)))
    assert Counter(task.task_id for claimed in claims for task in claimed) == {f"t{number}": 1 for number in range(10)}


def test_one_of_two_plans_takes_a_file(state_url: str) -> None:
    stores = open_stores(state_url)
    tasks = [example(f"t{number}", files=("shared", f"own-{number}")) for number in range(8)]
    with ThreadPoolExecutor(_POLLERS) as pool:
        inserted = list(pool.map(lambda task: stores.tasks.insert([task], [], NOW), tasks))
    assert Counter(inserted) == {True: 1, False: 7}
    assert len(stores.tasks.tasks()) == 1


def test_a_manifest_applied_by_many_at_once_is_indexed_once(state_url: str) -> None:
    stores = open_stores(state_url)
    files = [data(f"f{number}", day=number) for number in range(50)]
    with ThreadPoolExecutor(_POLLERS) as pool:
        list(pool.map(lambda _: stores.files.apply(TABLE, [], {"m": files}), range(8)))
    assert sorted(file.path for file in stores.files.files(TABLE)) == sorted(file.path for file in files)


@pytest.mark.parametrize("writers", [4])
def test_writers_beside_each_other_all_succeed(state_url: str, writers: int) -> None:
    def write(number: int) -> None:
        own = open_stores(state_url)
        for each in range(10):
            own.files.apply(TABLE, [], {f"m{number}-{each}": [data(f"f{number}-{each}")]})

    open_stores(state_url)
    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(write, range(writers)))
    assert len(open_stores(state_url).files.files(TABLE)) == writers * 10


def test_no_task_that_is_planned_while_its_table_is_paused_has_a_turn(state_url: str) -> None:
    stores = open_stores(state_url)
    stores.index.add(TABLE)
    old = [example(f"old-{number}") for number in range(_TASKS)]
    stores.tasks.insert(old, [], NOW)

    def plan_anew(number: int) -> bool:
        return stores.tasks.insert([example(f"new-{number}", files=(f"old-{number}-a",))], [f"old-{number}"], NOW)

    def pause(number: int) -> int:
        return stores.switches.pause(TABLE, number % 2 == 0)

    with ThreadPoolExecutor(_POLLERS) as pool:
        planned = [pool.submit(plan_anew, number) for number in range(_TASKS)]
        # The last of these pauses the table.
        paused = [pause(number) for number in range(9)]
        assert all(one.result() for one in planned)
    assert paused[-1] == 1
    assert stores.tasks.counts()[TaskStatus.PENDING] == stores.tasks.paused() == _TASKS
    assert stores.tasks.first_waiting(None) is None
    stores.switches.pause(TABLE, False)
    assert stores.tasks.paused() == 0


def test_servers_that_start_optimizers_at_once_start_no_more_than_the_group_may_have(state_url: str) -> None:
    servers = [open_stores(state_url) for _ in range(_POLLERS)]

    def begin(number: int) -> bool:
        row = Optimizer(f"o{number}", "default", "here", "", "", 1, NOW, NOW, OptimizerState.STARTING, container="workers")
        return servers[number % _POLLERS].optimizers.begin(row, 3)

    with ThreadPoolExecutor(_POLLERS) as pool:
        begun = list(pool.map(begin, range(20)))
    assert sum(begun) == len(servers[0].optimizers.optimizers(live=True)) == 3


def test_an_optimizer_registers_or_is_given_up_and_never_both(state_url: str) -> None:
    stores = open_stores(state_url)
    rows = [
        Optimizer(f"o{number}", "default", "here", "", "", 1, NOW, NOW, OptimizerState.STARTING, resource_id=f"r{number}", container="w")
        for number in range(20)
    ]
    for row in rows:
        stores.optimizers.add(row)

    def act(number: int) -> bool:
        row = rows[number // 2]
        if number % 2:
            return stores.optimizers.move(row.optimizer_id, (OptimizerState.STARTING,), OptimizerState.LOST, "late")
        came = replace(row, optimizer_id=f"new-{row.optimizer_id}", process="7", state=OptimizerState.RUNNING)
        return stores.optimizers.register(came).optimizer_id == row.optimizer_id

    with ThreadPoolExecutor(_POLLERS) as pool:
        done = list(pool.map(act, range(2 * len(rows))))
    for number, row in enumerate(rows):
        arrived, given_up = done[2 * number], done[2 * number + 1]
        assert arrived != given_up
        states = {each.optimizer_id: each.state for each in stores.optimizers.optimizers() if each.resource_id == row.resource_id}
        expected = {row.optimizer_id: OptimizerState.RUNNING}
        if given_up:
            expected = {row.optimizer_id: OptimizerState.LOST, f"new-{row.optimizer_id}": OptimizerState.DRAINING}
        assert states == expected
