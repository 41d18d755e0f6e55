"""Each form of a project rule starts jobs at the moments that a naive evaluator finds, and the tightened one nothing later."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import datetime

from compaction_pipeline.core.dependencies.center.jobs import requirements
from compaction_pipeline.core.dependencies.center.project_rules import expanded, rule_of_project
from compaction_pipeline.core.dependencies.center.projects import saved_jobs
from compaction_pipeline.core.dependencies.center.subjects import named_in
from compaction_pipeline_tests.scenarios.naive_projects import Plan, new_plan


class Moments:
    """When jobs start by their edges, as a form of rules has them: found out run by run, without a state database."""

    def __init__(self, plan: Plan, form: str) -> None:
        self.plan = plan
        files = plan.files(form=form)
        self.own = saved_jobs(files, {})
        self.jobs = expanded(self.own, {file["project"]: rule_of_project(file) for file in files})
        self.starts: dict[tuple[str, str], datetime] = {}

    def start(self, name: str, biz: str) -> datetime:
        if (name, biz) not in self.starts:
            job = self.jobs[name]
            time = job.calendar.parse(biz)
            moments = [self.plan.begin] if job.node else [self.plan.begin, job.trigger.instant(job.calendar, time)]
            for need in requirements(job, time, self.jobs, "", lambda name, biz: False):
                named = named_in(need.subject.key)
                moments.append(self._ended(named["job"], named["biz"]))
            self.starts[name, biz] = max(moments)
        return self.starts[name, biz]

    def _ended(self, name: str, biz: str) -> datetime:
        if self.jobs[name].node:
            return self.start(name, biz)
        work = self.plan.works[name]
        # As long after its start as the plan lets it run.
        return (
            self.plan.ended(work, biz)
            if work.virtual
            else self.start(name, biz) + (self.plan.ended(work, biz) - self.plan.start(work, biz))
        )


def test_each_form_starts_jobs_at_its_moments_and_the_tightened_one_nothing_later() -> None:
    plan = new_plan(40)
    by_jobs, by_nodes, by_own = (Moments(plan, form) for form in ("jobs", "nodes", "own"))
    tight = replace(plan, starts={}, ends={}, tight=True)
    tight.begin = plan.begin
    earlier = 0
    for work, span in plan.runs():
        if work.virtual:
            continue
        run = (work.name, span.label)
        start = plan.start(work, span.label)
        assert by_jobs.start(*run) == by_nodes.start(*run) == start, run
        assert by_own.start(*run) == tight.start(work, span.label) <= start, run
        earlier += by_own.start(*run) < start
    sys.stdout.write(f"law of projects: {earlier} runs start earlier by the tightened form\n")
