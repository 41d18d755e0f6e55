"""How many optimizers of a group are started, drained and given up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.queue.group import EXTERNAL, ResourceGroup
from compaction_pipeline.core.queue.instances import (
    FIRST_PAUSE,
    HANGS_AFTER,
    LONGEST_PAUSE,
    ORPHANED_AFTER,
    REGISTERS_WITHIN,
    SURGE,
    Wants,
    failed_starts,
    next_start,
    orphans,
    round_of,
    start_problem,
    wanted_instances,
)
from compaction_pipeline.core.queue.optimizer import AT_ONCE, Optimizer, OptimizerState
from compaction_pipeline.core.queue.queue_work import QueueWork
from compaction_pipeline_tests.builders import NOW

HEAVY = ResourceGroup("heavy", "workers", {"instances": "3", "min-instances": "1"})
STARTING, RUNNING, DRAINING, LOST, ENDED = (
    OptimizerState.STARTING,
    OptimizerState.RUNNING,
    OptimizerState.DRAINING,
    OptimizerState.LOST,
    OptimizerState.ENDED,
)
MINUTE = timedelta(minutes=1)


def one(name: str, state: OptimizerState, age: timedelta = MINUTE, *, settings: str = "now", container: str = "workers") -> Optimizer:
    """An optimizer of the group. One that is LOST never registered."""
    process = "" if state in (STARTING, LOST) else "7"
    started = NOW - age
    polled = started if process else None
    of = {"resource_id": f"r-{name}", "container": container, "settings": settings}
    return Optimizer(name, "heavy", "host", process, "1", 2, started, started, state, first_polled_at=polled, **of)


def fresh(name: str) -> Optimizer:
    """One that has registered, and whose engine still starts."""
    return replace(one(name, RUNNING), first_polled_at=None)


@pytest.mark.parametrize(
    ("work", "wanted"),
    [
        (QueueWork("heavy"), 1),
        (QueueWork("heavy", pending=1), 3),
        (QueueWork("heavy", executing=1), 3),
        (QueueWork("heavy", retrying=1), 3),
        (QueueWork("heavy", merged=1), 3),
        (QueueWork("heavy", prepared=5, paused=5, failed=5), 1),
    ],
)
def test_a_group_wants_all_instances_while_there_is_something_to_merge(work: QueueWork, wanted: int) -> None:
    assert wanted_instances(HEAVY, work) == wanted


def test_a_group_that_says_nothing_wants_no_optimizer() -> None:
    assert wanted_instances(ResourceGroup("heavy", "workers"), QueueWork("heavy", pending=9)) == 0


@pytest.mark.parametrize(
    ("optimizers", "wanted", "started", "drained"),
    [
        ([], 2, 2, []),
        ([one("a", RUNNING)], 2, 1, []),
        ([one("a", RUNNING), one("b", STARTING)], 2, 0, []),
        # One that drains counts no more.
        ([one("a", RUNNING), one("b", DRAINING)], 2, 1, []),
        ([one("a", RUNNING), one("b", ENDED)], 2, 1, []),
        # The newest go first. One that is on its way may fail, so the last one that works waits for it.
        ([one("a", RUNNING, 3 * MINUTE), one("b", RUNNING, 2 * MINUTE), one("c", STARTING)], 1, 0, ["b"]),
        ([one("a", RUNNING, 3 * MINUTE), one("b", RUNNING, 2 * MINUTE)], 1, 0, ["b"]),
        ([one("a", RUNNING), one("b", RUNNING)], 0, 0, ["a", "b"]),
        # Those with other settings are replaced one by one: another one polls before one of them drains.
        ([one("a", RUNNING, settings="before"), one("b", RUNNING)], 2, 1, []),
        ([one("a", RUNNING, settings="before"), one("b", RUNNING, settings="before")], 2, 1, []),
        ([one("a", RUNNING, settings="before"), one("b", RUNNING, settings="before"), one("c", STARTING)], 2, 0, []),
        ([one("a", RUNNING, settings="before"), one("b", RUNNING, settings="before"), fresh("c")], 2, 0, []),
        ([one("a", RUNNING, 2 * MINUTE, settings="before"), one("b", RUNNING, settings="before"), one("c", RUNNING)], 2, 1, ["b"]),
        ([one("a", DRAINING, settings="before"), one("b", RUNNING)], 2, 1, []),
        ([one("a", RUNNING, settings="before"), one("b", RUNNING)], 1, 0, ["a"]),
        ([one("a", RUNNING, settings="before")], 0, 0, ["a"]),
        # People start and end these.
        ([one("a", RUNNING, container=EXTERNAL)], 1, 1, []),
        ([one("a", RUNNING, container=EXTERNAL, settings="")], 0, 0, []),
        ([replace(one("a", RUNNING), group="other")], 0, 0, []),
    ],
)
def test_a_round_brings_a_group_nearer_to_what_it_wants(optimizers: list[Optimizer], wanted: int, started: int, drained: list[str]) -> None:
    decided = round_of(HEAVY, optimizers, Wants(wanted, "now"), {}, NOW)
    assert (decided.start, sorted(decided.drain), decided.lost) == (started, drained, {})


def test_an_optimizer_says_why_it_drains() -> None:
    decided = round_of(HEAVY, [one("a", RUNNING, settings="before"), one("b", RUNNING)], Wants(0, "now"), {}, NOW)
    assert decided.drain == {
        "a": "the settings of group heavy or of its container have changed, so another optimizer takes its place",
        "b": "group heavy needs 0 optimizers now",
    }


def test_no_optimizer_is_outdated_while_the_container_is_unknown() -> None:
    assert round_of(HEAVY, [one("a", RUNNING, settings="before")], Wants(1, None), {}, NOW).drain == {}


def test_an_optimizer_that_does_not_register_is_given_up_and_replaced() -> None:
    young, old = one("a", STARTING, REGISTERS_WITHIN - timedelta(seconds=1)), one("b", STARTING, REGISTERS_WITHIN)
    decided = round_of(HEAVY, [one("c", RUNNING, timedelta(0)), young, old], Wants(3, "now"), {}, NOW)
    assert (decided.lost, decided.start) == ({"b": "it did not register within 5 min"}, 1)
    # After a failure, nothing is started while another one is on its way, and then one at a time.
    assert round_of(HEAVY, [young, old], Wants(2, "now"), {}, NOW).start == 0
    decided = round_of(HEAVY, [young, old], Wants(2, "now"), {"a": "its process ended"}, NOW)
    assert (decided.lost, decided.start) == ({"a": "its process ended", "b": "it did not register within 5 min"}, 1)


def failures(count: int, newest: timedelta = MINUTE, *, settings: str = "now") -> list[Optimizer]:
    return [replace(one(f"f{number}", LOST, newest + number * MINUTE, settings=settings), why=f"no {number}") for number in range(count)]


def at_once(lost: Optimizer) -> Optimizer:
    """The same optimizer, which has registered before it was LOST."""
    return replace(lost, process="7")


@pytest.mark.parametrize(
    ("optimizers", "started"),
    [
        # After a failure they are tried one at a time.
        (failures(1), 1),
        ([*failures(1), one("a", STARTING, timedelta(0))], 0),
        ([*failures(2), one("a", RUNNING, timedelta(0))], 2),
        ([*failures(2), one("a", RUNNING, timedelta(hours=1))], 1),
        # After three there are pauses, which grow.
        (failures(3, FIRST_PAUSE - timedelta(seconds=1)), 0),
        (failures(3, FIRST_PAUSE), 1),
        (failures(4, FIRST_PAUSE), 0),
        (failures(4, 2 * FIRST_PAUSE), 1),
        (failures(90, LONGEST_PAUSE - timedelta(seconds=1)), 0),
        (failures(90, LONGEST_PAUSE), 1),
        # One that failed or fell silent right after its start is a failure too, but not one that was told to end or that has worked.
        ([at_once(one) for one in failures(3, FIRST_PAUSE - timedelta(seconds=1))], 0),
        ([replace(at_once(one), state=ENDED, failed=True) for one in failures(3, FIRST_PAUSE - timedelta(seconds=1))], 0),
        ([replace(at_once(one), state=ENDED) for one in failures(3)], 3),
        ([replace(at_once(one), touched_at=one.started_at + AT_ONCE) for one in failures(3, 9 * MINUTE)], 3),
        # Failures with other settings do not count.
        (failures(9, settings="before"), 3),
    ],
)
def test_a_container_that_fails_is_tried_more_and_more_rarely(optimizers: list[Optimizer], started: int) -> None:
    assert round_of(HEAVY, optimizers, Wants(3, "now"), {}, NOW).start == started


def test_three_failed_starts_in_a_row_are_a_problem_of_the_group() -> None:
    assert start_problem(HEAVY, failures(2)) is None
    assert start_problem(HEAVY, [*failures(3), one("a", RUNNING, timedelta(0))]) is None
    assert start_problem(replace(HEAVY, container="others"), failures(3)) is None
    # A start that is on its way does not hide it.
    problem = start_problem(HEAVY, [*failures(3), one("a", STARTING, timedelta(0))])
    assert problem is not None
    assert problem.startswith("container workers failed to start 3 optimizers in a row; the last time: no 0; the next start is at ")
    assert f"{next_start(failed_starts(HEAVY, failures(3))):%H:%M:%S} UTC" in problem


def test_a_process_is_an_orphan_when_no_live_optimizer_has_its_resource_id_for_a_while() -> None:
    rows = [
        one("runs", RUNNING, timedelta(days=1)),
        one("starts", STARTING, ORPHANED_AFTER),
        one("lately", ENDED, ORPHANED_AFTER - timedelta(seconds=1)),
        one("lost", LOST, ORPHANED_AFTER),
        one("by-hand", LOST, timedelta(days=1), container=EXTERNAL),
        # It was lost, and registered anew.
        replace(one("before", LOST, timedelta(days=1)), resource_id="r-runs"),
    ]
    assert orphans(rows, NOW) == {"r-lost"}


def test_one_that_drains_and_never_asked_for_a_task_is_an_orphan_after_a_while() -> None:
    """The start of its engine hangs, and its heartbeats go on."""
    hangs = replace(fresh("hangs"), state=DRAINING, started_at=NOW - HANGS_AFTER, touched_at=NOW)
    others = [
        replace(hangs, resource_id="r-starts", started_at=NOW - HANGS_AFTER + timedelta(seconds=1)),
        replace(hangs, resource_id="r-works", state=RUNNING),
        replace(hangs, resource_id="r-merges", first_polled_at=NOW - MINUTE),
        # A release that noted no first poll gave it tasks.
        replace(hangs, resource_id="r-upgraded", poll_id="p1"),
        replace(hangs, resource_id="r-of-a-person", container=EXTERNAL),
    ]
    named = [replace(each, optimizer_id=each.resource_id) for each in others]
    assert orphans([hangs, *named], NOW) == {"r-hangs"}


states = st.sampled_from([*OptimizerState])


@st.composite
def rows(draw: st.DrawFn) -> list[Optimizer]:
    def row(number: int) -> Optimizer:
        made = one(
            f"o{number}",
            draw(states),
            draw(st.integers(0, 10)) * MINUTE,
            settings=draw(st.sampled_from(["now", "before"])),
            container=draw(st.sampled_from(["workers", "workers", EXTERNAL])),
        )
        return replace(made, process=draw(st.sampled_from(["", "7"])) if made.state is LOST else made.process)

    return [row(number) for number in range(draw(st.integers(0, 9)))]


def count(optimizers: Iterable[Optimizer], *states: OptimizerState) -> int:
    return sum(each.is_managed and each.state in states for each in optimizers)


def after_round(before: list[Optimizer], wanted: int, settings: str | None, number: int) -> list[Optimizer]:
    """What there is after a round, which keeps the laws of every round."""
    decided = round_of(HEAVY, before, Wants(wanted, settings), {}, NOW)
    by_id = {each.optimizer_id: each for each in before}
    assert all(by_id[name].is_managed and by_id[name].state is RUNNING for name in decided.drain)
    assert all(by_id[name].is_managed and by_id[name].state is STARTING for name in decided.lost)
    states = {**dict.fromkeys(decided.drain, DRAINING), **dict.fromkeys(decided.lost, LOST)}
    after = [replace(each, state=states.get(each.optimizer_id, each.state)) for each in before]
    # A round drains no more than what others do already, or than nobody wants.
    assert count(after, RUNNING) >= min(wanted, count(before, RUNNING))
    of = {"settings": settings or ""}
    after += [replace(one(f"n{number}-{each}", STARTING, **of), started_at=NOW, touched_at=NOW) for each in range(decided.start)]
    assert wanted <= decided.most <= wanted + SURGE
    assert count(after, STARTING, RUNNING) <= max(decided.most, count(before, STARTING, RUNNING))
    return after


@given(rows(), st.integers(0, 6), st.sampled_from(["now", None]), st.booleans())
def test_rounds_never_exceed_what_is_wanted_and_come_to_rest(
    before: list[Optimizer], wanted: int, settings: str | None, drains_end: bool
) -> None:
    known = [replace(each, state=ENDED) if each.state is LOST else each for each in before]
    for number in range(20):
        known = after_round(known, wanted, settings, number)
        again = round_of(HEAVY, known, Wants(wanted, settings), {}, NOW)
        assert (again.start, again.drain, again.lost) == (0, {}, {})
        # All that start register and poll now. Those that were given up ended with it: they do not count as failures of these settings.
        known = [replace(each, state=RUNNING, process="7", first_polled_at=NOW) if each.state is STARTING else each for each in known]
        known = [each for each in known if each.state is not LOST and not (drains_end and each.state is DRAINING)]
    running = [each for each in known if each.is_managed and each.state is RUNNING]
    assert len(running) == wanted
    # Each that drains still has its memory. While none of them ends, no more are replaced than the group wants.
    waits = count(known, DRAINING) >= wanted
    assert not (waits and drains_end and wanted)
    if waits:
        assert not round_of(HEAVY, known, Wants(wanted, settings), {}, NOW).replaces
    else:
        assert settings is None or {each.settings for each in running} <= {settings}


def test_no_more_are_replaced_while_as_many_drain_as_the_group_wants() -> None:
    outdated = one("b", RUNNING, settings="before")
    for draining, starts in (([one("a", DRAINING)], 0), ([], 1), ([replace(one("a", DRAINING), container=EXTERNAL)], 1)):
        assert round_of(HEAVY, [outdated, *draining], Wants(1, "now"), {}, NOW).start == starts


def test_the_newest_with_old_settings_gives_way_when_another_one_works_on() -> None:
    old = [one("a", RUNNING, 2 * MINUTE, settings="before"), one("b", RUNNING, settings="before")]
    decided = round_of(HEAVY, old, Wants(2, "now"), {}, NOW)
    assert (decided.start, decided.most, decided.replaces, decided.gives_way) == (1, 3, True, "b")
    for none_may in (old[:1], [*old, one("c", DRAINING)]):
        assert round_of(HEAVY, none_may, Wants(len([each for each in none_may if each.state is RUNNING]), "now"), {}, NOW).gives_way == ""


def test_one_that_is_on_its_way_with_old_settings_is_given_up_where_it_can_be_stopped() -> None:
    old, others = one("a", STARTING, settings="before"), replace(HEAVY, container="others")
    why = "the settings of group heavy or of its container changed before it registered"
    assert round_of(HEAVY, [old], Wants(1, "now"), {}, NOW).lost == {"a": why}
    for kept in (round_of(HEAVY, [old], Wants(1, "now"), {}, NOW, {"workers"}), round_of(others, [old], Wants(1, "now"), {}, NOW)):
        assert (kept.lost, kept.start) == ({}, 0)


def test_the_one_with_the_fewest_attempts_drains_first_and_the_newest_among_equals() -> None:
    there = [one("old", RUNNING, 3 * MINUTE), one("middle", RUNNING, 2 * MINUTE), one("new", RUNNING)]

    def drained(attempts: dict[str, int], wanted: int, settings: str = "now") -> list[str]:
        return sorted(round_of(HEAVY, there, Wants(wanted, settings), {}, NOW, (), attempts).drain)

    assert drained({}, 2) == ["new"]
    assert drained({"new": 1, "middle": 1, "old": 2}, 2) == ["new"]
    assert drained({"new": 2, "middle": 1, "old": 2}, 2) == ["middle"]
    assert drained({"new": 2, "middle": 1}, 1) == ["middle", "old"]
    assert drained({"new": 2, "middle": 1}, 2, "others") == ["old"]
