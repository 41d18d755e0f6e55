"""The law of whole projects: by each job and by root and end nodes, jobs start at the same moments, those that a naive evaluator finds.

Random projects live on a real state database, first by each job with the nodes in shadow beside, and from the middle on by nodes alone.
PROJECTS and DAYS in all (default 14 and 2; the law asks for 200 and 7). The seed is COMPACTION_SEED, or else random, and is always printed.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from random import Random

import pytest

from compaction_pipeline.core.dependencies.center.instances import Instance, InstanceState
from compaction_pipeline.core.dependencies.center.ports import InstanceQuery
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.services.dependencies.convert_project import ConvertProject
from compaction_pipeline.services.dependencies.definitions import Definitions
from compaction_pipeline.services.dependencies.reports import RunReport
from compaction_pipeline.storage.stores import open_stores
from compaction_pipeline_tests.postgres import postgres_server, postgres_url
from compaction_pipeline_tests.scenarios.naive_projects import STEP, Plan, new_plan
from compaction_pipeline_tests.services.dependencies.center_house import RECEIVER, CenterHouse
from compaction_pipeline_tests.state import sqlite_stores

__all__ = ["postgres_server", "postgres_url"]


class World:
    """A center in which the runs of a plan end when the plan says so."""

    def __init__(self, plan: Plan, stores: Stores) -> None:
        self.plan = plan
        self.house = CenterHouse(stores, plan.begin)
        self.convert = ConvertProject(stores.center, Definitions(stores.center), lambda: self.house.now)
        self.due: dict[datetime, list[RunReport]] = defaultdict(list)

    def live(self, until: datetime) -> None:
        while self.house.now < until:
            self.house.leader.run()
            while self._claim() or self._report():
                self.house.leader.run()
            self.house.now += STEP

    def _claim(self) -> bool:
        claimed = self.house.center.claim(RECEIVER, 1_000)
        self.house.center.delivered(RECEIVER, [(one.id, one.generation) for one in claimed])
        for one in claimed:
            ended = self.plan.ended(self.plan.works[one.job], one.biz)
            self._will_end(one.job, one.biz, max(ended, self.house.now), one.generation)
        return bool(claimed)

    def _will_end(self, job: str, biz: str, at: datetime, generation: int | None) -> None:
        subject = f"job={job} && biz={biz}"
        if at - STEP > self.house.now and Random(subject).random() < 0.1:
            self.due[at - STEP].append(RunReport(subject, InstanceState.FAILED, generation))
        self.due[at].append(RunReport(subject, InstanceState.SUCCEEDED, generation))

    def tell_virtual(self) -> None:
        for work, span in self.plan.runs():
            if work.virtual:
                self._will_end(work.name, span.label, self.plan.ended(work, span.label), None)

    def _report(self) -> bool:
        reports = self.due.pop(self.house.now, [])
        for first in range(0, len(reports), 1_000):
            self.house.center.report_all(reports[first : first + 1_000], "test")
        return bool(reports)

    def started(self) -> Iterator[Instance]:
        return (
            one for one in self.house.store.instances(InstanceQuery(most=10_000_000)) if ":" not in one.job or one.job.endswith("shadow")
        )


@pytest.mark.scenario
@pytest.mark.timeout(0)
def test_by_each_job_and_by_nodes_jobs_start_when_the_rule_says(tmp_path: Path) -> None:
    stores = sqlite_stores(tmp_path)
    live_and_compare(stores)
    stores.close()


@pytest.mark.scenario
@pytest.mark.postgres
@pytest.mark.timeout(0)
def test_they_start_when_the_rule_says_on_postgresql(postgres_url: str) -> None:
    stores = open_stores(postgres_url)
    live_and_compare(stores)
    stores.close()


def live_and_compare(stores: Stores) -> None:
    """Let projects live, and look at each start."""
    plan = new_plan()
    world = World(plan, stores)
    middle = plan.begin + (plan.end - plan.begin) / 2
    shadow = {"since": plan.begin.isoformat(), "until": middle.isoformat()}
    for file in plan.files(form="jobs", shadow=shadow):
        world.house.center.save_project(file)
    world.tell_virtual()
    world.live(middle)
    rules = [project for project, after in plan.after.items() if after]
    looks = {project: world.convert.look(project) for project in rules}
    assert {project: look.differences for project, look in looks.items() if look.different} == {}
    for project in rules:
        world.convert.switch(project, anyway=not looks[project].same)
    world.live(plan.end)
    late = plan.end - STEP
    counts = {"by the rule": 0, "by nodes": 0, "in shadow": 0, "not yet": 0}
    for one in world.started():
        name, _, is_shadow = one.job.partition(":")
        work = plan.works[name]
        if work.virtual:
            continue
        start = plan.start(work, one.biz)
        if start > late or (is_shadow and start >= middle):
            assert one.ready_at is None, f"{one.key} started at {one.ready_at} and not at {start}"
            counts["not yet"] += 1
        else:
            assert one.ready_at == start, f"{one.key} started at {one.ready_at} and not at {start}"
            counts["in shadow" if is_shadow else "by the rule" if start < middle else "by nodes"] += 1
    sys.stdout.write(f"law of projects: {counts}, {sum(look.same for look in looks.values())} compared by the shadow\n")
    assert world.house.store.recount() == 0
