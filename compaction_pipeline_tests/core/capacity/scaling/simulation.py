"""Simulates a group whose tasks wait for slots: the events of a load in the order of time, and a scaler that looks every few seconds.

Nothing is random here. A task holds a slot for its seconds of waiting for its store, and for its CPU seconds; when the slots of an
optimizer ask for more cores than it has, its CPU seconds take as much longer.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from compaction_pipeline.core.capacity.scaling.policy import Bounds


@dataclass(frozen=True)
class Task:
    """A task of a load. Times are seconds; `arrival` counts from the beginning."""

    arrival: float
    io_seconds: float
    cpu_seconds: float
    size_bytes: int = 0


@dataclass(frozen=True)
class World:
    """What every scaler meets: bounds of optimizers, the slots and cores of each, the seconds of a start, and when one dies."""

    bounds: Bounds
    parallelism: int = 1
    cores: float = 1.0
    start_seconds: float = 45.0
    deaths: tuple[float, ...] = ()


@dataclass
class Worker:
    """An optimizer. It is there from `asked_at` on, for its costs, and takes tasks from `up_at` on. `used` are its CPU seconds."""

    number: int
    asked_at: float
    up_at: float
    drains: bool = False
    gone_at: float | None = None
    running: dict[int, tuple[float, float, float]] = field(default_factory=dict)
    used: float = 0.0

    def used_by(self, now: float) -> float:
        """The CPU seconds until now: an attempt uses its CPU evenly."""
        return self.used + sum(cpu * min((now - begun) / (ends - begun), 1.0) for begun, ends, cpu in self.running.values() if ends > begun)


class Scaler(Protocol):
    """What says how many optimizers there are to be. It looks every so many seconds."""

    every: float

    def wanted(self, now: float, group: Group) -> int:
        """How many there are to be from now on."""


@dataclass(frozen=True)
class Figures:
    """What a scaler achieved: the 95th percentile of the seconds that tasks waited, and the slot-hours of all optimizers, from when they
    were asked for until they were gone."""

    p95_seconds: float
    slot_hours: float
    changes: int

    def is_better_than(self, other: Figures) -> bool:
        """Whether it has both a lower wait and fewer slot-hours."""
        return self.p95_seconds < other.p95_seconds and self.slot_hours < other.slot_hours


class Group:
    """A group with one queue."""

    def __init__(self, world: World, tasks: Sequence[Task]) -> None:
        self.world = world
        self.tasks = tasks
        self.target = world.bounds.least
        self.workers: list[Worker] = []
        self.waiting: deque[tuple[float, int]] = deque()
        self.waited: dict[int, float] = {}
        self.ended = 0
        self.cpu_seconds = 0.0
        self.held_seconds = 0.0
        self._events: list[tuple[float, int, str, int, int]] = []
        self._order = count()
        self._begun = 0

    @property
    def live(self) -> list[Worker]:
        """Those that are not gone."""
        return [each for each in self.workers if each.gone_at is None]

    @property
    def taking(self) -> list[Worker]:
        """Those that are there to stay: starting and up."""
        return [each for each in self.live if not each.drains]

    def up(self, now: float) -> list[Worker]:
        """Those that take tasks."""
        return [each for each in self.taking if each.up_at <= now]

    def running(self) -> int:
        """The attempts that run."""
        return sum(len(each.running) for each in self.live)

    def run(self, scaler: Scaler, until: float) -> Figures:
        """Let the load come, and go on until every task has ended, at least until a time."""
        for number, task in enumerate(self.tasks):
            self._at(task.arrival, "arrives", number)
        for at in self.world.deaths:
            self._at(at, "dies", 0)
        self._at(0.0, "looks", 0)
        self._resize(0.0, 0.0)
        changes, now = 0, 0.0
        while self._events and (now < until or self.ended < len(self.tasks)):
            now, _, event, number, worker = heapq.heappop(self._events)
            if event == "looks":
                wanted = min(max(scaler.wanted(now, self), self.world.bounds.least), self.world.bounds.most)
                changes += wanted != self.target
                self.target = wanted
                self._resize(now, self.world.start_seconds)
                self._at(now + scaler.every, "looks", 0)
            elif event == "arrives":
                self.waiting.append((now, number))
            elif event == "ends":
                self._end(now, number, worker)
            elif event == "dies":
                self._die(now)
            self._give(now)
        waits = sorted(self.waited.values())
        slot_seconds = sum(((now if each.gone_at is None else each.gone_at) - each.asked_at) for each in self.workers)
        p95 = waits[min(int(len(waits) * 0.95), len(waits) - 1)] if waits else 0.0
        return Figures(p95, slot_seconds * self.world.parallelism / 3600, changes)

    def _at(self, when: float, event: str, number: int, worker: int = 0) -> None:
        heapq.heappush(self._events, (when, next(self._order), event, number, worker))

    def _resize(self, now: float, start_seconds: float) -> None:
        """Start what is missing. Drain what is too many: those with the fewest attempts, the newest among equals."""
        while len(self.taking) < self.target:
            worker = Worker(len(self.workers), now, now + start_seconds)
            self.workers.append(worker)
            self._at(worker.up_at, "is up", 0)
        surplus = sorted(self.taking, key=lambda each: (len(each.running), -each.number))[: max(len(self.taking) - self.target, 0)]
        for worker in surplus:
            worker.drains = True
            if not worker.running:
                worker.gone_at = now

    def _give(self, now: float) -> None:
        """Give what waits to free slots, the optimizer with the fewest attempts first."""
        while self.waiting:
            free = [each for each in self.up(now) if len(each.running) < self.world.parallelism]
            if not free:
                return
            worker = min(free, key=lambda each: (len(each.running), each.number))
            came, number = self.waiting.popleft()
            self.waited[number] = self.waited.get(number, 0.0) + now - came
            task = self.tasks[number]
            alone = max(task.io_seconds + task.cpu_seconds, 0.001)
            others = sum(cpu / max(ends - begun, 0.001) for begun, ends, cpu in worker.running.values())
            demand = others + task.cpu_seconds / alone
            takes = max(task.io_seconds + task.cpu_seconds * max(1.0, demand / self.world.cores), 0.001)
            worker.running[number] = (now, now + takes, task.cpu_seconds)
            self._at(now + takes, "ends", number, worker.number)

    def _end(self, now: float, number: int, worker_number: int) -> None:
        worker = self.workers[worker_number]
        attempt = worker.running.get(number)
        # The optimizer may have died, and the task be given again.
        if attempt is None or worker.gone_at is not None or abs(attempt[1] - now) > 1e-6:
            return
        del worker.running[number]
        worker.used += attempt[2]
        self.ended += 1
        self.cpu_seconds += attempt[2]
        self.held_seconds += attempt[1] - attempt[0]
        if worker.drains and not worker.running:
            worker.gone_at = now

    def _die(self, now: float) -> None:
        """The oldest optimizer dies. Its tasks wait again, before all others, when its silence is noticed a minute later."""
        dead = next(iter(self.up(now)), None)
        if dead is None:
            return
        for number in dead.running:
            self.waiting.appendleft((now, number))
        dead.running.clear()
        dead.gone_at = now
        self._resize(now, self.world.start_seconds)
