"""Says why an instance waits, and what it is started without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from compaction_pipeline.core.dependencies.center.forecast import Moment
from compaction_pipeline.core.dependencies.center.inbox import FAILED, UNJUDGED
from compaction_pipeline.core.dependencies.center.instances import Instance, InstanceState
from compaction_pipeline.core.dependencies.center.jobs import DataJob, run_subject
from compaction_pipeline.core.dependencies.center.ports import Wait
from compaction_pipeline.core.dependencies.center.strength import Group, Standing, lacking
from compaction_pipeline.core.dependencies.center.subjects import BIZ, JOB, TABLE, THERE, Subject, named_in
from compaction_pipeline.core.words import time_text
from compaction_pipeline.services.dependencies.definitions import Jobs


@dataclass(frozen=True, slots=True)
class Missing:
    """One thing that an instance waits for. `produced_by` has the jobs that say so; for the run of a job it is this job. `rule` says how
    much of a weak edge must be there, and until when; it is "" for what must be there in any case. `problem` says what keeps it from
    coming: its run has failed, or its table cannot be read; it is "" when nothing is known to. `expected` is when it will be there by a
    forecast (`ForecastJobs.explain`); None when nobody can say."""

    subject: str
    there: bool
    at: datetime | None
    produced_by: tuple[str, ...]
    rule: str = ""
    problem: str = ""
    expected: Moment | None = None


@dataclass(frozen=True, slots=True)
class Why:
    """An instance, what it waits for, what it found, and what it starts without because its `until` is over; of that, `at` is when it came.

    `busy` is the origin of the instance that runs in its place; None for none. That of a virtual job that is only reported waits for the
    reports of its parts; as long as nobody reported any, its id is 0.
    """

    instance: Instance
    waits_for: tuple[Missing, ...]
    found: tuple[Missing, ...]
    busy: str | None
    without: tuple[Missing, ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """What else is known: the jobs, what is wrong with subjects and with tables, by their key or name, and before which time what was
    there is forgotten."""

    jobs: Jobs
    problems: Mapping[str, str]
    forgotten: datetime


def why_of(one: Instance, waits: Sequence[Wait], groups: Sequence[tuple[Group, bool]], busy: str | None, told: Told, now: datetime) -> Why:
    """Say what each of these is to an instance: what a weak edge can do without is left out."""
    waits_for = [_missing(wait, told) for wait in waits if wait.opens_at is None and not _is_there(wait)]
    found = [_missing(wait, told) for wait in waits if wait.opens_at is None and _is_there(wait)]
    without: list[Missing] = []
    for group, is_met in groups:
        # What somebody claimed keeps what it was started on.
        rows = [
            (wait, Standing(wait.opens_at, wait.met if one.claimed_at else _is_there(wait)))
            for wait in waits
            if wait.edge == group.edge and wait.opens_at is not None
        ]
        lacks = lacking(group, [standing for _, standing in rows], one.ready_at or now) or ()
        found += [_missing(wait, told, group) for wait, standing in rows if standing.is_there]
        lacked = [_missing(wait, told, group) for wait, standing in rows if standing in lacks and not standing.is_there]
        (without if is_met else waits_for).extend(lacked)
    return Why(one, tuple(waits_for), tuple(found), busy, tuple(without))


def why_reported(job: DataJob, biz: str, origin: str, reported: Sequence[Instance], reached: Mapping[str, int]) -> Why:
    """Say which parts of a virtual job that is only reported are there, by the instances that reports have made, and, where the job is
    judged, by how far they have got."""
    by_part = {one.part: one for one in reported}
    parts = job.parts or ("",)
    is_early = job.calendar.parse(biz) < job.since
    unasked = f", and nobody waits for it: the first time of {job.name!r} is {job.calendar.text(job.since)} ('since')" if is_early else ""
    all_of = [_reported(job, run_subject(job.name, biz, origin, part), by_part.get(part), unasked, reached) for part in parts]
    waits_for = tuple(one for one in all_of if not one.there)
    one = by_part.get("")
    if one is None:
        made_at = min((each.made_at for each in reported), default=job.trigger.instant(job.calendar, job.calendar.parse(biz)))
        one = Instance(0, job.name, biz, origin, "", made_at)
    if job.parts:
        state = InstanceState.WAITING if waits_for else InstanceState.SUCCEEDED
        one = replace(one, state=state, missing=len(waits_for))
    elif one.id == 0:
        one = replace(one, missing=1)
    return Why(one, waits_for, tuple(each for each in all_of if each.there), None)


def quality_missing(job: DataJob, key: str, reached: Mapping[str, int], ended_at: datetime | None) -> Missing | None:
    """What a run that has succeeded lacks to count: that its quality has passed. None where it counts."""
    far = reached.get(key, THERE) if job.quality else THERE
    if far >= THERE:
        return None
    problem = _unjudged(job.quality, ended_at) if far == UNJUDGED else _FAILED_QUALITY.format(job.quality)
    return Missing(key, False, None, (job.name,), problem=problem)


_FAILED_QUALITY = "it succeeded, but its quality FAILED, as {} told; it counts once that passes, or a run again has passed"


def _unjudged(who: str, at: datetime | None) -> str:
    since = f" since {time_text(at)} UTC" if at is not None else ""
    return f"it has succeeded, and waits{since} for its quality, which {who} tells (POST /api/v1/dependencies/quality)"


def _reported(job: DataJob, subject: Subject, one: Instance | None, unasked: str, reached: Mapping[str, int]) -> Missing:
    if one is None:
        return Missing(str(subject), False, None, (job.name,), problem=f"nobody has reported it{unasked}")
    if one.state is InstanceState.SUCCEEDED:
        return quality_missing(job, subject.key, reached, one.ended_at) or Missing(str(subject), True, one.ended_at, (job.name,))
    ended = f" at {time_text(one.ended_at)} UTC" if one.ended_at is not None else ""
    return Missing(str(subject), False, None, (job.name,), problem=f"it was reported as {one.state.value}{ended}")


def _is_there(wait: Wait) -> bool:
    return wait.reached >= wait.bound


def _missing(wait: Wait, told: Told, group: Group | None = None) -> Missing:
    subject, rule, problem = Subject(wait.key, wait.bound), str(group or ""), _problem(wait, told, group)
    named = named_in(wait.key)
    if JOB in named:
        return Missing(str(subject), _is_there(wait), wait.at, (named[JOB],), rule, problem)
    kind = next(iter(named))
    produced = f"{kind}={named[kind]}"
    makers = tuple(sorted(one.name for one in told.jobs.by_name.values() if produced in one.produces))
    return Missing(str(subject), _is_there(wait), wait.at, makers, rule, problem)


def _problem(wait: Wait, told: Told, group: Group | None) -> str:
    if _is_there(wait):
        return ""
    named = named_in(wait.key)
    job = told.jobs.by_name.get(named.get(JOB, ""))
    who = "" if job is None else job.quality
    if (wait.reached, wait.bound) == (UNJUDGED, THERE):
        return _unjudged(who or "nobody", wait.at)
    if (wait.reached, wait.bound) == (FAILED, THERE):
        at = f" at {time_text(wait.at)} UTC" if wait.at is not None else ""
        how = f"it FAILED, or its quality did, which {who} tells," if who else "it FAILED"
        return f"{how}{at}, and is waited for until it has succeeded{_if_failed(group)}"
    if TABLE not in named:
        return "" if job is None or wait.at is not None else _unknown(job, named[BIZ], told.forgotten)
    known = told.problems.get(wait.key) or told.problems.get(named[TABLE])
    return f"it cannot be looked up: {known}" if known else ""


def _unknown(job: DataJob, biz: str, forgotten: datetime) -> str:
    """What to say of a run that nobody told anything of; "" where it would still be known."""
    if job.calendar.end(job.calendar.parse(biz)) >= forgotten:
        return ""
    return (
        f"it is unknown, because what was there before {time_text(forgotten)} UTC is forgotten: report it again, or take the job into the "
        "backfill that waits for it"
    )


def _if_failed(group: Group | None) -> str:
    if group is None or group.until_at is None:
        return ""
    until = f"{time_text(group.until_at)} UTC"
    return f", also after {until} (if-failed: wait)" if group.waits_for_failed else f", or until {until} (if-failed: ignore)"
