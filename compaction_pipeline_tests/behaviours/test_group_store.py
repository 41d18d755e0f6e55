from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.queue.group import CompactionQueue, GroupHolders, QueueFull, QueueOrder, ResourceGroup
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline_tests.behaviours.example_tasks import LEASE, example, failed, prepared
from compaction_pipeline_tests.builders import NOW, TABLE

HEAVY = ResourceGroup("heavy", "spark-1", {"instances": "2", "spark.executor.memory": "2g"}, CompactionQueue(50, QueueOrder.QUOTA))


def test_the_default_group_is_there_and_others_are_made_changed_and_removed(stores: Stores) -> None:
    default = ResourceGroup("default")
    assert stores.groups.groups() == (default,)
    assert stores.groups.group("heavy") is None
    assert not stores.groups.change(HEAVY)
    assert stores.groups.add(HEAVY)
    assert not stores.groups.add(replace(HEAVY, container="other"))
    assert stores.groups.group("heavy") == HEAVY
    assert stores.groups.groups() == (default, HEAVY)
    changed = replace(HEAVY, properties={}, queue=CompactionQueue(7, QueueOrder.FIFO))
    assert stores.groups.change(changed)
    assert stores.groups.group("heavy") == changed
    assert stores.groups.remove("heavy") == GroupHolders()
    assert stores.groups.remove("heavy") == GroupHolders()
    assert stores.groups.groups() == (default,)


def test_why_a_group_gets_no_optimizers_is_noted_beside_what_people_set(stores: Stores) -> None:
    heavy = ResourceGroup("heavy", "workers", {"instances": "2"})
    stores.groups.add(heavy)
    stores.groups.hold("heavy", "no room")
    assert stores.groups.group("heavy") == replace(heavy, held="no room")
    stores.groups.change(replace(heavy, properties={"instances": "3"}))
    assert [(each.name, each.held) for each in stores.groups.groups()] == [("default", ""), ("heavy", "no room")]
    stores.groups.hold("heavy", "")
    stores.groups.hold("missing", "no room")
    assert stores.groups.group("heavy") == replace(heavy, properties={"instances": "3"})


def test_a_group_with_open_tasks_or_live_optimizers_stays(stores: Stores) -> None:
    stores.groups.add(HEAVY)
    task = replace(example("t1"), queue="heavy")
    assert stores.tasks.insert([task], [], NOW)
    optimizer = Optimizer("o1", "heavy", "host", "1", "1.0", 2, NOW, NOW)
    stores.optimizers.add(optimizer)
    assert stores.groups.remove("heavy") == GroupHolders(1, ("o1",))
    stores.optimizers.move("o1", [OptimizerState.RUNNING], OptimizerState.ENDED, "bye")
    assert stores.groups.remove("heavy") == GroupHolders(1)
    stores.tasks.cancel(["t1"], EndReason.GIVEN_UP, "a person", NOW)
    assert stores.groups.remove("heavy") == GroupHolders()


def test_nothing_comes_to_a_group_that_does_not_exist(stores: Stores) -> None:
    with pytest.raises(NotFoundError, match="'heavy' does not exist"):
        stores.tasks.insert([replace(example("t1"), queue="heavy")], [], NOW)
    assert stores.tasks.tasks() == ()
    with pytest.raises(NotFoundError, match="'heavy' does not exist"):
        stores.optimizers.add(Optimizer("o1", "heavy", "host", "1", "1.0", 2, NOW, NOW))
    assert stores.optimizers.optimizers() == ()


def test_a_plan_enters_a_queue_only_when_it_has_room_now(stores: Stores) -> None:
    group = replace(HEAVY, queue=CompactionQueue(3))
    stores.groups.add(group)
    room = group.room(0, by_person=True)
    tasks = [replace(example(f"t{number}"), queue="heavy") for number in range(6)]
    assert stores.tasks.insert(tasks[:3], [], NOW, room)
    assert stores.tasks.queue_taken("heavy") == 3
    with pytest.raises(QueueFull) as full:
        stores.tasks.insert(tasks[3:5], ["t0"], NOW, room)
    assert (full.value.room.taken, full.value.room.free) == (2, 1)
    assert [task.task_id for task in stores.tasks.tasks(statuses=[TaskStatus.PENDING])] == ["t2", "t1", "t0"]
    assert stores.tasks.insert([replace(tasks[3], work=tasks[0].work)], ["t0"], NOW, room)
    # Prepared tasks take no place, and neither do those of paused tables that nobody has begun.
    polled = stores.tasks.poll("heavy", "me", NOW, LEASE)
    assert polled is not None
    assert stores.tasks.queue_taken("heavy") == 3
    stores.tasks.complete(prepared(polled), NOW)
    assert stores.tasks.queue_taken("heavy") == 2
    stores.index.add(TABLE)
    stores.switches.pause(TABLE, True)
    assert stores.tasks.queue_taken("heavy") == 0
    assert stores.tasks.queue_taken("light") == 0


def test_a_task_that_waits_to_be_tried_again_takes_a_place(stores: Stores) -> None:
    stores.tasks.insert([example("t1")], [], NOW)
    polled = stores.tasks.poll(None, "me", NOW, LEASE)
    assert polled is not None
    stores.tasks.complete(failed(polled), NOW, timedelta(minutes=1))
    assert stores.tasks.queue_taken("default") == 1
    stores.tasks.cancel(["t1"], EndReason.GIVEN_UP, "a person", NOW)
    assert stores.tasks.queue_taken("default") == 0
