"""Rounds over all groups: rows before processes, replacements, failures, and what happens when one is killed in between."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from compaction_pipeline.core.capacity.team import Limits, Team
from compaction_pipeline.core.errors import ConfigError, StorageUnavailable
from compaction_pipeline.core.queue.container import Container, ContainerKind
from compaction_pipeline.core.queue.container_answers import Room, Unknown
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.core.queue.instances import ORPHANED_AFTER, REGISTERS_WITHIN, start_problem
from compaction_pipeline.core.queue.optimizer import Optimizer
from compaction_pipeline.core.queue.ports.optimizers import OptimizerStore
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.services.queue.maintain_optimizers import SETTLES_WITHIN
from compaction_pipeline_tests.behaviours.example_tasks import example
from compaction_pipeline_tests.builders import NOW
from compaction_pipeline_tests.services.queue.hall import DRAINING, HEAVY, LOST, RUNNING, STARTING, Hall


def test_a_server_that_comes_back_waits_for_those_that_outlived_it(stores: Stores) -> None:
    hall = Hall(stores)
    fresh = hall.fresh(hall.stores.optimizers)
    fresh.maintain()
    fresh.watch()
    assert hall.rows(STARTING) == []
    hall.now += SETTLES_WITHIN
    fresh.maintain()
    assert len(hall.rows(STARTING)) == 2


def test_a_group_gets_its_optimizers_and_keeps_them(stores: Stores) -> None:
    hall = Hall(stores)
    hall.maintainer.maintain()
    starting = hall.rows(STARTING)
    assert {each.resource_id for each in starting} == hall.containers.alive
    assert {(each.group, each.host, each.container, each.parallelism, each.process) for each in starting} == {
        ("heavy", "here", "workers", 3, "")
    }
    assert all(each.settings and each.why for each in starting)
    hall.pass_time()
    hall.register_all()
    hall.pass_time()
    assert [each.optimizer_id for each in hall.rows(RUNNING)] == [each.optimizer_id for each in starting]
    assert len(hall.stores.optimizers.optimizers()) == 2
    # A server that starts anew finds them.
    hall.another().maintain()
    assert len(hall.stores.optimizers.optimizers()) == 2


def test_a_lost_optimizer_is_replaced_and_its_process_ended(stores: Stores) -> None:
    hall = Hall(stores)
    hall.maintainer.maintain()
    hall.register_all()
    victim, other = hall.rows(RUNNING)
    hall.stores.optimizers.move(victim.optimizer_id, (RUNNING,), LOST, "silent")
    hall.pass_time()
    assert len(hall.rows(STARTING)) == 1
    assert victim.resource_id in hall.containers.alive, "it may only be cut off"
    hall.register_all()
    hall.pass_time(ORPHANED_AFTER)
    assert victim.resource_id not in hall.containers.alive
    assert other.resource_id in hall.containers.alive
    assert len(hall.rows(RUNNING)) == 2


def test_a_round_that_is_killed_before_the_start_is_repaired(stores: Stores) -> None:
    hall = Hall(stores, replace(HEAVY, properties={"instances": "1", "min-instances": "1"}))
    hall.containers.killed = True
    with pytest.raises(KeyboardInterrupt):
        hall.maintainer.maintain()
    [row] = hall.rows(STARTING)
    hall.containers.killed = False
    # A server on another host cannot see whether the process is there, so it waits.
    hall.containers.host = "there"
    hall.pass_time(REGISTERS_WITHIN - timedelta(seconds=1))
    assert hall.rows(STARTING) == [row]
    hall.pass_time(timedelta(seconds=1))
    [lost] = hall.rows(LOST)
    assert (lost.optimizer_id, lost.why) == (row.optimizer_id, "it did not register within 5 min: no such token")
    assert [each.host for each in hall.rows(STARTING)] == ["there"]


def test_a_process_that_ends_before_it_registers_is_replaced_at_the_next_round(stores: Stores) -> None:
    hall = Hall(stores)
    hall.maintainer.maintain()
    first, second = hall.rows(STARTING)
    hall.containers.alive.discard(first.resource_id)
    hall.pass_time()
    [lost] = hall.rows(LOST)
    assert lost.why == "its process ended before it registered: no such token"
    # After a failure, nothing more is started while another one is on its way.
    assert hall.rows(STARTING) == [second]
    hall.register_all()
    hall.pass_time()
    assert (len(hall.rows(RUNNING)), len(hall.rows(STARTING))) == (1, 1)


def test_a_process_that_never_registers_is_ended(stores: Stores) -> None:
    hall = Hall(stores)
    hall.maintainer.maintain()
    before = set(hall.containers.alive)
    hall.pass_time(REGISTERS_WITHIN)
    assert not before & hall.containers.alive
    assert len(hall.rows(LOST)) == 2


def test_a_round_does_not_give_up_what_a_round_of_another_thread_is_about_to_start(stores: Stores) -> None:
    hall = Hall(stores)

    def another_round() -> None:
        # The row is written, and the process does not run yet.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(hall.maintainer.maintain).result()

    hall.containers.before_start = another_round
    hall.maintainer.maintain()
    assert hall.rows(LOST) == []
    assert {each.resource_id for each in hall.rows(STARTING)} == hall.containers.alive
    assert len(hall.containers.alive) == 2


def test_an_optimizer_that_registers_while_it_is_given_up_stays(stores: Stores) -> None:
    hall = Hall(stores)
    hall.maintainer.maintain()
    late = hall.another(StaleRows(hall.stores.optimizers))
    hall.register_all()
    hall.now += REGISTERS_WITHIN
    alive = set(hall.containers.alive)
    late.maintain()
    assert hall.containers.alive == alive
    assert len(hall.rows(RUNNING)) == 2


def test_a_process_that_was_given_up_just_before_a_crash_is_ended_by_the_next_round(stores: Stores) -> None:
    hall = Hall(stores)
    hall.maintainer.maintain()
    first, _ = hall.rows(STARTING)
    hall.pass_time(REGISTERS_WITHIN - timedelta(seconds=1))
    hall.stores.optimizers.move(first.optimizer_id, (STARTING,), LOST, "it did not register within 5 min")
    hall.pass_time(timedelta(seconds=1))
    assert first.resource_id not in hall.containers.alive


def test_nothing_is_started_ended_or_given_up_while_its_container_does_not_answer(stores: Stores) -> None:
    hall = Hall(stores)
    hall.maintainer.maintain()
    first, second = hall.rows(STARTING)
    hall.stores.optimizers.move(first.optimizer_id, (STARTING,), LOST, "a person")
    alive = set(hall.containers.alive)
    hall.containers.silent = Unknown("connection refused")
    for _ in range(8):
        hall.pass_time()
    assert (hall.rows(STARTING), hall.containers.alive) == ([second], alive)
    held = hall.stores.groups.groups()[-1].held
    assert held.startswith("container workers did not answer at ")
    assert held.endswith("until it does: connection refused")
    assert start_problem(hall.stores.groups.groups()[-1], hall.stores.optimizers.optimizers()) == held
    # The note is no change for which the watcher does a round.
    asked = hall.containers.asked
    hall.maintainer.watch()
    assert hall.containers.asked == asked
    # A person's change is not lost, and does not touch the note.
    hall.stores.groups.change(replace(HEAVY, properties={**HEAVY.properties, "instances": "1", "min-instances": "1"}))
    assert hall.stores.groups.groups()[-1].held == held
    hall.containers.silent = None
    hall.pass_time()
    assert hall.stores.groups.groups()[-1].held == ""
    assert second.optimizer_id in {each.optimizer_id for each in hall.rows(LOST)}
    assert not alive & hall.containers.alive


def test_nothing_is_started_beside_one_that_could_not_be_ended(stores: Stores) -> None:
    hall = Hall(stores)
    hall.maintainer.maintain()
    before = set(hall.containers.alive)
    hall.containers.stop = lambda container, resource_id: Unknown("timed out")  # type: ignore[method-assign]
    hall.pass_time(REGISTERS_WITHIN)
    assert (len(hall.rows(LOST)), len(hall.rows(STARTING)), hall.containers.alive) == (2, 0, before)
    # By now they are orphans, which still cannot be ended.
    hall.pass_time(timedelta(minutes=31))
    assert (hall.rows(STARTING), hall.containers.alive) == ([], before)
    assert hall.stores.groups.groups()[-1].held.endswith("until it does: timed out")
    del hall.containers.stop
    hall.pass_time()
    assert not before & hall.containers.alive
    assert len(hall.rows(STARTING)) == 1, "after a failed start they are tried one at a time"


def test_a_container_of_bounded_room_gets_no_more_than_it_holds(stores: Stores) -> None:
    hall = Hall(stores, replace(HEAVY, properties={**HEAVY.properties, "instances": "4", "min-instances": "4", "memory": "4000"}))
    hall.stores.groups.add(replace(HEAVY, name="light", properties={**HEAVY.properties, "memory": "1000"}))
    hall.containers.known["workers"] = Container("workers", ContainerKind.LOCAL, {"max-memory": "9000", "max-cores": "9"})
    hall.maintainer.maintain()
    # Two of 4,000 bytes, and one of 1,000: then the container is full.
    assert sorted(each.group for each in hall.rows(STARTING)) == ["heavy", "heavy", "light"]
    held = {group.name: group.held for group in hall.stores.groups.groups()}
    assert held["default"] == ""
    assert "no room for another optimizer of group heavy: it needs 4.0 kB of memory and 3 cores" in held["heavy"]
    assert "0 B of memory and 0 cores were free" in held["light"]
    hall.register_all()
    hall.pass_time()
    assert len(hall.rows(RUNNING, STARTING)) == 3
    [light] = [each for each in hall.rows(RUNNING) if each.group == "light"]
    heavy = next(each for each in hall.rows(RUNNING) if each.group == "heavy")
    hall.end(heavy)
    hall.stores.groups.change(
        replace(HEAVY, name="light", properties={**HEAVY.properties, "instances": "1", "min-instances": "1", "memory": "1000"})
    )
    hall.pass_time()
    assert [each.group for each in hall.rows(STARTING)] == ["heavy"]
    assert light in [replace(each, touched_at=light.touched_at) for each in hall.rows(RUNNING)]
    assert {group.name: bool(group.held) for group in hall.stores.groups.groups()} == {"default": False, "heavy": True, "light": False}


def test_the_words_of_the_container_stand_with_an_optimizer_that_fell_silent(stores: Stores) -> None:
    hall = Hall(stores)
    hall.maintainer.maintain()
    hall.register_all()
    victim, _ = hall.rows(RUNNING)
    hall.stores.optimizers.move(victim.optimizer_id, (RUNNING,), LOST, "it was silent for 1 min")
    hall.containers.alive.discard(victim.resource_id)
    for ended in ([], [victim.resource_id], [victim.resource_id]):
        hall.containers.ended = set(ended)
        hall.pass_time()
    assert [each.why for each in hall.rows(LOST)] == ["it was silent for 1 min; its container says: no such token"]


@pytest.mark.parametrize("problem", [ConfigError("no token"), StorageUnavailable("no memory")])
def test_a_start_that_fails_is_told_and_made_more_and_more_rarely(problem: Exception, stores: Stores) -> None:
    hall = Hall(stores)
    hall.containers.problem = problem
    hall.maintainer.maintain()
    assert [each.why for each in hall.rows(LOST)] == [str(problem)]
    for _ in range(9):
        hall.pass_time()
    assert 3 <= len(hall.rows(LOST)) <= 5
    hall.containers.problem = None
    hall.pass_time(timedelta(hours=1))
    hall.register_all()
    hall.pass_time()
    hall.register_all()
    assert len(hall.rows(RUNNING)) == 2


def test_a_container_that_is_missing_is_a_start_that_fails_until_the_file_is_mended(stores: Stores) -> None:
    hall = Hall(stores, replace(HEAVY, container="cluster"))
    for _ in range(5):
        hall.pass_time()
    assert {each.why for each in hall.rows(LOST)} == {"no container cluster"}
    hall.containers.known["cluster"] = Container("cluster", ContainerKind.LOCAL)
    hall.maintainer.watch()
    assert len(hall.rows(STARTING)) == 2


PODS = Container("workers", ContainerKind.KUBERNETES, {"namespaces": "compaction"})


def hall_of_pods(stores: Stores) -> Hall:
    """Two Jobs wait for a node."""
    hall = Hall(stores)
    hall.containers.kind, hall.containers.known["workers"] = PODS.kind, PODS
    hall.maintainer.maintain()
    assert len(hall.containers.alive) == 2
    return hall


def test_a_file_that_cannot_be_read_tells_nothing_of_what_runs(stores: Stores) -> None:
    hall = hall_of_pods(stores)
    starting, alive = hall.rows(STARTING), set(hall.containers.alive)
    hall.containers.unread = ConfigError("F is no YAML: line 3")
    for _ in range(8):
        hall.pass_time()
    assert (hall.rows(STARTING), hall.rows(LOST), hall.containers.alive) == (starting, [], alive)
    assert hall.stores.groups.groups()[-1].held.endswith("until it does: F is no YAML: line 3")
    # The orphan of one that a person gave up is ended where it runs, as soon as that is known again.
    first, second = starting
    hall.stores.optimizers.move(first.optimizer_id, (STARTING,), LOST, "a person")
    hall.register_all()
    hall.pass_time()
    assert hall.containers.alive == alive
    hall.containers.unread = None
    hall.pass_time()
    assert first.resource_id not in hall.containers.alive
    assert second.resource_id in hall.containers.alive
    assert hall.stores.groups.groups()[-1].held == ""


def test_an_entry_that_is_gone_for_a_round_ends_no_job(stores: Stores) -> None:
    hall = hall_of_pods(stores)
    starting, alive = hall.rows(STARTING), set(hall.containers.alive)
    del hall.containers.known["workers"]
    hall.pass_time()
    hall.containers.known["workers"] = PODS
    hall.pass_time()
    assert (hall.rows(STARTING), hall.rows(LOST), hall.containers.alive) == (starting, [], alive)


def test_a_job_whose_container_is_gone_for_good_is_given_up_only_when_it_is_late(stores: Stores) -> None:
    hall = hall_of_pods(stores)
    hall.containers.known["others"] = Container("others", PODS.kind)
    del hall.containers.known["workers"]
    hall.stores.groups.change(replace(HEAVY, container="others"))
    hall.pass_time()
    assert {each.container for each in hall.rows(STARTING)} == {"workers"}
    hall.pass_time(REGISTERS_WITHIN)
    assert {each.container for each in hall.rows(LOST)} == {"workers"}
    assert {each.container for each in hall.rows(STARTING)} == {"others"}


def test_what_a_container_that_is_gone_has_left_on_this_host_is_ended(stores: Stores) -> None:
    hall = Hall(stores)
    hall.maintainer.maintain()
    hall.register_all()
    first, second = hall.rows(RUNNING)
    hall.stores.optimizers.move(first.optimizer_id, (RUNNING,), LOST, "silent")
    del hall.containers.known["workers"]
    hall.pass_time(ORPHANED_AFTER)
    assert hall.containers.alive == {second.resource_id}


def test_optimizers_whose_settings_have_changed_are_replaced_one_by_one(stores: Stores) -> None:
    """The next one takes tasks before one of them drains, and so the group always has two that take tasks."""
    hall = Hall(stores)
    hall.stores.groups.add(replace(HEAVY, name="light"))
    hall.maintainer.maintain()
    hall.register_all()
    hall.poll_all()
    hall.pass_time()
    hall.stores.groups.change(replace(HEAVY, properties={**HEAVY.properties, "parallelism": "5"}))
    hall.maintainer.watch()
    for number in range(2):
        assert [each.parallelism for each in hall.rows(STARTING)] == [5]
        hall.register_all()
        hall.pass_time()
        # It has registered, and its engine starts.
        assert len(hall.rows(DRAINING)) == number
        hall.poll_all()
        hall.pass_time()
        assert len(hall.rows(DRAINING)) == number + 1
        assert sorted(each.parallelism for each in hall.rows(RUNNING) if each.group == "heavy") == [3, 5][number:] + [5] * number
    assert all(each.group == "heavy" and "have changed" in each.why for each in hall.rows(DRAINING))
    hall.pass_time()
    assert (len(hall.rows(DRAINING)), hall.rows(STARTING)) == (2, [])
    # What does not concern an optimizer leaves it alone.
    hall.stores.groups.change(replace(HEAVY, name="light", properties={**HEAVY.properties, "instances": "3"}))
    hall.maintainer.watch()
    assert sorted(each.group for each in hall.rows(RUNNING)) == ["heavy", "heavy", "light", "light"]


def test_settings_with_which_no_optimizer_starts_cost_a_group_none(stores: Stores) -> None:
    hall = Hall(stores)
    hall.maintainer.maintain()
    hall.register_all()
    hall.poll_all()
    hall.stores.groups.change(replace(HEAVY, properties={**HEAVY.properties, "parallelism": "5"}))
    hall.containers.problem = ConfigError("no such image")
    for _ in range(9):
        hall.pass_time()
    assert [each.parallelism for each in hall.rows(RUNNING)] == [3, 3]
    assert hall.rows(DRAINING) == []
    problem = start_problem(HEAVY, hall.stores.optimizers.optimizers())
    assert problem is not None
    assert "no such image" in problem


def test_without_room_for_one_more_one_of_two_drains_first_and_the_last_one_never(stores: Stores) -> None:
    hall = Hall(stores)
    hall.maintainer.maintain()
    hall.register_all()
    hall.poll_all()
    hall.containers.outside = Room(millicores=0)
    hall.stores.groups.change(replace(HEAVY, properties={**HEAVY.properties, "parallelism": "5"}))
    hall.pass_time()
    hall.pass_time()
    drains = hall.rows(DRAINING)
    assert (len(drains), len(hall.rows(RUNNING)), hall.rows(STARTING)) == (1, 1, [])
    hall.end(drains[0])
    hall.stores.groups.change(replace(HEAVY, properties={"instances": "1", "min-instances": "1", "parallelism": "5"}))
    hall.pass_time()
    assert (hall.rows(DRAINING), len(hall.rows(RUNNING)), hall.rows(STARTING)) == ([], 1, [])
    held = hall.stores.groups.group("heavy")
    assert held is not None
    assert "NO_ROOM_TO_REPLACE: the only optimizer of group heavy keeps its old settings" in held.held
    hall.containers.outside = Room()
    hall.pass_time()
    assert len(hall.rows(STARTING)) == 1


def test_the_watcher_does_nothing_while_nothing_changes(stores: Stores) -> None:
    hall = Hall(stores)
    hall.maintainer.maintain()
    hall.containers.alive.clear()
    hall.maintainer.watch()
    assert len(hall.rows(STARTING)) == 2
    hall.containers.known["workers"] = Container("workers", ContainerKind.LOCAL, {"env.A": "b"})
    hall.maintainer.watch()
    assert len(hall.rows(LOST)) == 2


def test_a_group_without_work_keeps_its_least_and_gets_the_rest_with_its_next_task(stores: Stores) -> None:
    hall = Hall(stores, replace(HEAVY, properties={"instances": "2", "min-instances": "1"}))
    hall.maintainer.maintain()
    assert len(hall.rows(STARTING)) == 1
    hall.register_all()
    hall.stores.tasks.insert([example("t1", queue="heavy")], [], hall.now)
    hall.maintainer.watch()
    hall.register_all()
    assert len(hall.rows(RUNNING)) == 2
    hall.stores.tasks.cancel(["t1"], EndReason.GIVEN_UP, "a person", hall.now)
    hall.pass_time()
    assert [(each.state, each.why) for each in hall.rows(DRAINING)] == [(DRAINING, "group heavy needs 1 optimizer now")]


def test_a_group_that_people_serve_is_left_alone_and_containers_leave_it(stores: Stores) -> None:
    hall = Hall(stores)
    hall.maintainer.maintain()
    hall.register_all()
    by_hand = Optimizer("by-hand", "heavy", "there", "1", "1", 1, hall.now, hall.now)
    hall.stores.optimizers.add(by_hand)
    hall.stores.groups.change(replace(HEAVY, container="external"))
    hall.pass_time()
    assert len(hall.rows(DRAINING)) == 2
    assert [each.optimizer_id for each in hall.rows(RUNNING)] == ["by-hand"]
    for each in hall.rows(DRAINING):
        hall.end(each)
    hall.pass_time()
    assert [each.optimizer_id for each in hall.rows(RUNNING, STARTING)] == ["by-hand"]


class StaleRows:
    """A store whose reader saw its rows a while ago."""

    def __init__(self, store: OptimizerStore) -> None:
        self._store = store
        self._rows = store.optimizers()

    def optimizers(self, *, live: bool = False) -> Sequence[Optimizer]:
        return self._rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_two_servers_that_both_think_they_lead_start_no_optimizer_twice(stores: Stores) -> None:
    hall = Hall(stores)
    two = hall.another(StaleRows(hall.stores.optimizers))
    hall.maintainer.maintain()
    assert len(hall.rows(STARTING)) == 2
    two.maintain()
    assert len(hall.rows(STARTING)) == 2
    assert len(hall.containers.alive) == 2


def test_starts_for_a_team_keep_its_limits_and_the_group_says_why(stores: Stores) -> None:
    """Idle optimizers of another group of the team count; a rise of the limit starts the rest."""
    hall = Hall(stores, replace(HEAVY, properties={**HEAVY.properties, "team": "ant", "memory": "4000000000"}))
    stores.groups.add(ResourceGroup("other", "external", {"team": "ant"}))
    stores.teams.put(Team("ant", (), Limits(slots=7)), "root", NOW)
    stores.optimizers.register(Optimizer("idle", "other", "there", "1", "1", 2, hall.now, hall.now, memory_bytes=10**9))
    hall.maintainer.maintain()
    assert len(hall.rows(STARTING)) == 1

    def problem() -> str:
        group = stores.groups.group("heavy")
        assert group is not None
        return start_problem(group, stores.optimizers.optimizers()) or ""

    assert "team ant: it may use 7 slots, its optimizers and what its tasks use elsewhere take 2 slots" in problem()
    stores.teams.put(Team("ant", (), Limits(slots=8, memory_bytes=8 * 10**9)), "root", NOW)
    hall.maintainer.maintain()
    assert len(hall.rows(STARTING)) == 1
    assert "another optimizer needs 4.0 GB of memory" in problem()
    stores.teams.put(Team("ant", (), Limits(slots=8, memory_bytes=9 * 10**9)), "root", NOW)
    hall.maintainer.maintain()
    assert len(hall.rows(STARTING)) == 2
    assert not problem()


def test_a_team_that_is_over_its_limit_ends_nothing_that_runs(stores: Stores) -> None:
    hall = Hall(stores, replace(HEAVY, properties={**HEAVY.properties, "team": "ant"}))
    stores.teams.put(Team("ant"), "root", NOW)
    hall.maintainer.maintain()
    hall.register_all()
    stores.teams.put(Team("ant", (), Limits(slots=1)), "root", NOW)
    hall.pass_time()
    assert len(hall.rows(RUNNING)) == 2
    hall.end(hall.rows(RUNNING)[0])
    hall.pass_time()
    assert len(hall.rows(RUNNING, STARTING)) == 1


@pytest.mark.parametrize("limits", [Limits(slots=6), Limits(gb_hours=0.0)])
def test_an_optimizer_gives_way_only_when_that_gives_its_team_room(stores: Stores, limits: Limits) -> None:
    """Two optimizers take all slots of their team, so one drains before its successor starts. Used hours do not come back."""
    of_team = replace(HEAVY, properties={**HEAVY.properties, "team": "ant", "memory": "1000000000"})
    hall = Hall(stores, of_team)
    stores.teams.put(Team("ant"), "root", NOW)
    hall.maintainer.maintain()
    hall.register_all()
    stores.teams.put(Team("ant", (), limits), "root", NOW)
    stores.groups.change(replace(of_team, properties={**of_team.properties, "memory": "1000000001"}))
    for each in hall.rows(RUNNING):
        stores.optimizers.note_first_poll(each.optimizer_id, hall.now)
    hall.pass_time()
    assert len(hall.rows(DRAINING)) == (1 if limits.slots else 0)
    assert len(hall.rows(RUNNING)) == (1 if limits.slots else 2)
