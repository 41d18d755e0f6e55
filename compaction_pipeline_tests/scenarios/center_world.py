"""One random world for the oracle of the dependency center, on a real state database.

Each transaction of a leader is seen by the oracle. Between those of a pass, doors do things, leaders die, and others take the lease.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from sqlalchemy import Engine, create_engine, delete

from compaction_pipeline.core.dependencies.center.inbox import RunId
from compaction_pipeline.core.dependencies.center.ports import CenterStore, Leader, Released, Told
from compaction_pipeline.core.leases.ports import LeaseStore
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.services.dependencies import lead_center
from compaction_pipeline.services.dependencies.definitions import Definitions
from compaction_pipeline.services.dependencies.lead_center import LeadCenter
from compaction_pipeline.services.held_lease import Leases
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.stores import open_stores
from compaction_pipeline_tests.scenarios.center_doors import Doors
from compaction_pipeline_tests.scenarios.naive_center import RunName
from compaction_pipeline_tests.scenarios.random_projects import CHANGES
from compaction_pipeline_tests.state import sqlite_stores

LEASE = timedelta(seconds=61)
STEPS_PER_WORLD = 40


class Killed(Exception):
    """A leader died."""


class _Leases(Leases):
    """Remembers who leads."""

    owner = ""

    def lead(self, name: str, owner: str, lease: timedelta) -> bool:
        leads = super().lead(name, owner, lease)
        self.owner = owner if leads else self.owner
        return leads


class _Watched:
    """The store, whose transactions of leaders the world sees."""

    def __init__(self, store: CenterStore, world: World) -> None:
        self._store = store
        self._world = world

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)
        if name == "due":
            # Else a few hours of an hourly job take as many passes.
            return lambda leader, most: self._world.due(lambda: call(leader, max(most, 20)))
        if name not in ("make", "take_in", "spread", "look_again", "release"):
            return call
        return lambda leader, *more: self._world.lead(name, leader, lambda: call(leader, *more))


class World(Doors):
    """The verbs are step and settle."""

    def __init__(self, random: Random, store: CenterStore, leases: LeaseStore, engine: Engine) -> None:
        super().__init__(random, store, engine)
        names = iter(range(1_000_000))
        self.leases = _Leases(leases, lambda: self.now, lambda renew: None, lambda: f"leader {next(names)}")  # type: ignore[arg-type,return-value]
        self.watched: CenterStore = _Watched(store, self)  # type: ignore[assignment]
        self.leader = self.new_leader()
        self.at_once = random.choice((2, 2, 2, 3, 3, 5, 20, 2_000, 2_000))
        self.injects, self.in_fan_out, self.claims_before = False, False, ""

    def new_leader(self) -> LeadCenter:
        return LeadCenter(self.watched, Definitions(self.watched), self.leases)

    def between(self) -> None:
        """The leader does a pass between what a door reads and what it writes."""
        if hasattr(self, "leader") and not self.injects and self.random.random() < 0.3:
            self.log.append("pass in between")
            with self.at_once_set():
                self.leader.once()

    def lead(self, what: str, leader: Leader, call: Callable[[], Any]) -> Any:
        """One transaction of a leader."""
        if self.injects:
            self.meddle(what)
        if what == self.claims_before:
            self.claims_before = ""
            self.claim()
        if leader.owner != self.leases.owner:
            before = (self.found(), self.requirements())
            result = call()
            assert result in (0, None, Told(), Released()), f"{what} of a leader that leads no more"
            assert before == (self.found(), self.requirements()), f"{what} of a leader that leads no more"
            self.counts["leader without its lease"] += 1
            return result
        waiting = len(self.oracle.inbox)
        result = call()
        found, oracle = self.found(), self.oracle
        if what == "make":
            oracle.made(leader.now, [name for name in found if name not in oracle.runs])
        elif what == "take_in":
            assert result == min(waiting, self.at_once)
            oracle.took_in(result)
        elif what in ("spread", "look_again"):
            back = [
                name for name, run in oracle.runs.items() if name in found and run.state != "WAITING" and found[name].state == "WAITING"
            ]
            oracle.took_back(back)
            self.in_fan_out = what == "spread" and bool(result.changes) and self.is_spreading()
            oracle.released(_names(result.released if what == "spread" else ()))
        else:
            oracle.released(_names([*result.ready, *result.ended]))
        self.compare(what, found)
        return result

    def due(self, call: Callable[[], Any]) -> Any:
        """The leader looks at triggers, and somebody may save a project just before or after."""
        if self.injects and self.random.random() < 0.15:
            self.change_project()
        turns = call()
        if self.injects and self.random.random() < 0.15:
            self.change_project()
        return turns

    def meddle(self, what: str) -> None:
        """Something happens between two transactions of a pass."""
        luck = self.random.random()
        # What matters most happens in the middle of a fan-out, which is seldom.
        dies, loses, door = (0.35, 0.75, 0.95) if self.in_fan_out else (0.06, 0.1, 0.3)
        if luck < dies:
            self.log.append(f"  leader dies before {what}")
            self.counts["restart in the middle of a fan-out"] += self.in_fan_out
            self.counts["leader died"] += 1
            raise Killed
        if luck < loses:
            self.log.append(f"  another takes the lease before {what}")
            self.counts["restart in the middle of a fan-out"] += self.in_fan_out
            self.pass_time(LEASE)
            other, self.injects = self.new_leader(), False
            with self.at_once_set():
                other.once()
            self.leader, self.injects = other, True
        elif luck < door:
            self.counts["something happened in the middle of a fan-out"] += self.in_fan_out
            self.door()

    @contextmanager
    def at_once_set(self) -> Iterator[None]:
        before, lead_center.AT_ONCE = lead_center.AT_ONCE, self.at_once
        try:
            yield
        finally:
            lead_center.AT_ONCE = before

    def settle(self) -> None:
        """Passes until nothing is left, with interruptions, and then a look at everything."""
        while self.random.random() < (0.6 if self.at_once < 20 else 0.5):
            self.injects = True
            self.log.append("pass with interruptions")
            try:
                with self.at_once_set():
                    self.leader.once()
            except Killed:
                if self.random.random() < 0.5:
                    self.leader.resign()
                else:
                    self.pass_time(LEASE)
                self.leader = self.new_leader()
            finally:
                self.injects = False
        self.log.append("passes")
        if self.at_once == 2_000 and self.random.random() < 0.5:
            self.settle_at_once()
        with self.at_once_set():
            self.leader.run()
        self.compare_all("passes")
        self.in_fan_out = False

    def settle_at_once(self) -> None:
        """One pass: nothing of which it saw the last fact is late. A job with several triggers behind it gets one instance in a pass."""
        with self.at_once_set():
            self.leader.once()
        if not self.is_spreading():
            for run in self.oracle.runs.values():
                if not self.oracle.rests_on_made_by(run):
                    self.oracle.check_late(run)
            self.counts["nothing late after one pass"] += 1

    def step(self) -> None:
        if self.random.random() < 0.3:
            self.tick()
        elif self.random.random() < 0.1:
            self.take_away_before_claim()
        else:
            self.door()
        if self.random.random() < 0.55:
            self.settle()

    def take_away_before_claim(self) -> None:
        """Receivers claim when the leader knows what was taken away, and has told nobody yet."""
        self.take_away()
        self.claims_before = self.random.choice(("spread", "spread", "look_again", "release"))
        with self.at_once_set():
            self.leader.once()

    def tick(self) -> None:
        luck, random = self.random.random(), self.random
        change = next((at for at in sorted(CHANGES) if at > self.now), None)
        if luck < 0.4 and change is not None and change - self.now < timedelta(days=2):
            self.pass_time(change - self.now + timedelta(minutes=random.randint(-30, 150)))
        elif luck < 0.9:
            self.pass_time(timedelta(minutes=random.randint(1, 150)))
        elif luck < 0.98:
            self.pass_time(timedelta(minutes=random.randint(150, 1_000)))
        else:
            self.pass_time(timedelta(days=random.randint(1, 2)))


def _names(runs: Sequence[RunId]) -> list[RunName]:
    return [RunName(run.job, run.biz, run.origin) for run in runs]


def run_on_sqlite(folder: Path, seed: int, number: int) -> Counter[str]:
    """Live through one world on a new SQLite file."""
    stores = sqlite_stores(folder, f"world-{number}")
    try:
        return _lived(seed, number, stores, f"sqlite:///{folder / f'world-{number}.db'}")
    finally:
        stores.close()
        (folder / f"world-{number}.db").unlink()


def run_on_postgres(url: str, seed: int, number: int) -> Counter[str]:
    """Live through one world on a PostgreSQL database, of which the center's tables are emptied."""
    stores, engine = open_stores(url), create_engine(url)
    try:
        with engine.begin() as connection:
            for table in reversed(schema.metadata.sorted_tables):
                if table.name.startswith("compaction_center") or table is schema.lease:
                    connection.execute(delete(table))
        return _lived(seed, number, stores, url)
    finally:
        engine.dispose()
        stores.close()


def _lived(seed: int, number: int, stores: Stores, url: str) -> Counter[str]:
    engine, world = create_engine(url), None
    try:
        world = World(Random(f"{seed}/{number}"), stores.center, stores.leases, engine)
        for _ in range(STEPS_PER_WORLD):
            world.step()
        world.settle()
    except BaseException:
        said = [] if world is None else world.log[-int(os.environ.get("LINES", "60")) :]
        sys.stdout.write("\n".join((f"\nWORLD={number} of COMPACTION_SEED={seed} ended like this:", *said, "")))
        raise
    finally:
        engine.dispose()
    return world.counts + world.oracle.counts + Counter(steps=STEPS_PER_WORLD)
