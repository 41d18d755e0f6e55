"""In which order the tasks of a queue are claimed, and how they follow their table to another queue."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from compaction_pipeline.core.access.token import Role, Token
from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.queue.group import CompactionQueue, QueueOrder, ResourceGroup
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline_tests.behaviours.example_tasks import LEASE, example, failed, make_groups, prepared
from compaction_pipeline_tests.builders import NOW, TABLE

OTHER = TableIdentifier("lake", ("shop",), "other")
MINUTE = timedelta(minutes=1)


def polled(stores: Stores, queue: str, *turns: TableIdentifier) -> list[str]:
    """The ids of all tasks of a queue in the order of their polls."""
    found: list[str] = []
    while (first := stores.tasks.first_waiting(queue, None, turns)) is not None:
        task = stores.tasks.poll(queue, "me", NOW, LEASE, None, turns)
        assert task is not None
        assert task.table == first
        found.append(task.task_id)
    return found


def test_a_fifo_queue_is_taken_in_the_order_of_the_waiting_time(stores: Stores) -> None:
    stores.groups.add(ResourceGroup("fifo", queue=CompactionQueue(order=QueueOrder.FIFO)))
    waits = (("young", 2, 5), ("old", 0, 0), ("b", 1, 9), ("a", 1, 0))
    stores.tasks.insert(
        [example(name, queue="fifo", priority=priority, created_at=NOW + late * MINUTE) for name, late, priority in waits], [], NOW
    )
    assert polled(stores, "fifo") == ["old", "a", "b", "young"]


def test_a_change_of_the_order_counts_at_once(stores: Stores) -> None:
    stores.tasks.insert([example("low", created_at=NOW - MINUTE), example("high", priority=9)], [], NOW)
    assert stores.tasks.poll("default", "me", NOW, LEASE, ["low", "high"]) == stores.tasks.task("high")
    stores.tasks.insert([example("higher", priority=99)], [], NOW)
    stores.groups.change(ResourceGroup("default", queue=CompactionQueue(order=QueueOrder.FIFO)))
    assert polled(stores, "default") == ["low", "higher"]


def test_tables_that_have_a_turn_come_first_in_their_order(stores: Stores) -> None:
    tasks = [example("a", table=TABLE, priority=5), example("b", table=TABLE, priority=9), example("c", table=OTHER)]
    stores.tasks.insert(tasks, [], NOW)
    assert sorted(map(str, stores.tasks.waiting_tables("default"))) == [str(table) for table in sorted((TABLE, OTHER), key=str)]
    assert polled(stores, "default", OTHER, TABLE) == ["c", "b", "a"]
    assert list(stores.tasks.waiting_tables("default")) == []


def test_one_poll_of_many_claims_what_as_many_polls_would(stores: Stores) -> None:
    tasks = [example(f"t{number}", table=OTHER if number % 3 else TABLE, priority=number % 2) for number in range(7)]
    stores.tasks.insert(tasks, [], NOW)
    assert stores.tasks.next_tables("default", 2) == (OTHER, TABLE)
    taken = [stores.tasks.poll_many("default", "me", NOW, LEASE, 3, turns) for turns in ((), (TABLE,), (OTHER,), ())]
    assert [[task.task_id for task in each] for each in taken] == [["t1", "t3", "t5"], ["t0", "t6", "t2"], ["t4"], []]
    first = taken[0][0]
    assert (first, first.status, first.owner, first.attempt) == (stores.tasks.task("t1"), TaskStatus.EXECUTING, "me", 1)
    assert [attempt.attempt_id for attempt in stores.tasks.attempts("t1")] == [first.attempt_id]
    assert stores.tasks.next_tables("default", 2) == ()


def test_a_table_without_a_turn_comes_last(stores: Stores) -> None:
    stores.tasks.insert([example("a", table=TABLE, priority=5), example("c", table=OTHER)], [], NOW)
    assert polled(stores, "default", OTHER) == ["c", "a"]


def test_the_time_of_attempts_is_measured_in_a_window_and_by_queue(stores: Stores) -> None:
    make_groups(stores, "heavy")
    stores.tasks.insert([example("ended"), example("runs", table=OTHER), example("elsewhere", queue="heavy")], [], NOW)
    ended = stores.tasks.poll("default", "me", NOW, LEASE, ["ended"])
    assert ended is not None
    stores.tasks.complete(prepared(ended), NOW + 10 * MINUTE)
    assert stores.tasks.poll("default", "me", NOW + MINUTE, LEASE, ["runs"])
    assert stores.tasks.poll("heavy", "me", NOW, LEASE)
    assert stores.tasks.slot_seconds("default", NOW - MINUTE, NOW + 30 * MINUTE) == {TABLE: 600.0, OTHER: 1740.0}
    assert stores.tasks.slot_seconds("default", NOW + 9 * MINUTE, NOW + 12 * MINUTE) == {TABLE: 60.0, OTHER: 180.0}
    assert stores.tasks.slot_seconds("default", NOW + 10 * MINUTE, NOW + 12 * MINUTE) == {OTHER: 120.0}
    assert stores.tasks.slot_seconds("light", NOW, NOW + MINUTE) == {}


def test_waiting_tasks_follow_their_table_to_another_queue_and_no_others(stores: Stores) -> None:
    make_groups(stores, "heavy")
    tasks = [example(name) for name in ("pending", "runs", "again", "merged", "for good")]
    stores.tasks.insert([replace(task, max_attempts=1) if task.task_id == "for good" else task for task in tasks], [], NOW)
    stores.tasks.insert([example("other", table=OTHER)], [], NOW)
    for name in ("runs", "again", "merged", "for good"):
        task = stores.tasks.poll("default", "me", NOW, LEASE, [name])
        assert task is not None
        if name == "merged":
            stores.tasks.complete(prepared(task), NOW)
        elif name != "runs":
            stores.tasks.complete(failed(task), NOW, MINUTE)
    assert stores.tasks.queues_to_merge() == {TABLE: {"default"}, OTHER: {"default"}}
    assert sorted(stores.tasks.move_to_queue(TABLE, "heavy")) == ["again", "pending"]
    assert stores.tasks.move_to_queue(TABLE, "heavy") == ()
    assert stores.tasks.queues_to_merge() == {TABLE: {"heavy"}, OTHER: {"default"}}
    assert {task.task_id for task in stores.tasks.tasks() if task.queue == "heavy"} == {"again", "pending"}
    assert stores.tasks.queue_taken("heavy") == 2
    moved = stores.tasks.poll("heavy", "me", NOW, LEASE)
    assert moved is not None
    assert (moved.task_id, moved.queue, moved.waiting_since) == ("pending", "heavy", NOW)
    assert stores.tasks.retry(["again"]) == ("again",)
    assert stores.tasks.task("again").status is TaskStatus.PENDING


def test_tasks_stay_when_the_other_group_does_not_exist(stores: Stores) -> None:
    stores.tasks.insert([example("t1")], [], NOW)
    with pytest.raises(NotFoundError, match="'heavy' does not exist"):
        stores.tasks.move_to_queue(TABLE, "heavy")
    assert stores.tasks.task("t1").queue == "default"


def test_a_claim_asks_for_the_optimizer_and_its_token(stores: Stores) -> None:
    stores.tasks.insert([example("t1"), example("t2")], [], NOW)
    stores.optimizers.add(Optimizer("o1", "default", "host", "1", "1", 2, NOW, NOW))
    issued = Token("issued", "a person's", Role.OPTIMIZER, NOW, "00", "ab")
    for token in (issued, replace(issued, token_id="own", parent_id="issued", optimizer_id="o1"), replace(issued, token_id="admin")):
        stores.tokens.add(token)

    def taken(token_id: str, optimizer_id: str = "o1", most: int = 1) -> list[str]:
        found = stores.tasks.poll_many("default", optimizer_id, NOW, LEASE, most, (), token_id)
        return [task.task_id for task in found]

    assert taken("unknown") == taken("own", "another") == []
    assert taken("own") == ["t1"]
    stores.tokens.block("issued", NOW)
    assert taken("own") == []
    stores.tokens.allow("issued", NOW)
    stores.tokens.revoke("admin", NOW)
    assert taken("admin") == []
    stores.optimizers.move("o1", [OptimizerState.RUNNING], OptimizerState.DRAINING, "it was asked to end")
    assert taken("own") == []
    stores.optimizers.move("o1", [OptimizerState.DRAINING], OptimizerState.RUNNING, "")
    stores.tokens.revoke("issued", NOW)
    assert taken("own") == []
    assert stores.tasks.task("t2").status is TaskStatus.PENDING


def test_attempts_keep_the_application_that_their_optimizer_has_when_they_are_claimed(stores: Stores) -> None:
    stores.tasks.insert([example("t1"), example("t2")], [], NOW)
    stores.optimizers.add(Optimizer("o1", "default", "host", "1", "1", 2, NOW, NOW))
    stores.tokens.add(Token("own", "a person's", Role.OPTIMIZER, NOW, "00", "ab"))
    applications = []
    for said in ("", "app-1"):
        if said:
            stores.optimizers.note_application("o1", said)
        [claimed] = stores.tasks.poll_many("default", "o1", NOW, LEASE, 1, token_id="own")
        applications.append(stores.tasks.attempts(claimed.task_id)[0].application)
    assert applications == ["", "app-1"]
