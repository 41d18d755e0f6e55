"""A real server scales real optimizers of a group: from none to one when data comes, back to none, and back from what does not start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from compaction_pipeline.containers.processes import OptimizerProcesses
from compaction_pipeline.core.capacity.scaling.action import Direction, Outcome
from compaction_pipeline.core.queue.optimizer import OptimizerState
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.iceberg.lake import Lake
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.scenarios.deployed import Processes, committed, small_table, wait_until, write

pytestmark = [pytest.mark.scenario, pytest.mark.long, pytest.mark.timeout(0)]

POLICY = {
    "dynamic-allocation.enabled": "true",
    "dynamic-allocation.max-parallelism": "2",
    "dynamic-allocation.executor-idle-timeout": "2min",
    "dynamic-allocation.scale-down-cooldown": "0s",
    "parallelism": "1",
}
MINUTES = 60


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    deployed = Processes(tmp_path / "home")
    yield deployed
    deployed.kill_all()


@pytest.fixture
def services(processes: Processes) -> Iterator[OpenedServices]:
    opened = OpenedServices(Settings(home=processes.home, merge_engine="in-process"))
    yield opened
    local = OptimizerProcesses(processes.home / "optimizers")
    for optimizer in opened.stores.optimizers.optimizers():
        local.stop(optimizer.resource_id)
    opened.close()


def test_a_group_comes_up_with_its_data_and_goes_when_there_is_none(tmp_path: Path, processes: Processes, services: OpenedServices) -> None:
    file = tmp_path / "containers.yaml"
    file.write_text("workers:\n  kind: local\n")
    settings = {"COMPACTION_MAINTAINER_INTERVAL_SECONDS": "1", "COMPACTION_CONTAINERS_FILE": str(file)}
    table, truth, rng = small_table(Lake(tmp_path), services), Counter[int](), Random(1)
    group = replace(services.manage_groups.group("default"), container="workers", properties=POLICY)
    services.manage_groups.change(group)
    processes.serve(**settings)
    scaling, optimizers = services.stores.scaling, services.stores.optimizers
    wait_until(lambda: "default" in scaling.scales(), "the first look", 2 * MINUTES)
    write(table, rng, truth, 14)
    wait_until(lambda: committed(services) >= 1, "the first commit", 8 * MINUTES)
    wait_until(lambda: scaling.records("default", 1)[0].outcome is Outcome.DONE, "the end of the action", 3 * MINUTES)
    assert scaling.records("default", 1)[0].action.direction is Direction.OUT
    wait_until(lambda: not [each for each in optimizers.optimizers() if each.state.is_live], "no optimizer is left", 12 * MINUTES)
    newest = scaling.records("default", 1)[0]
    assert (newest.action.direction, newest.action.after.instances) == (Direction.IN, 0)

    # From now on no optimizer starts: its program does not exist. What failed is taken back, and nothing of it comes up later.
    file.write_text("workers:\n  kind: local\n  env.COMPACTION_SPARK_MASTER: nonsense://nowhere\n")
    before = committed(services)
    write(table, rng, truth, 14)
    wait_until(lambda: scaling.records("default", 1)[0].outcome is Outcome.FAILED, "the rollback", 20 * MINUTES)
    assert committed(services) == before
    assert scaling.scales()["default"].target.instances == 0
    wait_until(
        lambda: not [each for each in optimizers.optimizers() if each.state in (OptimizerState.STARTING, OptimizerState.RUNNING)],
        "nothing of it runs",
        2 * MINUTES,
    )
    shown = processes.ask("/api/v1/scaling")
    assert shown[0]["actions"][0]["record"]["outcome"] == "FAILED"
