"""Reads what reports of runs say, and refuses those that are about no run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeVar

from compaction_pipeline.core.dependencies.center.inbox import NOTHING, Fact, Quality, QualityTold, RunId, quality_fact, run_fact
from compaction_pipeline.core.dependencies.center.instances import REPORTED, InstanceState, Report
from compaction_pipeline.core.dependencies.center.jobs import SCHEDULED, DataJob
from compaction_pipeline.core.dependencies.center.subjects import (
    ASSET,
    BACKFILL,
    BIZ,
    JOB,
    PART,
    QUALITY,
    THERE,
    Subject,
    named_in,
    subject_of,
)
from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.services.dependencies.definitions import Jobs
from compaction_pipeline.services.dependencies.lead_center import KEPT

MOST_GENERATIONS = 1_000_000
Generations = Callable[[Mapping[RunId, int]], Mapping[RunId, int]]
"""Asks `CenterStore.generations`."""

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class RunReport:
    """How the run of a `subject` is (`job=…`), or whether an asset is there (SUCCEEDED) or not (FAILED).

    `generation` says which run of a job it is; its receiver was told it. `number` is the reporter's own count of reports about this
    subject, by which old ones and copies are known.
    """

    subject: str
    state: InstanceState
    generation: int | None = None
    number: int | None = None


@dataclass(frozen=True, slots=True)
class QualityReport:
    """Whether what the run of a `subject` (`job=…`) made is good. `generation` and `number` are as in `RunReport`."""

    subject: str
    quality: Quality
    generation: int | None = None
    number: int | None = None


def subject_in(jobs: Jobs, text: str) -> Subject:
    """A subject as the center keeps it, with the business time as the job's calendar writes it. Raises ConfigError and NotFoundError."""
    subject = subject_of(text)
    named = dict(named_in(subject.key))
    if JOB not in named:
        return subject
    job = jobs.get(named[JOB])
    if PART in named and named[PART] not in job.parts:
        raise ConfigError(f"the job {job.name!r} declares no part {named[PART]!r}; it has {', '.join(job.parts) or 'none'}")
    run = RunId(job.name, job.calendar.text(job.calendar.parse(named[BIZ])), named.get(BACKFILL, SCHEDULED), named.get(PART, ""))
    return Subject(run.key)


def facts_of(jobs: Jobs, reports: Sequence[RunReport], source: str, now: datetime, generations: Generations) -> list[Fact]:
    """What reports say. Raises ConfigError and NotFoundError, with the number of the report where there are several."""
    return _all_of(reports, lambda one: _fact(jobs, one, source, now), generations)


def told_of(jobs: Jobs, told: Sequence[QualityReport], source: str, now: datetime, generations: Generations) -> list[Fact]:
    """What was told of the quality of runs. Raises as `facts_of`, also for a job that nobody judges."""
    return _all_of(told, lambda one: _told(jobs, one, source, now), generations)


def _all_of(reports: Sequence[U], read: Callable[[U], Fact], generations: Generations) -> list[Fact]:
    facts = [_numbered(number, len(reports), partial(read, one)) for number, one in enumerate(reports, start=1)]
    # One that comes late or twice is of a run that there is. Who asks for these two reads nothing in most requests.
    asked: dict[RunId, int] = {}
    for fact in facts:
        if fact.run is not None and (fact.run.origin != SCHEDULED or _generation(fact) > 2):
            asked[fact.run] = max(asked.get(fact.run, 1), _generation(fact))
    if asked:
        known = dict(generations(asked))
        for number, fact in enumerate(facts, start=1):
            _numbered(number, len(reports), partial(_refuse_unknown, fact, known))
    return facts


def _numbered(number: int, of: int, read: Callable[[], T]) -> T:
    try:
        return read()
    except (ConfigError, NotFoundError) as error:
        raise type(error)(f"report {number} of {of}: {error}" if of > 1 else str(error)) from None


def _fact(jobs: Jobs, one: RunReport, source: str, now: datetime) -> Fact:
    if one.state not in REPORTED:
        raise ConfigError(f"the state {one.state.value} is not reported: report {', '.join(state.value for state in REPORTED)}")
    _refuse_numbers(one)
    subject = subject_in(jobs, one.subject)
    named = named_in(subject.key)
    if ASSET in named:
        reached = THERE if one.state is InstanceState.SUCCEEDED else NOTHING
        return Fact(subject.key, now, source, reached, number=one.number)
    if JOB not in named:
        raise ConfigError(
            f"{one.subject!r} is data of a table, which the center looks up itself: commit it, or report it by 'POST …/tables/TABLE/ready'"
        )
    run = _run_of(named)
    job = jobs.get(run.job)
    _refuse_unreported(job, run, one)
    _refuse_far(job, run, now)
    return run_fact(run, Report(one.state, now, one.generation, bool(job.quality)), source, one.number)


def _told(jobs: Jobs, one: QualityReport, source: str, now: datetime) -> Fact:
    _refuse_numbers(one)
    named = named_in(subject_in(jobs, one.subject).key)
    if JOB not in named:
        raise ConfigError(f"{one.subject!r} is no run of a job, and only these are judged here: name a run, like job=NAME && biz=TIME")
    run = _run_of(named)
    job = jobs.get(run.job)
    if not job.quality:
        raise ConfigError(
            f"nobody judges the runs of {job.name!r}, so they count as they are reported: give the job '{QUALITY}: NAME' in its file, with "
            "the name of who tells its quality, or leave this out"
        )
    _refuse_unreported(job, run, one)
    _refuse_far(job, run, now)
    return quality_fact(run, QualityTold(one.quality, one.generation), now, source, one.number)


def _run_of(named: Mapping[str, str]) -> RunId:
    return RunId(named[JOB], named[BIZ], named.get(BACKFILL, SCHEDULED), named.get(PART, ""))


def _refuse_numbers(one: RunReport | QualityReport) -> None:
    number, generation = one.number, one.generation
    if (number is not None and not 0 <= number < 2**63) or (generation is not None and not 1 <= generation <= MOST_GENERATIONS):
        raise ConfigError(f"'number' must be 0 to 2⁶³−1, and 'generation' 1 to {MOST_GENERATIONS}: correct them")


def _refuse_unreported(job: DataJob, run: RunId, one: RunReport | QualityReport) -> None:
    """Refuse what nobody reports of such a job."""
    if not job.virtual and one.generation is None:
        raise ConfigError(f"the report of {one.subject!r} needs 'generation': the start of {job.name!r} told it, and it tells runs apart")
    if job.virtual and job.needs:
        raise ConfigError(f"the job {job.name!r} is made by {job.needs[0].upstream}, so nobody reports it: leave the report out")
    if job.parts and not run.part:
        raise ConfigError(f"the job {job.name!r} is reported part by part: add part=…; it has {', '.join(job.parts)}")
    if job.virtual and run.origin != SCHEDULED:
        raise ConfigError(
            f"{one.subject!r} has the backfill {run.origin!r}, but {job.name!r} is virtual, and its runs are of none: leave 'backfill' out"
        )


def _refuse_far(job: DataJob, run: RunId, now: datetime) -> None:
    """Refuse a time of which nobody could ever wait for the run."""
    time = job.calendar.parse(run.biz)
    if job.calendar.start(time) > now + KEPT:
        raise ConfigError(
            f"'{BIZ}' of {run.key!r} begins more than {KEPT.days} days from now: correct it; nobody waits for data of a time so far ahead"
        )
    if run.origin == SCHEDULED and time < job.since and job.calendar.end(time) < now - KEPT:
        raise ConfigError(
            f"'{BIZ}' of {run.key!r} is more than {KEPT.days} days ago, and before the first time of {job.name!r} "
            f"('since', {job.calendar.text(job.since)}), so nobody waits for it: correct it, or give the job an earlier 'since'"
        )


def _refuse_unknown(fact: Fact, known: dict[RunId, int]) -> None:
    """Refuse the report of a run that nobody started. `known` has the highest generation of each run, and is told of this one."""
    run = fact.run
    if run is None:
        return
    if run.origin != SCHEDULED and run not in known:
        raise NotFoundError(
            f"there is no run {run.key!r}: no backfill {run.origin!r} has {run.job!r} for {run.biz!r}; correct the name, or leave "
            "'backfill' out for a scheduled run; 'compaction-pipeline dependencies instances' lists runs"
        )
    highest, generation = known.get(run, 1), _generation(fact)
    if generation > highest + 1:
        raise ConfigError(
            f"'generation' of {run.key!r} is {generation}, but its newest run has {highest}, and one that ran again would have "
            f"{highest + 1}: report the generation that its start told"
        )
    known[run] = max(highest, generation)


def _generation(fact: Fact) -> int:
    said = fact.report or fact.told
    return 1 if said is None or said.generation is None else said.generation
