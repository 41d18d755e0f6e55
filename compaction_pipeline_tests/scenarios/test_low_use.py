"""A real optimizer that is idle: it is named with its remedy, its team gets no loan, and the printed command mends both."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from compaction_pipeline.core.capacity.team import Limits, Team
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.services.capacity.read_use import OptimizerUse
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.scenarios.deployed import COMMAND, Processes, wait_until

pytestmark = pytest.mark.long


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    deployed = Processes(tmp_path / "home", COMPACTION_LOW_USE_MINUTES="1")
    yield deployed
    deployed.kill_all()


@pytest.fixture
def services(processes: Processes) -> Iterator[OpenedServices]:
    opened = OpenedServices(Settings(home=processes.home, merge_engine="in-process", low_use_minutes=1))
    yield opened
    opened.close()


@pytest.mark.timeout(400)
def test_an_idle_optimizer_is_named_and_the_printed_command_ends_it(processes: Processes, services: OpenedServices) -> None:
    manage = services.manage_teams
    for name in ("ant", "bee"):
        manage.set(Team(name, (), Limits(slots=4, gb_hours=10.0)), "root")
    services.manage_groups.add(ResourceGroup("night", properties={"team": "ant"}))
    processes.serve()
    silent = processes.optimizer("--group", "night", "--parallelism", "1")
    assert silent.wait(60) != 0
    assert "whose memory or GB-hours are limited" in (processes.home.parent / "optimizer-1.log").read_text()
    process = processes.optimizer("--group", "night", "--parallelism", "1", "--memory", str(4 * 10**9))

    def judged() -> list[OptimizerUse]:
        return [one for one in services.read_use.uses() if one.use is not None]

    wait_until(lambda: bool(judged()), "an optimizer that has lived for a minute")
    (found,) = judged()
    assert found.use is not None
    assert (found.use.score, found.use.ends) == (0, True)
    assert "no task came: it need not run, which saves 4.0 GB" in found.use.remedy
    with pytest.raises(ConfigError, match=f"1 of its 1 optimizers are of low use.*{found.optimizer_id}: 1 of 1 slot idle"):
        manage.lend("bee", "ant", 1, "ann", Limits(slots=1))
    wait_until(lambda: manage.standing("ant").use.gb_hours > 0.04, "a minute of 4 GB that is charged to the team")
    done = subprocess.run(
        [COMMAND, *shlex.split(found.command)[1:]],
        env={**os.environ, "COMPACTION_HOME": str(processes.home)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert process.wait(120) == 0
    wait_until(lambda: not services.read_use.uses(), "no optimizer of low use")
    assert manage.lend("bee", "ant", 1, "ann", Limits(slots=1)).slots == 1
