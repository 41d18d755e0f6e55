"""A dependency center on a real state database, with a clock that tests move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta, timezone
from itertools import count
from typing import Any

from compaction_pipeline.core.dependencies.center.inbox import Fact
from compaction_pipeline.core.dependencies.center.instances import Instance, InstanceState
from compaction_pipeline.core.dependencies.center.ports import InstanceQuery
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.iceberg.dependencies.sql_reader import read_sql
from compaction_pipeline.services.dependencies.center import DependencyCenter
from compaction_pipeline.services.dependencies.definitions import Definitions
from compaction_pipeline.services.dependencies.lead_center import LeadCenter
from compaction_pipeline.services.dependencies.lineage import ReadLineage
from compaction_pipeline.services.dependencies.save_project import ProjectChange
from compaction_pipeline.services.held_lease import Leases

RECEIVER = "airflow"


class CenterHouse:
    """A center, its leader, and what a scheduler does with them."""

    def __init__(self, stores: Stores, now: datetime = datetime(2026, 1, 1, 23, 30, tzinfo=timezone.utc)) -> None:
        self.stores = stores
        self.store = stores.center
        self.now = now
        self._owners = count()
        self.leases = Leases(stores.leases, lambda: self.now, lambda renew: nullcontext(), lambda: f"process {next(self._owners)}")
        self.center = self.another_center()
        self.leader = self.another_leader()

    def another_center(self) -> DependencyCenter:
        """The doors of another process."""
        definitions = Definitions(self.store)
        self.lineage = ReadLineage(self.store, definitions, self.stores.catalogs, read_sql, lambda: self.now)
        return DependencyCenter(self.store, definitions, lambda: self.now, self.lineage.drafted)

    def another_leader(self) -> LeadCenter:
        """Another process that would lead."""
        return LeadCenter(self.store, Definitions(self.store), self.leases)

    def save(self, *jobs: Mapping[str, Any], project: str = "sales", **more: Any) -> ProjectChange:
        """Save a project of these jobs, which `RECEIVER` starts."""
        return self.center.save_project({"project": project, "receiver": RECEIVER, "jobs": list(jobs), **more})

    def settle(self) -> None:
        """Do all that can be done now."""
        self.leader.run()

    def pass_time(self, **time: float) -> None:
        """Let time pass, and do what is due then."""
        self.now += timedelta(**time)
        self.settle()

    def tell(self, key: str, reached: int = 1) -> None:
        """Tell how far a table or an asset is, as a detector does."""
        self.store.post([Fact(key, self.now, "test", reached)])
        self.settle()

    def succeed(self, subject: str, generation: int | None = None, state: InstanceState = InstanceState.SUCCEEDED) -> None:
        """Report the end of a run."""
        self.center.report(subject, state, "test", generation=generation)
        self.settle()

    def one(self, job: str, biz: str, origin: str = "") -> Instance:
        """The only instance of a job for a business time."""
        (found,) = self.store.instances(InstanceQuery(job=job, biz=biz, origin=origin))
        return found

    def state(self, job: str, biz: str, origin: str = "") -> str:
        """Its state, as a text."""
        return self.one(job, biz, origin).state.value

    def claimed(self) -> Sequence[str]:
        """The keys of what may start now. Each is claimed and delivered."""
        got = self.center.claim(RECEIVER)
        self.center.delivered(RECEIVER, [(one.id, one.generation) for one in got])
        return [one.key for one in got]

    def needs(self, job: str) -> tuple[str, ...]:
        """What a job needs, as people see it."""
        return next(one.needs for one in self.center.jobs() if one.name == job)
