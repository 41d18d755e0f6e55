"""What happens at the doors of the dependency center, at random: projects change, facts and reports come, receivers claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from sqlalchemy import Engine

from compaction_pipeline.core.dependencies.center.inbox import Fact
from compaction_pipeline.core.dependencies.center.instances import InstanceState
from compaction_pipeline.core.dependencies.center.ports import CenterStore
from compaction_pipeline.core.errors import ChangedMeanwhile, ConfigError, NotFoundError
from compaction_pipeline_tests.scenarios.center_scene import Scene
from compaction_pipeline_tests.scenarios.naive_calendar import span_at, spans
from compaction_pipeline_tests.scenarios.naive_center import Need, RunName, Told
from compaction_pipeline_tests.scenarios.random_projects import Projects

SOURCES = ("a", "b")


class Doors(Scene):
    """The verb is door: something happens."""

    def __init__(self, random: Random, store: CenterStore, engine: Engine) -> None:
        super().__init__(random, store, engine)
        self.projects = Projects(random, self.now)
        self.hands: dict[RunName, tuple[int, int]] = {}
        self.said: list[Callable[[], None]] = []
        self.last_numbers = Counter[str]()
        self.origins = 0
        for file in list(self.projects.files):
            self.save(file)

    def door(self) -> None:
        doors = (
            *(self.feed,) * 10,
            *(self.report,) * 5,
            *(self.claim,) * 6,
            *(self.deliver,) * 2,
            *(self.take_away,) * 6,
            *(self.say_again,) * 2,
            *(self.run_again,) * 2,
            self.backfill,
            self.change_project,
        )
        self.random.choice(doors)()

    def change_project(self) -> None:
        self.save(self.projects.changed(self.now))

    def save(self, file: dict[str, Any]) -> None:
        self.log.append(f"save {file}")
        try:
            self.center.save_project(file)
        except ChangedMeanwhile as error:
            self.log.append(f"  refused: {error}")
            self.counts["changed meanwhile"] += 1
            return
        except ConfigError as error:
            self.log.append(f"  refused: {error}")
            self.counts["save refused"] += 1
            if "comes after" in str(error) and "after" in file and file in self.projects.files:
                # A world begins without a rule that its jobs cannot have.
                file = {key: value for key, value in file.items() if key != "after"}
                self.projects.keep(file)
                self.save(file)
            elif not self.oracle.jobs and file["jobs"]:
                self.save({**file, "jobs": file["jobs"][:-1]})
            elif file in self.projects.files:
                self.projects.keep({**file, "jobs": []})
                self.save({**file, "jobs": file["jobs"][:-1]})
            return
        self.counts["saved"] += 1
        self.projects.keep(file)
        self.oracle.saved(file, self.now)
        self.compare("save")

    def feed(self) -> None:
        """Bring something that a run waits for."""
        waiting = [run for run in self.oracle.runs.values() if run.state == "WAITING" and self.oracle.missing(run)]
        if not waiting:
            return
        if self.random.random() < 0.4:
            # Few business times hold a change of clocks.
            waiting = [run for run in waiting if self.oracle.is_special(run)] or waiting
        missing = self.oracle.missing(self.random.choice(waiting))
        some = missing if self.random.random() < 0.7 else self.random.sample(missing, self.random.randint(1, len(missing)))
        for need in some:
            self.bring(need)

    def bring(self, need: Need, depth: int = 4) -> None:
        if not need.key.startswith("job="):
            more = self.random.choice((0, 0, 3_600_000)) if "watermark" in need.key else 0
            self.tell(need.key, need.bound + more)
            return
        name = _run_name(need.key)
        job = self.oracle.jobs.get(name.job)
        run = self.oracle.runs.get(name)
        if job is None:
            return
        if job.receiver is None and job.needs:
            for one in self.oracle.missing(run) if run and depth else ():
                self.bring(one, depth - 1)
            return
        if run is not None and run.state == "WAITING" and run.needs and depth and self.random.random() < 0.5:
            for one in self.oracle.missing(run):
                self.bring(one, depth - 1)
        else:
            generation = run.generation if run else self.random.choice((1,) * 19 + (3,))
            self.report_run(name, "FAILED" if self.random.random() < 0.15 else "SUCCEEDED", generation)

    def take_away(self) -> None:
        """Something that runs found there is there no more, at times only for a moment."""
        runs = [
            run for run in self.oracle.runs.values() if run.needs and (run.claimed or run.state != "WAITING" or self.random.random() < 0.2)
        ]
        ready = [run for run in runs if run.state == "READY" and not run.claimed]
        runs = ready if ready and self.random.random() < 0.4 else runs
        there = [need for run in runs for need in run.needs if self.oracle.there(need)]
        if not there:
            return
        need = self.random.choice(there)
        was = self.oracle.reached[need.key]
        if not need.key.startswith("job="):
            self.tell(need.key, self.random.choice((0, need.bound - 1, max(need.bound - 7_200_000, 0))))
            if self.random.random() < 0.3:
                self.tell(need.key, was)
            return
        name = _run_name(need.key)
        run, job = self.oracle.runs[name], self.oracle.jobs.get(name.job)
        if job is None:
            return
        if job.receiver is None and job.needs:
            fallen = [one for one in run.needs if self.oracle.there(one) and not one.key.startswith("job=")]
            if fallen:
                one = self.random.choice(fallen)
                self.tell(one.key, one.bound - 1)
                if self.random.random() < 0.3:
                    self.tell(one.key, one.bound)
            return
        self.report_run(name, self.random.choice(("FAILED", "RUNNING")), run.generation + self.random.choice((0, 1)))
        if self.random.random() < 0.3:
            self.report_run(name, "SUCCEEDED", run.generation + self.random.choice((0, 1)))

    def tell(self, key: str, value: int) -> None:
        """A detector posts a fact, at times with a number that is old."""
        source, number = self.random.choice(SOURCES), self.number(key)

        def say() -> None:
            self.log.append(f"fact {key} {value} {source} {number}")
            self.store.post([Fact(key, self.now, source, value, number=number)])
            self.oracle.posted(Told(source, number, key, value))

        self.say(say)

    def number(self, key: str) -> int | None:
        if self.random.random() < 0.7:
            return None
        self.last_numbers[key] += 1
        return self.last_numbers[key] + self.random.choice((0, 0, 0, 1, -1, -2))

    def say(self, say: Callable[[], None]) -> None:
        say()
        self.said = [*self.said[-20:], say]

    def say_again(self) -> None:
        """A copy comes, or what was said long ago."""
        if self.said:
            self.random.choice(self.said)()
            self.counts["said again"] += 1

    def report(self) -> None:
        """Somebody reports a run: most often the receiver, and at times one whose trigger is not over."""
        random = self.random
        jobs = [job for job in self.oracle.jobs.values() if job.receiver is not None or not job.needs]
        started = [run for run in self.oracle.runs.values() if run.claimed and run.name.job in self.oracle.jobs and not run.name.part]
        if started and random.random() < 0.75:
            run = random.choice(started)
            state = random.choice(("RUNNING", "SUCCEEDED", "SUCCEEDED", "FAILED"))
            self.report_run(run.name, state, max(1, run.generation + random.choice((0, 0, 0, 0, 0, -1, -2, 1))))
        elif jobs:
            job = random.choice(jobs)
            here = spans(job.kind).index(span_at(job.kind, self.now))
            biz = spans(job.kind)[here + random.randint(-3, 1)].label
            part = random.choice(job.parts) if job.parts else ""
            self.report_run(RunName(job.name, biz, "", part), random.choice(("RUNNING", "SUCCEEDED", "FAILED")), random.choice((1, 1, 2)))

    def report_run(self, name: RunName, state: str, generation: int) -> None:
        job = self.oracle.jobs[name.job]
        if (job.receiver is None and job.needs) or bool(job.parts) != bool(name.part) or (name.part and name.part not in job.parts):
            return
        counted = None if job.receiver is None and self.random.random() < 0.8 else generation
        source, number = self.random.choice(SOURCES), self.number(name.subject)

        def say() -> None:
            self.log.append(f"report {name.subject} {state} generation={counted} {source} {number}")
            try:
                self.center.report(name.subject, InstanceState(state), source, generation=counted, number=number)
            except (ConfigError, NotFoundError) as error:
                self.log.append(f"  refused: {error}")
                return
            self.oracle.posted(Told(source, number, name.subject, run=name, state=state, generation=counted))

        self.say(say)

    def claim(self) -> None:
        receiver, most = self.random.choice(("airflow", "airflow", "dagster")), self.random.choice((1, 2, 100, 1_000))
        claimed = self.center.claim(receiver, most)
        names = [RunName(one.job, one.biz, one.origin, one.part) for one in claimed]
        self.log.append(f"claim {receiver} {most}: {[one.key for one in claimed]}")
        ids = {name: one.id for name, one in zip(names, claimed, strict=True)}
        self.oracle.claimed(receiver, names, ids, most)
        self.hands.update({name: (one.id, one.generation) for name, one in zip(names, claimed, strict=True)})
        self.compare("claim")

    def deliver(self) -> None:
        """Receivers are known to have some of what they claimed; some of it has another generation by now."""
        for name in [name for name in self.hands if self.random.random() < 0.6]:
            number, generation = self.hands.pop(name)
            run = self.oracle.runs.get(name)
            is_so = run is not None and run.claimed and not run.delivered and run.generation == generation
            self.log.append(f"delivered {name} {generation}")
            receiver = run.receiver if run is not None and run.receiver else "airflow"
            assert self.center.delivered(receiver, [(number, generation)]) == is_so
            self.oracle.delivered([name] if is_so else [])
        self.compare("delivered")

    def run_again(self) -> None:
        some = [run for run in self.oracle.runs.values() if run.name.job in self.oracle.jobs and not run.name.part]
        if not some:
            return
        run = self.random.choice([one for one in some if one.claimed] or some)
        job = self.oracle.jobs[run.name.job]
        self.log.append(f"run again {run.key}")
        if job.receiver is None or not run.claimed:
            _refused(lambda: self.center.run_again(run.name.job, run.name.biz, run.name.origin))
            return
        # Whoever claimed it may run it.
        if run.state in ("READY", "RUNNING"):
            _refused(lambda: self.center.run_again(run.name.job, run.name.biz, run.name.origin))
            return
        try:
            self.center.run_again(run.name.job, run.name.biz, run.name.origin)
        except ChangedMeanwhile as error:
            self.log.append(f"  refused: {error}")
            self.counts["changed meanwhile"] += 1
            return
        self.oracle.run_again(run.name)
        self.counts["run again"] += 1
        self.compare("run again")

    def backfill(self) -> None:
        jobs = [job for job in self.oracle.jobs.values() if job.receiver is not None]
        if not jobs:
            return
        some = self.random.sample(jobs, self.random.randint(1, min(3, len(jobs))))
        leading = some[0].kind
        here = spans(leading).index(span_at(leading, self.now)) - self.random.randint(0, 3)
        last = here + (self.random.randint(0, 3) if leading.period in ("hour", "day") else 0)
        self.origins += self.random.random() < 0.8 or not self.origins
        names = [job.name for job in some]
        first_label, last_label = spans(leading)[here].label, spans(leading)[last].label
        if leading.period in ("week", "month") and any(job.kind.period == "hour" for job in some):
            return
        self.log.append(f"backfill bf{self.origins} {names} {first_label} {last_label}")
        try:
            self.center.backfill(f"bf{self.origins}", names, first_label, last_label)
        except ConfigError as error:
            self.log.append(f"  refused: {error}")
            return
        self.oracle.backfilled(f"bf{self.origins}", names, first_label, last_label)
        self.counts["backfill"] += 1
        self.compare("backfill")


def _run_name(key: str) -> RunName:
    named = dict(one.split("=", 1) for one in key.split(" && "))
    return RunName(named["job"], named["biz"], named.get("backfill", ""), named.get("part", ""))


def _refused(call: Callable[[], Any]) -> None:
    try:
        call()
    except ConfigError:
        return
    raise AssertionError("it was not refused")
