"""Measures the dependency center: a day's instances, a large fan-out, and how soon a receiver hears of what a reported run releases.

    python benchmarks/center.py --jobs 8000 --fan-out 5000 --seconds 10    # a first look
    python benchmarks/center.py                                            # the sizes that the goals are about

- `day`: so many jobs have an instance each at one trigger, with 1.5 needs each and a tenth of them 24 hours; the leader makes them.
- `fan-out`: one run succeeds that so many instances wait for, each with 3.2 needs, of which it is the last. All are released.
- `facts`: runs of virtual jobs are reported over HTTP by another process, so many a second, to a `serve` of its own. Each releases one
  instance, which is posted to a receiver in this process. The time from before the report to the arrival of the post counts.

Goals: 150,000 instances in less than 60 s; 50,000 released in 6 s, at most 10; a report's post p90 < 1.6 s, p99 < 1 s wished.
The last line is `p99 <of posts> fan-out <seconds>`, the worst of all databases.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import requests
from callback_server import Receiver, Server
from measure import load_average, positive, rss_bytes
from real_services import lasting_postgres

from compaction_pipeline.core.dependencies.center.instances import InstanceState
from compaction_pipeline.core.dependencies.center.ports import InstanceQuery
from compaction_pipeline.demo.processes import Processes, stop_on_signals
from compaction_pipeline.services.dependencies.center import DependencyCenter
from compaction_pipeline.services.dependencies.definitions import Definitions
from compaction_pipeline.services.dependencies.lead_center import LeadCenter
from compaction_pipeline.services.held_lease import Leases
from compaction_pipeline.storage.stores import open_stores

EVENING = datetime(2026, 1, 1, 23, 30, tzinfo=timezone.utc)
REPORTERS = 4
HOURS = 6
PROJECT = 50_000
PATIENCE_SECONDS = 60
PART_SECONDS = 5
MB = 1_000_000


class Center:
    """The center in this process, with a clock that goes on by itself and can be put forward."""

    def __init__(self, state_url: str) -> None:
        self.stores = open_stores(state_url)
        self._began = time.monotonic()
        self.ahead = timedelta(0)
        leases = Leases(self.stores.leases, self.now, lambda renew: nullcontext(), lambda: "benchmark")
        definitions = Definitions(self.stores.center)
        self.doors = DependencyCenter(self.stores.center, definitions, self.now)
        self.leader = LeadCenter(self.stores.center, definitions, leases)

    def now(self) -> datetime:
        return EVENING + self.ahead + timedelta(seconds=time.monotonic() - self._began)

    def passes(self) -> list[float]:
        """Do all that is to do. Return how long each pass took."""
        took = []
        while True:
            began = time.monotonic()
            done = self.leader.once()
            took.append(time.monotonic() - began)
            if done is None or not done.did_something:
                return took


def day(state_url: str, jobs: int) -> None:
    """Make the instances of a day."""
    center = Center(state_url)
    sources: list[dict[str, Any]] = [{"name": "hourly", "period": "hour", "virtual": True}]
    sources += [{"name": f"raw{number}", "period": "day", "virtual": True} for number in range(100)]
    daily = []
    for number in range(jobs):
        needs: list[dict[str, Any]] = [{"job": f"raw{number % 100}"}]
        if number % 10 == 0:
            needs.append({"job": "hourly", "times": "whole"})
        elif number % 5 < 2:
            needs.append({"job": f"raw{(number + 1) % 100}", "times": -1})
        daily.append({"name": f"job{number}", "period": "day", "needs": needs})
    began = time.monotonic()
    center.doors.save_project({"project": "sources", "jobs": sources})
    for first in range(0, jobs, PROJECT):
        center.doors.save_project({"project": f"day{first}", "receiver": "nobody", "jobs": daily[first : first + PROJECT]})
    saved = time.monotonic() - began
    center.ahead = timedelta(hours=1)
    began, cpu = time.monotonic(), time.process_time()
    center.passes()
    took, cpu = time.monotonic() - began, time.process_time() - cpu
    print(
        f"  day        {jobs:,} instances made in {took:.1f} s ({cpu:.1f} CPU-s here); their projects saved in {saved:.1f} s; "
        f"{rss():.0f} MB; {load_average()}",
        flush=True,
    )


def fan_out(state_url: str, downstreams: int) -> float:
    """Release what waits for one run. Return the seconds."""
    center = Center(state_url)
    raw = [{"name": name, "period": "day", "virtual": True, "since": "2026-01-01"} for name in ("root", "a", "b")]
    jobs = []
    for number in range(downstreams):
        more = [{"job": "a", "times": -1}] if number % 5 == 0 else []
        jobs.append({"name": f"down{number}", "period": "day", "needs": [{"job": "a"}, {"job": "b"}, *more, {"job": "root"}]})
    center.doors.save_project({"project": "fan", "receiver": "nobody", "jobs": [*raw, *jobs]})
    center.ahead = timedelta(hours=1)
    center.passes()
    for name, biz in (("a", "2026-01-01"), ("a", "2026-01-02"), ("b", "2026-01-02")):
        center.doors.report(f"job={name} && biz={biz}", InstanceState.SUCCEEDED, "benchmark")
    center.passes()
    center.doors.report("job=root && biz=2026-01-02", InstanceState.SUCCEEDED, "benchmark")
    began, cpu = time.monotonic(), time.process_time()
    passes = center.passes()
    took, cpu = time.monotonic() - began, time.process_time() - cpu
    ready = len(center.stores.center.instances(InstanceQuery(state=InstanceState.READY, most=downstreams + 1)))
    if ready != downstreams:
        raise SystemExit(f"{ready} of {downstreams} instances are ready")
    print(
        f"  fan-out    {downstreams:,} instances released in {took:.2f} s ({cpu:.2f} CPU-s here), in {len(passes)} passes of at most "
        f"{max(passes):.2f} s; {rss():.0f} MB; {load_average()}",
        flush=True,
    )
    return took


@dataclass(frozen=True)
class Reporting:
    """What is reported: each subject with the key of what it releases, so many a second.

    Each reporter has a token of its own, and posts one report a request, or (`bulk`) at most so many that have gathered since its last one.
    """

    url: str
    tokens: Sequence[str]
    subjects: Sequence[tuple[str, str]]
    a_second: float
    bulk: int


def _report(what: Reporting, results: Connection) -> None:
    """Report runs at a pace, on several threads. Send when each was to be reported, by the key of what it releases, and how many requests
    that took."""
    began_at: dict[str, float] = {}
    counted: list[int] = []
    results.send("ready")
    began = time.monotonic()

    def reports(first: int, token: str) -> None:
        session = requests.Session()
        session.headers["Authorization"] = f"Bearer {token}"
        mine, requests_made = range(first, len(what.subjects), len(what.tokens)), 0
        while mine:
            time.sleep(max(0.0, began + mine[0] / what.a_second - time.monotonic()))
            now = time.monotonic()
            due = [number for number in mine[: what.bulk] if number == mine[0] or began + number / what.a_second <= now]
            for number in due:
                # One that gathers until the next request waits from its own time on.
                began_at[what.subjects[number][1]] = now if what.bulk == 1 else began + number / what.a_second
            body = {"reports": [{"subject": what.subjects[number][0], "state": "SUCCEEDED"} for number in due]}
            session.post(f"{what.url}/api/v1/dependencies/reports", json=body, timeout=60).raise_for_status()
            mine, requests_made = mine[len(due) :], requests_made + 1
        counted.append(requests_made)

    with ThreadPoolExecutor(len(what.tokens)) as pool:
        list(pool.map(reports, range(len(what.tokens)), what.tokens))
    results.send((began_at, sum(counted)))


def facts(state_url: str, home: Path, processes: Processes, a_second: int, seconds: int, bulk: int) -> float:
    """Report runs over HTTP, and return the p99 of the time until a receiver heard of what each released."""
    receiver: Receiver[str] = Receiver(lambda data: str(data["key"]))
    with receiver.running() as hook:
        server = Server(processes, home, state_url, hook, ticks=False)
        server.start()
        pairs = -(-a_second * seconds // HOURS)
        first = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS - 1)
        hours = [f"{first + timedelta(hours=number):%Y-%m-%dT%H}" for number in range(HOURS)]
        raw = [{"name": f"raw{number}", "period": "hour", "virtual": True} for number in range(pairs)]
        jobs = [
            {"name": f"job{number}", "period": "hour", "since": hours[0], "needs": [{"job": f"raw{number}"}]} for number in range(pairs)
        ]
        for one in raw:
            one["since"] = hours[0]
        file = {"project": "facts", "receiver": "callback", "jobs": [*raw, *jobs]}
        _save(server, file)
        _wait_for_instances(server, pairs)
        subjects = [(f"job=raw{number} && biz={hour}", f"job{number}/{hour}/scheduled/1") for hour in hours for number in range(pairs)]
        subjects = subjects[: a_second * seconds]
        context = get_context("spawn")
        results, sent = context.Pipe(duplex=False)
        # A token may make 100 requests a second.
        what = Reporting(server.url, [server.token("writer") for _ in range(REPORTERS)], subjects, a_second, bulk)
        reporter = context.Process(target=_report, args=(what, sent), daemon=True)
        reporter.start()
        results.recv()
        cpu, began = server.cpu_seconds(), time.monotonic()
        began_at, requests_made = results.recv()
        took = time.monotonic() - began
        cpu = (server.cpu_seconds() - cpu) / took
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline and not began_at.keys() <= receiver.arrived.keys():
            time.sleep(0.1)
        delays = sorted(receiver.arrived[key] - at for key, at in began_at.items() if key in receiver.arrived)
        parts: dict[int, list[float]] = {}
        for key, at in began_at.items():
            parts.setdefault(int((at - began) // PART_SECONDS), []).append(receiver.arrived.get(key, at + PATIENCE_SECONDS) - at)
        processes.stop()
    times = ", ".join(f"p{share} {delays[min(len(delays) * share // 100, len(delays) - 1)]:.2f}" for share in (50, 90, 99))
    print(
        f"  facts      {len(began_at) / took:.0f} reports a second ({a_second} asked) in {requests_made / took:.0f} requests: mean "
        f"{statistics.mean(delays):.2f} s, {times}, most {delays[-1]:.2f}; {len(began_at) - len(delays)} of {len(began_at):,} lost, "
        f"{receiver.twice} came twice; the server took {cpu:.2f} CPU-s a second; {load_average()}\n"
        f"             p50 of each {PART_SECONDS} s: {', '.join(f'{statistics.median(parts[at]):.2f}' for at in sorted(parts))}",
        flush=True,
    )
    return delays[min(len(delays) * 99 // 100, len(delays) - 1)]


def _save(server: Server, file: dict[str, Any]) -> None:
    headers = {"Authorization": f"Bearer {server.token('admin')}"}
    requests.put(
        f"{server.url}/api/v1/dependencies/project", json={"file": file, "many": True}, headers=headers, timeout=120
    ).raise_for_status()


def _wait_for_instances(server: Server, pairs: int) -> None:
    """Wait until the last job has all its instances."""
    headers = {"Authorization": f"Bearer {server.token('reader')}"}
    deadline = time.monotonic() + 4 * PATIENCE_SECONDS
    for job in (f"job{pairs - 1}", "job0"):
        params: dict[str, str | int] = {"job": job, "most": HOURS}
        url = f"{server.url}/api/v1/dependencies/instances"
        while len(requests.get(url, params=params, headers=headers, timeout=60).json()) < HOURS:
            if time.monotonic() > deadline:
                raise SystemExit("the instances were not made in time")
            time.sleep(0.5)


def rss() -> float:
    """The memory of this process, in MB."""
    import os

    return rss_bytes(os.getpid()) / MB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=positive, default=150_000, help="how many instances a day has")
    parser.add_argument("--fan-out", type=positive, default=50_000)
    parser.add_argument("--facts-a-second", type=positive, default=200)
    parser.add_argument("--seconds", type=positive, default=60, help="how long runs are reported")
    parser.add_argument("--bulk", type=positive, default=1, help="a request has at most so many reports, of those that have gathered")
    parser.add_argument("--databases", nargs="+", choices=("sqlite", "postgresql"), default=["sqlite", "postgresql"])
    parser.add_argument("--parts", nargs="+", choices=("day", "fan-out", "facts"), default=["day", "fan-out", "facts"])
    arguments = parser.parse_args()
    stop_on_signals()
    worst = [0.0, 0.0]
    with tempfile.TemporaryDirectory(prefix="center-benchmark-") as folder, Processes() as processes:
        for database in arguments.databases:
            print(f"{database}: {load_average()}", flush=True)
            for part in arguments.parts:
                home = Path(folder) / f"{database}-{part}"
                home.mkdir()
                with ExitStack() as stack:
                    state_url = f"sqlite:///{home / 'state.db'}" if database == "sqlite" else stack.enter_context(lasting_postgres())
                    if part == "day":
                        day(state_url, arguments.jobs)
                    elif part == "fan-out":
                        worst[1] = max(worst[1], fan_out(state_url, arguments.fan_out))
                    else:
                        found = facts(state_url, home / "home", processes, arguments.facts_a_second, arguments.seconds, arguments.bulk)
                        worst[0] = max(worst[0], found)
    print(f"p99 {worst[0]:.2f} fan-out {worst[1]:.2f}")


if __name__ == "__main__":
    main()
