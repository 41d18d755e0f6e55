"""What doors ask of the dependency center: projects, instances, why one waits, reports, claims, backfills and runs again."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from compaction_pipeline.core.dependencies.center.inbox import Fact
from compaction_pipeline.core.dependencies.center.instances import ENDED, Instance, InstanceState
from compaction_pipeline.core.dependencies.center.jobs import SCHEDULED, DataJob, left_out, run_subject
from compaction_pipeline.core.dependencies.center.periods import BusinessTime, check_written
from compaction_pipeline.core.dependencies.center.ports import CenterStore, InstanceQuery, SavedProject, Wait
from compaction_pipeline.core.dependencies.center.project_rules import ProjectRule
from compaction_pipeline.core.dependencies.center.subjects import (
    ASSET,
    BACKFILL,
    BIZ,
    JOB,
    PART,
    WINDOW,
    RunRange,
    Subject,
    named_in,
    range_of,
    window_in,
)
from compaction_pipeline.core.dependencies.ready_time import Window
from compaction_pipeline.core.errors import ChangedMeanwhile, ConfigError, NotFoundError
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.words import time_text
from compaction_pipeline.services.dependencies.definitions import Definitions, Jobs
from compaction_pipeline.services.dependencies.lead_center import KEPT, made_of, nodes_of
from compaction_pipeline.services.dependencies.lineage import Drafted, as_written
from compaction_pipeline.services.dependencies.reports import QualityReport, RunReport, facts_of, subject_in, told_of
from compaction_pipeline.services.dependencies.save_project import ProjectChange, SaveProject
from compaction_pipeline.services.dependencies.why import Told, Why, quality_missing, why_of, why_reported

MOST_CLAIMED = 1_000
MOST_BACKFILLED = 10_000
_ALL = 10_000_000
_ORIGIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,199}")


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A job as people see it: its calendar, its trigger and its first business time, who starts it (None: it is only reported), what it
    needs, each as a text, and who tells the `quality` of what its runs made; "" where they count without."""

    name: str
    project: str
    owner: str
    period: str
    zone: str
    trigger: str
    since: str
    receiver: str | None
    parts: tuple[str, ...]
    produces: tuple[str, ...]
    needs: tuple[str, ...]
    quality: str = ""


class DependencyCenter:
    """The verbs save_project, projects, jobs, instances, why, ready, assets_there, report, report_all, tell_quality, claim, delivered,
    window, backfill and run_again."""

    def __init__(
        self, store: CenterStore, definitions: Definitions, clock: Clock, draft: Callable[[Mapping[str, Any]], Drafted] = as_written
    ) -> None:
        self._store = store
        self._definitions = definitions
        self._clock = clock
        self._draft = draft
        self._saver = SaveProject(store, definitions, clock)

    def save_project(self, given: Mapping[str, Any], *, dry_run: bool = False, many: bool = False) -> ProjectChange:
        """Replace a project by its file; a file without jobs removes it. Return what changed, or what would change.

        Raises ConfigError with all that is wrong, for a job that others wait for and that would be gone, for a way round that no data can
        start, and without `many` for more than 10,000 instances that would be made at once. Raises ChangedMeanwhile when somebody else
        changed projects at the same time.
        """
        drafted = self._draft(given)
        return self._saver.save(drafted.file, drafted.lineage, dry_run=dry_run, many=many)

    def projects(self) -> Sequence[SavedProject]:
        """Return the projects that have jobs, as their files were saved."""
        return [one for one in self._store.projects() if one.file.get("jobs")]

    def jobs(self) -> Sequence[JobSummary]:
        """Return all jobs, by name."""
        jobs = self._definitions.jobs()
        return [_summary(job, jobs.rules.get(job.project, ProjectRule())) for _, job in sorted(jobs.own.items())]

    def instances(self, query: InstanceQuery) -> Sequence[Instance]:
        """Return instances, the newest first.

        Raises NotFoundError for a job that is not there, and ConfigError for a business time that is none.
        """
        if query.job is not None:
            calendar = self._definitions.jobs().get(query.job).calendar
            query = query if query.biz is None else replace(query, biz=calendar.text(calendar.parse(query.biz)))
        elif query.biz is not None:
            check_written(query.biz)
        return self._store.instances(query)

    def why(self, job: str, biz: str, origin: str = SCHEDULED) -> Why:
        """Return what an instance waits for. Raises NotFoundError and ConfigError."""
        jobs = self._definitions.jobs()
        definition = jobs.get(job)
        if not definition.has_instances:
            return self._why_reported(definition, biz, origin)
        one = self._instance(job, biz, origin)
        others = self._store.instances(InstanceQuery(job=one.job, biz=one.biz))
        busy = [other.origin for other in others if other.id != one.id and other.state in (InstanceState.READY, InstanceState.RUNNING)]
        is_busy = one.state is InstanceState.WAITING and one.missing == 0 and bool(busy)
        runs_instead = (busy[0] or Instance.SCHEDULED_TEXT) if is_busy else None
        told = Told(jobs, self._store.problems(), self._clock() - KEPT)
        why = why_of(one, self._waits(one, jobs), self._store.groups(one.id), runs_instead, told, self._clock())
        if one.state is not InstanceState.SUCCEEDED or not definition.quality:
            return why
        key = run_subject(one.job, one.biz, one.origin).key
        judged = quality_missing(definition, key, self._store.reached([key]), one.ended_at)
        return why if judged is None else replace(why, waits_for=(*why.waits_for, judged))

    def _waits(self, one: Instance, jobs: Jobs) -> Sequence[Wait]:
        """What an instance waits for; in place of nodes that are not there, what these wait for."""
        found, behind, seen = [], list(self._store.waits(one.id)), set()
        while behind:
            wait = behind.pop(0)
            named = named_in(wait.key)
            job = jobs.by_name.get(named.get(JOB, ""))
            if job is None or not job.node or wait.reached >= wait.bound:
                found.append(wait)
            elif wait.key not in seen:
                seen.add(wait.key)
                node = InstanceQuery(job=job.name, biz=named[BIZ], origin=named.get(BACKFILL, SCHEDULED), most=1)
                behind += [each for made in self._store.instances(node) for each in self._store.waits(made.id)]
        return found

    def _why_reported(self, job: DataJob, biz: str, origin: str) -> Why:
        text = job.calendar.text(job.calendar.parse(biz))
        reported = self._store.instances(InstanceQuery(job=job.name, biz=text, origin=origin, most=_ALL))
        keys = [run_subject(job.name, text, origin, one.part).key for one in reported] if job.quality else []
        return why_reported(job, text, origin, reported, self._store.reached(keys))

    def ready(self, text: str) -> bool | None:
        """Return whether a subject is there; None when nobody told the center.

        Raises ConfigError, also for the whole of a job that is there part by part, and NotFoundError.
        """
        jobs = self._definitions.jobs()
        asked = range_of(text)
        subjects = [subject_in(jobs, text)] if asked is None else _runs(jobs, asked)
        for subject in subjects[:1]:
            _refuse_whole(jobs, subject)
        known = self._store.reached([subject.key for subject in subjects])
        if any(subject.key in known and known[subject.key] < subject.bound for subject in subjects):
            return False
        return True if all(subject.key in known for subject in subjects) else None

    def assets_there(self, asset: str, source: str) -> Sequence[Window]:
        """Return the windows of an asset that are there, of which a source has told something by its own numbers."""
        return [window_in(named_in(key)[WINDOW]) for key in self._store.there(ASSET, asset, source)]

    def report(self, text: str, state: InstanceState, source: str, *, generation: int | None = None, number: int | None = None) -> Subject:
        """Take one report. Return its subject. Raises as `report_all`."""
        return self.report_all([RunReport(text, state, generation, number)], source)[0]

    def report_all(self, reports: Sequence[RunReport], source: str) -> tuple[Subject, ...]:
        """Take the reports of a `source`, in this order; none of them when one is wrong. Return their subjects.

        One that came before, or late, changes nothing and is not wrong. Raises ConfigError and NotFoundError, with the number of the report
        where there are several, also for a run that nobody started: of another backfill, a generation that skips some, a time far off.
        """
        now = self._clock()
        facts = self._post(lambda jobs: facts_of(jobs, reports, source, now, self._store.generations))
        return tuple(Subject(fact.key) for fact in facts)

    def tell_quality(self, told: Sequence[QualityReport], source: str) -> tuple[Subject, ...]:
        """Take what a `source` tells of the quality of runs, in this order; none of it when one is wrong. Return the subjects of the runs.

        A run of a job that is judged (`DataJob.quality`) counts once it has succeeded and this has passed, whichever comes first. Told of
        an older run, or twice, it changes nothing. Raises as `report_all`, also for a job that nobody judges.
        """
        now = self._clock()
        facts = self._post(lambda jobs: told_of(jobs, told, source, now, self._store.generations))
        return tuple(Subject(fact.run.key) for fact in facts if fact.run is not None)

    def _post(self, facts_by: Callable[[Jobs], list[Fact]]) -> list[Fact]:
        last = self._definitions.last()
        try:
            # Most of the time no project has changed, and this is the only transaction.
            facts = facts_by(last)
            was_posted = self._store.post(facts, last.version)
        except (ConfigError, NotFoundError):
            was_posted = False
        if not was_posted:
            facts = facts_by(self._definitions.jobs())
            self._store.post(facts)
        return facts

    def claim(self, receiver: str, most: int = 100) -> Sequence[Instance]:
        """Return what a receiver is to start, and note that it has it. It is returned again until `delivered`, or a report of its run.

        Start each key once (`Instance.key`): a key may come twice.
        """
        return self._store.claim(receiver, min(max(most, 1), MOST_CLAIMED), self._clock())

    def delivered(self, receiver: str, instances: Sequence[tuple[int, int]]) -> int:
        """Note that a receiver has these, by id and generation. Return how many this was true of."""
        return self._store.note_delivered(receiver, instances[:MOST_CLAIMED], self._clock())

    def window(self, job: str, biz: str) -> Window:
        """Return the time of a business time of a job. Raises NotFoundError and ConfigError."""
        calendar = self._definitions.jobs().get(job).calendar
        time = calendar.parse(biz)
        return Window(calendar.start(time), calendar.end(time))

    def backfill(self, origin: str, names: Sequence[str], first: str, last: str) -> int:
        """Make instances of jobs for all business times from one to another, all at once, with an origin of their own.

        Of each job those are made whose time starts within the span of the first job. Return how many.

        Raises ConfigError and NotFoundError.
        """
        jobs = self._definitions.jobs()
        if not names:
            raise ConfigError(f"the backfill {origin!r} must have at least one job")
        leading = jobs.get(names[0]).calendar
        start, end = leading.start(leading.parse(first)), leading.end(leading.parse(last))
        runs = []
        for job in (jobs.get(name) for name in dict.fromkeys(names)):
            if job.virtual:
                raise ConfigError(f"the job {job.name!r} is virtual, so nothing can start it: leave it out of the backfill")
            if job.calendar.at(end).number - job.calendar.at(start).number > MOST_BACKFILLED:
                raise ConfigError(f"the backfill would make more than {MOST_BACKFILLED} instances of {job.name!r}: choose a shorter span")
            runs += [(job.name, job.calendar.text(time)) for time in job.calendar.between(start, end)]
        if not 0 < len(runs) <= MOST_BACKFILLED:
            raise ConfigError(f"the backfill would make {len(runs)} instances but must make 1 to {MOST_BACKFILLED}: choose another span")
        return self.backfill_runs(origin, runs)

    def backfill_runs(self, origin: str, runs: Sequence[tuple[str, str]]) -> int:
        """Make these instances, by job and business time, upstreams first, with an origin of their own. Return how many are new.

        Each 10,000 are made at once. Raises ConfigError, also for a time before the `since` of its job for which data would not be waited
        for, and ChangedMeanwhile when somebody changed a project meanwhile; what was made then
        stays, and the rest is made when it is launched again.
        """
        if not _ORIGIN.fullmatch(origin) or origin == Instance.SCHEDULED_TEXT:
            raise ConfigError(
                f"the backfill {origin!r} must have a name of letters, digits, '_', '.' and '-', other than {Instance.SCHEDULED_TEXT!r}"
            )
        jobs, now = self._definitions.jobs(), self._clock()
        together = frozenset(runs) | self._saver.backfill_of(origin)
        _refuse_without_data(origin, runs, together, jobs, now)
        count = 0
        for start in range(0, len(runs), MOST_BACKFILLED):
            made = [made_of(jobs.get(job), biz, origin, jobs, now, together) for job, biz in runs[start : start + MOST_BACKFILLED]]
            made += nodes_of(made, jobs, now, together)
            new = self._store.backfill(jobs.version, made, now)
            if new is None:
                stays = f"{count} instances were made" if count else "nothing was made"
                raise ChangedMeanwhile(f"somebody changed a project at the same time, so {stays}: launch the backfill again")
            count += new
        return count

    def run_again(self, job: str, biz: str, origin: str = SCHEDULED) -> Instance:
        """Let an instance run again, as the next generation, when its data is there. What waits for it waits until it has succeeded.

        Raises ConfigError for one that nobody has started yet or that may run, NotFoundError, and ChangedMeanwhile when it changed
        meanwhile.
        """
        one = self._instance(job, biz, origin)
        jobs = self._definitions.jobs()
        definition = jobs.get(job)
        if definition.virtual or one.claimed_at is None:
            raise ConfigError(f"{one.key} was not started here, so it cannot run again: it starts when its data is there")
        if one.state not in ENDED:
            what = "is running" if one.state is InstanceState.RUNNING else f"was claimed at {time_text(one.claimed_at)} UTC, so it may run"
            raise ConfigError(f"{one.key} {what}: report how it ended first (FAILED when the run is gone), and let it run again then")
        made = made_of(definition, one.biz, one.origin, jobs, one.made_at, self._saver.backfill_of(one.origin))
        nodes = self._saver.nodes_for([made], jobs)
        if nodes and self._store.backfill(jobs.version, nodes, self._clock()) is None:
            raise ChangedMeanwhile(f"a project changed at the same time as {one.key}: ask again")
        if not self._store.run_again(jobs.version, one, made, self._clock()):
            raise ChangedMeanwhile(f"{one.key} changed at the same time: look at it, and ask again")
        return self._instance(job, biz, origin)

    def _instance(self, job: str, biz: str, origin: str) -> Instance:
        jobs = self._definitions.jobs()
        calendar = jobs.get(job).calendar
        time = calendar.parse(biz)
        wanted = InstanceQuery(job=job, biz=calendar.text(time), origin=origin, most=2)
        found = [one for one in self._store.instances(wanted) if not one.part]
        if not found:
            raise NotFoundError(_not_there(jobs.get(job), time, origin, self._clock()))
        return found[0]


def _summary(job: DataJob, rule: ProjectRule) -> JobSummary:
    needs = (*(str(edge) for edge in job.needs), *(f"project={one}" for one in rule.after if not job.virtual))
    calendar = (job.calendar.period.value, job.calendar.zone, job.trigger.text(), job.calendar.text(job.since))
    return JobSummary(job.name, job.project, job.owner, *calendar, job.receiver, job.parts, job.produces, needs, job.quality)


def _refuse_without_data(
    origin: str, runs: Sequence[tuple[str, str]], together: frozenset[tuple[str, str]], jobs: Jobs, now: datetime
) -> None:
    """Refuse times before the first one of a job that would start without what an upstream makes, because that begins later, too."""
    early = [(job, biz) for job, biz in runs if jobs.get(job).calendar.parse(biz) < jobs.get(job).since]
    made = [made_of(jobs.get(job), biz, origin, jobs, now, together) for job, biz in early]
    for one in (*made, *nodes_of(made, jobs, now, together)):
        job = jobs.by_name[one.job]
        for upstream, biz in left_out(job, job.calendar.parse(one.biz), jobs.by_name, together):
            into = "" if upstream.virtual else f"take {upstream.name!r} into the backfill, "
            first, without = upstream.calendar.text(upstream.since), run_subject(upstream.name, biz)
            raise ConfigError(
                f"the backfill {origin!r} would start {job.name!r} for {one.biz!r} without {without}, because the first time of "
                f"{upstream.name!r} is {first} ('since'): {into}give it an earlier 'since', or choose later times"
            )


def _not_there(job: DataJob, time: BusinessTime, origin: str, now: datetime) -> str:
    """Why there is no instance of a job for a time."""
    text, since, at = job.calendar.text(time), job.calendar.text(job.since), job.trigger.instant(job.calendar, time)
    if origin != SCHEDULED:
        why = f"the backfill {origin!r} has none of it"
    elif time < job.since:
        why = f"its first time is {since} ('since'), so none is made for earlier ones; give it an earlier 'since' where they are meant"
    elif at > now:
        why = f"it is made at its trigger, at {time_text(at)} UTC"
    else:
        forgotten = f"what has ended is forgotten after {KEPT.days} days"
        why = f"its trigger was at {time_text(at)} UTC, and it is made while `serve` runs; {forgotten}"
    return f"{job.name!r} has no instance for {text!r}: {why}. 'compaction-pipeline dependencies instances' lists those that there are"


def _refuse_whole(jobs: Jobs, subject: Subject) -> None:
    """Raises ConfigError for the whole of a job that is reported part by part: nobody says that the whole is there."""
    named = named_in(subject.key)
    if JOB in named and PART not in named and (parts := jobs.get(named[JOB]).parts):
        ways = ", ".join(f"'{run_subject(named[JOB], named[BIZ], part=part)}'" for part in parts)
        raise ConfigError(f"the job {named[JOB]!r} is reported part by part, so ask for one of its parts: {ways}")


def _runs(jobs: Jobs, asked: RunRange) -> list[Subject]:
    """The runs of a range. Raises ConfigError for one that is empty or too long."""
    calendar = jobs.get(asked.job).calendar
    first, last = calendar.parse(asked.first), calendar.parse(asked.last)
    if not 0 <= last.number - first.number < MOST_BACKFILLED:
        raise ConfigError(
            f"the range from {asked.first!r} to {asked.last!r} is empty, or has more than {MOST_BACKFILLED} business times: ask for another"
        )
    return [run_subject(asked.job, calendar.text(time)) for time in calendar.between(calendar.start(first), calendar.end(last))]
