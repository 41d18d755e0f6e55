"""Says when the instances of the next hours will be ready and done, what holds each up, and which promises are in danger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum

from compaction_pipeline.core.dependencies.center.forecast import (
    AT_ONCE,
    RUNS,
    Expected,
    Moment,
    Point,
    Spread,
    expected,
    kept,
    path,
    spread,
)
from compaction_pipeline.core.dependencies.center.inbox import FAILED
from compaction_pipeline.core.dependencies.center.instances import ENDED, Instance, InstanceState
from compaction_pipeline.core.dependencies.center.jobs import SCHEDULED, DataJob, Requirement, requirements, run_subject
from compaction_pipeline.core.dependencies.center.periods import BusinessTime
from compaction_pipeline.core.dependencies.center.ports import RunHistory
from compaction_pipeline.core.dependencies.center.subjects import BIZ, JOB, THERE, named_in
from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.services.dependencies.definitions import Definitions, Jobs
from compaction_pipeline.services.dependencies.why import Why

MOST_POINTS = 500_000
LONGEST_HOURS = 24 * 7


class Promise(str, Enum):
    """How it stands with the time by which an instance was promised."""

    KEPT = "KEPT"
    IN_DANGER = "IN_DANGER"
    BROKEN = "BROKEN"


@dataclass(frozen=True, slots=True)
class InstanceForecast:
    """When an instance will be `ready` to start and `done`, each as it usually is and when it is late; both None when a run on the way has
    failed, which is `blocked_by` then.

    With `is_at_least`, a run or data on the way was never seen before, so it may be later. `path` is the chain that decides, the last link
    first. `promised_at` is when its job promises it, and `promise` how that stands; None without one.
    """

    job: str
    biz: str
    owner: str
    state: InstanceState
    trigger: datetime
    ready: Moment | None
    done: Moment | None
    is_at_least: bool
    blocked_by: str | None
    path: tuple[str, ...]
    promised_at: datetime | None
    promise: Promise | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """The instances, the first to be done first. Of the last `judged` runs of these jobs, `kept` took no longer than what the runs before
    had called late: 85 to 95 % of them are right."""

    instances: tuple[InstanceForecast, ...]
    kept: int
    judged: int


class ForecastJobs:
    """The verbs are forecast and explain."""

    def __init__(self, history: RunHistory, definitions: Definitions, clock: Clock) -> None:
        self._history = history
        self._definitions = definitions
        self._clock = clock

    def forecast(self, *, job: str | None = None, project: str | None = None, hours: float = 24) -> Forecast:
        """Return what is expected of the instances of a job, a project, or all jobs: those that are open, and those whose trigger comes
        within so many hours. Raises NotFoundError, and ConfigError when they are too many."""
        if not 0 < hours <= LONGEST_HOURS:
            raise ConfigError(f"'hours' is {hours} but must be above 0 and at most {LONGEST_HOURS}")
        jobs, now = self._definitions.jobs(), self._clock()
        wanted = self._wanted(jobs, job, project)
        names = [one.name for one in wanted]
        draft = _Draft(self._history, jobs, now)
        runs = [(one.job, one.biz) for one in self._history.open_runs(names)]
        runs += [run for one in wanted for run in _coming(one, now, now + timedelta(hours=hours))]
        draft.take_in(list(dict.fromkeys(runs)))
        found = expected(draft.points, now)
        forecasts = [draft.forecast(run, found) for run in dict.fromkeys(runs) if draft.runs[run].state not in ENDED]
        last = [kept(_durations(of)) for of in self._history.last_runs(names, 2 * RUNS).values()]
        forecasts.sort(key=lambda one: (one.done is None, one.done.usual if one.done else now, one.job, one.biz))
        return Forecast(tuple(forecasts), sum(right for right, _ in last), sum(judged for _, judged in last))

    def explain(self, why: Why) -> Why:
        """Return the same with when the things that the instance waits for are expected. Nothing is for a
        backfill, nor for a job that is only reported."""
        one = why.instance
        jobs, now = self._definitions.jobs(), self._clock()
        if one.origin != SCHEDULED or not why.waits_for or not jobs.get(one.job).has_instances:
            return why
        draft = _Draft(self._history, jobs, now)
        try:
            draft.take_in([(one.job, one.biz)])
        except ConfigError:
            return why
        found = expected(draft.points, now)
        # What was never seen may come at any time, so nothing is said of it.
        known = {key: one.there for key, one in found.items() if not one.is_at_least}
        return replace(why, waits_for=tuple(replace(each, expected=known.get(each.subject)) for each in why.waits_for))

    @staticmethod
    def _wanted(jobs: Jobs, job: str | None, project: str | None) -> Sequence[DataJob]:
        if job is not None:
            found = [jobs.get(job)]
            if project not in (None, found[0].project):
                raise NotFoundError(f"the job {job!r} is of project {found[0].project!r}, not of {project!r}: leave one of them out")
        else:
            found = [one for _, one in sorted(jobs.own.items()) if project is None or one.project == project]
            if project is not None and not found:
                raise NotFoundError(f"there is no project {project!r}: 'compaction-pipeline dependencies jobs' lists jobs and projects")
        return [one for one in found if one.has_instances and not one.node]


Run = tuple[str, str]
"""A job and a business time."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of one run that is wanted or waited for."""

    state: InstanceState
    trigger: datetime


@dataclass
class _Draft:
    """The points that instances depend on, layer by layer upwards. Each layer asks the state database once."""

    history: RunHistory
    jobs: Jobs
    now: datetime
    points: dict[str, Point] = field(default_factory=dict)
    runs: dict[Run, _Known] = field(default_factory=dict)
    _takes: dict[str, Spread | None] = field(default_factory=dict)
    _arrives: dict[Run, Spread | None] = field(default_factory=dict)

    def take_in(self, runs: Sequence[Run]) -> None:
        """Add these runs, and all that they wait for."""
        layer = list(runs)
        standing: dict[str, tuple[int, datetime]] = {}
        while layer:
            self._learn_durations({job for job, _ in layer})
            instances = self.history.scheduled(layer)
            needs = {run: self._needs(run) for run in layer if _waits(instances.get(run))}
            keys = sorted({need.subject.key for all_of in needs.values() for need in all_of})
            standing.update(self.history.arrivals(keys))
            for run in layer:
                # Those who wait for it have asked how far it is.
                self._add_run(run, instances.get(run), needs.get(run, ()), standing.get(run_subject(*run).key))
            following: dict[Run, None] = {}
            for run, all_of in needs.items():
                self._learn_arrivals(run[0], all_of)
                for need in all_of:
                    if str(need.subject) not in self.points:
                        self._add_need(run, need, standing.get(need.subject.key), following)
            layer = [run for run in following if run not in self.runs]
            if len(self.points) > MOST_POINTS:
                raise ConfigError(f"more than {MOST_POINTS} instances and pieces of data are in the way: ask for a job, or for fewer hours")

    def forecast(self, run: Run, found: Mapping[str, Expected]) -> InstanceForecast:
        job, key, known = self.jobs.get(run[0]), run_subject(*run).key, self.runs[run]
        one = found[key]
        promised_at = None if job.promise is None else job.promise.instant(known.trigger, job.calendar.zone)
        stands = None if promised_at is None else _stands(promised_at, one.there, self.now)
        links = tuple(path(key, found)) if one.there is not None else (key,)
        more = (one.is_at_least, one.blocked_by, links, promised_at, stands)
        return InstanceForecast(job.name, run[1], job.owner, known.state, known.trigger, one.ready, one.there, *more)

    def _needs(self, run: Run) -> tuple[Requirement, ...]:
        job = self.jobs.get(run[0])
        return requirements(job, job.calendar.parse(run[1]), self.jobs.by_name, SCHEDULED, lambda name, biz: False)

    def _add_run(self, run: Run, one: Instance | None, needs: Sequence[Requirement], arrival: tuple[int, datetime] | None) -> None:
        job = self.jobs.get(run[0])
        trigger = job.trigger.instant(job.calendar, job.calendar.parse(run[1]))
        state = InstanceState.WAITING if one is None else one.state
        self.runs[run] = _Known(state, trigger)
        takes = AT_ONCE if job.virtual else self._takes[job.name]
        if state is InstanceState.SUCCEEDED and job.quality and arrival is not None and arrival[0] < THERE:
            # It has succeeded, and waits for its quality. Nobody knows how long that takes.
            point = Point(self.now, None, failed=arrival[0] == FAILED)
        elif state is InstanceState.SUCCEEDED and one is not None:
            point = Point(one.ended_at or self.now, AT_ONCE, is_there=True)
        elif state is InstanceState.WAITING:
            texts = tuple(dict.fromkeys(str(need.subject) for need in needs))
            point = Point(max(trigger, self.now), takes, texts)
        else:
            begun = None if one is None else one.claimed_at
            point = Point(begun or self.now, takes, failed=state is InstanceState.FAILED)
        self.points[run_subject(*run).key] = point

    def _add_need(self, run: Run, need: Requirement, arrival: tuple[int, datetime] | None, following: dict[Run, None]) -> None:
        """Add what a run needs: it is there, or it is a run that follows, or data that comes as it usually does."""
        named = named_in(need.subject.key)
        upstream = self.jobs.get(named[JOB]) if JOB in named else None
        if arrival is not None and arrival[0] >= need.subject.bound:
            self.points[str(need.subject)] = Point(arrival[1], AT_ONCE, is_there=True)
        elif upstream is not None and upstream.has_instances:
            following[upstream.name, named[BIZ]] = None
        elif upstream is not None:
            end = upstream.calendar.end(upstream.calendar.parse(named[BIZ]))
            self.points[str(need.subject)] = Point(end, self._takes_of(upstream.name))
        else:
            job = self.jobs.get(run[0])
            start = job.calendar.start(job.calendar.parse(run[1]))
            self.points[str(need.subject)] = Point(start, self._arrives[job.name, str(need.edge)])

    def _takes_of(self, name: str) -> Spread | None:
        self._learn_durations({name})
        return self._takes[name]

    def _learn_durations(self, names: set[str]) -> None:
        new = sorted(names - self._takes.keys())
        last = self.history.last_runs(new, RUNS) if new else {}
        for name in new:
            job, runs = self.jobs.get(name), last.get(name, ())
            # Nobody starts a virtual job, so its report is looked at: how long after its period it came.
            self._takes[name] = spread(_delays(job, runs) if job.virtual else _durations(runs))

    def _learn_arrivals(self, name: str, needs: Sequence[Requirement]) -> None:
        """How long after the start of a job's period the data of its edges usually comes."""
        edges = {need.edge for need in needs if JOB not in named_in(need.subject.key)}
        new = {edge for edge in edges if (name, str(edge)) not in self._arrives}
        if not new:
            return
        job = self.jobs.get(name)
        past = list(_last_times(job, job.calendar.at(self.now)))
        wanted = [(time, need) for time in past for need in self._needs((name, job.calendar.text(time))) if need.edge in new]
        known = self.history.arrivals(sorted({need.subject.key for _, need in wanted}))
        for edge in new:
            came = []
            for time in past:
                mine = [known.get(need.subject.key, (-1, self.now)) for at, need in wanted if at == time and need.edge == edge]
                bounds = [need.subject.bound for at, need in wanted if at == time and need.edge == edge]
                if mine and all(reached >= bound for (reached, _), bound in zip(mine, bounds, strict=True)):
                    came.append(max(at for _, at in mine) - job.calendar.start(time))
            self._arrives[name, str(edge)] = spread(came)


def _waits(one: Instance | None) -> bool:
    return one is None or one.state is InstanceState.WAITING


def _coming(job: DataJob, now: datetime, end: datetime) -> Iterator[Run]:
    """The runs of this period and of the one before, and those whose trigger comes before the end."""
    calendar, number = job.calendar, job.calendar.at(now).number - 1
    while True:
        time = BusinessTime(calendar.period, number)
        number += 1
        if not calendar.has(time.number):
            continue
        trigger = job.trigger.instant(calendar, time)
        if trigger > end:
            return
        # Those of the last period may be due, and not made yet.
        if time >= job.since:
            yield job.name, calendar.text(time)


def _last_times(job: DataJob, current: BusinessTime) -> Iterator[BusinessTime]:
    """The last 14 business times, with the current one."""
    for by in range(RUNS):
        time = job.calendar.shift(current, -by)
        if time is not None and time >= job.since:
            yield time


def _durations(runs: Sequence[Instance]) -> list[timedelta]:
    return [one.ended_at - one.claimed_at for one in runs if one.ended_at is not None and one.claimed_at is not None]


def _delays(job: DataJob, runs: Sequence[Instance]) -> list[timedelta]:
    return [one.ended_at - job.calendar.end(job.calendar.parse(one.biz)) for one in runs if one.ended_at is not None]


def _stands(promised_at: datetime, done: Moment | None, now: datetime) -> Promise:
    if done is None:
        return Promise.BROKEN if now > promised_at else Promise.IN_DANGER
    if done.usual > promised_at:
        return Promise.BROKEN
    return Promise.IN_DANGER if done.late > promised_at else Promise.KEPT
