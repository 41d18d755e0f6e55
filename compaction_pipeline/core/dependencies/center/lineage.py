"""Which jobs should wait for which, by what they read and what they make; and which waits have no such reason.

A job that reads what a job of the same or a shorter period makes waits for all of its own period. One that reads what it makes itself
waits for its run before. Any other wait is proposed, never added: nobody but a person knows which day an hour needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any

from compaction_pipeline.core.dependencies.center.jobs import DataJob, producers
from compaction_pipeline.core.dependencies.center.nesting import is_finer
from compaction_pipeline.core.dependencies.center.offset_rules import check
from compaction_pipeline.core.dependencies.center.offsets import Offsets
from compaction_pipeline.core.dependencies.center.subjects import ASSET, JOB
from compaction_pipeline.core.dependencies.center.upstreams import JobRun, data_name
from compaction_pipeline.core.errors import ConfigError

FROM_LINEAGE = "from-lineage"
"""The key of a need that nobody wrote."""
UNKNOWN_SQL = "unknown-sql"
"""The key of a job that says what of its SQL was not understood when it was saved. Nobody writes it."""


class LineageMode(str, Enum):
    """What is done with waits that lineage asks for: said, or added when a project is saved."""

    SUGGEST = "suggest"
    AUTOMATIC = "automatic"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A job should wait for `upstream` (job=… or table=…), because it reads `data`. `times` is "" when only a person can say which.

    `added` says whether saving the project added it.
    """

    job: str
    owner: str
    upstream: str
    times: str
    data: tuple[str, ...]
    added: bool = False

    def __str__(self) -> str:
        times = f", times {self.times}" if self.times else ", and say which times"
        return f"{self.job}: {'waits' if self.added else 'should wait'} for {self.upstream}{times}, because it reads {', '.join(self.data)}"


@dataclass(frozen=True, slots=True)
class Alert:
    """Something about a job that its owner should look at."""

    job: str
    owner: str
    text: str

    def __str__(self) -> str:
        return f"{self.job}: {self.text}"


def suggestions(jobs: Iterable[DataJob], known: Mapping[str, DataJob], now: datetime) -> list[Suggestion]:
    """What these jobs read and do not wait for, by job. `known` are all jobs."""
    makers = producers(known.values())
    return [one for job in jobs if not job.virtual for one in _of_job(job, makers, now)]


def unfounded(jobs: Iterable[DataJob], known: Mapping[str, DataJob]) -> list[Alert]:
    """Waits for jobs that make nothing of what these read. Jobs of which nobody knows what they read, or make, are left out."""
    return [one for job in jobs if job.reads for one in _unfounded(job, known)]


def added_to(file: Mapping[str, Any], found: Sequence[Suggestion]) -> tuple[Mapping[str, Any], list[Suggestion]]:
    """The file of a project with the needs that lineage asks for, and the suggestions, each with whether it was added."""
    judged = [replace(one, added=one.times != "" and one.upstream.startswith(f"{JOB}=")) for one in found]
    added: dict[str, list[Mapping[str, Any]]] = {}
    for one in judged:
        if one.added:
            need = {JOB: one.upstream.removeprefix(f"{JOB}="), "times": one.times, FROM_LINEAGE: True}
            added.setdefault(one.job, []).append(need)
    jobs = [{**job, "needs": [*job.get("needs", ()), *added[job["name"]]]} if job["name"] in added else job for job in file["jobs"]]
    return {**file, "jobs": jobs}, judged


def with_asset_reads(file: Mapping[str, Any], reads: Mapping[str, Sequence[str]]) -> Mapping[str, Any]:
    """The file of a project where each job that makes assets reads what these depend on, by `reads` of assets.

    Jobs that say what they read, or have SQL, are left as they are.
    """
    if not isinstance(file.get("jobs"), list):
        return file
    return {**file, "jobs": [_reading(job, reads) for job in file["jobs"]]}


def _reading(job: Any, reads: Mapping[str, Sequence[str]]) -> Any:
    if not isinstance(job, Mapping) or not isinstance(job.get("produces"), list) or "reads" in job or "sql" in job:
        return job
    made = [one.removeprefix(f"{ASSET}=") for one in job["produces"] if isinstance(one, str) and one.startswith(f"{ASSET}=")]
    found = sorted({f"{ASSET}={one}" for asset in made for one in reads.get(asset, ())} - set(job["produces"]))
    return {**job, "reads": found} if found else job


def without_lineage(file: Mapping[str, Any]) -> Mapping[str, Any]:
    """The file of a project without needs that nobody wrote. They are found anew at each save."""
    if not isinstance(file.get("jobs"), list):
        return file
    return {**file, "jobs": [_hand_written(job) for job in file["jobs"]]}


def _hand_written(job: Any) -> Any:
    if not isinstance(job, Mapping) or not isinstance(job.get("needs"), list):
        return job
    return {**job, "needs": [need for need in job["needs"] if not (isinstance(need, Mapping) and need.get(FROM_LINEAGE) is True)]}


def _of_job(job: DataJob, makers: Mapping[str, Sequence[DataJob]], now: datetime) -> Iterator[Suggestion]:
    awaited = {edge.upstream.job for edge in job.needs if isinstance(edge.upstream, JobRun)}
    data_of = {data_name(edge.upstream) for edge in job.needs if not isinstance(edge.upstream, JobRun)}
    missing: dict[str, list[str]] = {}
    for data in job.reads:
        for maker in makers.get(data, ()):
            missing.setdefault(maker.name, []).append(data)
        if data not in makers and data not in data_of:
            yield Suggestion(job.name, job.owner, data, "", (data,))
    by_name = {maker.name: maker for data in job.reads for maker in makers.get(data, ())}
    for name, read in sorted(missing.items()):
        # Who waits for the table itself, or for the job in any way, has decided.
        if name not in awaited and not data_of.issuperset(read):
            yield Suggestion(job.name, job.owner, f"{JOB}={name}", _times(job, by_name[name], now), tuple(read))


def _times(job: DataJob, maker: DataJob, now: datetime) -> str:
    """Which times of a job that makes data another one needs; "" when only a person can say."""
    try:
        finer = is_finer(maker.calendar.period, job.calendar.period)
    except ConfigError:
        return ""
    if not finer and maker.calendar.period is not job.calendar.period:
        return ""
    times = "-1" if maker.name == job.name else "whole" if finer else "0"
    return "" if check(Offsets.parse(times), job.calendar, maker.calendar, now) else times


def _unfounded(job: DataJob, known: Mapping[str, DataJob]) -> Iterator[Alert]:
    for edge in job.needs:
        upstream = known.get(edge.upstream.job) if isinstance(edge.upstream, JobRun) else None
        if upstream is not None and upstream.produces and not set(upstream.produces) & set(job.reads):
            made = ", ".join(upstream.produces)
            yield Alert(job.name, job.owner, f"it waits for job={upstream.name} but reads nothing of what that makes ({made})")
