"""Replays a burst on real optimizers that a policy scales, and the same tasks in the simulation.

    python benchmarks/scaling_replay.py              # about six minutes; needs nothing but this package

A server and a `local` container are real processes, which merge without Spark. A burst makes a task in each of many tables. Its merges wait
for a slowed store, so that an optimizer needs a slot and hardly any CPU. Then the simulation (`autoscaling.py`) gets the same policy, the
same arrivals, the measured seconds of each task, and the measured seconds of a start. Waiting is from the plan of a task to its last claim.
Slot-hours are from the burst until the last task is merged, those of starts included.

Goals: the 95th percentile of waiting and the slot-hours are within 25 % of those of the simulation, and the first task is taken by new
capacity within `lag` + a measured start + 15 s after the first task came. The last line is `ratio <p95 of waiting, real / simulated>`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median

# It puts the folder of the tests on the path.
import opened_services  # noqa: F401

from compaction_pipeline.containers.processes import OptimizerProcesses
from compaction_pipeline.core.capacity.scaling.policy import ScalingPolicy
from compaction_pipeline.core.queue.container import Container, ContainerKind
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.core.queue.optimizer import Optimizer
from compaction_pipeline.core.queue.scaling.sizes import group_policy
from compaction_pipeline.core.queue.task import CompactionTask, TaskAttempt
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.core.capacity.scaling.scalers import ByPolicy
from compaction_pipeline_tests.core.capacity.scaling.simulation import Group, Task, World
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.scenarios.deployed import Processes, wait_until
from compaction_pipeline_tests.scenarios.slow_io import SECONDS, SLOW
from compaction_pipeline_tests.scenarios.test_low_use import ROOT

LONGEST = 480.0
GOAL, SPARE_SECONDS = 0.25, 15.0
GROUP = "default"
FILES = 14
"""A table that gets so many small files at once gets a task."""


@dataclass(frozen=True)
class Replay:
    """What was measured: the tasks and optimizers of a burst that began at `began` and was merged at `over`."""

    began: datetime
    over: datetime
    tasks: Sequence[CompactionTask]
    optimizers: Sequence[Optimizer]
    cpu_seconds: float
    attempts: Sequence[TaskAttempt]

    @property
    def new(self) -> Sequence[Optimizer]:
        """Those that the burst brought."""
        return [each for each in self.optimizers if each.started_at >= self.began and each.first_polled_at is not None]

    @property
    def start_seconds(self) -> float:
        """From the request to the first poll, the median."""
        return median((each.first_polled_at - each.started_at).total_seconds() for each in self.new if each.first_polled_at)

    @property
    def p95_seconds(self) -> float:
        """The 95th percentile of waiting, as the simulation counts it."""
        waits = sorted((task.started_at - task.created_at).total_seconds() for task in self.tasks if task.started_at)
        return waits[min(int(len(waits) * 0.95), len(waits) - 1)]

    @property
    def slot_hours(self) -> float:
        """Of all optimizers, from the burst on, or from when they were asked for."""
        return sum(each.parallelism * self._seconds(each) for each in self.optimizers) / 3600

    @property
    def first_on_new_seconds(self) -> float:
        """From the first task to the first that new capacity took."""
        new = {each.optimizer_id for each in self.new}
        taken = [each.started_at for each in self.attempts if each.owner in new]
        return (min(taken) - min(task.created_at for task in self.tasks)).total_seconds()

    def simulated(self) -> Sequence[Task]:
        """The tasks, as the simulation wants them."""
        cpu = self.cpu_seconds / len(self.tasks)
        return [
            Task((task.created_at - self.began).total_seconds(), max(_held_seconds(task) - cpu, 0.0), cpu)
            for task in sorted(self.tasks, key=lambda task: task.created_at)
        ]

    def _seconds(self, each: Optimizer) -> float:
        gone = self.over if each.state.is_live else min(each.touched_at, self.over)
        return max((gone - max(each.started_at, self.began)).total_seconds(), 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=15, help="so many tables get a task each")
    parser.add_argument(
        "--store-seconds", type=float, default=80.0, help="the store waits so long before each file; several are read at once"
    )
    parser.add_argument("--lag", default="1min", help="a task that waits for longer calls for more optimizers")
    parser.add_argument("--most", type=int, default=5, help="the most optimizers of one slot")
    given = parser.parse_args()
    properties = {
        "dynamic-allocation.enabled": "true",
        "dynamic-allocation.min-parallelism": "1",
        "dynamic-allocation.max-parallelism": str(given.most),
        "dynamic-allocation.scheduler-backlog-timeout": given.lag,
        "dynamic-allocation.sustained-backlog-timeout": "10s",
        "dynamic-allocation.executor-idle-timeout": "30s",
        "dynamic-allocation.scale-down-cooldown": "30s",
        "parallelism": "1",
        "instances": "1",
    }
    group = ResourceGroup(GROUP, container="workers", properties=properties)
    policy = group_policy(group, Container("workers", ContainerKind.LOCAL))
    assert policy is not None
    with tempfile.TemporaryDirectory(prefix="replay-") as folder:
        replay = _replayed(Path(folder), group, given.tasks, given.store_seconds)
    if not replay.new:
        raise SystemExit("no optimizer came, so nothing is compared: --tasks or --store-seconds is too small for this --lag")
    _report(replay, policy)


def _report(replay: Replay, policy: ScalingPolicy) -> None:
    start = replay.start_seconds
    world = World(policy.bounds, start_seconds=start)
    simulated = Group(world, replay.simulated()).run(ByPolicy(policy), (replay.over - replay.began).total_seconds())
    held = median(_held_seconds(task) for task in replay.tasks)
    print(
        f"{len(replay.tasks)} tasks of {held:.1f} s (median), {len(replay.new)} optimizers came, "
        f"{start:.1f} s from the request to the first poll"
    )
    waits, hours = replay.p95_seconds / simulated.p95_seconds, replay.slot_hours / simulated.slot_hours
    print(f"p95 of waiting: real {replay.p95_seconds:.1f} s, simulated {simulated.p95_seconds:.1f} s: {_judged(waits)}")
    print(f"slot-hours: real {replay.slot_hours:.3f}, simulated {simulated.slot_hours:.3f}: {_judged(hours)}")
    allowed = policy.lag.total_seconds() + start + SPARE_SECONDS
    first = replay.first_on_new_seconds
    print(f"the first task is taken by new capacity after {first:.1f} s, goal {allowed:.1f} s: {'met' if first <= allowed else 'missed'}")
    print(f"ratio {waits:.2f}")


def _judged(ratio: float) -> str:
    return f"{ratio - 1:+.0%}, {'met' if abs(ratio - 1) <= GOAL else 'missed'}"


def _held_seconds(task: CompactionTask) -> float:
    assert task.started_at is not None
    assert task.prepared_at is not None
    return (task.prepared_at - task.started_at).total_seconds()


def _replayed(folder: Path, group: ResourceGroup, count: int, store_seconds: float) -> Replay:
    containers = folder / "containers.yaml"
    containers.write_text(f"workers:\n  kind: local\n  env.{SECONDS}: '{store_seconds}'\n  env.PYTHONPATH: {ROOT}\n")
    settings = {"COMPACTION_CONTAINERS_FILE": str(containers), "COMPACTION_MAINTAINER_INTERVAL_SECONDS": "1", "PYTHONPATH": str(ROOT)}
    processes = Processes(folder / "home", **settings)
    services = OpenedServices(Settings(home=processes.home, merge_engine="in-process"))
    lake = Lake(folder)
    services.stores.catalogs.add(CatalogEntry("lake", {**lake.properties, **SLOW}))
    always = {"self-optimizing.min-plan-interval": "0", "self-optimizing.commit.interval": "0"}
    with _ended(processes, services):
        # The server lists the tables at its start, and then only now and again.
        tables = [lake.table(f"t{number}", properties=always) for number in range(count)]
        processes.serve()
        services.manage_groups.change(group)
        wait_until(lambda: any(each.first_polled_at for each in services.stores.optimizers.optimizers()), "the first optimizer")
        return _burst(services, tables)


def _burst(services: OpenedServices, tables: Sequence[LakeTable]) -> Replay:
    began = services.clock()
    until = time.monotonic() + LONGEST
    for table in tables:
        row_delta(table.table, [table.data_file([{"id": number, "name": "n"}]) for number in range(FILES)])

    def tasks() -> Sequence[CompactionTask]:
        return services.stores.tasks.tasks()

    def is_over() -> bool:
        return sum(task.prepared_at is not None for task in tasks()) >= len(tables)

    wait_until(is_over, "all tasks are merged", until - time.monotonic())
    return _measured(services, began)


def _measured(services: OpenedServices, began: datetime) -> Replay:
    tasks = [task for task in services.stores.tasks.tasks() if task.prepared_at is not None]
    over = max(task.prepared_at for task in tasks if task.prepared_at is not None)
    cpu = sum(each.cpu_seconds for each in services.stores.costs.uses(began, over + timedelta(seconds=1)).values())
    attempts = [each for task in tasks for each in services.stores.tasks.attempts(task.task_id)]
    return Replay(began, over, tasks, services.stores.optimizers.optimizers(), cpu, attempts)


@contextmanager
def _ended(processes: Processes, services: OpenedServices) -> Iterator[None]:
    """End at last whatever was started."""
    try:
        yield
    finally:
        processes.kill_all()
        local = OptimizerProcesses(processes.home / "optimizers")
        for each in services.stores.optimizers.optimizers():
            local.stop(each.resource_id)
        services.close()


if __name__ == "__main__":
    main()
