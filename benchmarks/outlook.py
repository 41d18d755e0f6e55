"""Measures what looks ahead in the dependency center: repairs and forecasts.

    python benchmarks/outlook.py --jobs 500     # a first look
    python benchmarks/outlook.py                # 10,000 jobs in 8 layers, 30 days

Each job of a layer needs 1.5 jobs of the layer before, a tenth of them their run of the day before. `repair` asks for all that follows from
30 days of the first job, and compares it with an enumeration that goes through all runs and what each needs. `forecast` asks for all jobs.
Goal: a repair in less than 5 s. The last line is `repair <seconds>`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

from measure import load_average, positive

from compaction_pipeline.core.dependencies.center.jobs import SCHEDULED, requirements
from compaction_pipeline.core.dependencies.center.subjects import BIZ, JOB, named_in
from compaction_pipeline.services.dependencies.center import DependencyCenter
from compaction_pipeline.services.dependencies.definitions import Definitions, Jobs
from compaction_pipeline.services.dependencies.forecast import ForecastJobs
from compaction_pipeline.services.dependencies.repair import Repair, RepairJobs
from compaction_pipeline.storage.stores import open_stores

LAYERS, DAYS = 8, 30
NOW = datetime(2026, 1, DAYS, 12, tzinfo=timezone.utc)


def jobs_of(count: int, random: Random) -> list[dict[str, Any]]:
    layers: list[list[str]] = [["root"]]
    jobs: list[dict[str, Any]] = [{"name": "root", "period": "day", "since": "2026-01-01"}]
    for layer in range(1, LAYERS):
        names = [f"job{layer}.{number}" for number in range((count - 1) // (LAYERS - 1))]
        for number, name in enumerate(names):
            needs: list[dict[str, Any]] = [{"job": random.choice(layers[-1])} for _ in range(1 + number % 2)]
            if number % 10 == 0:
                needs.append({"job": name, "times": -1})
            jobs.append({"name": name, "period": "day", "since": "2026-01-01", "needs": needs})
        layers.append(names)
    return jobs


def enumerated(jobs: Jobs) -> set[tuple[str, str]]:
    """All runs that follow from those of the first job."""
    behind: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for job in jobs.own.values():
        for time_ in job.calendar.between(job.calendar.start(job.since), NOW):
            for need in requirements(job, time_, jobs.by_name, SCHEDULED, lambda name, biz: False):
                named = named_in(need.subject.key)
                behind.setdefault((named[JOB], named[BIZ]), []).append((job.name, job.calendar.text(time_)))
    found: set[tuple[str, str]] = set()
    open_runs = [("root", f"2026-01-{day:02}") for day in range(1, DAYS + 1)]
    while open_runs:
        run = open_runs.pop()
        if run not in found:
            found.add(run)
            open_runs += behind.get(run, [])
    return found


def runs(found: Repair, jobs: Jobs) -> set[tuple[str, str]]:
    listed = set()
    for one in (one for layer in found.layers for one in layer):
        calendar = jobs.own[one.job].calendar
        for text in one.times:
            first, _, last = text.partition("..")
            times = calendar.run(calendar.parse(first).number, calendar.parse(last or first).number)
            listed |= {(one.job, calendar.text(time_)) for time_ in times}
    return listed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=positive, default=10_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="outlook-benchmark-") as folder:
        stores = open_stores(f"sqlite:///{Path(folder) / 'state.db'}")
        definitions = Definitions(stores.center)
        center = DependencyCenter(stores.center, definitions, lambda: NOW)
        center.save_project({"project": "p", "receiver": "nobody", "jobs": jobs_of(arguments.jobs, Random(7))}, many=True)
        began, cpu = time.monotonic(), time.process_time()
        found = RepairJobs(center, definitions, lambda: NOW).repair("root", "2026-01-01", f"2026-01-{DAYS}")
        took, cpu = time.monotonic() - began, time.process_time() - cpu
        print(f"repair    {found.count:,} runs in {len(found.layers)} layers: {took:.2f} s ({cpu:.2f} CPU-s); {load_average()}", flush=True)
        jobs = definitions.jobs()
        if runs(found, jobs) != enumerated(jobs):
            raise SystemExit("the repair is not what the enumeration finds")
        began, cpu = time.monotonic(), time.process_time()
        ahead = ForecastJobs(stores.center_runs, definitions, lambda: NOW + timedelta(hours=1)).forecast(hours=24)
        print(
            f"forecast  {len(ahead.instances):,} instances: {time.monotonic() - began:.2f} s ({time.process_time() - cpu:.2f} CPU-s); "
            f"{load_average()}"
        )
    print(f"repair {took:.2f}")


if __name__ == "__main__":
    main()
