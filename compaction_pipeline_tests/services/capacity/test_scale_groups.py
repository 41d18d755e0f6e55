"""Scaling of a group: the steps of an action, what ends one, what is taken back, and what a crash between two steps leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256

import pytest

from compaction_pipeline.cli.render_scaling import scaling_lines
from compaction_pipeline.core.capacity.scaling.action import Action, ActionKind, Direction, Outcome
from compaction_pipeline.core.capacity.scaling.policy import Bounds, ScalingPolicy
from compaction_pipeline.core.capacity.scaling.record import Scale, ScalingRecord, Step
from compaction_pipeline.core.capacity.scaling.rules import looks_back
from compaction_pipeline.core.capacity.scaling.target import Target
from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.queue.container import BY_HAND, Container, ContainerKind, memory_of, settings_digest
from compaction_pipeline.core.queue.container_answers import Room, Unknown
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.core.queue.scaling.sizes import group_policy, person_digest, size_digest, sized, wanted_now
from compaction_pipeline.core.queue.scaling.steps import COMES_WITHIN
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.services.capacity.read_scaling import ReadScaling
from compaction_pipeline.services.capacity.scale_groups import ScaleGroups
from compaction_pipeline_tests.behaviours.example_tasks import LEASE, example, prepared
from compaction_pipeline_tests.builders import NOW
from compaction_pipeline_tests.services.queue.hall import DRAINING, LOST, RUNNING, STARTING, Hall
from compaction_pipeline_tests.statements import statements

MINUTE = timedelta(minutes=1)
ON = "dynamic-allocation.enabled"
POLICY = {
    ON: "true",
    "dynamic-allocation.max-parallelism": "8",
    "dynamic-allocation.executor-idle-timeout": "5min",
    "dynamic-allocation.max-executor-parallelism": "4",
    "parallelism": "2",
}
HEAVY = ResourceGroup("heavy", "workers", POLICY)
LOCAL, PODS = Container("workers", ContainerKind.LOCAL), Container("pods", ContainerKind.KUBERNETES)


class Scaled(Hall):
    """A hall whose group is scaled before each round."""

    def __init__(self, stores: Stores, group: ResourceGroup = HEAVY) -> None:
        super().__init__(stores, group)
        self._numbers, self._tasks = iter(range(1_000)), iter(range(1_000))
        self.never = ""
        self.scaler = self.another_scaler()

    def another_scaler(self) -> ScaleGroups:
        """The scaler of another server."""
        stores = self.stores
        ports = (stores.groups, stores.optimizers, stores.queues, stores.costs, stores.scaling, self.containers)
        return ScaleGroups(*ports, (lambda: self.now, lambda: f"a{next(self._numbers):03d}"))

    def minute(self, *, registers: bool = True, polls: bool = True) -> None:
        """A minute passes: the scaler looks, a round is done, and what was started registers and polls."""
        self.now += MINUTE
        for each in self.rows(RUNNING, DRAINING):
            self.stores.optimizers.touch(each.optimizer_id, self.now)
        self.scaler.scale()
        self.maintainer.maintain()
        if registers:
            self.register_all()
        if registers and polls:
            self.poll_all()

    def minutes(self, number: int) -> None:
        for _ in range(number):
            self.minute()

    def wait_for(self, tasks: int) -> None:
        """So many tasks come."""
        for _ in range(tasks):
            assert self.stores.tasks.insert([example(f"t{next(self._tasks)}", queue="heavy", created_at=self.now)], [], self.now)

    @property
    def scale_now(self) -> Scale:
        return self.stores.scaling.scales()["heavy"]

    @property
    def records(self) -> list[ScalingRecord]:
        """The oldest first."""
        return list(self.stores.scaling.records("heavy", 99))[::-1]

    def ask(self, kind: ActionKind, after: Target) -> ScalingRecord:
        """An action that was decided just now."""
        scale = self.scale_now
        before = scale.target
        direction = Direction.OUT if after.slots > before.slots else Direction.IN
        group = self.stores.groups.group("heavy")
        assert group is not None
        settings = settings_digest(self.containers.known["workers"], sized(group, self.containers.known["workers"], after))
        record = ScalingRecord(f"r{scale.revision}", "heavy", self.now, "p", Action(kind, direction, before, after, "a test"), settings)
        assert self.stores.scaling.change(scale.to(after), record)
        return record

    def end_drained(self) -> None:
        for each in self.rows(DRAINING):
            self.end(each)


def at_work(stores: Stores, instances: int = 2, **properties: str) -> Scaled:
    """A group that has so many optimizers of two slots, which it keeps without work, and no open action."""
    floor = {"dynamic-allocation.min-parallelism": str(2 * instances)}
    group = replace(HEAVY, properties={**POLICY, **floor, "instances": str(instances), **properties})
    hall = Scaled(stores, group)
    hall.minutes(2)
    assert len(hall.rows(RUNNING)) == instances
    return hall


def test_a_task_starts_the_first_optimizer_and_an_empty_queue_ends_the_last(stores: Stores) -> None:
    hall = Scaled(stores)
    hall.minutes(5)
    assert (hall.rows(), hall.records) == ([], [])
    hall.wait_for(1)
    hall.minutes(3)
    assert len(hall.rows(RUNNING)) == 1
    done = hall.records[0]
    assert (done.outcome, done.action.kind, done.action.direction) == (Outcome.DONE, ActionKind.OPTIMIZERS, Direction.OUT)
    assert done.in_force == hall.scale_now.good == Target(1, 2)
    told: list[str] = []
    stores.notices.spread(lambda owners: (told.append("asked"), ())[1], hall.now)
    assert told
    event = done.event
    assert event is not None
    assert event.title == "Group heavy: scaled out"
    assert "before: 0 optimizers of 2 slots" in event.body
    [task] = hall.stores.tasks.poll_many("heavy", hall.rows(RUNNING)[0].optimizer_id, hall.now, LEASE, 1)
    hall.stores.tasks.complete(prepared(task), hall.now)
    hall.minutes(30)
    assert hall.scale_now.target.instances == 0
    assert hall.rows(RUNNING) == []
    assert hall.records[-1].outcome is Outcome.DONE


def test_a_group_is_looked_at_more_often_only_while_tasks_wait(stores: Stores) -> None:
    """Otherwise a minute costs as much as it did when nobody could be asked more than once in it."""
    hall = at_work(stores)

    def looks(seconds: int, waits: frozenset[str] = frozenset()) -> list[int]:
        found = []
        for second in range(0, seconds, 5):
            hall.now += timedelta(seconds=5)
            before = len(stores.scaling.observations("heavy", NOW))
            with statements() as asked:
                hall.scaler.scale(waits)
            if len(stores.scaling.observations("heavy", NOW)) > before:
                found.append(second + 5)
            else:
                assert asked == []
        return found

    assert looks(180) == [60, 120, 180]
    hall.wait_for(50)
    # Somebody else has seen them. They are looked at every 15 s, and every 5 s until it is known that they wait too long.
    assert looks(120, frozenset({"heavy"})) == [15, 30, 45, 60, 65, 70, 75, 90, 105, 120]
    assert [each.action.direction for each in hall.records] == [Direction.OUT]
    waited = hall.records[0].at - (hall.now - timedelta(seconds=120))
    assert waited == timedelta(seconds=75)


def test_a_group_without_a_policy_is_left_alone_and_one_whose_policy_is_taken_away_has_its_own_number(stores: Stores) -> None:
    hall = at_work(stores)
    hall.ask(ActionKind.OPTIMIZERS, Target(4, 2))
    hall.minute(registers=False)
    without = {key: value for key, value in POLICY.items() if key != ON}
    hall.stores.groups.change(replace(HEAVY, properties={**without, "instances": "1", "min-instances": "1"}))
    hall.minute()
    assert (hall.records[-1].outcome, hall.records[-1].why) == (Outcome.CANCELED, "the policy was disabled meanwhile")
    assert not hall.scale_now.is_on
    hall.minutes(2)
    assert len(hall.rows(RUNNING)) == 1
    before = hall.scale_now
    hall.minutes(2)
    assert hall.scale_now == before


@pytest.mark.parametrize(("looks_first", "is_broken"), [(False, False), (True, False), (False, True)])
def test_a_group_that_gets_a_policy_keeps_what_it_has_until_the_policy_decides(stores: Stores, looks_first: bool, is_broken: bool) -> None:
    """Whoever enables a policy takes `instances` away in the same change."""
    hall = Scaled(stores, replace(HEAVY, properties={"instances": "3", "min-instances": "3", "parallelism": "2"}))
    hall.minute()
    there = {each.optimizer_id for each in hall.rows(RUNNING)}
    assert len(there) == 3
    stores.groups.change(HEAVY)
    if looks_first:
        hall.now += MINUTE
        hall.scaler.scale()
    # The file of containers may be away in the first round.
    hall.containers.unread = ConfigError("a broken file") if is_broken else None
    hall.maintainer.watch()
    assert {each.optimizer_id for each in hall.rows(RUNNING)} == there
    hall.containers.unread = None
    hall.minute()
    assert {each.optimizer_id for each in hall.rows(RUNNING)} == there
    assert (hall.scale_now.target, hall.records) == (Target(3, 2), [])
    hall.minutes(30)
    # Nothing came, so the policy takes them away by a decision that people see.
    assert (hall.rows(RUNNING), hall.scale_now.target.instances) == ([], 0)
    assert {each.action.direction for each in hall.records} == {Direction.IN}


def test_the_one_that_runs_a_task_stays_when_others_go(stores: Stores) -> None:
    hall = at_work(stores, 3)
    hall.minutes(2)
    newest = hall.rows(RUNNING)[-1]
    hall.wait_for(1)
    [_] = stores.tasks.poll_many("heavy", newest.optimizer_id, hall.now, LEASE, 1)
    assert stores.queues.running_by() == {newest.optimizer_id: 1}
    hall.ask(ActionKind.OPTIMIZERS, Target(1, 2))
    hall.maintainer.maintain()
    assert [each.optimizer_id for each in hall.rows(RUNNING)] == [newest.optimizer_id]


def test_a_persons_change_ends_an_action_and_counts_at_once(stores: Stores) -> None:
    hall = at_work(stores)
    hall.ask(ActionKind.PARALLELISM, Target(2, 4))
    hall.minute(registers=False)
    hall.stores.groups.change(replace(HEAVY, properties={**POLICY, "instances": "1"}))
    hall.maintainer.watch()
    assert hall.rows(STARTING) == []
    hall.minute()
    assert (hall.records[-1].outcome, hall.scale_now.target, hall.scale_now.good) == (Outcome.CANCELED, Target(1, 2), Target(1, 2))
    assert "a person changed the group" in hall.records[-1].why
    assert len(hall.rows(RUNNING)) == 1


def test_a_person_who_changes_the_policy_keeps_the_optimizers_that_are_there(stores: Stores) -> None:
    hall = at_work(stores)
    hall.ask(ActionKind.OPTIMIZERS, Target(3, 2))
    hall.minutes(3)
    there = {each.optimizer_id for each in hall.rows(RUNNING)}
    assert len(there) == 3
    hall.ask(ActionKind.PARALLELISM, Target(3, 4))
    group = stores.groups.group("heavy")
    assert group is not None
    stores.groups.change(replace(group, properties={**group.properties, "dynamic-allocation.max-parallelism": "12"}))
    hall.minute()
    assert (hall.records[-1].outcome, hall.scale_now.target) == (Outcome.CANCELED, Target(3, 2))
    assert there == {each.optimizer_id for each in hall.rows(RUNNING)}


def test_a_group_whose_stored_policy_breaks_a_rule_is_warned_of_once_for_each_change(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    """A release that has a new rule finds groups that were stored before."""
    hall = at_work(stores)
    floors = {"min-parallelism": "1", "dynamic-allocation.min-parallelism": "2"}

    def warned(**properties: str) -> list[str]:
        caplog.clear()
        hall.stores.groups.change(replace(HEAVY, properties={**POLICY, **properties}))
        hall.minutes(3)
        return [each.getMessage() for each in caplog.records if each.levelname == "WARNING" and "is not scaled" in each.getMessage()]

    (two,) = warned(**floors)
    assert two.startswith("group=heavy is not scaled: 'dynamic-allocation.min-parallelism' of group heavy is 2 and 'min-parallelism' is 1")
    assert warned(**floors) == []
    (three,) = warned(**{**floors, "min-parallelism": "3"})
    assert "'min-parallelism' is 3" in three
    assert warned() == []
    assert warned(**floors) == [two]


def test_a_file_that_cannot_be_read_for_a_while_ends_nothing(stores: Stores) -> None:
    hall = at_work(stores)
    hall.ask(ActionKind.OPTIMIZERS, Target(3, 2))
    hall.minutes(3)
    before = hall.scale_now
    hall.containers.unread = ConfigError("a broken file")
    hall.minutes(2)
    assert (hall.scale_now, len(hall.rows(RUNNING)), hall.rows(DRAINING)) == (before, 3, [])
    hall.containers.unread = None
    hall.minutes(2)
    assert len(hall.rows(RUNNING)) == 3


def test_more_are_there_when_optimizers_of_another_size_are_counted(stores: Stores) -> None:
    """A replacement was given up, so there are two sizes. One more is started, and no more than that."""
    hall = at_work(stores, **{"dynamic-allocation.max-parallelism": "16"})
    hall.ask(ActionKind.PARALLELISM, Target(2, 3))
    hall.minute()
    hall.minute()
    [first] = hall.records
    scale = hall.scale_now.to(hall.scale_now.target, replaces=False)
    assert stores.scaling.change(scale, first.closed(Outcome.PARTIAL, "a test", hall.now, scale.target))
    record = replace(first, record_id="more", at=hall.now, action=replace(first.action, kind=ActionKind.OPTIMIZERS, after=Target(3, 3)))
    assert stores.scaling.change(scale.to(Target(3, 3), replaces=False), record)
    hall.minutes(2)
    assert hall.records[-1].outcome is Outcome.DONE
    assert len(hall.rows(RUNNING)) == 3


def test_another_size_replaces_one_by_one_and_is_good_when_it_has_merged(stores: Stores) -> None:
    hall = at_work(stores)
    hall.ask(ActionKind.PARALLELISM, Target(2, 4))
    for _ in range(4):
        hall.minute()
        assert len(hall.rows(RUNNING)) >= 2
        hall.end_drained()
    assert sorted(each.parallelism for each in hall.rows(RUNNING)) == [4, 4]
    assert hall.records[-1].is_open
    hall.wait_for(1)
    [task] = hall.stores.tasks.poll_many("heavy", hall.rows(RUNNING)[0].optimizer_id, hall.now, LEASE, 1)
    hall.stores.tasks.complete(prepared(task), hall.now)
    hall.minute()
    assert (hall.records[-1].outcome, hall.scale_now.good) == (Outcome.DONE, Target(2, 4))


def test_another_size_is_good_too_when_it_stood_idle_for_a_while(stores: Stores) -> None:
    hall = at_work(stores)
    hall.ask(ActionKind.PARALLELISM, Target(2, 4))
    hall.minutes(5)
    assert hall.records[0].is_open
    hall.minutes(4)
    assert hall.records[0].outcome is Outcome.DONE


def exits_at_once(hall: Scaled) -> None:
    hall.containers.problem = ConfigError("no such image")


def never_registers(hall: Scaled) -> None:
    hall.never = "registers"


def never_polls(hall: Scaled) -> None:
    hall.never = "polls"


def dies_at_its_first_task(hall: Scaled) -> None:
    hall.never = "lives"


@pytest.mark.parametrize("fails", [exits_at_once, never_registers, never_polls, dies_at_its_first_task])
@pytest.mark.parametrize("kind", [ActionKind.PARALLELISM, ActionKind.OPTIMIZERS])
def test_what_fails_is_taken_back_and_the_last_good_configuration_stands(
    stores: Stores, kind: ActionKind, fails: Callable[[Scaled], None]
) -> None:
    hall = at_work(stores)
    good = {each.optimizer_id for each in hall.rows(RUNNING)}
    hall.ask(kind, Target(2, 4) if kind is ActionKind.PARALLELISM else Target(4, 2))
    fails(hall)
    for _ in range(40):
        hall.minute(registers=hall.never != "registers", polls=hall.never != "polls")
        if hall.never == "lives":
            for each in hall.rows(RUNNING):
                if each.optimizer_id not in good:
                    hall.stores.optimizers.move(each.optimizer_id, (RUNNING,), LOST, "killed", failed=True)
                    hall.containers.alive.discard(each.resource_id)
        if not hall.records[-1].is_open:
            break
        assert good <= {each.optimizer_id for each in hall.rows(RUNNING)}
    record = hall.records[-1]
    assert (record.outcome, record.in_force, record.why != "") == (Outcome.FAILED, Target(2, 2), True)
    hall.containers.problem = None
    hall.minutes(3)
    hall.end_drained()
    hall.minute()
    assert good == {each.optimizer_id for each in hall.rows(RUNNING, STARTING, DRAINING)}
    assert hall.containers.alive == {each.resource_id for each in hall.rows(RUNNING)}
    # What was started for it does not come up later.
    late = [each for each in hall.rows(LOST) if each.never_came]
    for each in late:
        came = hall.stores.optimizers.register(replace(each, optimizer_id=f"late-{each.optimizer_id}", state=RUNNING, process="7"))
        assert came.state is DRAINING


def test_what_the_container_still_has_is_ended_before_the_rollback_is_recorded(stores: Stores) -> None:
    hall = at_work(stores)
    hall.ask(ActionKind.OPTIMIZERS, Target(3, 2))
    hall.minute(registers=False)
    [coming] = hall.rows(STARTING)
    for _ in range(COMES_WITHIN + 2):
        if hall.records[-1].step is Step.ENDING:
            break
        hall.minute(registers=False)
    assert hall.records[-1].step is Step.ENDING
    # The first request to end it got lost. The container does not answer, and then it does.
    hall.containers.alive.add(coming.resource_id)
    hall.containers.silent = Unknown("no answer")
    hall.minute()
    hall.minute()
    assert hall.records[-1].is_open
    hall.containers.silent = None
    hall.minute()
    assert coming.resource_id not in hall.containers.alive
    hall.minute()
    assert hall.records[-1].outcome is Outcome.FAILED


def test_a_silent_container_fails_nothing(stores: Stores) -> None:
    hall = at_work(stores)
    hall.ask(ActionKind.OPTIMIZERS, Target(3, 2))
    hall.containers.silent = Unknown("no answer")
    for _ in range(3 * COMES_WITHIN):
        hall.minute()
    assert (hall.records[0].is_open, hall.records[0].step) == (True, Step.ASKED)
    hall.containers.silent = None
    hall.minutes(3)
    assert hall.records[0].outcome is Outcome.DONE


def test_a_container_without_room_makes_an_action_partial(stores: Stores) -> None:
    hall = at_work(stores)
    hall.ask(ActionKind.OPTIMIZERS, Target(4, 2))
    hall.containers.outside = Room(millicores=2_000)
    hall.minute()
    hall.containers.outside = Room(millicores=0)
    hall.minutes(COMES_WITHIN + 1)
    record = hall.records[0]
    assert (record.outcome, record.in_force) == (Outcome.PARTIAL, Target(3, 2))
    assert "has no room for another optimizer" in record.why
    assert hall.scale_now.target.instances == 3


def test_a_server_that_was_away_fails_nothing(stores: Stores) -> None:
    hall = at_work(stores)
    hall.ask(ActionKind.OPTIMIZERS, Target(3, 2))
    hall.minute(registers=False)
    hall.now += timedelta(hours=1)
    hall.scaler = hall.another_scaler()
    hall.register_all()
    hall.poll_all()
    hall.minutes(2)
    assert hall.records[0].outcome is Outcome.DONE


def test_a_lost_optimizer_ends_an_action(stores: Stores) -> None:
    hall = at_work(stores)
    hall.minutes(5)
    hall.ask(ActionKind.PARALLELISM, Target(2, 4))
    hall.minute(registers=False)
    first = hall.rows(RUNNING)[0]
    hall.stores.optimizers.move(first.optimizer_id, (RUNNING,), LOST, "silent")
    hall.minute(registers=False)
    assert (hall.records[-1].outcome, hall.scale_now.target) == (Outcome.CANCELED, Target(2, 2))
    assert f"optimizer {first.optimizer_id} was lost" in hall.records[-1].why


def test_kills_for_memory_take_a_configuration_back_that_was_called_good(stores: Stores) -> None:
    hall = at_work(stores)
    hall.ask(ActionKind.PARALLELISM, Target(2, 4))
    while hall.records[0].is_open:
        hall.minute()
    assert hall.records[0].outcome is Outcome.DONE
    for each in hall.rows(RUNNING):
        hall.stores.optimizers.move(each.optimizer_id, (RUNNING,), LOST, "its pod says: OOMKilled")
        hall.containers.alive.discard(each.resource_id)
    hall.minute()
    assert (hall.records[0].step, hall.records[0].is_open, hall.scale_now.target) == (Step.ENDING, True, Target(2, 2))
    hall.minutes(2)
    assert hall.records[0].outcome is Outcome.FAILED
    assert "killed for memory" in hall.records[0].why
    assert {each.parallelism for each in hall.rows(RUNNING)} == {2}


@pytest.mark.parametrize("instances", [2, 5])
def test_a_larger_number_is_taken_back_when_all_that_is_more_dies_at_its_first_task(stores: Stores, instances: int) -> None:
    """They ask for a task before they die of it, so the number was reached. What stays of a larger number is no failure."""
    hall = at_work(stores, **{"dynamic-allocation.max-parallelism": "12"})
    good = {each.optimizer_id for each in hall.rows(RUNNING)}
    hall.ask(ActionKind.OPTIMIZERS, Target(6, 2))
    while hall.records[0].is_open:
        hall.minute()
    assert (hall.records[0].outcome, hall.scale_now.good) == (Outcome.DONE, Target(6, 2))
    more = [each.optimizer_id for each in hall.rows(RUNNING) if each.optimizer_id not in good]
    works = good | set(more[: instances - len(good)])
    for _ in range(3):
        for each in hall.rows(RUNNING):
            if each.optimizer_id not in works:
                hall.stores.optimizers.move(each.optimizer_id, (RUNNING,), LOST, "it was silent")
                hall.containers.alive.discard(each.resource_id)
        hall.minute()
    if instances > len(good):
        assert (hall.records[0].outcome, hall.scale_now.target) == (Outcome.DONE, Target(6, 2))
        return
    record = hall.records[0]
    assert (record.outcome, record.in_force, hall.scale_now.good) == (Outcome.FAILED, Target(2, 2), Target(2, 2))
    assert record.why == "4 optimizers of it failed one after the other; the last time: it was silent"
    hall.minutes(2)
    assert good == {each.optimizer_id for each in hall.rows(RUNNING, STARTING, DRAINING)}


def test_a_number_that_was_reached_is_taken_back_after_a_larger_one_that_failed(stores: Stores) -> None:
    hall = at_work(stores, **{"dynamic-allocation.max-parallelism": "12"})
    good = {each.optimizer_id for each in hall.rows(RUNNING)}
    hall.ask(ActionKind.OPTIMIZERS, Target(3, 2))
    while hall.records[0].is_open:
        hall.minute()
    assert hall.records[0].outcome is Outcome.DONE
    hall.ask(ActionKind.OPTIMIZERS, Target(6, 2))
    for _ in range(4):
        hall.minute()
        for each in hall.rows(RUNNING):
            if each.optimizer_id not in good:
                hall.stores.optimizers.move(each.optimizer_id, (RUNNING,), LOST, "it was silent")
                hall.containers.alive.discard(each.resource_id)
    hall.minute()
    assert [(each.outcome, each.in_force) for each in hall.records] == [(Outcome.FAILED, Target(2, 2)), (Outcome.FAILED, Target(3, 2))]
    assert hall.scale_now.target == hall.scale_now.good == Target(2, 2)
    hall.minute()
    assert good == {each.optimizer_id for each in hall.rows(RUNNING, STARTING, DRAINING)}


def test_more_optimizers_end_a_replacement_and_what_was_replaced_stays(stores: Stores) -> None:
    hall = at_work(stores, **{"dynamic-allocation.max-parallelism": "16"})
    hall.ask(ActionKind.PARALLELISM, Target(2, 3))
    hall.wait_for(40)
    hall.minute()
    while len(hall.records) == 1:
        hall.minute()
    replacing, more = hall.records
    assert (replacing.outcome, replacing.in_force) == (Outcome.PARTIAL, Target(2, 2))
    assert (more.action.kind, more.action.after.parallelism) == (ActionKind.OPTIMIZERS, 2)
    hall.minutes(4)
    assert hall.records[1].outcome is Outcome.DONE
    assert (hall.scale_now.good.parallelism, hall.scale_now.replaces) == (2, False)
    there = sorted(each.parallelism for each in hall.rows(RUNNING))
    assert there == [2] * (hall.scale_now.target.instances - 2) + [3, 3]


def test_what_came_of_a_larger_number_stays_and_more_is_not_asked_for_at_once(stores: Stores) -> None:
    """The cluster has place for five, tells nobody, and lets the others wait."""
    hall = at_work(stores, **{"dynamic-allocation.max-parallelism": "16"})
    hall.wait_for(200)
    for _ in range(60):
        hall.minute(registers=False)
        for each in hall.rows(STARTING)[: 5 - len(hall.rows(RUNNING))]:
            hall.register(each)
        hall.poll_all()
    assert hall.scale_now.target.instances == len(hall.rows(RUNNING)) == 5
    # What came stays. More is tried once, after a pause, and is banned when nothing of it comes.
    assert [(each.outcome, each.action.before.instances) for each in hall.records] == [(Outcome.PARTIAL, 2), (Outcome.FAILED, 5)]
    assert hall.records[1].at - hall.records[0].at >= timedelta(minutes=15)


def test_the_first_optimizer_is_tried_again_soon(stores: Stores) -> None:
    hall = Scaled(stores)
    hall.minutes(3)
    hall.wait_for(9)
    hall.containers.problem = ConfigError("no such image")
    while not hall.records or hall.records[0].is_open:
        hall.minute()
    assert hall.records[0].outcome is Outcome.FAILED
    hall.containers.problem = None
    hall.minutes(18)
    assert len(hall.rows(RUNNING)) >= 1


def test_one_that_registers_and_never_polls_does_not_freeze_its_group(stores: Stores) -> None:
    hall = at_work(stores, **{"dynamic-allocation.max-parallelism": "16"})
    first = hall.rows(RUNNING)[0]
    hall.stores.optimizers.move(first.optimizer_id, (RUNNING,), LOST, "silent")
    hall.containers.alive.discard(first.resource_id)
    hall.minute(polls=False)
    hall.wait_for(200)
    for _ in range(25):
        hall.minute(registers=False)
    assert [each.action.direction for each in hall.records] == [Direction.OUT]


def test_a_kill_for_memory_is_seen_once_however_late_the_container_says_it(stores: Stores) -> None:
    hall = at_work(stores)
    first = hall.rows(RUNNING)[0]
    hall.stores.optimizers.move(first.optimizer_id, (RUNNING,), LOST, "silent")
    hall.containers.alive.discard(first.resource_id)
    hall.minutes(2)
    hall.stores.optimizers.move(first.optimizer_id, (LOST,), LOST, "silent; its container says: OOMKilled")
    hall.minutes(5)
    assert sum(each.memory_kills for each in stores.scaling.observations("heavy", NOW)) == 1


@pytest.mark.parametrize("crashes_after", range(8))
def test_a_server_that_is_killed_between_two_steps_leaves_what_another_one_goes_on_with(stores: Stores, crashes_after: int) -> None:
    """Each look of the scaler, and each round of the maintainer, is of a server that was killed right after it."""
    hall = at_work(stores)
    hall.ask(ActionKind.PARALLELISM, Target(2, 4))
    for number in range(30):
        hall.now += MINUTE
        for each in hall.rows(RUNNING, DRAINING):
            hall.stores.optimizers.touch(each.optimizer_id, hall.now)
        if number % 2 == crashes_after % 2:
            hall.scaler = hall.another_scaler()
        hall.scaler.scale()
        if number == crashes_after:
            # Killed before the round.
            continue
        hall.containers.killed = number == crashes_after + 1
        try:
            hall.maintainer.maintain()
        except KeyboardInterrupt:
            # Its row is written, and its process never starts.
            hall.containers.killed = False
        hall.register_all()
        # What has no process cannot register.
        for each in hall.rows(RUNNING):
            if each.resource_id not in hall.containers.alive:
                hall.stores.optimizers.move(each.optimizer_id, (RUNNING,), LOST, "it never started")
        hall.poll_all()
        hall.end_drained()
    assert {each.outcome for each in hall.records} <= {Outcome.DONE, Outcome.CANCELED, Outcome.FAILED}
    assert len(hall.rows(RUNNING)) == hall.scale_now.target.instances
    assert {each.parallelism for each in hall.rows(RUNNING)} == {hall.scale_now.target.parallelism}


def test_a_deposed_leader_changes_nothing(stores: Stores) -> None:
    hall = at_work(stores)
    stale = hall.scale_now
    record = hall.ask(ActionKind.OPTIMIZERS, Target(3, 2))
    assert not stores.scaling.change(stale.to(Target(9, 2)), replace(record, record_id="other"))
    assert not stores.scaling.change(hall.scale_now.to(Target(9, 2)), replace(record, record_id="other"))
    assert [each.record_id for each in hall.records] == [record.record_id]
    assert hall.scale_now.target == Target(3, 2)


def test_what_was_seen_is_kept_for_some_days_and_no_longer_than_its_group(stores: Stores) -> None:
    hall = at_work(stores)
    seen = stores.scaling.observations("heavy", NOW)
    assert [each.up for each in seen][-1] == 2
    assert len(seen) >= 2
    stores.scaling.observe("heavy", replace(seen[0], waiting=99))
    assert stores.scaling.observations("heavy", NOW) == seen
    stores.scaling.expire(seen[1].at, NOW)
    assert stores.scaling.observations("heavy", NOW) == seen[1:]
    for each in hall.rows(RUNNING):
        hall.end(each)
    stores.groups.remove("heavy")
    stores.scaling.expire(NOW, NOW)
    assert (stores.scaling.observations("heavy", NOW), stores.scaling.scales()) == ((), {})


def test_the_dry_run_over_what_was_seen_shows_what_was_done(stores: Stores) -> None:
    """With the same policy it is what the records say. A policy can be tried before it is enabled, too."""
    hall = Scaled(stores)
    read = ReadScaling(stores.groups, stores.scaling, stores.notices, hall.containers, lambda: hall.now)
    with pytest.raises(ConfigError, match="nothing was seen of group heavy in the last 1 h"):
        read.dry_run("heavy", 1)
    for busy in (True, False, True):
        if busy:
            hall.wait_for(5)
        hall.minutes(12)
        for each in stores.tasks.poll_many("heavy", "somebody", hall.now, LEASE, 99):
            stores.tasks.complete(prepared(each), hall.now)
        hall.minutes(25)
    assert len(hall.records) >= 4
    shown = read.dry_run("heavy", 24)
    assert [(each.at, each.action) for each in shown] == [(each.at, each.action) for each in hall.records]
    without = replace(HEAVY, properties={key: value for key, value in POLICY.items() if key != ON})
    stores.groups.change(without)
    assert [each.action.kind for each in read.dry_run("heavy", 24)][:1] == [ActionKind.OPTIMIZERS]
    assert read.groups() == []
    stores.groups.change(replace(HEAVY, properties={}))
    with pytest.raises(
        ConfigError, match=r"group heavy has no policy of scaling to try, because it lacks 'dynamic-allocation.max-parallelism'"
    ):
        read.dry_run("heavy", 24)
    assert read.group("heavy").now == "group heavy is not scaled: 'dynamic-allocation.enabled' is not true"


def test_people_see_what_a_group_is_to_have_and_the_hours_beside_each_action(stores: Stores) -> None:
    hall = Scaled(stores, replace(HEAVY, properties={**POLICY, "memory": "4000000000"}))
    read = ReadScaling(stores.groups, stores.scaling, stores.notices, hall.containers, lambda: hall.now)
    assert read.groups()[0].now == "a server that starts optimizers has not looked at it yet"
    hall.minutes(3)
    hall.wait_for(1)
    hall.minutes(4)
    [found] = read.groups()
    assert (found.target, found.good, found.problem) == (Target(1, 2, 4_000_000_000), Target(1, 2, 4_000_000_000), "")
    [action] = found.actions
    assert (action.record.outcome, action.before.wait_seconds_p95, action.before.gb_hours) == (Outcome.DONE, 0.0, 0.0)
    ended = action.record.closed_at
    assert ended is not None
    later = [each for each in stores.scaling.observations("heavy", NOW) if each.at > ended]
    assert action.after.wait_seconds_p95 == max(each.oldest_wait.total_seconds() for each in later)
    assert action.after.gb_hours == pytest.approx(4 * sum(each.up for each in later) / 60)
    assert read.scaled() == ["heavy"]
    assert found.notices.waiting == 1
    assert "notices: 1 still to arrive, 0 given up" in scaling_lines(found)
    stores.notices.spread(lambda owners: (), hall.now)
    assert scaling_lines(read.group("heavy"))[-1].startswith("nobody was told of 1 action of it, because no address was known")
    hall.containers.known["workers"] = BY_HAND
    assert "two scalers must never meet" in read.group("heavy").problem
    with pytest.raises(NotFoundError, match="group 'light' does not exist"):
        read.group("light")


@pytest.mark.parametrize(
    ("container", "properties", "says"),
    [
        (BY_HAND, {}, "two scalers must never meet"),
        (LOCAL, {"dynamic-allocation.min-memory": "1", "dynamic-allocation.max-memory": "2"}, "'dynamic-allocation.max-memory' of group"),
        (LOCAL, {"dynamic-allocation.max-slot-cores": "2"}, "so there is nothing to scale"),
        (
            LOCAL,
            {"dynamic-allocation.max-memory": "2"},
            "'dynamic-allocation.max-memory' of group heavy is set, .* nothing to scale; remove it",
        ),
        (LOCAL, {"dynamic-allocation.max-memory": "many"}, "so there is nothing to scale"),
        (PODS, {"dynamic-allocation.min-memory": "1", "dynamic-allocation.max-memory": "2"}, "lacks 'memory'"),
    ],
)
def test_what_a_container_cannot_carry_out_is_refused(container: Container, properties: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        group_policy(replace(HEAVY, properties={**POLICY, **properties}), container)


def test_a_target_is_told_to_a_container_by_the_properties_that_people_use() -> None:
    yarn = Container("workers", ContainerKind.YARN, {"master": "yarn", "spark.executor.memory": "2g"})
    scaled = replace(HEAVY, properties={**POLICY, "dynamic-allocation.min-memory": "1", "dynamic-allocation.max-memory": "99999999999"})
    larger = sized(scaled, yarn, Target(1, 4, memory_of(yarn, sized(HEAVY, yarn, Target(1, 4))) + 4 * 2**30, 2.0))
    assert larger.properties["spark.executor.memoryOverhead"] == f"{384 + 1024}m"
    assert (larger.properties["spark.task.cpus"], larger.properties["spark.executor.cores"]) == ("2", "2")
    assert "spark.executor.memory" not in larger.properties
    pod = sized(HEAVY, PODS, Target(1, 4, 10**9, 1.5))
    assert (pod.properties["memory"], pod.properties["cpu"], pod.properties["parallelism"]) == ("1000000000", "6000m", "4")
    same = sized(HEAVY, LOCAL, Target(3, 2))
    assert settings_digest(LOCAL, same) == settings_digest(LOCAL, sized(HEAVY, LOCAL, Target(7, 2)))
    assert settings_digest(LOCAL, same) != settings_digest(LOCAL, sized(HEAVY, LOCAL, Target(3, 4)))
    # A policy is no setting of an optimizer.
    tuned = replace(HEAVY, properties={**POLICY, "dynamic-allocation.max-parallelism": "9"})
    assert settings_digest(LOCAL, HEAVY) == settings_digest(LOCAL, tuned)


def test_a_kill_for_memory_is_remembered_for_a_day_where_memory_is_scaled() -> None:
    bounds = Bounds(0, 8)
    assert looks_back(ScalingPolicy(bounds)) < timedelta(hours=2)
    assert (
        looks_back(ScalingPolicy(bounds, memory=Bounds(1, 2))) == looks_back(ScalingPolicy(bounds, most_slot_cores=2)) > timedelta(days=1)
    )


@pytest.mark.parametrize("more", [{"spark.executor.instances": "8"}, {"spark.executor.instances": "1"}, {}])
def test_memory_that_is_added_is_shared_by_the_executors_that_there_are(more: dict[str, str]) -> None:
    yarn = Container("workers", ContainerKind.YARN, {"master": "yarn", "spark.executor.memory": "4g"})
    scaled = replace(HEAVY, properties={**POLICY, **more, "dynamic-allocation.min-memory": "1", "dynamic-allocation.max-memory": "9" * 12})
    before = memory_of(yarn, replace(HEAVY, properties={**more, "parallelism": "4"}))
    given = sized(scaled, yarn, Target(1, 4, 2 * before))
    asked = replace(given, properties={key: value for key, value in given.properties.items() if key != "memory"})
    assert int(given.properties["memory"]) == pytest.approx(memory_of(yarn, asked), rel=0.001) == pytest.approx(2 * before, rel=0.001)


@pytest.mark.parametrize("raised", [0, 2 * 2**30])
def test_a_size_that_was_stored_as_heaps_alone_keeps_what_it_had_beside_them(raised: int) -> None:
    yarn = Container("workers", ContainerKind.YARN, {"master": "yarn", "spark.executor.memory": "20g"})
    bounds = {"dynamic-allocation.min-memory": str(60 * 2**30), "dynamic-allocation.max-memory": str(200 * 2**30)}
    group = replace(HEAVY, properties={**POLICY, **bounds, "parallelism": "2"})
    policy = group_policy(group, yarn)
    assert policy is not None
    heaps = Target(3, 2, 2**30 + 2 * 20 * 2**30 + raised)
    person = sha256(json.dumps([group.container, dict(group.properties)], sort_keys=True).encode()).hexdigest()[:16]
    stored = Scale("heavy", 7, heaps, replace(heaps, instances=1), person, size_digest(group))
    found = wanted_now(group, yarn, policy, stored, 3)
    assert (found.revision, found.target.instances, found.person) == (8, 3, person_digest(group))
    assert found.person != person
    overhead = sized(group, yarn, found.target).properties.get("spark.executor.memoryOverhead", f"{2 * 1024}m")
    assert overhead == f"{2 * 1024 + raised // 2**21}m"
    assert wanted_now(group, yarn, policy, found, 3) is found


def test_more_slots_on_spark_are_more_executors_and_change_no_memory_beside_their_heaps() -> None:
    yarn = Container("workers", ContainerKind.YARN, {"master": "yarn", "spark.executor.memory": "4g"})
    wider = sized(HEAVY, yarn, Target(1, 4, 2 * memory_of(yarn, sized(HEAVY, yarn, Target(1, 2)))))
    assert {key for key in wider.properties if key not in POLICY} == set()
    declared = replace(HEAVY, properties={**POLICY, "memory": "9000000000"})
    assert sized(declared, yarn, Target(1, 4, 18_000_000_000)).properties["memory"] == "18000000000"
    assert "spark.executor.memoryOverhead" not in sized(declared, yarn, Target(1, 4, 18_000_000_000)).properties
    # A larger heap is a new size, and not one whose overhead is cut to what was reserved before.
    larger = replace(HEAVY, properties={**POLICY, "spark.executor.memory": "8g"})
    assert size_digest(larger) != size_digest(HEAVY)
    assert size_digest(replace(HEAVY, properties={**POLICY, "verify-outputs": "rows"})) == size_digest(HEAVY)
