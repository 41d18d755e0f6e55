"""Optimizers that do not work, a server that is killed and a database that is away: a real group of real processes comes to its last good
number, and nothing comes up later that nobody wanted.

`misbehaving/sitecustomize.py` is on the path of all processes. The five minutes within which an optimizer must register and poll are one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from compaction_pipeline.containers.processes import OptimizerProcesses
from compaction_pipeline.core.capacity.scaling.action import Outcome
from compaction_pipeline.core.capacity.scaling.record import ScalingRecord
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState
from compaction_pipeline_tests.postgres import new_database, private_server
from compaction_pipeline_tests.scenarios.deployed import committed, wait_until
from compaction_pipeline_tests.scenarios.misbehaving import sitecustomize
from compaction_pipeline_tests.scenarios.misbehaving.sitecustomize import FILE, WITHIN, dies_at_its_first_task, never_polls, never_registers
from compaction_pipeline_tests.scenarios.slow_io import SECONDS
from compaction_pipeline_tests.scenarios.test_low_use import ROOT, Working, working, write_small

pytestmark = [pytest.mark.scenario, pytest.mark.long, pytest.mark.timeout(1_200)]

POLICY = {
    "dynamic-allocation.enabled": "true",
    "dynamic-allocation.min-parallelism": "1",
    "dynamic-allocation.max-parallelism": "2",
    "dynamic-allocation.scheduler-backlog-timeout": "10s",
    "dynamic-allocation.sustained-backlog-timeout": "1s",
    "parallelism": "1",
}
MINUTE = 60


class Group:
    """The group that a test watches."""

    def __init__(self, deployed: Working, file: Path) -> None:
        self.deployed, self.file = deployed, file
        self.stores = deployed.services.stores

    def misbehave(self, how: Callable[[], None]) -> None:
        """Let those that start from now on do this."""
        other = self.file.with_suffix(".new")
        other.write_text(how.__name__)
        other.replace(self.file)

    def records(self) -> list[ScalingRecord]:
        """The oldest first."""
        return list(self.stores.scaling.records("default", 99))[::-1]

    def rows(self, *states: OptimizerState) -> list[Optimizer]:
        return [each for each in self.stores.optimizers.optimizers() if each.state in states]

    def living(self) -> frozenset[str]:
        """The resource ids of the processes of optimizers on this host that this test's server started."""
        mine = {each.resource_id for each in self.stores.optimizers.optimizers()}
        return OptimizerProcesses(self.deployed.processes.home / "optimizers").running() & mine

    def the_first(self) -> Optimizer:
        """The first optimizer, once it takes tasks."""
        wait_until(lambda: any(each.first_polled_at for each in self.rows(OptimizerState.RUNNING)), "the first optimizer takes tasks")
        (first,) = self.rows(OptimizerState.RUNNING)
        return first

    def has_two(self, first: Optimizer) -> None:
        """The one action is done, and for a minute there are the first optimizer and another one, and no other process."""
        assert [each.outcome for each in self.records()] == [Outcome.DONE]
        running = self.rows(OptimizerState.RUNNING)
        assert len(running) == 2
        assert first.optimizer_id in {each.optimizer_id for each in running}
        until = time.monotonic() + MINUTE
        while time.monotonic() < until:
            assert self.living() == {each.resource_id for each in running}
            assert {each.optimizer_id for each in self.rows(OptimizerState.STARTING, OptimizerState.RUNNING)} == {
                each.optimizer_id for each in running
            }
            time.sleep(1)

    def asked(self) -> None:
        """More optimizers have been asked for."""
        wait_until(lambda: any(each.action.after.instances == 2 for each in self.records()), "tasks wait for too long", 5 * MINUTE)


@contextmanager
def scaled(folder: Path, **settings: str) -> Iterator[Group]:
    """A group of one optimizer whose tasks wait for a slow store, so that it is to have two."""
    file = folder / "misbehaves"
    path = f"{Path(sitecustomize.__file__).parent}:{ROOT}"
    own = {SECONDS: "5", "PYTHONPATH": path, FILE: str(file), WITHIN: str(MINUTE), "COMPACTION_MERGE_ENGINE": "in-process"}
    with working(folder, POLICY, write_small, **own, **settings) as deployed:
        group = Group(deployed, file)
        yield group
    # The block above ends what the container has by its rows.
    assert not group_left(deployed)


def group_left(deployed: Working) -> frozenset[str]:
    """What still runs of a deployment that has ended."""
    logs = {path.stem for path in (deployed.processes.home / "optimizers").glob("*.log")}
    return OptimizerProcesses(deployed.processes.home / "optimizers").running() & logs


@pytest.mark.parametrize("how", [never_registers, never_polls, dies_at_its_first_task], ids=lambda how: how.__name__)
def test_what_does_not_work_is_taken_back(tmp_path: Path, how: Callable[[], None]) -> None:
    began = time.monotonic()
    with scaled(tmp_path) as group:
        first = group.the_first()
        group.misbehave(how)
        group.asked()
        asked = time.monotonic()
        wait_until(lambda: group.records()[-1].outcome is Outcome.FAILED, "the rollback", 10 * MINUTE)
        taken_back = time.monotonic()
        record = group.records()[-1]
        assert (record.action.before.instances, record.action.after.instances) == (1, 2)
        assert record.in_force is not None
        assert record.in_force.instances == group.stores.scaling.scales()["default"].target.instances == 1
        wait_until(lambda: group.living() == {first.resource_id}, "only the first optimizer is left", 5 * MINUTE)
        left = time.monotonic()
        before, until = committed(group.deployed.services), time.monotonic() + 2 * MINUTE
        while time.monotonic() < until:
            assert group.living() == {first.resource_id}
            assert [each.optimizer_id for each in group.rows(OptimizerState.STARTING, OptimizerState.RUNNING)] == [first.optimizer_id]
            time.sleep(1)
        assert committed(group.deployed.services) > before
        sys.stderr.write(
            f"\n{how.__name__}: asked for after {asked - began:.0f} s, taken back {taken_back - asked:.0f} s later ({record.why}), "
            f"gone {left - taken_back:.0f} s after that\n"
        )


def test_a_server_that_is_killed_goes_on_with_the_action(tmp_path: Path) -> None:
    with scaled(tmp_path) as group:
        first = group.the_first()
        group.misbehave(sitecustomize.starts_slowly)
        group.asked()
        wait_until(lambda: len(group.living()) == 2, "the second optimizer's process")
        assert group.records()[-1].is_open
        group.deployed.server.kill()
        group.deployed.server.wait()
        assert group.records()[-1].is_open
        group.deployed.processes.serve()
        wait_until(lambda: group.records()[-1].outcome is not None, "the end of the action", 5 * MINUTE)
        group.has_two(first)


def test_a_database_that_is_away_fails_no_action_and_ends_no_optimizer(tmp_path: Path) -> None:
    with private_server() as server, new_database(server.url) as url, scaled(tmp_path, COMPACTION_STATE_URL=url) as group:
        first = group.the_first()
        group.misbehave(sitecustomize.starts_slowly)
        group.asked()
        wait_until(lambda: len(group.living()) == 2, "the second optimizer's process")
        server.stop()
        time.sleep(MINUTE)
        assert group.deployed.server.poll() is None
        server.start()
        wait_until(lambda: group.records()[-1].outcome is not None, "the end of the action", 5 * MINUTE)
        # The second one could not register, so its process has ended, and another one was started when the database was there again.
        group.has_two(first)
