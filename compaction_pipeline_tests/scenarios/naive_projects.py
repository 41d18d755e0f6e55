"""When jobs start of projects that come after others, found out run by run. It shares nothing with `core.dependencies`.

A run starts when its trigger is over and each run that it waits for has ended well: those that its job names, and of each project before
its own those of jobs whose period is not longer and whose time lies in its own; of a project whose jobs all have longer periods, those of
the shortest of these whose time holds its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random, SystemRandom
from typing import Any

from compaction_pipeline_tests.scenarios.naive_calendar import Kind, Span, span_at, span_of, spans, trigger_at, upstream_spans
from compaction_pipeline_tests.scenarios.naive_jobs import LENGTH, covering
from compaction_pipeline_tests.scenarios.random_projects import CHANGES

STEP = timedelta(minutes=30)
_TRIGGERS = {"hour": ("0", "30"), "day": ("00:00", "01:30", "07:00"), "week": ("MON 00:00", "WED 02:30"), "month": ("1 00:00", "28 03:00")}


@dataclass
class Work:
    """A job of a world. `tight` has the projects before its own of which it names what it needs."""

    name: str
    project: str
    kind: Kind
    trigger: str
    since: Span
    virtual: bool
    needs: list[dict[str, Any]]
    tight: set[str] = field(default_factory=set)


@dataclass
class Plan:
    """Random projects, from a beginning for some days, and when their runs start and end."""

    random: Random
    days: int
    begin: datetime = field(init=False)
    works: dict[str, Work] = field(default_factory=dict)
    after: dict[str, list[str]] = field(default_factory=dict)
    starts: dict[tuple[str, str], datetime] = field(default_factory=dict)
    ends: dict[tuple[str, str], datetime] = field(default_factory=dict)
    tight: bool = False

    def __post_init__(self) -> None:
        """The beginning: a midnight of UTC before clocks change, or in summer."""
        change = self.random.choice((*CHANGES, datetime.fromisoformat("2026-06-03T00:00+00:00")))
        self.begin = (change - timedelta(days=self.random.randint(0, self.days - 1))).replace(hour=0)

    @property
    def end(self) -> datetime:
        return self.begin + timedelta(days=self.days)

    def add_project(self) -> None:
        random, name = self.random, f"p{len(self.after)}"
        weeks = random.random() < 0.3
        periods = ("hour", "hour", "day", "day", *(("week",) if weeks else ("month",) if random.random() < 0.4 else ()))
        # Weeks and months do not wait for each other.
        before = [one for one in self.after if random.random() < 3 / (len(self.after) + 1)]
        zone = random.choice(("UTC", "Europe/Berlin"))
        self.after[name] = []
        works = [self._work(name, random.choice(periods), zone) for _ in range(random.randint(1, 4))]
        for one in before:
            if self._goes(works, one):
                self.after[name].append(one)
        for work in works:
            if not work.virtual:
                self._name_some(work)
            self.works[work.name] = work

    def _work(self, project: str, period: str, zone: str) -> Work:
        kind = Kind(period, "UTC" if period == "hour" or zone == "UTC" else zone)
        virtual = self.random.random() < 0.2
        trigger = self.random.choice(_TRIGGERS[period])
        name = f"j{len(self.works)}.{self.random.randrange(10**9)}"
        return Work(name, project, kind, trigger, span_at(kind, self.begin), virtual, [])

    def _goes(self, works: Sequence[Work], before: str) -> bool:
        """Whether these may come after a project: not weeks and months, and not days of one zone in weeks or months of another."""
        others = [one for one in self.works.values() if one.project == before]
        for work in works:
            for other in others:
                kinds = {work.kind.period, other.kind.period}
                if {"week", "month"} <= kinds or (kinds & {"week", "month"} and "hour" not in kinds and work.kind.zone != other.kind.zone):
                    return False
        return True

    def _name_some(self, work: Work) -> None:
        for project in self.after[work.project]:
            jobs = [one for one, _ in self.covering(work, project)]
            if jobs and self.random.random() < 0.4:
                for one in self.random.sample(jobs, min(len(jobs), self.random.randint(1, 2))):
                    times = "whole" if LENGTH[one.kind.period] < LENGTH[work.kind.period] else "0"
                    work.needs.append({"job": one.name, "times": times})
                work.tight.add(project)

    def covering(self, work: Work, project: str) -> Iterator[tuple[Work, str]]:
        """The jobs of a project before that a job waits for, and at which times."""
        return covering(work.kind, [one for one in self.works.values() if one.project == project])

    def files(self, **more: Any) -> list[dict[str, Any]]:
        """The files of the projects, the first first."""
        return [self._file(project, more) for project in self.after]

    def _file(self, project: str, more: Mapping[str, Any]) -> dict[str, Any]:
        rule = {"after": self.after[project], **more} if self.after[project] else {}
        jobs = []
        for work in self.works.values():
            if work.project == project:
                job = {"name": work.name, "period": work.kind.period, "zone": work.kind.zone, "since": work.since.label}
                jobs.append({**job, "virtual": True} if work.virtual else {**job, "trigger": work.trigger, "needs": work.needs})
        return {"project": project, "receiver": "airflow", "jobs": jobs, **rule}

    def runs(self) -> Iterator[tuple[Work, Span]]:
        """All runs that have begun before the end."""
        for work in self.works.values():
            for span in spans(work.kind):
                if work.since <= span and span.start < self.end:
                    yield work, span

    def start(self, work: Work, label: str) -> datetime:
        """When a run starts."""
        key = (work.name, label)
        if key not in self.starts:
            moments = [self.begin, trigger_at(work.kind, work.trigger, label)]
            for name, span in self._needed(work, label):
                moments.append(self.ended(self.works[name], span.label))
            self.starts[key] = max(moments)
        return self.starts[key]

    def ended(self, work: Work, label: str) -> datetime:
        """When a run has succeeded; that of a virtual job so long after its time."""
        key = (work.name, label)
        if key not in self.ends:
            begun = max(self.begin, span_of(work.kind, label).end - STEP * 2) if work.virtual else self.start(work, label)
            self.ends[key] = begun + STEP * Random(f"{work.name}/{label}").choice((0, 1, 1, 2, 3, 5, 9))
        return self.ends[key]

    def _needed(self, work: Work, label: str) -> Iterator[tuple[str, Span]]:
        wanted = [(need["job"], need["times"]) for need in work.needs]
        for project in self.after[work.project]:
            if not (self.tight and project in work.tight):
                wanted += [(one.name, times) for one, times in self.covering(work, project)]
        for name, times in dict.fromkeys(wanted):
            up = self.works[name]
            yield from ((name, span) for span in upstream_spans(times, work.kind, up.kind, label) if span >= up.since)


def new_plan(projects: int = 14) -> Plan:
    """A plan of so many projects for two days, where PROJECTS, DAYS and COMPACTION_SEED do not say otherwise. It is printed."""
    seed = int(os.environ.get("COMPACTION_SEED", SystemRandom().randrange(2**32)))
    projects, days = int(os.environ.get("PROJECTS", projects)), int(os.environ.get("DAYS", "2"))
    sys.stdout.write(f"\nlaw of projects: COMPACTION_SEED={seed} PROJECTS={projects} DAYS={days}\n")
    plan = Plan(Random(seed), days)
    for _ in range(projects):
        plan.add_project()
    return plan
