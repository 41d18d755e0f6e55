"""Compares `decide` with Kubernetes' HPA and with a fixed size, in a simulation of seven loads.

    python benchmarks/autoscaling.py              # seconds; needs nothing but this package
    python benchmarks/autoscaling.py --fresh 20   # minutes: the synthetic loads of 20 new seeds each

Three loads are recorded tasks of `backlog.py`, `latency.py` and the demo (`loads/`), stretched so that one optimizer is not enough:
`STRETCHED` says how. Four are synthetic. A task holds a slot for its I/O seconds, and for its CPU seconds times max(1, demand / cores). All
scalers have the same bounds, one slot and one core an optimizer, and starts of 45 s. Slot-hours count optimizers that start or drain. HPA
is simulated with its default behaviour, for three targets of CPU, and, beside the goal, for three targets of tasks in hand for each slot.

Goals: on six of the seven loads no target of HPA has both a lower 95th percentile of waiting and fewer slot-hours; on the burst and the day
curve that percentile is at most half of that of a fixed size that costs as much. The last line is `kept <loads> of 7`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from random import SystemRandom

# It puts the folder of the tests on the path.
import opened_services  # noqa: F401

from compaction_pipeline.core.capacity.scaling.policy import Bounds, ScalingPolicy
from compaction_pipeline_tests.core.capacity.scaling.example_loads import (
    HOUR,
    burst,
    by_day_curve,
    day_curve,
    deaths,
    recorded,
    repeated,
    sawtooth,
    steady,
)
from compaction_pipeline_tests.core.capacity.scaling.scalers import ByPolicy, Fixed, Hpa
from compaction_pipeline_tests.core.capacity.scaling.simulation import Figures, Group, Task, World

BOUNDS = Bounds(1, 32)
CPU_TARGETS, TASK_TARGETS = (0.5, 0.7, 0.9), (1.0, 2.0, 4.0)
STRETCHED = (
    "backlog: 600 recorded tasks at once, each 30 times as long, every two hours; latency: 14 recorded tasks again and again, each 300 "
    "times as long; recorded day: 212 tasks of 16 minutes of the demo, 20 times as long, 8,000 of them by a day curve"
)
SEEDS = {"sawtooth": 71038, "burst": 25444, "day curve": 332734, "dying": 584931}
"""They were drawn after `decide` and the model of HPA had been written."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresh", type=int, default=0, help="draw so many new seeds for each synthetic load")
    fresh = parser.parse_args().fresh
    if fresh:
        _compare_fresh(fresh)
        return
    print(STRETCHED)
    kept = [_compared(name, tasks, until, World(BOUNDS, deaths=dying)) for name, (tasks, until, dying) in loads().items()]
    print(f"beside HPA by tasks: kept {sum(by_tasks for _, by_tasks in kept)} of 7")
    print(f"kept {sum(by_cpu for by_cpu, _ in kept)} of 7")


def _compare_fresh(count: int) -> None:
    """Print how many loads of new seeds are kept beside each kind of HPA, and the waiting beside a fixed size of the same cost."""
    random = SystemRandom()
    for name in SEEDS:
        seeds = [random.randrange(10**6) for _ in range(count)]
        kept = [_compared(f"{name} {seed}", *_synthetic(name, seed)) for seed in seeds]
        by_cpu, by_tasks = (sum(each) for each in zip(*kept, strict=True))
        print(f"{name}: kept {by_cpu} of {count} beside HPA by CPU, {by_tasks} of {count} beside HPA by tasks")


def _synthetic(name: str, seed: int) -> tuple[Sequence[Task], float, World]:
    tasks, until, dying = loads(dict.fromkeys(SEEDS, seed))[name]
    return tasks, until, World(BOUNDS, deaths=dying)


def loads(seeds: Mapping[str, int] = SEEDS) -> Mapping[str, tuple[Sequence[Task], float, tuple[float, ...]]]:
    """The tasks of each load, its seconds, and when optimizers die."""
    return {
        "backlog": (repeated(recorded("backlog", 30), 2 * HOUR, 4), 8 * HOUR, ()),
        "latency": (repeated(recorded("latency", 300), 200, 72), 4 * HOUR, ()),
        "recorded day": (by_day_curve(recorded("demo", 20), 8_000), 24 * HOUR, ()),
        "sawtooth": (sawtooth(seeds["sawtooth"]), 6 * HOUR, ()),
        "burst": (burst(seeds["burst"]), 8 * HOUR, ()),
        "day curve": (day_curve(seeds["day curve"]), 24 * HOUR, ()),
        "dying": (steady(seeds["dying"]), 6 * HOUR, deaths(seeds["dying"])),
    }


def _compared(name: str, tasks: Sequence[Task], until: float, world: World) -> tuple[bool, bool]:
    """Print a load. Returns whether no target of HPA is better in both figures: of those of CPU, and of those of tasks."""
    ours = Group(world, tasks).run(ByPolicy(ScalingPolicy(world.bounds)), until)
    fixed = max(ceil(ours.slot_hours * HOUR / until), 1)
    of_fixed = Group(world, tasks).run(Fixed(fixed), until)
    by_cpu = {f"CPU {target:.0%}": Group(world, tasks).run(Hpa(target), until) for target in CPU_TARGETS}
    by_tasks = {f"{target:g} tasks": Group(world, tasks).run(Hpa(target, tasks=True), until) for target in TASK_TARGETS}
    work = sum(task.io_seconds + task.cpu_seconds for task in tasks) / HOUR
    print(f"{name}: {len(tasks)} tasks, {work:.1f} slot-hours of work\n  policy      {_words(ours)}, {ours.changes} changes")
    print(
        f"  {f'fixed {fixed}':11} {_words(of_fixed)}; the policy waits {ours.p95_seconds / max(of_fixed.p95_seconds, 1):.2f} times as long"
    )
    for target, figures in (by_cpu | by_tasks).items():
        print(f"  {target:11} {_words(figures)}{'; better in both' if figures.is_better_than(ours) else ''}")
    return _is_kept(ours, by_cpu.values()), _is_kept(ours, by_tasks.values())


def _is_kept(ours: Figures, peers: Iterable[Figures]) -> bool:
    return not any(figures.is_better_than(ours) for figures in peers)


def _words(figures: Figures) -> str:
    return f"p95 of waiting {figures.p95_seconds:8,.0f} s, {figures.slot_hours:6.1f} slot-hours"


if __name__ == "__main__":
    main()
