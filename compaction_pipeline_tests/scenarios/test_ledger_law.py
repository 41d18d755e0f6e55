"""The ledger beside a sampler that shares no code with it: lives of real optimizers, some of them killed, and the CPU of the others.

`COMPACTION_TEST_LEDGER_SECONDS=3600` runs it for an hour, and asks for more precision than the short run can have.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import psutil
import pytest
from sqlalchemy import create_engine, select

from compaction_pipeline.core.capacity.costs import CostKey
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.settings import Settings
from compaction_pipeline.storage import schema
from compaction_pipeline_tests.iceberg.lake import Lake
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.scenarios.deployed import Processes, small_table, wait_until, write

pytestmark = pytest.mark.scenario

SECONDS = float(os.environ.get("COMPACTION_TEST_LEDGER_SECONDS", "30"))
SLOTS, MEMORY = 1, 2 * 10**9
START_SECONDS = 15.0
"""A process exists so long before it registers, at most, on a machine that is busy. Nobody can charge that time."""
HEARTBEAT_SECONDS = 10.0
"""A process that is killed was last heard of so long before, at most."""
GOODBYE_SECONDS = 5.0


class Sampler:
    """Notes the life and the CPU of processes twice a second, by the operating system alone."""

    def __init__(self) -> None:
        self.lives: dict[int, float] = {}
        self.cpu: dict[int, float] = {}
        self._watched: dict[int, psutil.Process] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def watch(self, process: subprocess.Popen[bytes]) -> None:
        self._watched[process.pid] = psutil.Process(process.pid)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *of_error: object) -> None:
        self._ends.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ends.wait(0.5):
            for pid, process in list(self._watched.items()):
                try:
                    if process.status() != psutil.STATUS_ZOMBIE:
                        used = process.cpu_times()
                        self.lives[pid] = time.time() - process.create_time()
                        self.cpu[pid] = used.user + used.system
                except psutil.NoSuchProcess:
                    continue


@dataclass(frozen=True)
class Life:
    """What the ledger says of one optimizer: its slot-seconds by what they were for, and the attempts that were charged to it."""

    killed: bool
    sampled: float
    sampled_cpu: float
    slots: Mapping[str, float]
    attempts: tuple[tuple[str, float], ...]
    cpu: float

    @property
    def attempted(self) -> float:
        """The slot-seconds of all attempts."""
        return sum(seconds for _, seconds in self.attempts)

    @property
    def charged(self) -> float:
        return sum(self.slots.values())


def broken_laws(lives: list[Life]) -> list[str]:
    """Return the laws that the ledger breaks. An hour leaves one per cent; a short run is bounded by the seconds at both ends of a life."""
    found = []
    for number, life in enumerate(lives):
        whole = SLOTS * life.sampled
        missing = SLOTS * (START_SECONDS + (HEARTBEAT_SECONDS if life.killed else GOODBYE_SECONDS))
        if not whole - missing <= life.charged <= whole * 1.01 + SLOTS:
            found.append(f"life {number}: {life.charged:.1f} slot-seconds are charged, and it lived for {whole:.1f}")
        handover = life.slots["held"] - life.attempted
        # The answer to a poll, and the report, are on their way for a moment. In an hour that is less than one per cent.
        on_the_way = 0.0 if SECONDS >= 3600 else 0.5 * len(life.attempts)
        if abs(handover) > 0.01 * life.charged + on_the_way + (SLOTS * HEARTBEAT_SECONDS if life.killed else 0.0):
            found.append(
                f"attempts {number}: {life.attempted:.1f} slot-seconds are charged to them, but slots held {life.slots['held']:.1f}"
            )
        if len({name for name, _ in life.attempts}) < len(life.attempts):
            found.append(f"attempts {number}: one is charged twice")
    if SECONDS >= 3600:
        sampled = sum(SLOTS * life.sampled for life in lives)
        if abs(sum(life.charged for life in lives) - sampled) > 0.01 * sampled:
            found.append("the hour: more than one per cent of the lives is not charged")
    calm = [life for life in lives if not life.killed]
    sampled_cpu, cpu = sum(life.sampled_cpu for life in calm), sum(life.cpu for life in calm)
    # What a process uses between its last attempt and its end is reported by nobody.
    if abs(sampled_cpu - cpu) > 0.05 * sampled_cpu + (2.0 if SECONDS < 3600 else 0.0) * len(calm):
        found.append(f"CPU: {cpu:.1f} s are charged, and the processes used {sampled_cpu:.1f} s")
    return found


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    deployed = Processes(tmp_path / "home")
    yield deployed
    deployed.kill_all()


@pytest.fixture
def services(processes: Processes) -> Iterator[OpenedServices]:
    opened = OpenedServices(Settings(home=processes.home, merge_engine="in-process"))
    yield opened
    opened.close()


def charged(services: OpenedServices) -> int:
    """How many attempts the ledger has."""
    return sum(each.attempts for each in services.read_costs.costs(CostKey.TEAM, 1).costs)


@pytest.mark.timeout(SECONDS + 900)
def test_the_ledger_charges_what_a_sampler_saw(tmp_path: Path, processes: Processes, services: OpenedServices) -> None:
    table, truth, rng = small_table(Lake(tmp_path), services), Counter[int](), Random(int(time.time()) if SECONDS >= 3600 else 5)
    processes.serve()
    lives: list[tuple[str, subprocess.Popen[bytes], bool]] = []

    def started(sampler: Sampler) -> tuple[str, subprocess.Popen[bytes]]:
        before = set(processes.live())
        process = processes.optimizer("--parallelism", str(SLOTS), "--memory", str(MEMORY))
        sampler.watch(process)

        def registered() -> bool:
            assert process.poll() is None, "the optimizer has ended; see its log"
            return len(set(processes.live()) - before) == 1

        wait_until(registered, "an optimizer that registered")
        [name] = set(processes.live()) - before
        return name, process

    with Sampler() as sampler:
        kept = started(sampler)
        kills = sorted(rng.uniform(0.2, 0.8) * SECONDS for _ in range(4 if SECONDS >= 3600 else 1))
        victim, began = started(sampler), time.monotonic()
        # On a busy machine few plans are made, so it goes on until there is enough to look at.
        while (passed := time.monotonic() - began) < SECONDS or (charged(services) < 4 and passed < SECONDS + 300):
            write(table, rng, truth, 3)
            time.sleep(1.0)
            if kills and passed >= kills[0]:
                kills.pop(0)
                victim[1].kill()
                lives.append((*victim, True))
                if kills:
                    victim = started(sampler)
        wait_until(lambda: services.read_tasks.queue_counts().open == 0, "an empty queue")
        processes.end(kept[1])
        lives.append((*kept, False))
        if SECONDS >= 3600 and victim[1].poll() is None:
            processes.end(victim[1])
            lives.append((*victim, False))
    assert Counter(table.live_ids()) == truth
    found = [_life(processes.home, name, sampler, process.pid, killed=killed) for name, process, killed in lives]
    told = [
        f"lived {life.sampled:.1f} s, {life.sampled_cpu:.1f} CPU-s; charged {life.charged:.1f} s, {life.cpu:.1f} CPU-s; "
        f"slots {life.slots}, attempts {life.attempted:.2f}"
        for life in found
    ]
    sys.stderr.write("".join(f"\nledger: {line}" for line in told))
    assert sum(len(life.attempts) for life in found) >= 4
    assert broken_laws(found) == []
    for name, mutant in MUTANTS.items():
        assert broken_laws([mutant(life) for life in found]), f"the laws do not see {name}"


def _life(home: Path, optimizer_id: str, sampler: Sampler, pid: int, *, killed: bool) -> Life:
    engine = create_engine(f"sqlite:///{home / 'state.db'}")
    cost, spent = schema.cost.c, schema.slot_time.c
    with engine.connect() as connection:
        rows = connection.execute(select(schema.cost).where(cost.owner == optimizer_id)).all()
        slots = connection.execute(select(schema.slot_time).where(spent.optimizer_id == optimizer_id)).all()
    engine.dispose()
    assert all(row.end_reason in (EndReason.MERGED, EndReason.LOST, EndReason.INTERRUPTED, EndReason.FAILED) for row in rows)
    assert all(row.gb_hours == pytest.approx(MEMORY / SLOTS / 1e9 * row.slot_seconds / 3600) for row in rows)
    parts = {name: sum(getattr(row, name) for row in slots) for name in ("starting", "held", "idle", "ending")}
    cpu = sum((row.cpu_seconds or 0.0) + (row.overhead_cpu_seconds or 0.0) for row in rows)
    # A row for each day, so this test does not run over midnight.
    attempts = tuple((row.attempt_id, row.slot_seconds) for row in rows)
    return Life(killed, sampler.lives[pid], sampler.cpu[pid], parts, attempts, cpu)


def _doubled(life: Life) -> Life:
    return replace(life, attempts=life.attempts * 2, cpu=life.cpu * 2)


def _without_idle(life: Life) -> Life:
    return replace(life, slots={**life.slots, "idle": 0.0})


def _charged_until_lost(life: Life) -> Life:
    return replace(life, attempts=(*life.attempts, ("lost", 60.0 * SLOTS))) if life.killed else life


MUTANTS: Mapping[str, Callable[[Life], Life]] = {
    "an attempt that is charged twice": _doubled,
    "an idle row that is dropped": _without_idle,
    "a lost attempt that is charged until its optimizer is LOST": _charged_until_lost,
}
