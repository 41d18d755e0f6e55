from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState
from compaction_pipeline.core.stores import Stores
from compaction_pipeline_tests.behaviours.example_tasks import LEASE, example, failed
from compaction_pipeline_tests.builders import NOW

ONE = Optimizer("o1", "default", "host", "123", "1.0", 2, NOW, NOW, memory_bytes=1 << 40, resource_id="r", merge_version=7)


def test_an_optimizer_is_found_by_its_id(stores: Stores) -> None:
    assert stores.optimizers.optimizer("o1") is None
    two = replace(ONE, optimizer_id="o2", started_at=NOW + timedelta(seconds=1), state=OptimizerState.ENDED, why="it said so")
    stores.optimizers.add(two)
    stores.optimizers.add(ONE)
    assert stores.optimizers.optimizer("o1") == ONE
    assert stores.optimizers.optimizers() == (ONE, two)
    assert stores.optimizers.optimizers(live=True) == (ONE,)


def test_a_touch_reaches_only_a_live_optimizer(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    later = NOW + timedelta(seconds=5)
    assert stores.optimizers.touch("unknown", later) is None
    assert stores.optimizers.touch("o1", later) == replace(ONE, touched_at=later)
    assert stores.optimizers.move("o1", [OptimizerState.RUNNING], OptimizerState.DRAINING, "asked to end")
    drains = stores.optimizers.touch("o1", later)
    assert drains is not None
    assert (drains.state, drains.why) == (OptimizerState.DRAINING, "asked to end")
    assert stores.optimizers.move("o1", [OptimizerState.DRAINING], OptimizerState.ENDED, "bye")
    assert stores.optimizers.touch("o1", later) is None


def test_a_state_moves_only_from_an_allowed_one(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    assert not stores.optimizers.move("o1", [OptimizerState.DRAINING], OptimizerState.ENDED, "")
    assert not stores.optimizers.move("unknown", list(OptimizerState), OptimizerState.ENDED, "")
    assert stores.optimizers.optimizer("o1") == ONE


def test_an_optimizer_that_an_error_ended_stays_known_as_failed(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    assert stores.optimizers.move("o1", [OptimizerState.RUNNING], OptimizerState.ENDED, "no Spark", failed=True)
    assert stores.optimizers.optimizer("o1") == replace(ONE, state=OptimizerState.ENDED, why="no Spark", failed=True)


def test_the_last_poll_is_kept(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    stores.optimizers.note_poll("o1", "p1", ["a1", "a2"])
    assert stores.optimizers.optimizer("o1") == replace(ONE, poll_id="p1", polled=("a1", "a2"))


def test_the_application_of_an_optimizer_stands_with_the_attempts_that_it_holds_and_that_know_of_none(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    stores.tasks.insert([example(name) for name in ("told", "untold", "ended", "other")], [], NOW)
    for name, owner, application in (("told", "o1", "app-1"), ("untold", "o1", ""), ("ended", "o1", ""), ("other", "o2", "")):
        task = stores.tasks.poll(None, owner, NOW, LEASE, [name], application=application)
        assert task is not None
        if name == "ended":
            stores.tasks.complete(failed(task), NOW)
    stores.optimizers.note_application("o1", "app-2")
    assert stores.optimizers.optimizer("o1") == replace(ONE, application="app-2")
    attempts = {name: stores.tasks.attempts(name)[0].application for name in ("told", "untold", "ended", "other")}
    assert attempts == {"told": "app-1", "untold": "app-2", "ended": "", "other": ""}


def test_a_live_optimizer_is_asked_and_its_next_touch_tells_it(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    assert stores.optimizers.ask("o1", log_level="DEBUG")
    assert stores.optimizers.ask("o1", stack_request="s1")
    assert stores.optimizers.touch("o1", NOW) == replace(ONE, log_level="DEBUG", stack_request="s1")
    assert not stores.optimizers.ask("unknown", log_level="DEBUG")
    assert stores.optimizers.move("o1", [OptimizerState.RUNNING], OptimizerState.ENDED, "")
    assert not stores.optimizers.ask("o1", stack_request="s2")


def test_silent_live_optimizers_are_lost_and_those_that_are_not_live_expire(stores: Stores) -> None:
    touched = NOW + timedelta(seconds=10)
    for name, at, state in (
        ("silent", NOW, OptimizerState.RUNNING),
        ("drains", NOW, OptimizerState.DRAINING),
        ("heard", touched, OptimizerState.RUNNING),
        ("ended", NOW, OptimizerState.ENDED),
    ):
        stores.optimizers.add(replace(ONE, optimizer_id=name, touched_at=at, state=state))
    assert sorted(stores.optimizers.lose_silent(NOW, "silent for 60 s")) == ["drains", "silent"]
    assert stores.optimizers.lose_silent(NOW, "again") == ()
    lost = stores.optimizers.optimizer("silent")
    assert lost is not None
    assert (lost.state, lost.why) == (OptimizerState.LOST, "silent for 60 s")
    assert [each.optimizer_id for each in stores.optimizers.optimizers(live=True)] == ["heard"]
    assert stores.optimizers.expire(NOW) == 0
    assert stores.optimizers.expire(touched) == 3
    assert [each.optimizer_id for each in stores.optimizers.optimizers()] == ["heard"]


STARTING = replace(
    ONE, state=OptimizerState.STARTING, process="", version="", memory_bytes=0, container="workers", settings="a1b2", why="it starts"
)


def test_containers_start_no_more_optimizers_than_a_group_may_have(stores: Stores) -> None:
    assert stores.optimizers.begin(STARTING, 2)
    # One that a person started does not count, and neither does one that has ended.
    stores.optimizers.add(replace(ONE, optimizer_id="by-hand"))
    stores.optimizers.add(replace(STARTING, optimizer_id="lost", state=OptimizerState.LOST))
    assert not stores.optimizers.begin(replace(STARTING, optimizer_id="o2"), 1)
    assert stores.optimizers.begin(replace(STARTING, optimizer_id="o2"), 2)
    assert not stores.optimizers.begin(replace(STARTING, optimizer_id="o3"), 2)
    assert [each.optimizer_id for each in stores.optimizers.optimizers(live=True)] == ["by-hand", "o1", "o2"]
    with pytest.raises(NotFoundError, match="'heavy' does not exist"):
        stores.optimizers.begin(replace(STARTING, optimizer_id="o4", group="heavy"), 9)


def test_an_optimizer_that_registers_takes_the_place_that_waits_for_its_resource_id(stores: Stores) -> None:
    assert stores.optimizers.begin(STARTING, 1)
    later = NOW + timedelta(seconds=30)
    registers = Optimizer("new", "default", "there", "77", "1.0", 4, later, later, memory_bytes=8, resource_id="r")
    stored = replace(registers, optimizer_id="o1", started_at=NOW, container="workers", settings="a1b2")
    assert stores.optimizers.register(registers) == stored
    assert stores.optimizers.optimizers() == (stored,)
    # It was called lost, but its process goes on and registers anew.
    assert stores.optimizers.move("o1", [OptimizerState.RUNNING], OptimizerState.LOST, "silent")
    again = replace(registers, container="workers", settings="a1b2")
    assert stores.optimizers.register(registers) == again
    assert [each.optimizer_id for each in stores.optimizers.optimizers(live=True)] == ["new"]


def test_what_a_container_asked_for_is_reserved_whatever_the_process_says(stores: Stores) -> None:
    assert stores.optimizers.begin(replace(STARTING, memory_bytes=2 * 10**9), 1)
    registers = Optimizer("new", "default", "there", "77", "1.0", 4, NOW, NOW, memory_bytes=1 << 50, resource_id="r")
    assert stores.optimizers.register(registers).memory_bytes == 2 * 10**9
    # It is called lost, and its process registers anew, in a row of its own.
    assert stores.optimizers.move("o1", [OptimizerState.RUNNING], OptimizerState.LOST, "silent")
    again = stores.optimizers.register(registers)
    assert (again.optimizer_id, again.memory_bytes) == ("new", 2 * 10**9)
    assert {each.memory_bytes for each in stores.optimizers.optimizers()} == {2 * 10**9}


@pytest.mark.parametrize(("of_group", "told", "reserved"), [("8", 9, 8), ("8", 7, 7), ("8", 0, 0), ("0", 9, 9), (None, 9, 9)])
def test_one_that_people_start_reserves_no_more_than_its_group_gives(
    stores: Stores, of_group: str | None, told: int, reserved: int
) -> None:
    stores.groups.add(ResourceGroup("heavy", properties={} if of_group is None else {"memory": of_group}))
    told_by_itself = replace(ONE, optimizer_id="by-hand", group="heavy", resource_id="", memory_bytes=told)
    assert stores.optimizers.register(told_by_itself).memory_bytes == reserved
    stored = stores.optimizers.optimizer("by-hand")
    assert stored is not None
    assert stored.memory_bytes == reserved


def test_a_resource_id_of_another_group_or_none_gets_no_place(stores: Stores) -> None:
    stores.groups.add(ResourceGroup("heavy"))
    assert stores.optimizers.begin(STARTING, 1)
    for name, group, resource_id in (("a", "heavy", "r"), ("b", "default", "s"), ("c", "default", "")):
        registers = replace(ONE, optimizer_id=name, group=group, resource_id=resource_id)
        assert stores.optimizers.register(registers) == registers
    assert stores.optimizers.optimizer("o1") == STARTING
    with pytest.raises(NotFoundError, match="'light' does not exist"):
        stores.optimizers.register(replace(ONE, optimizer_id="d", group="light"))


def test_an_optimizer_that_has_not_registered_is_live_but_not_heard_of(stores: Stores) -> None:
    assert stores.optimizers.begin(STARTING, 1)
    later = NOW + timedelta(hours=1)
    assert stores.optimizers.touch("o1", later) is None
    assert not stores.optimizers.ask("o1", log_level="DEBUG")
    assert stores.optimizers.lose_silent(later, "silent") == ()
    assert stores.optimizers.expire(later) == 0
    assert stores.optimizers.optimizers(live=True) == (STARTING,)
    assert stores.groups.remove("default").optimizers == ("o1",)
