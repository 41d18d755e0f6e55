"""What must run again after some runs of a job did, layer by layer: all that was made of their data, and of the data of that.

The ways are those of the needs, backwards (`offsets.downstream_runs`), and those from what a job `produces` to who needs that data.
Weak needs count. What was not made yet is left out: it will run with the new data by itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from compaction_pipeline.core.dependencies.center.graph import components
from compaction_pipeline.core.dependencies.center.jobs import DataJob, Dependency, producers
from compaction_pipeline.core.dependencies.center.offsets import downstream_runs
from compaction_pipeline.core.dependencies.center.periods import Calendar
from compaction_pipeline.core.dependencies.center.upstreams import JobRun, data_name

Spans = list[tuple[int, int]]
"""Numbers of business times as runs from a first to a last, in order, none of which touches the next."""


@dataclass(frozen=True, slots=True)
class JobRepair:
    """The business times of one job that must run again."""

    job: str
    spans: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        return sum(last - first + 1 for first, last in self.spans)

    def without(self, first: int, last: int) -> JobRepair:
        """The same without the numbers from `first` to `last`."""
        parts = [part for one, behind in self.spans for part in ((one, min(behind, first - 1)), (max(one, last + 1), behind))]
        return JobRepair(self.job, tuple(part for part in parts if part[0] <= part[1]))


def layers(jobs: Mapping[str, DataJob], start: str, first: int, last: int, now: datetime) -> list[list[JobRepair]]:
    """The runs that follow from those of `start` with the numbers `first` to `last`, with these, by job.

    Each layer depends on layers before it alone, apart from jobs that wait for each other, which are in one layer.
    """
    flow = _Flow(jobs, now)
    flow.add(start, first, last)
    flow.spread()
    return flow.layers(start)


@dataclass
class _Flow:
    """Spans that are marked, job by job, until nothing is added."""

    jobs: Mapping[str, DataJob]
    now: datetime
    marked: dict[str, Spans] = field(default_factory=dict)
    _behind: dict[str, list[tuple[str, Dependency]]] = field(init=False)
    _bounds: dict[str, tuple[int, int]] = field(default_factory=dict)
    _queue: deque[tuple[str, int, int]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        """Find who needs each job. A table is needed of all jobs that make it."""
        makers = producers(self.jobs.values())
        self._behind = {}
        for job in self.jobs.values():
            for edge in job.needs:
                upstream = edge.upstream
                names = (upstream.job,) if isinstance(upstream, JobRun) else [one.name for one in makers.get(data_name(upstream), ())]
                for name in names:
                    self._behind.setdefault(name, []).append((job.name, edge))

    def add(self, job: str, first: int, last: int) -> None:
        """Mark numbers of a job that exist, as far as they are not marked."""
        low, high = self._made(job)
        for span in _added(self.marked.setdefault(job, []), max(first, low), min(last, high)):
            self._queue.append((job, *span))

    def spread(self) -> None:
        while self._queue:
            upstream, first, last = self._queue.popleft()
            calendar = self.jobs[upstream].calendar
            for name, edge in self._behind.get(upstream, ()):
                down = self.jobs[name].calendar
                start, end = (first, last) if isinstance(edge.upstream, JobRun) else _windows(calendar, edge.calendar, first, last)
                for span in downstream_runs(edge.offsets, down, edge.calendar, start, end):
                    self.add(name, *span)

    def layers(self, start: str) -> list[list[JobRepair]]:
        """The jobs by the longest way from the first one, without those that have nothing."""
        found = sorted(name for name, spans in self.marked.items() if spans)
        numbers = {name: number for number, name in enumerate(found)}
        ends = [(numbers[up], numbers[name]) for up in found for name, _ in self._behind.get(up, ()) if name in numbers]
        groups = components(len(found), ends)
        group_of = {member: place for place, members in enumerate(groups) for member in members}
        depth = [0] * len(groups)
        # An edge leads to an earlier group, so from the last group on all that leads to a group was seen before it.
        leaving: dict[int, list[int]] = {}
        for up, down in ends:
            leaving.setdefault(group_of[up], []).append(group_of[down])
        for place in reversed(range(len(groups))):
            for other in leaving.get(place, ()):
                if other != place:
                    depth[other] = max(depth[other], depth[place] + 1)
        by_depth: dict[int, list[JobRepair]] = {}
        for name in found:
            repair = JobRepair(name, tuple(self.marked[name]))
            by_depth.setdefault(depth[group_of[numbers[name]]], []).append(repair)
        return [by_depth[at] for at in sorted(by_depth)]

    def _made(self, name: str) -> tuple[int, int]:
        """The first and the last number of a job whose instance may have been made."""
        bounds = self._bounds.get(name)
        if bounds is None:
            job = self.jobs[name]
            last = job.calendar.at(self.now)
            is_due = job.trigger.instant(job.calendar, last) <= self.now
            bounds = self._bounds[name] = (job.since.number, last.number if is_due else last.number - 1)
        return bounds


def _windows(maker: Calendar, edge: Calendar, first: int, last: int) -> tuple[int, int]:
    """The windows of an edge that overlap what a job made."""
    return edge.number_at(maker.opens(first)), edge.number_at(maker.opens(last + 1) - 1)


def _added(spans: Spans, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Put a span among others, and give its parts that were not among them."""
    if first > last:
        return
    place = bisect_left(spans, (first,))
    if place and spans[place - 1][1] >= first - 1:
        place -= 1
    low, high, free = first, last, first
    new, end = [], place
    while end < len(spans) and spans[end][0] <= last + 1:
        one, behind = spans[end]
        if free < one:
            new.append((free, min(one - 1, last)))
        free = max(free, behind + 1)
        low, high = min(low, one), max(high, behind)
        end += 1
    if free <= last:
        new.append((free, last))
    spans[place:end] = [(low, high)]
    yield from new
