"""What must run again, beside an enumeration that shares nothing with it. GRAPHS says how many random graphs (default 30)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from itertools import pairwise
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.dependencies.center.jobs import DataJob
from compaction_pipeline.core.dependencies.center.projects import project_of
from compaction_pipeline.core.dependencies.center.repair import JobRepair, _added, layers
from compaction_pipeline_tests.scenarios.naive_calendar import Kind, Span, span_at, spans, trigger_at, upstream_spans
from compaction_pipeline_tests.scenarios.random_projects import TIMES, TRIGGERS

GRAPHS = int(os.environ.get("GRAPHS", "30"))
# Before clocks go forward and back in Berlin, at the end of a year and of a month.
NOWS = [datetime(2026, *day, 12, 20, tzinfo=timezone.utc) for day in ((3, 31), (10, 27), (1, 3), (5, 31))]
BACK = {"hour": 60, "day": 12, "week": 3, "month": 2}


def random_jobs(random: Random, now: datetime) -> list[dict[str, Any]]:
    zone = random.choice(("UTC", "Europe/Berlin"))
    jobs: list[dict[str, Any]] = []
    for number in range(random.randint(4, 10)):
        period = random.choice(("hour", "hour", "day", "day", "day", "week", "month"))
        kind = Kind(period, zone)
        here = spans(kind).index(span_at(kind, now))
        job: dict[str, Any] = {"name": f"j{number}", "period": period, "zone": zone, "trigger": random.choice(TRIGGERS[period])}
        job |= {"since": spans(kind)[here - random.randint(1, BACK[period])].label, "needs": [], "produces": []}
        before = [one for one in jobs if (period, one["period"]) in TIMES]
        for upstream in random.sample(before, min(len(before), random.randint(0, 3))):
            times = random.choice(TIMES[period, upstream["period"]])
            if upstream["produces"] and random.random() < 0.6:
                job["needs"].append({"table": f"lake.a.{upstream['name']}", "period": upstream["period"], "times": times})
            else:
                job["needs"].append({"job": upstream["name"], "times": times})
        if random.random() < 0.2:
            job["needs"].append({"job": job["name"], "times": random.choice(("-1", "{-1,-3}", "[-2,-1]"))})
        if random.random() < 0.3:
            job["produces"].append(f"table=lake.a.{job['name']}")
        jobs.append(job)
    return jobs


def enumerated(jobs: Sequence[Mapping[str, Any]], start: tuple[str, str], now: datetime) -> set[tuple[str, str]]:
    """The runs that follow from one, by going through all runs and all that each needs."""
    by_name = {job["name"]: job for job in jobs}
    needs = {(job["name"], span.label): set(_needed(job, span.label, by_name)) for job in jobs for span in _made(job, now)}
    found = {start} & needs.keys()
    while True:
        more = {run for run, needed in needs.items() if run not in found and needed & found}
        if not more:
            return found
        found |= more


def _made(job: Mapping[str, Any], now: datetime) -> list[Span]:
    kind = Kind(job["period"], job["zone"])
    here, first = spans(kind).index(span_at(kind, now)), [span.label for span in spans(kind)].index(job["since"])
    return [one for one in spans(kind)[first : here + 1] if trigger_at(kind, job["trigger"], one.label) <= now]


def _needed(job: Mapping[str, Any], label: str, by_name: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    kind, found = Kind(job["period"], job["zone"]), []
    for need in job["needs"]:
        name = need["job"] if "job" in need else need["table"].removeprefix("lake.a.")
        up = Kind(by_name[name]["period"], job["zone"])
        found += [(name, span.label) for span in upstream_spans(need["times"], kind, up, label)]
    return found


def known(jobs: Sequence[Mapping[str, Any]], now: datetime) -> Mapping[str, DataJob]:
    return project_of({"project": "p", "receiver": "airflow", "jobs": list(jobs)}, {}, {}, now).jobs


def runs(found: Sequence[Sequence[JobRepair]], jobs: Mapping[str, DataJob]) -> set[tuple[str, str]]:
    repairs = [(jobs[one.job], first, last) for layer in found for one in layer for first, last in one.spans]
    return {(job.name, job.calendar.text(time)) for job, first, last in repairs for time in job.calendar.run(first, last)}


def test_repair_equals_the_enumeration_of_all_runs() -> None:
    random = Random(int(os.environ.get("COMPACTION_SEED", "1")))
    sizes = []
    for _ in range(GRAPHS):
        now = random.choice(NOWS)
        given_jobs = random_jobs(random, now)
        jobs = known(given_jobs, now)
        first = random.choice(given_jobs[:3])
        made = _made(first, now)
        if not made:
            continue
        start = random.choice(made).label
        number = jobs[first["name"]].calendar.parse(start).number
        found = layers(jobs, first["name"], number, number, now)
        wanted = enumerated(given_jobs, (first["name"], start), now)
        assert runs(found, jobs) == wanted, (now, start, given_jobs)
        depth = {one.job: place for place, layer in enumerate(found) for one in layer}
        sizes.append((len(wanted), len(found)))
        for job in given_jobs:
            for need in job["needs"]:
                upstream = need.get("job") or need["table"].removeprefix("lake.a.")
                if job["name"] in depth and upstream in depth and upstream != job["name"]:
                    assert depth[upstream] < depth[job["name"]]
    assert max(size for size, _ in sizes) > 20
    assert max(deep for _, deep in sizes) > 2


def test_a_job_that_needs_its_own_run_before_runs_again_to_this_day() -> None:
    now = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
    jobs = known([{"name": "own", "period": "day", "since": "2026-01-01", "needs": [{"job": "own", "times": "-1"}]}], now)
    day = jobs["own"].calendar.parse("2026-01-20").number
    assert layers(jobs, "own", day, day, now) == [[JobRepair("own", ((day, day + 11),))]]
    assert layers(jobs, "own", day - 40, day - 30, now) == []


def test_what_a_job_makes_is_followed_through_its_tables_and_its_assets() -> None:
    now = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
    files = [
        {"name": "load", "period": "hour", "since": "2026-01-01T00", "produces": ["table=lake.a.t", "asset=a/b"]},
        {"name": "day", "period": "day", "since": "2026-01-01", "needs": [{"table": "lake.a.t"}]},
        {"name": "mark", "period": "day", "since": "2026-01-01", "needs": [{"table": "lake.a.t", "watermark": True}]},
        {"name": "part", "period": "hour", "since": "2026-01-01T00", "needs": [{"table": "lake.a.t", "partition": "h={%Y%m%d%H}"}]},
        {"name": "asset", "period": "week", "since": "2026-W01", "needs": [{"asset": "a/b", "period": "day", "times": "whole"}]},
    ]
    jobs = known(files, now)
    hour = jobs["load"].calendar.parse("2026-01-20T23").number
    (_, second) = layers(jobs, "load", hour, hour + 1, now)
    assert {one.job: one.count for one in second} == {"day": 2, "mark": 2, "part": 2, "asset": 1}


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), max_size=12))
def test_spans_hold_each_number_once_and_give_what_is_new(added: list[tuple[int, int]]) -> None:
    kept: list[tuple[int, int]] = []
    held: set[int] = set()
    for first, length in added:
        span = set(range(first, first + length))
        new = [number for one, last in _added(kept, first, first + length - 1) for number in range(one, last + 1)]
        assert sorted(new) == sorted(span - held)
        held |= span
        assert [number for one, last in kept for number in range(one, last + 1)] == sorted(held)
        assert all(one[1] + 1 < two[0] for one, two in pairwise(kept))
