"""Files of random projects for the oracle of the dependency center."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random
from typing import Any

from compaction_pipeline_tests.scenarios.naive_calendar import Kind, span_at, spans

ZONES = ("UTC", "Europe/Berlin", "Europe/Berlin", "America/New_York")
PERIODS = ("hour",) * 5 + ("day",) * 9 + ("week",) * 2 + ("month",) * 2
TRIGGERS = {
    "hour": ("0", "5", "30"),
    "day": ("00:00", "01:30", "02:30", "23:00"),
    "week": ("MON 00:00", "SUN 02:30", "TUE 12:00"),
    "month": ("1 00:00", "last 02:30", "28 03:00"),
}
TIMES = {
    ("hour", "hour"): ("0", "0", "-1", "{0,-1}", "[-3,0]", "{0,-24}"),
    ("day", "day"): ("0", "0", "-1", "{0,-1}", "[-2,0]", "{0,-7}"),
    ("week", "week"): ("0", "-1", "[-1,0]"),
    ("month", "month"): ("0", "-1", "[-1,0]"),
    ("day", "hour"): ("whole", "whole", "last", "last-1", "0", "{0,12}", "[0,5]", "[-3,2]", "[0,23]", "[20,23]", "-1"),
    ("week", "hour"): ("last", "[0,3]", "whole"),
    ("month", "hour"): ("last", "[-2,3]", "last-1"),
    ("week", "day"): ("whole", "last", "{0,3}", "[0,6]", "[0,2]"),
    ("month", "day"): ("whole", "last", "last-2", "{0,14}", "[0,30]", "[26,30]"),
    ("hour", "day"): ("0", "-1", "{0,-1}"),
    ("hour", "week"): ("0", "-1"),
    ("hour", "month"): ("0", "-1"),
    ("day", "week"): ("0", "-1"),
    ("day", "month"): ("0", "-1"),
}
"""Offsets by the periods of the downstream and the upstream."""
STRENGTHS = ("all", "any", "any", "newest", "newest")
UNTILS, CLOCKS = ("30min", "2h", "5h", "1d"), ("06:00", "02:30", "23:59", "00:00")
BACK = {"hour": 4, "day": 3, "week": 1, "month": 1}
RECEIVERS = ("airflow", "dagster")
PARTS = (["eu", "us"], ["eu"], ["ads", "eu", "us"])


class Projects:
    """The files of one world: two projects, of which the second may wait for the first."""

    def __init__(self, random: Random, now: datetime) -> None:
        self.random = random
        self.number = 0
        self.removed: list[dict[str, Any]] = []
        self.files: list[dict[str, Any]] = [
            {"project": name, "zone": first_zone(random, now), "receiver": "airflow", "jobs": []} for name in ("first", "second")
        ]
        if random.random() < 0.4:
            self.files[1]["after"] = ["first"]
        for file in self.files:
            for _ in range(random.randint(2, 4)):
                file["jobs"].append(self.new_job(file, now))

    def new_job(self, file: dict[str, Any], now: datetime) -> dict[str, Any]:
        random = self.random
        self.number += 1
        period, zone = random.choice(PERIODS), random.choice((*ZONES, file["zone"], file["zone"]))
        job: dict[str, Any] = {"name": f"j{self.number}", "period": period, "zone": zone}
        if random.random() < 0.6:
            job["trigger"] = random.choice(TRIGGERS[period])
        if random.random() < 0.6:
            job["since"] = self.since(job, now)
        luck = random.random()
        if luck < 0.2:
            job["virtual"] = True
            if random.random() < 0.5:
                job["parts"] = list(random.choice(PARTS))
        elif luck < 0.35:
            job["made-by"] = self.need(file, job)
        else:
            job["needs"] = self.needs(file, job)
            if random.random() < 0.2:
                job["receiver"] = "dagster"
        return job

    def since(self, job: dict[str, Any], now: datetime) -> str:
        kind = Kind(job["period"], job["zone"])
        here = spans(kind).index(span_at(kind, now))
        return spans(kind)[here - self.random.randint(-1, BACK[kind.period])].label

    def needs(self, file: dict[str, Any], job: dict[str, Any]) -> list[dict[str, Any]]:
        needs = [self.weakened(job, self.need(file, job)) for _ in range(self.random.choice((0, 1, 1, 2, 2, 3)))]
        if self.random.random() < 0.15:
            needs.append(self.weakened(job, {"job": job["name"], "times": self.random.choice(("-1", "[-2,-1]", "{-1,-3}"))}))
        return needs

    def weakened(self, job: dict[str, Any], need: dict[str, Any]) -> dict[str, Any]:
        """A need of a job, of which at times not all must be there, or not for ever."""
        random = self.random
        if random.random() < 0.45:
            need["strength"] = random.choice(STRENGTHS)
        if random.random() < 0.35:
            need["until"] = random.choice(UNTILS if job["period"] == "hour" else (*UNTILS, *CLOCKS))
            if "job" in need and random.random() < 0.5:
                need["if-failed"] = random.choice(("wait", "ignore"))
        return need

    def need(self, file: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
        """Something to wait for: a job before this one, or data."""
        random = self.random
        before = [one for one in self.known(file) if _number(one) < _number(job) and (job["period"], one["period"]) in TIMES]
        if before and random.random() < 0.65:
            upstream = random.choice(before)
            need = {"job": upstream["name"], "times": random.choice(TIMES[job["period"], upstream["period"]])}
            if upstream.get("parts") and random.random() < 0.4:
                need["part"] = random.choice(upstream["parts"])
            return need
        period = random.choice([up for down, up in TIMES if down == job["period"]])
        need = {"period": period, "zone": random.choice(ZONES), "times": random.choice(TIMES[job["period"], period])}
        table = f"lake.a.t{random.randint(1, 3)}"
        if period == job["period"] and random.random() < 0.5:
            need = {}
        luck = random.random()
        if luck < 0.35:
            return {"table": table, "watermark": True, **need}
        if luck < 0.55:
            return {"table": table, **need}
        if luck < 0.8:
            return {
                "table": table,
                "partition": random.choice(("dt={%Y%m%d}/hour={%H}", "dt={%Y-%m-%dT%H}/app=ads", "day={%Y%m%d}")),
                **need,
            }
        return {"asset": f"reports/a{random.randint(1, 2)}", **need}

    def known(self, file: dict[str, Any]) -> list[dict[str, Any]]:
        """The jobs that a file may wait for."""
        return [job for one in self.files if one["project"] <= file["project"] for job in one["jobs"]]

    def changed(self, now: datetime) -> dict[str, Any]:
        """A file with one change. It is not kept: `keep` does that, when the center has saved it."""
        random = self.random
        file = random.choice(self.files)
        jobs = [dict(job) for job in file["jobs"]]
        after = {**file, "jobs": jobs}
        luck = random.random()
        if luck < 0.2 and jobs:
            jobs.remove(random.choice(jobs))
        elif luck < 0.4:
            gone = [job for job in self.removed if job["project"] == file["project"]]
            if gone:
                jobs.append({key: value for key, value in random.choice(gone).items() if key != "project"})
            else:
                jobs.append(self.new_job(file, now))
        elif jobs:
            self._change(file, random.choice(jobs), now)
        return after

    def _change(self, file: dict[str, Any], job: dict[str, Any], now: datetime) -> None:
        random = self.random
        if "parts" in job:
            job["parts"] = list(random.choice(PARTS))
        elif "made-by" in job and random.random() < 0.5:
            job["made-by"] = self.need(file, job)
        elif "needs" in job and random.random() < 0.6:
            job["needs"] = self.needs(file, job)
        elif "needs" in job and random.random() < 0.3:
            job["receiver"] = random.choice(RECEIVERS)
        elif random.random() < 0.5:
            job["since"] = self.since(job, now)
        else:
            job["trigger"] = random.choice(TRIGGERS[job["period"]])

    def keep(self, file: dict[str, Any]) -> None:
        """The center has saved this file."""
        place = next(number for number, one in enumerate(self.files) if one["project"] == file["project"])
        names = {job["name"] for job in file["jobs"]}
        gone = [{**job, "project": file["project"]} for job in self.files[place]["jobs"] if job["name"] not in names]
        self.removed = [job for job in self.removed if job["name"] not in names] + gone
        self.files[place] = file


def _number(job: dict[str, Any]) -> int:
    return int(job["name"][1:])


CHANGES = {
    datetime.fromisoformat(text): zone
    for text, zone in (
        ("2026-03-29T01:00+00:00", "Europe/Berlin"),
        ("2026-10-25T01:00+00:00", "Europe/Berlin"),
        ("2026-03-08T07:00+00:00", "America/New_York"),
        ("2026-11-01T06:00+00:00", "America/New_York"),
    )
}
"""When clocks change, and where."""


def first_zone(random: Random, now: datetime) -> str:
    """The zone of a project: most often one in which clocks change soon."""
    soon = [zone for at, zone in CHANGES.items() if now < at < now + timedelta(days=2)]
    return random.choice(soon) if soon and random.random() < 0.6 else random.choice(ZONES)


def first_moment(random: Random) -> datetime:
    """When a world begins: most often soon before clocks change."""
    if random.random() < 0.85:
        return random.choice(tuple(CHANGES)) - timedelta(minutes=random.randint(1, 900))
    return datetime.fromisoformat("2026-01-02T00:00+00:00") + timedelta(minutes=random.randint(0, 525_000))
