"""What the dependency center knows of jobs: when each has an instance, and what this instance waits for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from compaction_pipeline.core.dependencies.center.offsets import Offsets, upstream_times
from compaction_pipeline.core.dependencies.center.periods import BusinessTime, Calendar
from compaction_pipeline.core.dependencies.center.strength import STRONG, EdgeRule, Group, Until
from compaction_pipeline.core.dependencies.center.subjects import BACKFILL, JOB, PART, Subject, key_of
from compaction_pipeline.core.dependencies.center.triggers import Trigger
from compaction_pipeline.core.dependencies.center.upstreams import JobRun, Upstream

SCHEDULED = ""
"""The origin of instances that a trigger made. Those of a backfill have its id."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """An edge: of this upstream, the periods that the offsets name must be there, as far as the rule says. `calendar` is that of the
    upstream."""

    upstream: Upstream
    calendar: Calendar
    offsets: Offsets
    rule: EdgeRule = STRONG

    def __str__(self) -> str:
        return f"{self.upstream} {self.offsets.text()}" + ("" if self.rule.is_strong else f", {self.rule}")


@dataclass(frozen=True, slots=True)
class DataJob:
    """A job that waits for data, or makes some. `since` is its first business time.

    `receiver` is who starts its instances. A `virtual` job is run elsewhere and only reported: it has no receiver, and may have `parts`.
    A virtual job with `needs` succeeds by itself when they are there. `produces` and `reads` are tables and assets, as subjects name them.
    `promise` is by when an instance is to have succeeded. `quality` is who tells whether what a run made is good, which it must be to
    count; "" where nobody needs to.
    A `node` is one that stands for a project (`project_rules`): it has no trigger, and its instances are made when others need them.
    """

    name: str
    project: str
    owner: str
    calendar: Calendar
    trigger: Trigger
    since: BusinessTime
    needs: tuple[Dependency, ...] = ()
    produces: tuple[str, ...] = ()
    receiver: str | None = None
    parts: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    promise: Until | None = None
    node: bool = False
    quality: str = ""

    @property
    def virtual(self) -> bool:
        return self.receiver is None

    @property
    def has_instances(self) -> bool:
        """Whether triggers make instances. A virtual job that waits for nothing has reports alone."""
        return not self.virtual or bool(self.needs)


def producers(jobs: Iterable[DataJob]) -> Mapping[str, Sequence[DataJob]]:
    """Who produces each table and asset, as `data_name` names it."""
    found: dict[str, list[DataJob]] = {}
    for job in jobs:
        for data in job.produces:
            found.setdefault(data, []).append(job)
    return found


@dataclass(frozen=True, slots=True)
class Requirement:
    """What one instance waits for, by the number of the edge in `DataJob.needs`.

    Those of a weak edge are in a group. `opens_at` is when the trigger of their business time is, or its period is over.
    """

    edge: int
    subject: Subject
    opens_at: datetime | None = None


def requirements(
    job: DataJob, time: BusinessTime, jobs: Mapping[str, DataJob], origin: str, is_in_backfill: Callable[[str, str], bool]
) -> tuple[Requirement, ...]:
    """What the instance of a job for this business time waits for.

    Periods before the `since` of an upstream job are not waited for. In a backfill, runs of the same backfill are, where
    `is_in_backfill(job, biz)`, and scheduled ones elsewhere; its nodes are its own.
    """
    found: dict[tuple[int, Subject], Requirement] = {}
    for number, edge in enumerate(job.needs):
        upstream = jobs.get(edge.upstream.job) if isinstance(edge.upstream, JobRun) else None
        for one, biz in _times(edge.offsets, job.calendar, edge.calendar, time):
            is_made_here = upstream is not None and origin != SCHEDULED and (upstream.node or is_in_backfill(upstream.name, biz))
            if upstream is not None and one < upstream.since and not is_made_here:
                continue
            for subject in _subjects(edge, upstream, one, biz, origin if is_made_here else SCHEDULED):
                # Two hours may be one partition, which opens with the first of them.
                found.setdefault((number, subject), Requirement(number, subject, opens_at(edge, upstream, one)))
    return tuple(found.values())


def left_out(
    job: DataJob, time: BusinessTime, jobs: Mapping[str, DataJob], backfill: Collection[tuple[str, str]]
) -> Iterator[tuple[DataJob, str]]:
    """The runs of other jobs that the instance of a backfill does not wait for although its edges name them, because they are of times
    before the `since` of their job, and not in the backfill: each job with its business time."""
    for edge in job.needs:
        upstream = jobs.get(edge.upstream.job) if isinstance(edge.upstream, JobRun) else None
        # The first run of a job that waits for its own run before has none.
        if upstream is None or upstream.node or upstream.name == job.name:
            continue
        for one, biz in _times(edge.offsets, job.calendar, edge.calendar, time):
            if one < upstream.since and (upstream.name, biz) not in backfill:
                yield upstream, biz


def groups(job: DataJob, needs: Sequence[Requirement], trigger_of: Callable[[], datetime]) -> tuple[Group, ...]:
    """The groups of what an instance needs: one for each weak edge. `trigger_of` finds out its trigger, which most do not need."""
    edges = sorted({need.edge for need in needs if need.opens_at is not None})
    if not edges:
        return ()
    trigger = trigger_of()
    rules = [(edge, job.needs[edge].rule) for edge in edges]
    zone = job.calendar.zone
    return tuple(
        Group(edge, rule.strength, None if rule.until is None else rule.until.instant(trigger, zone), rule.waits_for_failed)
        for edge, rule in rules
    )


def times_of(job: DataJob, edge: Dependency, time: BusinessTime) -> list[BusinessTime]:
    """The times of an upstream that an edge of a job needs for one of its business times."""
    return [one for one, _ in _times(edge.offsets, job.calendar, edge.calendar, time)]


def opens_at(edge: Dependency, upstream: DataJob | None, time: BusinessTime) -> datetime | None:
    """The `Requirement.opens_at` of a time of an edge. `upstream` is None for data."""
    if edge.rule.is_strong:
        return None
    return edge.calendar.end(time) if upstream is None else upstream.trigger.instant(edge.calendar, time)


@lru_cache(maxsize=2**12)
def _times(offsets: Offsets, down: Calendar, up: Calendar, time: BusinessTime) -> tuple[tuple[BusinessTime, str], ...]:
    """The upstream times with their texts. At one trigger many jobs ask for the same."""
    return tuple((one, up.text(one)) for one in upstream_times(offsets, down, up, time))


def _subjects(edge: Dependency, upstream: DataJob | None, time: BusinessTime, biz: str, origin: str) -> Iterator[Subject]:
    """What one period of an edge is. The whole of a job with parts is all of them."""
    if not isinstance(edge.upstream, JobRun):
        yield edge.upstream.subject(edge.calendar, time)
        return
    parts = (edge.upstream.part,) if edge.upstream.part or upstream is None else upstream.parts or ("",)
    for part in parts:
        yield run_subject(edge.upstream.job, biz, origin, part)


@lru_cache(maxsize=2**14)
def run_subject(job: str, biz: str, origin: str = SCHEDULED, part: str = "") -> Subject:
    """The run of a job, by the text of its business time. Many jobs wait for the same."""
    more = {name: value for name, value in ((BACKFILL, origin), (PART, part)) if value}
    return Subject(key_of(JOB, job, biz=biz, **more))
