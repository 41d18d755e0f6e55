"""Real optimizers of low use: one is idle, one computes all the time with too much memory, and one waits for a slow store.

Each is named with its remedy, and the printed command raises the score of what follows.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import cycle
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow

from compaction_pipeline.containers.processes import OptimizerProcesses
from compaction_pipeline.core.capacity.team import Limits, Team
from compaction_pipeline.core.errors import ConfigError, StorageUnavailable
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.core.tables.data_file import FileContent, OutputFile
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.demo.write_files import write_parquet_file
from compaction_pipeline.services.capacity.read_use import OptimizerUse
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.scenarios.deployed import COMMAND, Processes, wait_until
from compaction_pipeline_tests.scenarios.slow_io import SECONDS, SLOW

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
    run_printed(found.command, processes)
    assert process.wait(120) == 0
    wait_until(lambda: not services.read_use.uses(), "no optimizer of low use")
    assert manage.lend("bee", "ant", 1, "ann", Limits(slots=1)).slots == 1


def run_printed(command: str, processes: Processes) -> None:
    """Run a command as it was printed for people."""
    assert command.startswith("compaction-pipeline ")
    own = {**os.environ, "COMPACTION_HOME": str(processes.home)}
    done = subprocess.run([COMMAND, *shlex.split(command)[1:]], env=own, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


MINUTE = timedelta(minutes=1)
ROOT = str(Path(__file__).parents[2])
WRITTEN_FILES = 6
"""A table gets so many files at once, which make a task."""


@dataclass(frozen=True)
class Working:
    """A server with a container on this host, and tables in which more tasks wait than its optimizer can merge."""

    processes: Processes
    services: OpenedServices
    server: subprocess.Popen[bytes]

    def judged(self, parallelism: int, memory: int) -> OptimizerUse:
        """The use of the one optimizer, once it has this size and was busy for a minute."""

        def sized() -> list[OptimizerUse]:
            same = {
                each.optimizer_id
                for each in self.services.stores.optimizers.optimizers(live=True)
                if (each.parallelism, each.memory_bytes) == (parallelism, memory)
            }
            now = self.services.clock()
            used = self.services.stores.costs.uses(now - MINUTE, now)
            # Of an attempt that runs, nobody knows the CPU, and an optimizer of whose time too little is known is not judged.
            known = {name for name, each in used.items() if each.told_seconds >= 0.95 * each.busy_seconds}
            uses = [(each, each.use) for each in self.services.read_use.uses() if each.optimizer_id in same & known]
            return [each for each, use in uses if use is not None and not any("idle" in why for why in use.reasons)]

        wait_until(lambda: bool(sized()), f"an optimizer of {parallelism} slots and {memory} bytes that was busy for a minute", 300)
        return sized()[0]

    def cores_used(self, one: OptimizerUse) -> float:
        """How many cores its merges used in the last minute, in the mean."""
        now = self.services.clock()
        return self.services.stores.costs.uses(now - MINUTE, now)[one.optimizer_id].cpu_seconds / MINUTE.total_seconds()


@contextmanager
def working(folder: Path, group: Mapping[str, str], write: Callable[[LakeTable], None], **settings: str) -> Iterator[Working]:
    """Let one optimizer of this group, which a container starts, merge what `write` writes all the time."""
    containers = folder / "containers.yaml"
    slow = settings.pop(SECONDS, "0")
    path = settings.setdefault("PYTHONPATH", ROOT)
    containers.write_text(f"workers:\n  kind: local\n  env.{SECONDS}: '{slow}'\n  env.PYTHONPATH: {path}\n")
    whole = {
        "COMPACTION_LOW_USE_MINUTES": "1",
        "COMPACTION_MAINTAINER_INTERVAL_SECONDS": "1",
        "COMPACTION_MERGE_ENGINE": "spark",
        **settings,
    }
    processes = Processes(folder / "home", COMPACTION_CONTAINERS_FILE=str(containers), **whole)
    low_use_cpu = float(settings.get("COMPACTION_LOW_USE_CPU", "0.2"))
    state = settings.get("COMPACTION_STATE_URL")
    own = Settings(home=processes.home, merge_engine="in-process", low_use_minutes=1, low_use_cpu=low_use_cpu, state_url=state)
    opened = OpenedServices(own)
    lake = Lake(folder)
    opened.stores.catalogs.add(CatalogEntry("lake", {**lake.properties, **(SLOW if slow != "0" else {})}))
    always = {"self-optimizing.min-plan-interval": "0", "self-optimizing.commit.interval": "0"}
    tables = [lake.table(f"t{number}", properties=always) for number in range(8)]
    ends = threading.Event()

    def fill() -> None:
        """Keep the queue full. Each table has one task at a time, so several tables are written."""
        turn = cycle(tables)
        while not ends.is_set():
            try:
                if opened.read_tasks.queue_counts().open < len(tables):
                    write(next(turn))
                else:
                    ends.wait(0.2)
            except StorageUnavailable:
                # A test stops the state database for a while.
                ends.wait(1)

    filler = threading.Thread(target=fill, daemon=True)
    try:
        server = processes.serve()
        filler.start()
        wait_until(lambda: opened.read_tasks.queue_counts().open > 2, "tasks that wait")
        properties = {"instances": "1", "min-instances": "1", **group}
        opened.manage_groups.change(ResourceGroup("default", container="workers", properties=properties))
        yield Working(processes, opened, server)
    finally:
        ends.set()
        filler.join(60)
        opened.manage_groups.change(ResourceGroup("default", container="workers", properties={"instances": "0"}))
        local = OptimizerProcesses(processes.home / "optimizers")
        for optimizer in opened.stores.optimizers.optimizers():
            local.stop(optimizer.resource_id)
        opened.close()
        processes.kill_all()


def write_small(table: LakeTable) -> None:
    row_delta(table.table, [table.data_file([{"id": number, "name": "n"}]) for number in range(WRITTEN_FILES)])


def writes_much() -> Callable[[LakeTable], None]:
    """Files whose rows are in no order, and deletes that reach each of them, so that all rows are compared and written anew.

    Copies of them are written, because a writer that makes rows would need more CPU than the merges.
    """
    rng, made = np.random.default_rng(), dict[str, list[OutputFile]]()

    def new(table: LakeTable) -> OutputFile:
        ids = rng.integers(0, 2**62, 200_000)
        rows = pa.table({"id": ids, "name": pa.array(ids).cast(pa.string())}, schema=schema_to_pyarrow(table.table.schema()))
        return write_parquet_file(table.table, rows, content=FileContent.DATA, name=uuid4().hex)

    def copied(file: OutputFile) -> OutputFile:
        path = file.path.removeprefix("file://")
        other = str(Path(path).with_name(f"{uuid4().hex}.parquet"))
        shutil.copyfile(path, other)
        return replace(file, path=file.path.replace(path, other))

    def write(table: LakeTable) -> None:
        table.table.refresh()
        name = str(table.identifier)
        made[name] = made.get(name) or [new(table) for _ in range(WRITTEN_FILES)]
        row_delta(table.table, [copied(each) for each in made[name]])
        table.delete_ids(*(int(one) for one in rng.integers(0, 2**62, 50)))

    return write


@pytest.mark.timeout(900)
def test_an_optimizer_that_waits_for_a_slow_store_gets_more_slots(tmp_path: Path) -> None:
    group = {"parallelism": "1", "memory": str(2 * 10**9)}
    began = time.monotonic()
    with working(tmp_path, group, write_small, **{SECONDS: "2"}) as deployed:
        before = deployed.judged(1, 2 * 10**9)
        assert before.use is not None
        assert before.use.is_low
        assert before.use.reasons[0].endswith("cores used")
        assert before.use.remedy.startswith("its slots wait for storage: parallelism 2 uses the cores better")
        assert before.use.better is not None
        cores = deployed.cores_used(before)
        run_printed(before.command, deployed.processes)
        after = deployed.judged(2, before.use.better.memory_bytes)
        assert after.use is not None
        assert deployed.cores_used(after) > cores
        used = f"{cores:.3f} then {deployed.cores_used(after):.3f} cores used"
        sys.stderr.write(f"\nslow store: {before.use} then {after.use}, {used}, {time.monotonic() - began:.0f} s")
        assert after.use.score > before.use.score


@pytest.mark.timeout(900)
def test_an_optimizer_that_computes_is_not_of_low_use_for_cpu(tmp_path: Path) -> None:
    """Its host has more cores than one slot can use, so less than the asked-for part of them is used."""
    group = {"parallelism": "1", "memory": str(12 * 10**9)}
    began = time.monotonic()
    with working(tmp_path, group, writes_much(), COMPACTION_LOW_USE_CPU="1") as deployed:
        before = deployed.judged(1, 12 * 10**9)
        assert before.use is not None
        assert before.use.is_low
        assert [each for each in before.use.reasons if "cores used" in each] == []
        assert before.use.better is not None
        assert before.use.better.slots == 1
        assert before.use.remedy.startswith("memory ")
        run_printed(before.command, deployed.processes)
        after = deployed.judged(1, before.use.better.memory_bytes)
        assert after.use is not None
        sys.stderr.write(f"\ncomputes: {before.use} then {after.use}, {time.monotonic() - began:.0f} s")
        assert [each for each in after.use.reasons if "cores used" in each] == []
        assert after.use.score > before.use.score
