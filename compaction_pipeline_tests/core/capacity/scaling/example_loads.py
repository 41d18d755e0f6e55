"""Loads of a simulated group. Those with a seed are the same for each seed."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from math import cos, pi
from pathlib import Path
from random import Random

from compaction_pipeline_tests.core.capacity.scaling.simulation import Task

RECORDED = Path(__file__).resolve().parents[4] / "benchmarks" / "loads"
HOUR = 3_600.0


def recorded(name: str, longer: float) -> Sequence[Task]:
    """The tasks that a benchmark recorded. Each takes so many times longer than it did."""
    with (RECORDED / f"{name}.csv").open(newline="") as lines:
        return [
            Task(float(row["arrival"]), longer * float(row["io_seconds"]), longer * float(row["cpu_seconds"]), int(row["bytes"]))
            for row in csv.DictReader(lines)
        ]


def repeated(tasks: Sequence[Task], every: float, times: int) -> Sequence[Task]:
    """The same tasks again and again."""
    return [Task(task.arrival + number * every, task.io_seconds, task.cpu_seconds) for number in range(times) for task in tasks]


def by_day_curve(tasks: Sequence[Task], count: int) -> Sequence[Task]:
    """So many of these tasks in turns, over a day that is quiet at night: at its peak five times as many come as at its lowest."""
    whole, seconds = 0.0, 24 * HOUR
    rates = [1.0 - cos(2 * pi * minute / 1_440) * (2 / 3) for minute in range(1_440)]
    each = sum(rates) / count
    found = []
    for minute, rate in enumerate(rates):
        whole += rate
        while whole >= each * (len(found) + 1):
            task = tasks[len(found) % len(tasks)]
            found.append(Task(seconds * minute / 1_440, task.io_seconds, task.cpu_seconds))
    return found


def _poisson(random: Random, rate: float, begin: float, end: float, seconds: float, cpu: float) -> list[Task]:
    """Tasks that come at random, `rate` in a second. Each takes about so many seconds, of which `cpu` is the part of CPU."""
    found, at = [], begin
    while rate > 0 and (at := at + random.expovariate(rate)) < end:
        takes = seconds * random.lognormvariate(-0.125, 0.5)
        found.append(Task(at, takes * (1 - cpu), takes * cpu))
    return found


def sawtooth(seed: int) -> Sequence[Task]:
    """Six hours in which the load grows for an hour and then falls to nothing."""
    random = Random(seed)
    steps = range(72)
    return [
        task
        for step in steps
        for task in _poisson(random, (step % 12 + 1) / 12 * random.uniform(0.2, 0.35), step * 300.0, (step + 1) * 300.0, 40, 0.8)
    ]


def burst(seed: int) -> Sequence[Task]:
    """Eight hours with little to do, and four times some hundreds of tasks at once."""
    random = Random(seed)
    little = _poisson(random, 0.01, 0, 8 * HOUR, 30, 0.8)
    many = [
        Task(at + random.uniform(0, 60), io, 4 * io)
        for at in (random.uniform(0, HOUR) + 2 * HOUR * number for number in range(4))
        for io in (random.uniform(3, 9) for _ in range(random.randint(150, 400)))
    ]
    return sorted([*little, *many], key=lambda task: task.arrival)


def day_curve(seed: int) -> Sequence[Task]:
    """A day that is quiet at night."""
    random = Random(seed)
    peak = random.uniform(0.15, 0.3)
    return [
        task
        for step in range(288)
        for task in _poisson(random, peak * (0.55 - 0.45 * cos(2 * pi * step / 288)), step * 300.0, (step + 1) * 300.0, 45, 0.7)
    ]


def steady(seed: int) -> Sequence[Task]:
    """Six hours of the same load, for optimizers that die."""
    random = Random(seed)
    return _poisson(random, random.uniform(0.1, 0.2), 0, 6 * HOUR, 45, 0.8)


def deaths(seed: int) -> tuple[float, ...]:
    """When an optimizer dies, about every twenty minutes of six hours."""
    random = Random(seed + 1)
    return tuple(sorted(random.uniform(0, 6 * HOUR) for _ in range(18)))
