"""Converts the rule of a project to root and end nodes: first in shadow beside it, and then in its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from compaction_pipeline.core.dependencies.center.instances import Instance
from compaction_pipeline.core.dependencies.center.jobs import SCHEDULED
from compaction_pipeline.core.dependencies.center.moments import Comparison, OtherMoment, Started, compared, earlier
from compaction_pipeline.core.dependencies.center.ports import CenterStore, InstanceQuery
from compaction_pipeline.core.dependencies.center.project_rules import SHADOW, Form, ProjectRule, Shadow, named_edges, rule_keys
from compaction_pipeline.core.dependencies.center.subjects import JOB
from compaction_pipeline.core.dependencies.center.upstreams import JobRun, data_name
from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.words import time_text
from compaction_pipeline.services.dependencies.definitions import Definitions, Jobs
from compaction_pipeline.services.dependencies.save_project import SaveProject

MOST_DAYS = 100
_MOST_COMPARED = 100_000
_LOOKED_AT = 30
"""From so many of the newest instances of a job it is found out how much earlier it may start."""
_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Conversion:
    """How far the conversion of a project is: which form stands for its rule, and since when a shadow runs, until when at least.

    Of the instances since then: how many started at the `same` moment by both, which did not (`differences`, at most 100 of `different`),
    how many wait by both (`open`), and how many cannot be compared (`left_out`); `farthest` is the greatest difference.

    `earlier` has the jobs that name themselves what they need of projects, and how much earlier each would start if it waited for that
    alone, at least: the median of its last 30 instances. Those that nothing is known of yet are not in it.
    """

    project: str
    after: tuple[str, ...]
    form: str
    shadow_since: datetime | None
    shadow_until: datetime | None
    same: int
    different: int
    open: int
    left_out: int
    farthest: timedelta
    differences: tuple[OtherMoment, ...]
    earlier: Mapping[str, timedelta]


class ConvertProject:
    """The verbs look, shadow, switch, tighten and back. All but look raise ChangedMeanwhile when somebody changed a project meanwhile."""

    def __init__(self, store: CenterStore, definitions: Definitions, clock: Clock) -> None:
        self._store = store
        self._definitions = definitions
        self._clock = clock
        self._saver = SaveProject(store, definitions, clock)

    def look(self, project: str) -> Conversion:
        """Return how far it is. Raises NotFoundError, and ConfigError for a project that comes after no other."""
        jobs, rule = self._rule(project)
        found = Comparison()
        names = [name for name, job in jobs.own.items() if job.project == project and not job.virtual]
        shadow = rule.shadow
        for name in names if shadow is not None else ():
            shadows = [one for one in self._instances(f"{name}{SHADOW}") if shadow is not None and one.made_at >= shadow.since]
            found += compared(self._instances(name), shadows, self._clock())
        saved = {name: self._earlier(jobs, name, rule) for name in names}
        return Conversion(
            project,
            rule.after,
            rule.form.value,
            None if shadow is None else shadow.since,
            None if shadow is None else shadow.until,
            found.same,
            len(found.others),
            found.open,
            found.left_out,
            found.farthest,
            found.others[:_SHOWN],
            {name: time for name, time in saved.items() if time is not None},
        )

    def shadow(self, project: str, days: int) -> Conversion:
        """Let the form by nodes run beside the rule, for so many days at least.

        Raises as `look`, and ConfigError for a project that waits by nodes already, or has a shadow.
        """
        jobs, rule = self._rule(project)
        if rule.form is not Form.JOBS:
            raise ConfigError(f"the project {project!r} has the form {rule.form.value!r} already: a shadow runs beside the form 'jobs'")
        if not 1 <= days <= MOST_DAYS:
            raise ConfigError(f"the shadow would run for {days} days but must run for 1 to {MOST_DAYS}: choose another number")
        if rule.shadow is not None:
            raise ConfigError(
                f"a shadow of {project!r} runs since {time_text(rule.shadow.since)} UTC, and a new one would forget what it found: end it "
                "first, by 'dependencies convert-project --back'"
            )
        now = self._clock()
        return self._save(project, jobs, ProjectRule(rule.after, rule.form, Shadow(now, now + timedelta(days=days))))

    def switch(self, project: str, *, anyway: bool = False) -> Conversion:
        """Let the jobs wait by nodes. Raises as `look`, and ConfigError when no shadow has shown that moments are the same; not with
        `anyway`, except for a project that waits by nodes already."""
        jobs, rule = self._rule(project)
        if rule.form is not Form.JOBS:
            raise ConfigError(f"the project {project!r} has the form {rule.form.value!r} already: there is nothing to switch")
        if not anyway:
            self._refuse_early(self.look(project))
        return self._save(project, jobs, ProjectRule(rule.after, Form.NODES))

    def tighten(self, project: str) -> Conversion:
        """Let jobs that name what they need of a project wait for that alone. Raises as `look`, and ConfigError before the switch."""
        jobs, rule = self._rule(project)
        if rule.form is not Form.NODES:
            raise ConfigError(f"the project {project!r} has the form {rule.form.value!r}: switch it to nodes first, and tighten it then")
        return self._save(project, jobs, ProjectRule(rule.after, Form.OWN))

    def back(self, project: str) -> Conversion:
        """Let each job wait for each job again, and end a shadow. Raises as `look`."""
        jobs, rule = self._rule(project)
        return self._save(project, jobs, ProjectRule(rule.after))

    def _refuse_early(self, found: Conversion) -> None:
        if found.shadow_until is None:
            raise ConfigError(f"no shadow of {found.project!r} has run: start one with --shadow DAYS, and switch when it has ended")
        if self._clock() < found.shadow_until:
            raise ConfigError(f"the shadow of {found.project!r} runs until {found.shadow_until.isoformat()}: switch it then")
        if found.different or not found.same:
            raise ConfigError(
                f"of the instances of {found.project!r}, {found.different} started at another moment than they would by nodes, and "
                f"{found.same} at the same: look at the differences, and run another shadow"
            )

    def _rule(self, project: str) -> tuple[Jobs, ProjectRule]:
        jobs = self._definitions.jobs()
        rule = jobs.rules.get(project)
        if rule is None:
            raise NotFoundError(f"there is no project {project!r}: 'compaction-pipeline dependencies jobs' lists jobs with their projects")
        if not rule.after:
            raise ConfigError(f"the project {project!r} comes after no other, so there is nothing to convert: its file has no 'after'")
        return jobs, rule

    def _save(self, project: str, jobs: Jobs, rule: ProjectRule) -> Conversion:
        file: dict[str, Any] = next(dict(one.file) for one in self._store.projects() if one.name == project)
        self._saver.save({**file, "shadow": None, **rule_keys(rule)}, version=jobs.version)
        return self.look(project)

    def _instances(self, job: str) -> list[Instance]:
        return list(self._store.instances(InstanceQuery(job=job, most=_MOST_COMPARED)))

    def _earlier(self, jobs: Jobs, name: str, rule: ProjectRule) -> timedelta | None:
        """How much earlier a job would start; None where nothing is known, or it would wait for all of what it waits for now."""
        current, named = jobs.by_name[name].needs, named_edges(jobs.own, name, rule)
        if not set(named) < set(current):
            return None
        # An instance may have waited by an earlier definition, so things are told apart by their names.
        things = {f"{JOB}={one.job}" if isinstance(one, JobRun) else data_name(one) for one in (edge.upstream for edge in named)}
        started = []
        for one in self._store.instances(InstanceQuery(job=name, origin=SCHEDULED, most=_LOOKED_AT)):
            if one.ready_at is not None and one.generation == 1 and one.changed_at is None:
                own = [wait.at for wait in self._store.waits(one.id) if wait.at is not None and wait.key.split(" && ")[0] in things]
                started.append(Started(one.ready_at, max([one.made_at, *own])))
        return earlier(started) if started else None
