"""Jobs of files of projects, for the oracle of the dependency center. It shares nothing with `core.dependencies`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Protocol, TypeVar
from zoneinfo import ZoneInfo

from compaction_pipeline_tests.scenarios.naive_calendar import Kind, Span, span_at, span_of, trigger_at

_FIRST_TRIGGERS = {"hour": "0", "day": "00:00", "week": "MON 00:00", "month": "1 00:00"}


@dataclass
class Job:
    """A job as its file says."""

    name: str
    project: str
    kind: Kind
    trigger: str
    since: Span
    receiver: str | None
    parts: tuple[str, ...]
    needs: Sequence[Mapping[str, Any]]

    @property
    def has_instances(self) -> bool:
        return self.receiver is not None or bool(self.needs)


def to_others(job: Job) -> tuple[Span, str, tuple[str, ...]]:
    """What jobs of other projects that wait for it go by."""
    return job.since, job.trigger, job.parts


def data_subject(need: Mapping[str, Any], kind: Kind, span: Span) -> tuple[str, int]:
    """The key of data of a period, and how far it must be."""
    start, end = (at.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%MZ") for at in (span.start, span.end))
    if "asset" in need:
        return f"asset={need['asset']} && window={start}/{end}", 1
    table = f"table={need['table']}"
    if need.get("watermark"):
        return f"{table} && watermark=", int(span.end.timestamp()) * 1000
    if "partition" not in need:
        return f"{table} && window={start}/{end}", 1
    local = span.start.astimezone(ZoneInfo(kind.zone))
    named = local.strftime(str(need["partition"]).replace("{", "").replace("}", ""))
    return " && ".join([table, *sorted(named.split("/"))]), 1


LENGTH = {"hour": 1, "day": 24, "week": 168, "month": 720}
_J = TypeVar("_J", bound="HasKind")


class HasKind(Protocol):
    """A job of any kind of test."""

    kind: Kind


def covering(kind: Kind, jobs: Sequence[_J]) -> Iterator[tuple[_J, str]]:
    """The jobs of a project before that one of a kind waits for, and at which times: those whose period is not longer, for all of their
    times in its own; or else those of the shortest longer period, for the time that holds its own."""
    length = LENGTH[kind.period]
    wanted = [one for one in jobs if LENGTH[one.kind.period] <= length]
    if not wanted:
        shortest = min((LENGTH[one.kind.period] for one in jobs), default=0)
        wanted = [one for one in jobs if LENGTH[one.kind.period] == shortest]
    for one in wanted:
        yield one, "whole" if LENGTH[one.kind.period] < length else "0"


def needs_by_rule(job: Job, after: Sequence[str], jobs: Iterable[Job]) -> Sequence[tuple[Mapping[str, Any], Kind]]:
    """What a job waits for because its project comes after others, with the calendars of that."""
    if job.receiver is None:
        return []
    return [
        ({"job": one.name, "times": times}, one.kind)
        for project in after
        for one, times in covering(job.kind, [one for one in jobs if one.project == project])
    ]


def job_of(file: Mapping[str, Any], given: Mapping[str, Any], before: Job | None, now: datetime) -> Job:
    """A job of a file. `before` is the job as it was."""
    kind = Kind(given["period"], given.get("zone", file.get("zone", "UTC")))
    trigger = str(given.get("trigger", _FIRST_TRIGGERS[kind.period]))
    first = span_at(kind, now)
    if trigger_at(kind, trigger, first.label) < now:
        first = span_at(kind, first.end)
    if "since" in given:
        first = span_of(kind, given["since"])
    elif before is not None and before.kind == kind:
        first = before.since
    receiver = None if given.get("virtual") or "made-by" in given else given.get("receiver", file.get("receiver"))
    needs = given.get("needs", [given["made-by"]] if "made-by" in given else [])
    return Job(given["name"], file["project"], kind, trigger, first, receiver, tuple(given.get("parts", ())), needs)
