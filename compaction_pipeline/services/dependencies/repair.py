"""Shows what must run again after a job did, and launches it as a backfill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compaction_pipeline.core.dependencies.center.repair import JobRepair, layers
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.services.dependencies.center import DependencyCenter
from compaction_pipeline.services.dependencies.definitions import Definitions, Jobs

MOST_REPAIRED = 500_000


@dataclass(frozen=True, slots=True)
class RepairedJob:
    """The business times of a job that must run again, as texts like `2026-01-01` or `2026-01-01..2026-01-07`, and how many they are.

    Nobody starts a `virtual` job: it succeeds by itself, also that of the backfill, and what waits for it runs again.
    """

    job: str
    owner: str
    times: tuple[str, ...]
    count: int
    virtual: bool


@dataclass(frozen=True, slots=True)
class Repair:
    """What must run again, layer by layer: each depends on those before it. `count` are the instances that somebody starts, and
    `launched` how many of them were made now."""

    layers: tuple[tuple[RepairedJob, ...], ...]
    count: int
    launched: int = 0


class RepairJobs:
    """One verb: repair."""

    def __init__(self, center: DependencyCenter, definitions: Definitions, clock: Clock) -> None:
        self._center = center
        self._definitions = definitions
        self._clock = clock

    def repair(self, job: str, first: str, last: str, *, only_downstream: bool = False, launch: str | None = None) -> Repair:
        """Return what must run again after the runs of a job from one business time to another, with these; with `only_downstream`,
        without them. With `launch`, make all of it as a backfill of this name.

        What was not made yet is left out. Raises NotFoundError, ConfigError, and ChangedMeanwhile when a project changed meanwhile.
        """
        jobs = self._definitions.jobs()
        if launch is not None and not only_downstream and not jobs.get(job).has_instances:
            raise ConfigError(
                f"the job {job!r} is only reported, so nobody runs it again here: report its runs anew, and then launch what follows from "
                "them (only downstream)"
            )
        calendar = jobs.get(job).calendar
        start, end = calendar.parse(first), calendar.parse(last)
        if end < start:
            raise ConfigError(f"the range from {first!r} to {last!r} is empty: write its earlier end first")
        found = layers(jobs.by_name, job, start.number, end.number, self._clock())
        if only_downstream:
            found = [[one.without(start.number, end.number) if one.job == job else one for one in layer] for layer in found]
        # Roots, ends and shadows of projects are nobody's to run.
        own = [[one for one in layer if one.job in jobs.own and one.spans] for layer in found]
        made_here = [one for layer in own for one in layer if jobs.own[one.job].has_instances]
        runs = [run for one in made_here for run in _runs(jobs, one)]
        count = sum(not jobs.own[name].virtual for name, _ in runs)
        if len(runs) > MOST_REPAIRED:
            raise ConfigError(f"{len(runs)} instances would run again, more than {MOST_REPAIRED}: repair a shorter range")
        made = 0
        if launch is not None:
            if not count:
                raise ConfigError(f"nothing of {job!r} from {first!r} to {last!r} has run or is due, so there is nothing to launch")
            made = self._center.backfill_runs(launch, runs)
        return Repair(tuple(tuple(_shown(jobs, one) for one in layer) for layer in own if layer), count, made)


def _runs(jobs: Jobs, one: JobRepair) -> Sequence[tuple[str, str]]:
    calendar = jobs.own[one.job].calendar
    return [(one.job, calendar.text(time)) for first, last in one.spans for time in calendar.run(first, last)]


def _shown(jobs: Jobs, one: JobRepair) -> RepairedJob:
    job = jobs.own[one.job]
    times = [job.calendar.run(first, last) for first, last in one.spans]
    texts = [(job.calendar.text(span[0]), job.calendar.text(span[-1])) for span in times if span]
    shown = tuple(first if first == last else f"{first}..{last}" for first, last in texts)
    return RepairedJob(job.name, job.owner, shown, sum(len(span) for span in times), job.virtual)
