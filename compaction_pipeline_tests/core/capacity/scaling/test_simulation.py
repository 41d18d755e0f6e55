"""The simulation, the model of HPA, and what `decide` achieves on short loads beside both."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from compaction_pipeline.core.capacity.scaling.policy import Bounds, ScalingPolicy
from compaction_pipeline_tests.core.capacity.scaling.example_loads import HOUR, burst, recorded, repeated, steady
from compaction_pipeline_tests.core.capacity.scaling.scalers import ByPolicy, Fixed, Hpa
from compaction_pipeline_tests.core.capacity.scaling.simulation import Figures, Group, Task, World

WORLD = World(Bounds(1, 32))


def test_tasks_wait_for_slots_in_their_order() -> None:
    group = Group(replace(WORLD, bounds=Bounds(1, 1)), [Task(0, 10, 0), Task(1, 10, 0), Task(2, 10, 0)])
    figures = group.run(Fixed(1), 30)
    assert group.waited == {0: 0, 1: 9, 2: 18}
    assert figures.slot_hours == 30 / HOUR


def test_slots_that_share_a_core_take_longer() -> None:
    group = Group(replace(WORLD, bounds=Bounds(1, 1), parallelism=2), [Task(0, 0, 10), Task(0, 0, 10), Task(12, 5, 0)])
    group.run(Fixed(1), 0)
    # The second one shares the core, so it takes twice as long.
    assert group.held_seconds == 10 + 20 + 5
    assert group.cpu_seconds == 20


def test_starts_and_drains_cost_what_they_take() -> None:
    world = replace(WORLD, start_seconds=60.0)

    class Twice(Fixed):
        def wanted(self, now: float, group: Group) -> int:
            return 2 if now == 0 else 1

    group = Group(world, [Task(0, 200, 0), Task(70, 200, 0)])
    figures = group.run(Twice(1, every=100), 0)
    # The second one starts for 60 s, takes a task at 70 s, drains from 100 s on and is gone at 270 s, when everything has ended.
    assert group.waited == {0: 0, 1: 0}
    assert figures.slot_hours == (270 + 270) / HOUR


def test_an_optimizer_that_dies_gives_its_task_to_another() -> None:
    group = Group(replace(WORLD, deaths=(50.0,)), [Task(0, 100, 0)])
    group.run(Fixed(1), 0)
    assert group.ended == 1
    assert group.waited == {0: 45.0}
    assert [each.gone_at for each in group.workers] == [50.0, None]


def test_hpa_does_what_its_documentation_says() -> None:
    many = [Task(0, 0, 600) for _ in range(40)]
    group, sizes = Group(WORLD, many), list[tuple[float, int]]()

    class Watched(Hpa):
        def wanted(self, now: float, group: Group) -> int:
            found = super().wanted(now, group)
            sizes.append((now, found))
            return found

    group.run(Watched(1.0, tasks=True), 2_400)
    # Four pods more, or twice as many, in 15 s.
    assert [size for _, size in sizes[:5]] == [5, 10, 20, 32, 32]
    shrinks = next(at for at, size in sizes if at > 60 and size < 32)
    fewer = next(at for at in sorted({task[0] for task in sizes}) if at > 600)
    # Only what was right for 300 s brings fewer.
    assert shrinks >= fewer + 300
    near = Group(WORLD, [Task(0, 0, 2_000)])
    near.run(Hpa(0.95), 300)
    assert len(near.workers) == 1


def _run(tasks: list[Task], until: float) -> tuple[Figures, Figures, Figures]:
    ours = Group(WORLD, tasks).run(ByPolicy(ScalingPolicy(WORLD.bounds)), until)
    size = int(ours.slot_hours * HOUR / until) + 1
    return ours, Group(WORLD, tasks).run(Fixed(size), until), Group(WORLD, tasks).run(Hpa(0.7), until)


def test_a_recorded_burst_waits_half_as_long_as_with_a_fixed_size_of_the_same_cost() -> None:
    ours, fixed, hpa = _run(list(repeated(recorded("backlog", 30), 2 * HOUR, 2)), 4 * HOUR)
    assert ours.p95_seconds <= fixed.p95_seconds / 2
    # These tasks wait for their store, which the CPU that HPA looks at does not tell.
    assert ours.p95_seconds < hpa.p95_seconds / 10


def test_a_burst_of_cpu_is_worked_off_and_then_costs_nothing() -> None:
    ours, fixed, hpa = _run(list(burst(1)), 8 * HOUR)
    assert ours.p95_seconds <= fixed.p95_seconds / 2
    assert not hpa.is_better_than(ours)


def test_the_size_follows_a_steady_load_without_going_to_and_fro() -> None:
    scaler = ByPolicy(ScalingPolicy(WORLD.bounds))
    Group(WORLD, steady(1)).run(scaler, 6 * HOUR)
    directions = [each.action.direction for each in scaler.past]
    assert sum(before is not after for before, after in pairwise(directions)) <= 4
