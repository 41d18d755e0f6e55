"""When a group gets more or less, and why not: each rule by an example, and the laws by any load."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from compaction_pipeline.core.capacity.scaling.action import Action, ActionKind, Direction, Hold, Outcome, PastAction
from compaction_pipeline.core.capacity.scaling.decide import decide
from compaction_pipeline.core.capacity.scaling.demand import BUSY, apart, demand_of, looks_again_in
from compaction_pipeline.core.capacity.scaling.observation import AT_ONCE, EVERY, SOON, Observation
from compaction_pipeline.core.capacity.scaling.policy import Bounds, ScalingPolicy, ScalingWindow
from compaction_pipeline.core.capacity.scaling.rules import STEP
from compaction_pipeline.core.capacity.scaling.target import Target
from compaction_pipeline.core.windows import Window
from compaction_pipeline_tests.core.capacity.scaling.seen import BEHIND, CALM, MINUTE, NOON, POLICY, ConstantLoad, minutes, past

FOUR = Target(4, 1)
GB = 10**9
OUT = Action(ActionKind.OPTIMIZERS, Direction.OUT, Target(2, 1), FOUR, "tasks waited")
IN = Action(ActionKind.OPTIMIZERS, Direction.IN, Target(8, 1), FOUR, "slots were idle")


def _decided(
    observations: list[Observation], target: Target = FOUR, policy: ScalingPolicy = POLICY, actions: tuple[PastAction, ...] = ()
) -> Action | Hold:
    return decide("heavy", observations, policy, target, NOON, actions)


def _action(*arguments: object, **named: object) -> Action:
    found = _decided(*arguments, **named)  # type: ignore[arg-type]
    assert isinstance(found, Action), found
    return found


def _reason(*arguments: object, **named: object) -> str:
    found = _decided(*arguments, **named)  # type: ignore[arg-type]
    assert isinstance(found, Hold), found
    return found.reason


def test_tasks_that_wait_too_long_in_three_observations_bring_more_optimizers() -> None:
    found = _action(minutes(BEHIND, 3))
    assert (found.kind, found.direction, found.before, found.after) == (ActionKind.OPTIMIZERS, Direction.OUT, FOUR, Target(8, 1))
    assert found.trigger == "20 tasks wait, the first for 3 min, longer than 1 min in 3 observations: 4 → 8 optimizers"


@pytest.mark.parametrize("fine", range(3))
def test_two_of_three_observations_are_not_enough(fine: int) -> None:
    seen = minutes(BEHIND, 3)
    seen[fine] = replace(seen[fine], oldest_wait=timedelta(minutes=1))
    assert "no task has waited for too long" in _reason(seen)


def test_old_or_missing_observations_decide_nothing() -> None:
    assert "not observed" in _reason(minutes(BEHIND, 2))
    assert "not observed" in _reason(minutes(BEHIND, 3, NOON - 3 * MINUTE))
    assert "not observed" in _reason([*minutes(BEHIND, 1), *minutes(BEHIND, 2, NOON - 10 * MINUTE)])
    assert "not observed" in _reason([])


def test_nothing_is_started_for_more_tasks_than_there_are() -> None:
    assert _action(minutes(replace(BEHIND, waiting=2), 3)).after == Target(6, 1)


def test_a_queue_that_is_soon_worked_off_brings_nothing() -> None:
    # 20 tasks end in a minute on 4 slots, so 20 that wait are gone in a minute.
    seen = [replace(each, ended=20, waiting=60 - 20 * number) for number, each in enumerate(minutes(BEHIND, 3))]
    assert "work off in time" in _reason(seen)


def test_a_task_starts_the_first_optimizer_at_once() -> None:
    waits = Observation(NOON, 1, timedelta(seconds=5), 0, 0)
    nobody = minutes(replace(waits, waiting=0), 2, NOON - MINUTE)
    assert _action([*nobody, waits], Target(0, 1), replace(POLICY, bounds=Bounds(0, 8))).after == Target(1, 1)


def test_one_look_is_enough_for_the_first_optimizer() -> None:
    none = replace(POLICY, bounds=Bounds(0, 8))
    waits = Observation(NOON, 3, timedelta(minutes=9), 0, 0)
    # A server that was away for an hour has looked once.
    for before in ([], minutes(replace(waits, waiting=0), 9, NOON - 60 * MINUTE)):
        assert _action([*before, waits], Target(0, 1), none).after == Target(1, 1)
    assert "not observed" in _reason([replace(waits, waiting=0)], Target(0, 1), none)
    assert "not observed" in _reason([replace(waits, at=NOON - 3 * MINUTE)], Target(0, 1), none)
    assert "not observed" in _reason([waits], Target(1, 1), none)
    failed = past(replace(OUT, before=Target(0, 1), after=Target(1, 1)), 5 * MINUTE, Outcome.FAILED, none)
    assert "not observed" in _reason([waits], Target(0, 1), none, (failed,))


def test_a_group_is_looked_at_more_often_while_tasks_wait_and_until_it_is_known_that_they_wait_too_long() -> None:
    lag = timedelta(minutes=1)
    assert looks_again_in([CALM], lag) == EVERY
    fine = replace(BEHIND, oldest_wait=timedelta(seconds=45))
    assert looks_again_in([fine], lag) == SOON
    assert looks_again_in([replace(fine, oldest_wait=timedelta(seconds=46))], lag) == AT_ONCE
    assert looks_again_in([BEHIND, BEHIND], lag) == looks_again_in([fine, BEHIND, BEHIND], lag) == AT_ONCE
    assert looks_again_in([BEHIND, BEHIND, BEHIND], lag) == SOON


def test_overlapping_minutes_count_once() -> None:
    often = [replace(BEHIND, at=NOON - number * SOON) for number in reversed(range(13))]
    assert [each.at for each in apart(often)] == [NOON - number * MINUTE for number in reversed(range(4))]
    assert apart(minutes(CALM, 5)) == minutes(CALM, 5)
    assert apart([]) == []


def test_what_ended_in_overlapping_minutes_is_not_counted_twice() -> None:
    """Four tasks of a minute end in a minute, and four come: the group is as large as the load. Ten wait from before."""
    often = [replace(BEHIND, at=NOON - number * SOON, waiting=10, ended=4) for number in reversed(range(13))]
    assert demand_of(often[-3:], often, 4).least == pytest.approx(4 / BUSY)


def test_more_optimizers_are_not_asked_for_while_others_start() -> None:
    assert "still must start" in _reason(minutes(replace(BEHIND, starting=2), 3))


def test_the_step_and_the_most_slots_are_kept() -> None:
    assert _action(minutes(BEHIND, 3), policy=replace(POLICY, step=1)).after.instances == 5
    assert _action(minutes(BEHIND, 3), policy=replace(POLICY, bounds=Bounds(1, 6))).after.instances == 6
    assert "4 slots are the most" in _reason(minutes(BEHIND, 3), policy=replace(POLICY, bounds=Bounds(1, 4)))


def test_idle_slots_go_when_the_queue_was_empty_for_the_whole_time() -> None:
    found = _action(minutes(CALM, 6))
    assert (found.kind, found.direction, found.after) == (ActionKind.OPTIMIZERS, Direction.IN, Target(1, 1))
    assert found.trigger == "the queue was empty and at most 0 of 4 slots were busy for 5 min: 4 → 1 optimizer"
    assert "was not empty" in _reason(minutes(CALM, 4))
    waited = minutes(CALM, 6)
    assert "was not empty" in _reason([waited[0], replace(waited[1], waiting=1), *waited[2:]])
    assert "was not empty" in _reason([*minutes(CALM, 3), *minutes(CALM, 2, NOON - 5 * MINUTE)])


def test_those_that_stay_carry_what_was_busy() -> None:
    busy = minutes(replace(CALM, slots=10, running=3, idle_share=0.7), 6)
    assert _action(busy, Target(10, 1), replace(POLICY, step=None)).after == Target(4, 1)
    assert _action(busy, Target(10, 1)).after == Target(6, 1)
    assert "7.0 of 10 slots were busy" in _reason(minutes(replace(CALM, slots=10, running=7, idle_share=0.3), 6), Target(10, 1))


def test_slots_go_when_their_use_no_longer_falls() -> None:
    seen = minutes(replace(CALM, slots=10, running=1, idle_share=0.9), 7)
    assert "still falls" in _reason(
        [replace(seen[0], running=6, idle_share=0.4), replace(seen[1], running=5, idle_share=0.5), *seen[2:]], Target(10, 1)
    )
    assert _action(seen, Target(10, 1)).after == Target(6, 1)


def test_a_load_that_keeps_all_slots_busy_brings_as_many_as_it_will_keep_busy() -> None:
    # Ten tasks of a minute each come in a minute, and four end. At nine tenths busy they need twelve slots, and at seven tenths fourteen.
    steady = [replace(each, ended=4, waiting=40 + 6 * number) for number, each in enumerate(minutes(BEHIND, 3))]
    assert _action(steady, policy=replace(POLICY, step=None)).after == Target(14, 1)
    assert _action(minutes(replace(BEHIND, ended=4, waiting=5), 3), policy=replace(POLICY, step=None)).after == Target(5, 1)


def test_what_a_burst_left_brings_as_many_as_work_it_off_in_time() -> None:
    # Nothing comes, and four tasks of a minute end in a minute. 200 of them in ten minutes need twenty slots.
    left = [replace(each, ended=4, waiting=208 - 4 * number) for number, each in enumerate(minutes(BEHIND, 3))]
    assert _action(left, policy=replace(POLICY, step=None)).after == Target(20, 1)


def test_nothing_goes_while_another_drains() -> None:
    assert "drains still" in _reason(minutes(replace(CALM, draining=1), 6))


def test_the_last_optimizer_goes_only_when_none_is_the_least() -> None:
    one, none = Target(1, 4), replace(POLICY, bounds=Bounds(0, 8))
    assert _action(minutes(CALM, 6), one, none).after == Target(0, 4)
    assert "fewest" in _reason(minutes(CALM, 6), one)
    assert "fewest" in _reason(minutes(replace(CALM, running=1), 6), one, none)


def test_more_comes_two_minutes_after_more_and_is_never_held_longer() -> None:
    flapped = (past(OUT, timedelta(minutes=50)), past(IN, timedelta(minutes=30)), past(OUT, timedelta(minutes=20)), past(IN, MINUTE))
    assert _action(minutes(BEHIND, 3), actions=flapped).direction is Direction.OUT
    assert "2 min must pass" in _reason(minutes(BEHIND, 3), actions=(past(OUT, timedelta(seconds=119)),))
    assert _action(minutes(BEHIND, 3), actions=(past(OUT, timedelta(seconds=120)),)).direction is Direction.OUT


@pytest.mark.parametrize(("reversals", "pause"), [(0, 10), (1, 20), (2, 40), (3, 40)])
def test_less_comes_ten_minutes_after_any_change_and_twice_as_late_with_each_reversal(reversals: int, pause: int) -> None:
    for ago, is_held in ((pause * MINUTE - timedelta(seconds=1), True), (pause * MINUTE, False)):
        kinds = [OUT, IN] if reversals % 2 else [IN, OUT]
        flapped = tuple(past(kinds[number % 2], ago + 5 * number * MINUTE) for number in range(reversals + 1))
        found = _decided(minutes(CALM, 6), actions=flapped)
        assert isinstance(found, Hold) is is_held
        assert not isinstance(found, Hold) or f"{pause} min must pass" in found.reason


def test_while_an_action_is_open_nothing_is_decided() -> None:
    assert "not over: tasks waited" in _reason(minutes(BEHIND, 3), actions=(past(OUT, 5 * MINUTE, None),))


def test_more_optimizers_end_a_replacement_that_is_under_way() -> None:
    replaces = past(replace(OUT, kind=ActionKind.MEMORY), 5 * MINUTE, None)
    assert _action(minutes(BEHIND, 3), actions=(replaces,)).kind is ActionKind.OPTIMIZERS
    assert isinstance(_decided(minutes(CALM, 6), actions=(replaces,)), Hold)


@pytest.mark.parametrize(("failures", "hours"), [(1, 6), (2, 12), (3, 24), (4, 24)])
def test_a_target_that_failed_is_not_tried_for_a_while(failures: int, hours: int) -> None:
    failed = replace(OUT, before=FOUR, after=Target(8, 1))
    for ago, is_held in ((timedelta(hours=hours, seconds=-1), True), (timedelta(hours=hours), False)):
        actions = tuple(past(failed, ago + timedelta(hours=number), Outcome.FAILED) for number in range(failures))
        found = _decided(minutes(BEHIND, 3), actions=actions)
        assert isinstance(found, Hold) is is_held
        assert not isinstance(found, Hold) or "8 optimizers of 1 slot failed before" in found.reason


def test_a_changed_policy_or_another_target_forgets_the_failure() -> None:
    failed = past(replace(OUT, after=Target(8, 1)), timedelta(hours=1), Outcome.FAILED)
    assert _action(minutes(BEHIND, 3), policy=replace(POLICY, lag=timedelta(seconds=90)), actions=(failed,)).after == Target(8, 1)
    assert _action(minutes(replace(BEHIND, waiting=3), 3), actions=(failed,)).after == Target(7, 1)


WIDE = replace(POLICY, most_slots_of_one=8)
WAITS_FOR_STORAGE = replace(BEHIND, cpu_share=0.2, host_cpu_share=0.3)


def test_slots_that_wait_for_storage_become_more_before_optimizers_do() -> None:
    found = _action(minutes(WAITS_FOR_STORAGE, 3), Target(4, 1, 4 * GB), WIDE)
    assert (found.kind, found.after) == (ActionKind.PARALLELISM, Target(4, 2, 8 * GB))
    assert "30% of the CPU is used: parallelism 1 → 2" in found.trigger


@pytest.mark.parametrize(
    "seen",
    [
        {"cpu_share": None},
        {"cpu_share": 0.4},
        {"host_cpu_share": None},
        {"host_cpu_share": 0.75},
        {"host_cpu_share": 0.5},
    ],
)
def test_cpu_that_is_high_or_unknown_brings_optimizers(seen: dict[str, float | None]) -> None:
    # With half of the host's CPU used, twice the slots would use all of it.
    assert _action(minutes(replace(WAITS_FOR_STORAGE, **seen), 3), policy=WIDE).kind is ActionKind.OPTIMIZERS  # type: ignore[arg-type]


def test_parallelism_at_its_most_brings_optimizers() -> None:
    assert _action(minutes(WAITS_FOR_STORAGE, 3), policy=replace(POLICY, most_slots_of_one=1)).kind is ActionKind.OPTIMIZERS
    tight = replace(WIDE, memory=Bounds(1, 5 * GB))
    assert _action(minutes(WAITS_FOR_STORAGE, 3), Target(4, 1, 4 * GB), tight).kind is ActionKind.OPTIMIZERS


def test_slots_that_were_added_go_first() -> None:
    found = _action(minutes(replace(CALM, slots=16), 6), Target(4, 4, 8 * GB), WIDE)
    assert (found.kind, found.after) == (ActionKind.PARALLELISM, Target(4, 1, 2 * GB))


def test_a_group_without_optimizers_loses_no_slots() -> None:
    nobody = minutes(replace(CALM, slots=0, up=0, idle_share=None), 6)
    assert isinstance(_decided(nobody, Target(0, 4), replace(WIDE, bounds=Bounds(0, 8))), Hold)


ROOMY = replace(POLICY, memory=Bounds(GB, 10 * GB))


def test_memory_comes_first() -> None:
    found = _action(minutes(replace(BEHIND, memory_share=0.95), 3), Target(4, 1, 4 * GB), ROOMY)
    assert (found.kind, found.after) == (ActionKind.MEMORY, Target(4, 1, 6 * GB))
    assert found.trigger == "95% of memory needed: 4.0 GB → 6.0 GB"
    killed = [replace(BEHIND, at=NOON - timedelta(minutes=29), memory_kills=2), *minutes(CALM, 6)]
    assert "2 kills for memory in 30 min" in _action(killed, Target(4, 1, 4 * GB), ROOMY).trigger
    assert _action(minutes(replace(CALM, memory_share=0.95), 6), Target(4, 1, 10 * GB), ROOMY).kind is ActionKind.OPTIMIZERS


def test_memory_of_unknown_size_or_without_bounds_stays() -> None:
    near = minutes(replace(BEHIND, memory_share=0.95), 3)
    assert _action(near, FOUR, ROOMY).kind is ActionKind.OPTIMIZERS
    assert _action(near, Target(4, 1, 4 * GB)).kind is ActionKind.OPTIMIZERS


def test_memory_that_nobody_needed_for_an_hour_goes() -> None:
    used = replace(CALM, running=3, idle_share=0.2, memory_share=0.3)
    found = _action(minutes(used, 61), Target(4, 1, 8 * GB), ROOMY)
    assert (found.kind, found.direction, found.after) == (ActionKind.MEMORY, Direction.IN, Target(4, 1, 4 * GB))
    for other in (minutes(used, 30), minutes(replace(used, memory_share=None), 61), minutes(replace(used, memory_share=0.5), 61)):
        assert isinstance(_decided(other, Target(4, 1, 8 * GB), ROOMY), Hold)


def test_nothing_is_taken_away_while_tasks_wait() -> None:
    hour = minutes(replace(BEHIND, memory_share=0.3), 61)
    just_grown = (past(OUT, MINUTE),)
    assert "2 min must pass" in _reason(hour, Target(4, 1, 8 * GB), replace(ROOMY, in_cooldown=timedelta(0)), just_grown)


def test_attempts_that_use_their_core_get_another() -> None:
    hungry, policy = replace(BEHIND, attempt_cores=0.95, cpu_share=0.95), replace(POLICY, most_slot_cores=2)
    found = _action(minutes(hungry, 3), replace(FOUR, slot_cores=1), policy)
    assert (found.kind, found.direction, found.after) == (ActionKind.CORES, Direction.OUT, replace(FOUR, slot_cores=2))
    for other in (replace(FOUR, slot_cores=2), FOUR):
        assert _action(minutes(hungry, 3), other, policy).kind is ActionKind.OPTIMIZERS
    assert _action(minutes(replace(hungry, attempt_cores=None), 3), replace(FOUR, slot_cores=1), policy).kind is ActionKind.OPTIMIZERS
    day = minutes(replace(CALM, running=3, idle_share=0.2, attempt_cores=0.7), 1_441)
    assert _action(day, replace(FOUR, slot_cores=2), policy).after == replace(FOUR, slot_cores=1)
    assert isinstance(_decided(day[100:], replace(FOUR, slot_cores=2), policy), Hold)


NIGHT = replace(POLICY, step=None, windows=(ScalingWindow(Window.parse("22:00-06:00 Europe/Berlin"), 2, 64),), bounds=Bounds(1, 3))
"""Noon is not at night."""


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


def test_outside_of_windows_the_load_changes_nothing() -> None:
    assert _reason(minutes(BEHIND, 3), Target(2, 1), NIGHT) == (
        "group heavy is scaled again from 21:00:00 UTC on, when its next window opens"
    )


def test_leaving_a_window_ends_its_bounds_a_step_a_minute() -> None:
    found = _action([], Target(16, 1), NIGHT)
    assert (found.kind, found.direction, found.is_for_bounds, found.after) == (ActionKind.OPTIMIZERS, Direction.IN, True, Target(3, 1))
    slow = replace(NIGHT, step=2)
    first = _action([], Target(16, 1), slow)
    assert first.after == Target(14, 1)
    assert "1 min must pass" in _reason([], first.after, slow, (past(first, timedelta(seconds=59), policy=slow),))
    assert _action([], first.after, slow, (past(first, MINUTE, policy=slow), past(OUT, 2 * MINUTE))).after == Target(12, 1)


def test_a_step_towards_bounds_holds_up_no_change_by_load() -> None:
    step = past(replace(OUT, is_for_bounds=True), timedelta(seconds=30))
    assert _action(minutes(BEHIND, 3), actions=(step,)).direction is Direction.OUT


def test_entering_a_window_brings_its_least() -> None:
    found = decide("heavy", [], NIGHT, Target(1, 1), _at("2026-11-27T21:00"), [])
    assert isinstance(found, Action)
    assert (found.direction, found.after, found.is_for_bounds) == (Direction.OUT, Target(2, 1), True)


def test_one_optimizer_becomes_narrower_for_a_narrow_window() -> None:
    narrow = replace(POLICY, bounds=Bounds(0, 2), most_slots_of_one=8)
    found = _action([], Target(2, 4, 8 * GB), narrow)
    assert (found.kind, found.after) == (ActionKind.PARALLELISM, Target(1, 2, 4 * GB))


BOUNDS = st.tuples(st.integers(0, 8), st.integers(4, 40)).map(lambda pair: Bounds(min(pair), max(pair)))
LOADS = st.builds(
    ConstantLoad,
    policy=st.builds(
        ScalingPolicy,
        bounds=BOUNDS,
        most_slots_of_one=st.sampled_from([None, 4]),
        step=st.sampled_from([None, 1, 3]),
        lag=st.sampled_from([timedelta(seconds=30), timedelta(minutes=1), timedelta(minutes=3)]),
    ),
    target=st.builds(Target, st.integers(0, 12), st.integers(1, 4)),
    came=st.integers(0, 40).map(float),
    takes=st.sampled_from([0.05, 0.5, 1.0, 3.0, 7.5]),
).map(lambda load: replace(load, policy=replace(load.policy, slots_of_one=load.target.parallelism)))


@given(LOADS)
def test_on_constant_load_less_follows_more_only_by_what_the_backlog_needed_and_nothing_follows_then(load: ConstantLoad) -> None:
    load.run(150)
    while load.actions and load.now - load.actions[-1].at < timedelta(minutes=60):
        load.run(10)
    by_load = [each.action for each in load.actions if not each.action.is_for_bounds]
    # What piled up while the first optimizers were too few brings more than the load needs later. Never does less bring more.
    assert [each.direction for each in by_load] == sorted((each.direction for each in by_load), key=[Direction.OUT, Direction.IN].index)
    less = [each for each in by_load if each.direction is Direction.IN]
    # Two changes bring what the load needs, unless the policy's step divides it.
    step = load.policy.step
    assert len(less) <= 2 if step is None else all(each.before.instances - each.after.instances == step for each in less[:-1])
    slots, most = load.target.slots, load.policy.bounds.most
    assert slots >= load.came * load.takes - 1e-9 or slots + load.target.parallelism > most
    reached = len(load.actions)
    load.run(120)
    assert len(load.actions) == reached, [each.action.trigger for each in load.actions[reached:]]


@given(LOADS)
def test_on_constant_load_that_never_had_to_wait_no_more_ever_comes(load: ConstantLoad) -> None:
    slots = load.came * load.takes
    size = load.target.parallelism
    enough = max(int(slots / size) + 1, -(-load.policy.bounds.least // size))
    assume(enough * size <= load.policy.bounds.most)
    load.target = replace(load.target, instances=enough)
    load.run(150)
    assert load.directions <= {Direction.IN}, [each.action.trigger for each in load.actions]
    assert load.target.slots >= slots


SHARES = st.none() | st.floats(0, 1)
MINUTES = st.builds(
    Observation,
    at=st.integers(0, 20).map(lambda ago: NOON - ago * MINUTE),
    waiting=st.integers(0, 50),
    oldest_wait=st.integers(0, 900).map(lambda seconds: timedelta(seconds=seconds)),
    running=st.integers(0, 20),
    slots=st.integers(0, 20),
    idle_share=SHARES,
    ended=st.none() | st.integers(0, 40),
    cpu_share=SHARES,
    attempt_cores=st.none() | st.floats(0, 4),
    host_cpu_share=SHARES,
    memory_share=SHARES,
    memory_kills=st.sampled_from([0, 0, 0, 1]),
    starting=st.sampled_from([0, 0, 1]),
)
POLICIES = st.builds(
    ScalingPolicy,
    bounds=BOUNDS,
    most_slots_of_one=st.sampled_from([None, 2, 8]),
    step=st.sampled_from([None, 1, 5]),
    memory=st.sampled_from([None, Bounds(GB, 9 * GB)]),
    most_slot_cores=st.sampled_from([None, 1, 3]),
    windows=st.sampled_from([(), NIGHT.windows, (ScalingWindow(Window.parse("11:00-13:00 UTC"), 1, 5),)]),
)


@given(
    st.lists(MINUTES, max_size=25, unique_by=lambda each: each.at) | MINUTES.map(lambda each: minutes(each, 70)),
    POLICIES,
    st.builds(Target, st.integers(0, 12), st.integers(1, 4), st.sampled_from([0, 2 * GB, 9 * GB]), st.sampled_from([None, 1.0, 2.0])),
)
def test_no_action_leads_out_of_the_bounds_or_needs_what_nobody_knows(
    observations: list[Observation], policy: ScalingPolicy, target: Target
) -> None:
    found = _decided(observations, target, policy)
    if isinstance(found, Hold):
        assert found.reason
        return
    before, after, bounds = found.before, found.after, policy.bounds_at(NOON)
    assert before == target != after
    assert found.trigger
    if found.is_for_bounds:
        # A step leads towards the bounds, and never past them.
        assert after.slots <= before.slots if found.direction is Direction.IN else before.slots < after.slots <= bounds.most
    else:
        assert bounds.least - after.parallelism < after.slots <= bounds.most
        assert policy.is_open(NOON)
        assert policy.may_change(found.kind)
    if found.kind is ActionKind.MEMORY:
        assert policy.memory is not None
        assert target.memory_bytes > 0
        assert policy.memory.least <= after.memory_bytes <= policy.memory.most or found.direction is Direction.OUT
        assert any(each.memory_share is not None or each.memory_kills for each in observations)
    if found.kind is ActionKind.CORES:
        assert target.slot_cores is not None
        assert any(each.attempt_cores is not None for each in observations)
    if found.kind is ActionKind.PARALLELISM and found.direction is Direction.OUT:
        newest = sorted(observations, key=lambda each: each.at)[-3:]
        assert all(each.cpu_share is not None and each.host_cpu_share is not None for each in newest)
    last = max(observations, key=lambda each: each.at, default=None)
    if found.kind is ActionKind.OPTIMIZERS and not found.is_for_bounds and last is not None:
        # The opposite rule would not undo it: with one less, the load would not be carried; with those that stay, it is.
        if found.direction is Direction.OUT:
            assert after.slots - after.parallelism < max(last.running + last.waiting, bounds.least)
        else:
            assert max(last.running, last.busy_slots) <= BUSY * after.slots + 1e-6
    if found.kind is ActionKind.OPTIMIZERS:
        assert after == replace(before, instances=after.instances)
        assert abs(after.instances - before.instances) <= (policy.step or max(STEP, before.instances))
