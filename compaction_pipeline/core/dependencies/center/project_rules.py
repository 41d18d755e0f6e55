"""What a project rule means: jobs of a project start when the projects that it comes `after` are done with the same time.

    project: sales
    after: [raw]

A job of `sales` waits for each job of `raw` whose period is its own or finer, for all of its times within the job's. Where `raw` has no
such job, it waits for those of the finest coarser period, for the time that holds the job's. Virtual jobs of `sales` are made elsewhere and
wait for nothing; those of `raw` are waited for.

A rule is written as ordinary edges, in one of three forms. By `jobs`, each job has an edge on each of those. By `nodes`, each job waits for
a root, the root for ends, and an end for the jobs of one project and calendar: the same moments with fewer edges. `own` is tighter: a job
that names what it needs of a project waits for that alone, and for the ends of the others.

Roots and ends are virtual jobs whose instances are made when another needs them (`DataJob.node`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Any

from compaction_pipeline.core.dependencies.center.jobs import DataJob, Dependency
from compaction_pipeline.core.dependencies.center.nesting import is_finer
from compaction_pipeline.core.dependencies.center.offset_rules import check
from compaction_pipeline.core.dependencies.center.offsets import WHOLE, ZERO, Offsets
from compaction_pipeline.core.dependencies.center.periods import Calendar, Period, first_time
from compaction_pipeline.core.dependencies.center.triggers import Trigger, time_of_trigger
from compaction_pipeline.core.dependencies.center.upstreams import JobRun, data_name
from compaction_pipeline.core.errors import ConfigError

RULE_KEYS = ("after", "form", "shadow")
MARK = ":"
"""What is in the names of roots, ends and shadows alone: no file can name a job like this."""
SHADOW = f"{MARK}shadow"
"""How the name of a job's shadow ends."""
_COARSER = {Period.HOUR: (Period.DAY, Period.WEEK, Period.MONTH), Period.DAY: (Period.WEEK, Period.MONTH)}


class Form(str, Enum):
    """Which edges stand for a project rule."""

    JOBS = "jobs"
    NODES = "nodes"
    OWN = "own"


@dataclass(frozen=True, slots=True)
class Shadow:
    """Since when the form by nodes runs beside the project rule, and until when it is to be compared at least."""

    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class ProjectRule:
    """The projects that one comes after, by which edges, and the shadow that runs beside them."""

    after: tuple[str, ...] = ()
    form: Form = Form.JOBS
    shadow: Shadow | None = None


def rule_of_project(file: Mapping[str, Any]) -> ProjectRule:
    """The rule in the file of a project. Raises ConfigError."""
    after = file.get("after", [])
    if not isinstance(after, list) or not all(isinstance(one, str) for one in after):
        raise ConfigError(f"'after' is {after!r} but must be a list of projects")
    if file.get("project") in after or len(set(after)) < len(after):
        raise ConfigError(f"'after' is {after!r} but must name other projects, each once")
    if not after:
        return ProjectRule()
    form, shadow = file.get("form", Form.JOBS.value), file.get("shadow")
    forms = {one.value: one for one in Form}
    if form not in forms:
        raise ConfigError(f"'form' is {form!r} but must be one of {', '.join(forms)}; 'dependencies convert-project' sets it")
    return ProjectRule(tuple(after), forms[form], None if shadow is None else _shadow(shadow))


def _shadow(given: Any) -> Shadow:
    try:
        shadow = Shadow(datetime.fromisoformat(given["since"]), datetime.fromisoformat(given["until"]))
        if shadow.since.tzinfo is not None and shadow.until.tzinfo is not None:
            return shadow
    except (KeyError, TypeError, ValueError):
        pass
    raise ConfigError(f"'shadow' is {given!r} but must have 'since' and 'until'; leave it out: 'dependencies convert-project' sets it")


def rule_keys(rule: ProjectRule) -> Mapping[str, Any]:
    """The form and the shadow of a rule as its file keeps them, besides `after`."""
    if not rule.after:
        return {}
    shadow = {} if rule.shadow is None else {"shadow": {"since": rule.shadow.since.isoformat(), "until": rule.shadow.until.isoformat()}}
    return {"form": rule.form.value, **shadow}


def expanded(own: Mapping[str, DataJob], rules: Mapping[str, ProjectRule]) -> Mapping[str, DataJob]:
    """All jobs, where the rules of projects are edges, with the roots, ends and shadows that this needs. `own` are the jobs of files."""
    if not any(rule.after for rule in rules.values()):
        return own
    expansion = _Expansion(own)
    for project, rule in rules.items():
        for job in expansion.of_project.get(project, ()):
            if rule.after and not job.virtual:
                expansion.add(job, rule)
    return expansion.found


def named_edges(own: Mapping[str, DataJob], name: str, rule: ProjectRule) -> Sequence[Dependency]:
    """What a job needs when it waits only for what it names itself, and for each job of the projects of which it names nothing."""
    expansion = _Expansion(own)
    job = own[name]
    unnamed = [one for one in rule.after if not expansion.names(job, one)]
    return (*job.needs, *(edge for one in unnamed for edge in expansion.edges_on(job.calendar, one)))


def rule_problems(own: Mapping[str, DataJob], rules: Mapping[str, ProjectRule], now: datetime) -> Iterator[str]:
    """What is wrong with rules, in words with what to do."""
    of_project = _by_project(own)
    for project, rule in rules.items():
        gone = [one for one in rule.after if one not in of_project]
        if gone:
            yield f"the project {project!r} comes after {', '.join(gone)}, which has no jobs: save that project first, or correct 'after'"
        calendars = sorted({job.calendar for job in of_project.get(project, ()) if not job.virtual}, key=str)
        pairs = [(name, calendar) for name in rule.after for calendar in calendars]
        for name, calendar in pairs:
            try:
                upstreams = sorted({job.calendar for job in _covering(calendar.period, of_project.get(name, ()))}, key=str)
            except ConfigError as error:
                yield f"the project {project!r} comes after {name!r}: {error}"
                continue
            for upstream in upstreams:
                wrong = check(_offsets(calendar.period, upstream.period), calendar, upstream, now)
                yield from (f"the project {project!r} comes after {name!r}: {one}" for one in wrong)


@dataclass(slots=True)
class _Expansion:
    """Jobs as they are found, with the edges that stand for rules."""

    own: Mapping[str, DataJob]
    found: dict[str, DataJob] = field(init=False)
    of_project: Mapping[str, Sequence[DataJob]] = field(init=False)

    def __post_init__(self) -> None:
        self.found = dict(self.own)
        self.of_project = _by_project(self.own)

    def add(self, job: DataJob, rule: ProjectRule) -> None:
        """Let a job wait as a rule says."""
        if rule.form is Form.NODES:
            edges = [self._root(job, rule)]
        elif rule.form is Form.OWN:
            edges = [edge for name in rule.after if not self.names(job, name) for edge in self._ends(job.calendar, name)]
        else:
            edges = [edge for name in rule.after for edge in self.edges_on(job.calendar, name)]
        self.found[job.name] = replace(job, needs=(*job.needs, *edges))
        if rule.shadow is not None:
            first = time_of_trigger(job.calendar, job.trigger, rule.shadow.since)
            needs = (*job.needs, self._root(job, rule))
            name = f"{job.name}{SHADOW}"
            self.found[name] = replace(
                job, name=name, since=max(first, job.since), needs=needs, produces=(), receiver=None, promise=None, quality=""
            )

    def _root(self, job: DataJob, rule: ProjectRule) -> Dependency:
        """The edge of a job on its root. The root waits for the ends of all projects that its own comes after."""
        name = _node_name(job.project, "root", job.calendar)
        if name not in self.found:
            self.found[name] = _node(name, job, [edge for one in rule.after for edge in self._ends(job.calendar, one)])
        return Dependency(JobRun(name), job.calendar, ZERO)

    def _ends(self, calendar: Calendar, project: str) -> list[Dependency]:
        """The edges of what has this calendar on the ends of a project. An end waits for all jobs of its project and calendar."""
        ends: dict[str, DataJob] = {}
        for job in self._covering(calendar, project):
            name = _node_name(project, "end", job.calendar)
            if name not in self.found:
                same = [one for one in self.of_project[project] if one.calendar == job.calendar]
                self.found[name] = _node(name, job, _edges(job.calendar, same))
            ends[name] = self.found[name]
        return _edges(calendar, ends.values())

    def edges_on(self, calendar: Calendar, project: str) -> list[Dependency]:
        """The edges of what has this calendar on each job of a project."""
        return _edges(calendar, self._covering(calendar, project))

    def _covering(self, calendar: Calendar, project: str) -> Sequence[DataJob]:
        return _covering(calendar.period, self.of_project.get(project, ()))

    def names(self, job: DataJob, project: str) -> bool:
        """Whether a job says itself what it needs of a project."""
        jobs = self.of_project.get(project, ())
        names = {one.name for one in jobs}
        produced = {one for job in jobs for one in job.produces}
        upstreams = [edge.upstream for edge in job.needs]
        return any(one.job in names if isinstance(one, JobRun) else data_name(one) in produced for one in upstreams)


def _by_project(own: Mapping[str, DataJob]) -> Mapping[str, Sequence[DataJob]]:
    found: dict[str, list[DataJob]] = {}
    for job in own.values():
        found.setdefault(job.project, []).append(job)
    return found


def _covering(period: Period, jobs: Sequence[DataJob]) -> Sequence[DataJob]:
    """Which jobs of a project one of this period waits for. Raises ConfigError for weeks and months, which lie in each other in part."""
    periods = {job.calendar.period for job in jobs}
    wanted = {one for one in periods if one is period or is_finer(one, period)} if period is not Period.WEEK else periods - {Period.MONTH}
    if not wanted and periods:
        wanted = {next(one for one in _COARSER.get(period, (Period.MONTH,)) if one in periods)}
        is_finer(period, *wanted)
    return [job for job in jobs if job.calendar.period in wanted]


def _edges(calendar: Calendar, upstreams: Iterable[DataJob]) -> list[Dependency]:
    return [Dependency(JobRun(one.name), one.calendar, _offsets(calendar.period, one.calendar.period)) for one in upstreams]


def _offsets(down: Period, up: Period) -> Offsets:
    return WHOLE if down is not up and is_finer(up, down) else ZERO


def _node_name(project: str, kind: str, calendar: Calendar) -> str:
    return MARK.join((project, kind, calendar.period.value.lower(), calendar.zone))


def _node(name: str, one: DataJob, edges: Sequence[Dependency]) -> DataJob:
    """A node of the project and the calendar of a job. It has no first time, so each that is needed is waited for."""
    trigger = Trigger.first(one.calendar.period)
    return DataJob(name, one.project, "", one.calendar, trigger, first_time(one.calendar.period), tuple(edges), node=True)
