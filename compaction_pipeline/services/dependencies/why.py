"""Says why an instance waits, and what it is started without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from compaction_pipeline.core.dependencies.center.instances import Instance
from compaction_pipeline.core.dependencies.center.ports import Wait
from compaction_pipeline.core.dependencies.center.strength import Group, Standing, lacking
from compaction_pipeline.core.dependencies.center.subjects import JOB, Subject, named_in
from compaction_pipeline.services.dependencies.definitions import Jobs


@dataclass(frozen=True, slots=True)
class Missing:
    """One thing that an instance waits for. `produced_by` has the jobs that say so; for the run of a job it is this job. `rule` says how
    much of a weak edge must be there, and until when; it is "" for what must be there in any case."""

    subject: str
    there: bool
    at: datetime | None
    produced_by: tuple[str, ...]
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Why:
    """An instance, what it waits for, what it found, and what it starts without because its `until` is over; of that, `at` is when it came.

    `busy` is the origin of the instance that runs in its place; None for none.
    """

    instance: Instance
    waits_for: tuple[Missing, ...]
    found: tuple[Missing, ...]
    busy: str | None
    without: tuple[Missing, ...] = ()


def why_of(one: Instance, waits: Sequence[Wait], groups: Sequence[tuple[Group, bool]], busy: str | None, jobs: Jobs, now: datetime) -> Why:
    """Say what each of these is to an instance: what a weak edge can do without is left out."""
    waits_for = [_missing(wait, jobs) for wait in waits if wait.opens_at is None and not _is_there(wait)]
    found = [_missing(wait, jobs) for wait in waits if wait.opens_at is None and _is_there(wait)]
    without: list[Missing] = []
    for group, is_met in groups:
        # What somebody claimed keeps what it was started on.
        rows = [
            (wait, Standing(wait.opens_at, wait.met if one.claimed_at else _is_there(wait)))
            for wait in waits
            if wait.edge == group.edge and wait.opens_at is not None
        ]
        lacks = lacking(group, [standing for _, standing in rows], one.ready_at or now) or ()
        found += [_missing(wait, jobs, str(group)) for wait, standing in rows if standing.is_there]
        lacked = [_missing(wait, jobs, str(group)) for wait, standing in rows if standing in lacks and not standing.is_there]
        (without if is_met else waits_for).extend(lacked)
    return Why(one, tuple(waits_for), tuple(found), busy, tuple(without))


def _is_there(wait: Wait) -> bool:
    return wait.reached >= wait.bound


def _missing(wait: Wait, jobs: Jobs, rule: str = "") -> Missing:
    subject = Subject(wait.key, wait.bound)
    named = named_in(wait.key)
    if JOB in named:
        return Missing(str(subject), _is_there(wait), wait.at, (named[JOB],), rule)
    kind = next(iter(named))
    produced = f"{kind}={named[kind]}"
    makers = tuple(sorted(one.name for one in jobs.by_name.values() if produced in one.produces))
    return Missing(str(subject), _is_there(wait), wait.at, makers, rule)
