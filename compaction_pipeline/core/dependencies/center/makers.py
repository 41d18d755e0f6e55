"""Finds who makes the data that jobs need.

In a backfill, what needs data waits for the runs of this backfill that make it anew, because the data is there already, as it was before
them.

Jobs that lead to each other, by what they need or by what they make, do not wait for each other like this: two may change one table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from compaction_pipeline.core.dependencies.center.graph import components
from compaction_pipeline.core.dependencies.center.jobs import DataJob, Requirement, opens_at, producers, run_subject, times_of
from compaction_pipeline.core.dependencies.center.periods import BusinessTime
from compaction_pipeline.core.dependencies.center.upstreams import JobRun, data_name

_MICRO = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Makers:
    """The jobs that make each table and asset, and the group of each job: those of one group lead to each other."""

    of_data: Mapping[str, Sequence[DataJob]]
    group_of: Mapping[str, int]

    def runs(self, job: DataJob, time: BusinessTime, origin: str, is_in_backfill: Callable[[str, str], bool]) -> Iterator[Requirement]:
        """The runs of a backfill that make data of which the instance of a job for this business time waits, by its edges on this data."""
        for number, edge in enumerate(job.needs):
            makers = () if isinstance(edge.upstream, JobRun) else self.of_data.get(data_name(edge.upstream), ())
            for maker in makers:
                if self.group_of[maker.name] == self.group_of[job.name]:
                    continue
                for one in times_of(job, edge, time):
                    first, last = (maker.calendar.at(at) for at in (edge.calendar.start(one), edge.calendar.end(one) - _MICRO))
                    for biz in map(maker.calendar.text, maker.calendar.run(first.number, last.number)):
                        if is_in_backfill(maker.name, biz):
                            yield Requirement(number, run_subject(maker.name, biz, origin), opens_at(edge, None, one))


def makers_of(jobs: Mapping[str, DataJob]) -> Makers:
    """The makers of all data of these jobs."""
    of_data = producers(jobs.values())
    if not of_data:
        return Makers({}, {})
    numbers = {name: number for number, name in enumerate(jobs)}
    ends: list[tuple[int, int]] = []
    for job in jobs.values():
        for upstream in (edge.upstream for edge in job.needs):
            names = [upstream.job] if isinstance(upstream, JobRun) else [one.name for one in of_data.get(data_name(upstream), ())]
            ends += [(numbers[job.name], numbers[name]) for name in names]
    groups = components(len(numbers), ends)
    place = {member: number for number, members in enumerate(groups) for member in members}
    return Makers(of_data, {name: place[number] for name, number in numbers.items()})
