"""What the oracle of the dependency center and the random doors share: a state database, a clock, and looks at all instances."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from random import Random
from typing import Any

from sqlalchemy import Engine, Row, text

from compaction_pipeline.core.dependencies.center.ports import CenterStore
from compaction_pipeline.services.dependencies.center import DependencyCenter
from compaction_pipeline.services.dependencies.definitions import Definitions
from compaction_pipeline_tests.scenarios.naive_center import MAYBE, YES, Need, Oracle, RunName
from compaction_pipeline_tests.scenarios.random_projects import CHANGES, first_moment

_INSTANCES = text(
    "SELECT job, biz, origin, part, id, state, generation, missing, ready_at, claimed_at, delivered_at, ended_at, changed_at, "
    "note "
    "FROM compaction_center_instance"
)
_REQUIREMENTS = text("SELECT r.*, s.key FROM compaction_center_requirement r JOIN compaction_center_subject s ON s.id = r.subject_id")
_SPREADING = text("SELECT id FROM compaction_center_subject WHERE NOT spread")


class _Doors:
    """The store, where something may happen between what a door reads and what it writes."""

    def __init__(self, store: CenterStore, scene: Scene) -> None:
        self._store = store
        self._scene = scene

    def __getattr__(self, name: str) -> Any:
        if name in ("save_project", "run_again"):
            self._scene.between()
        return getattr(self._store, name)


class Scene:
    """A center, and the oracle that hears what is done to it."""

    def __init__(self, random: Random, store: CenterStore, engine: Engine) -> None:
        self.random, self.engine, self.store = random, engine, store
        self.now: datetime = first_moment(random)
        self.oracle, self.counts, self.log = Oracle(self.now), Counter[str](), list[str]()
        doors: CenterStore = _Doors(store, self)  # type: ignore[assignment]
        self.center = DependencyCenter(doors, Definitions(store), lambda: self.now)

    def between(self) -> None:
        """A door has read, and will write."""

    def pass_time(self, by: timedelta) -> None:
        by = max(by, timedelta(minutes=1))
        self.counts["time passed over a clock change"] += any(self.now < at <= self.now + by for at in CHANGES)
        self.now += by
        self.oracle.now = self.now
        self.log.append(f"{self.now:%Y-%m-%d %H:%M:%S}")

    def found(self) -> dict[RunName, Row[Any]]:
        """All instances, as the database has them."""
        with self.engine.connect() as connection:
            return {RunName(*row[:4]): row for row in connection.execute(_INSTANCES).all()}

    def compare(self, what: str, found: dict[RunName, Row[Any]] | None = None) -> dict[RunName, Row[Any]]:
        """After every transaction all runs are as the oracle says."""
        found, oracle = found or self.found(), self.oracle
        assert found.keys() == oracle.runs.keys(), (
            f"after {what}: too many {found.keys() - oracle.runs.keys()}, too few {oracle.runs.keys() - found.keys()}"
        )
        for name, run in oracle.runs.items():
            one = found[name]
            got = (one.state, one.generation, one.claimed_at is not None, one.delivered_at is not None)
            want = (run.state, run.generation, run.claimed, run.delivered)
            assert got == want, f"after {what}: {name} is {got} instead of {want}"
            assert (one.ready_at is not None) == (one.state != "WAITING"), f"after {what}: {one}"
            assert (one.note is not None) == run.noted, f"after {what}: the note of {name} is {one.note}"
            assert (one.ended_at is not None) == (one.state in ("SUCCEEDED", "FAILED")), f"after {what}: {one}"
        return found

    def compare_all(self, what: str) -> None:
        """When the leader has nothing left to do, all that it counted is as the oracle says."""
        found = self.compare(what)
        self.oracle.settled(self.now)
        wanted = self.requirements()
        for name, run in self.oracle.runs.items():
            one = found[name]
            if run.changed != MAYBE:
                assert (one.changed_at is not None) == (run.changed == YES), (
                    f"after {what}: changed_at of {name} is {one.changed_at}, not {run.changed}"
                )
            assert set(wanted.get(one.id, {})) == set(run.needs), f"after {what}: {name} waits for other things than {run.needs}"
            if run.state == "WAITING":
                missing, count = self.oracle.missing(run), self.oracle.count_missing(run)
                assert one.missing == count, f"after {what}: {name} misses {one.missing} instead of {count} of {missing}"
                assert {need for need, is_met in wanted.get(one.id, {}).items() if not is_met} == set(missing), f"after {what}: {name}"
        known = self.store.reached(list(self.oracle.reached))
        wrong = {key: (known.get(key), far) for key, far in self.oracle.reached.items() if known.get(key) != far}
        assert not wrong, f"after {what}: what is known is not what was said: {wrong}"
        assert self.store.recount() == 0, f"after {what}: recount"

    def requirements(self) -> dict[int, dict[Need, bool]]:
        found: dict[int, dict[Need, bool]] = {}
        with self.engine.connect() as connection:
            for row in connection.execute(_REQUIREMENTS):
                found.setdefault(row.instance_id, {})[Need(row.edge, row.key, row.bound)] = bool(row.met)
        return found

    def is_spreading(self) -> bool:
        with self.engine.connect() as connection:
            return connection.execute(_SPREADING).first() is not None
