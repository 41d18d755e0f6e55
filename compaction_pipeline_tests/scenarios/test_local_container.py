"""A server that starts optimizers in a container of its own host, as real processes that outlive it."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from compaction_pipeline.containers.processes import OptimizerProcesses
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.iceberg.lake import Lake
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.scenarios.deployed import Processes, committed, small_table, wait_until, write

pytestmark = pytest.mark.scenario

SETTINGS = {"COMPACTION_MAINTAINER_INTERVAL_SECONDS": "1"}


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    deployed = Processes(tmp_path / "home")
    yield deployed
    deployed.kill_all()


@pytest.fixture
def services(tmp_path: Path, processes: Processes) -> Iterator[OpenedServices]:
    """The test's own look at the state database. At the end all optimizers that a container has started are killed."""
    opened = OpenedServices(Settings(home=processes.home, merge_engine="in-process"))
    yield opened
    local = OptimizerProcesses(processes.home / "optimizers")
    for optimizer in opened.stores.optimizers.optimizers():
        local.stop(optimizer.resource_id)
    opened.close()


def running(services: OpenedServices) -> list[Optimizer]:
    return [each for each in services.stores.optimizers.optimizers() if each.state is OptimizerState.RUNNING]


def with_instances(group: ResourceGroup, count: int) -> ResourceGroup:
    return replace(group, container="workers", properties={"instances": str(count), "min-instances": str(count), "parallelism": "1"})


def test_a_group_keeps_its_optimizers_through_kills_and_a_restart_of_the_server(
    tmp_path: Path, processes: Processes, services: OpenedServices
) -> None:
    file = tmp_path / "containers.yaml"
    file.write_text("workers:\n  kind: local\n  max-cores: 4\n")
    settings = {**SETTINGS, "COMPACTION_CONTAINERS_FILE": str(file)}
    table = small_table(Lake(tmp_path), services)
    truth: Counter[int] = Counter()
    rng = Random(1)
    group = with_instances(services.manage_groups.group("default"), 2)
    services.manage_groups.change(group)
    server = processes.serve(**settings)
    wait_until(lambda: len(running(services)) == 2, "two optimizers")
    assert {each.container for each in running(services)} == {"workers"}
    write(table, rng, truth, 14)
    wait_until(lambda: committed(services) >= 1, "the first commit")

    # The second group gets what the container still holds, and says so. A group whose optimizers live cannot be deleted.
    heavy = services.manage_groups.add(replace(with_instances(group, 3), name="heavy"))
    wait_until(lambda: sum(each.group == "heavy" for each in running(services)) == 2, "optimizers of the second group")
    full = "container workers has no room for another optimizer of group heavy: it needs 1 core, and at "
    wait_until(lambda: processes.ask("/api/v1/groups/heavy").get("problem", "").startswith(full), "the group says that the host is full")
    assert sum(each.group == "heavy" for each in services.stores.optimizers.optimizers()) == 2
    with pytest.raises(ConfigError, match="live optimizers optimizer-"):
        services.manage_groups.delete("heavy")
    services.manage_groups.change(with_instances(heavy, 0))
    wait_until(lambda: not any(each.group == "heavy" for each in running(services)), "they drain")
    wait_until(lambda: len(services.stores.optimizers.optimizers(live=True)) == 2, "they end")
    services.manage_groups.delete("heavy")

    # One that is killed is lost within a minute, and replaced.
    victim, _ = running(services)
    os.kill(int(victim.process), signal.SIGKILL)
    before: set[str] = set()

    def is_replaced() -> bool:
        before.clear()
        before.update(ids(services))
        return len(before) == 2 and victim.optimizer_id not in before

    wait_until(is_replaced, "the killed one is replaced")

    # Without a server, optimizers go on. A new server finds them, and starts none.
    rows = len(services.stores.optimizers.optimizers())
    server.kill()
    server.wait()
    processes.serve(**settings)
    done = committed(services)
    write(table, rng, truth, 14)
    wait_until(lambda: committed(services) > done, "a commit after the restart")
    services.manage_groups.change(with_instances(group, 1))
    wait_until(lambda: len(services.stores.optimizers.optimizers(live=True)) == 1, "one of them drains and ends")
    # The new server has done its rounds, and has started nothing.
    assert ids(services) < before
    assert len(services.stores.optimizers.optimizers()) == rows
    wait_until(lambda: services.read_tasks.queue_counts().open == 0, "an empty queue")
    assert Counter(table.live_ids()) == truth


def ids(services: OpenedServices) -> set[str]:
    return {each.optimizer_id for each in running(services)}
