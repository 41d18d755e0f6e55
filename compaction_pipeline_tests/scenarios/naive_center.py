"""The oracle of the dependency center: it hears everything that happens, and says from all of it what must be so.

It imports nothing of `core.dependencies`. Whether something is there, what is missing and who may start is found each time by going
through all runs and all that they need; it counts nothing, spreads nothing and has no leader. What it is told in order are the
transactions: what doors wrote, how many facts were applied, and which runs changed. It refuses each change that may not happen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile
from typing import Any, NamedTuple

from compaction_pipeline_tests.scenarios.naive_calendar import Kind, Span, is_special, places, span_of, spans, trigger_at, upstream_spans
from compaction_pipeline_tests.scenarios.naive_jobs import Job, data_subject, job_of, needs_by_rule, to_others
from compaction_pipeline_tests.scenarios.naive_weak import Need, Weak, is_held, is_satisfied, is_weak, weak_of

__all__ = ["MAYBE", "YES", "Need", "Oracle", "Run", "RunName", "Told"]

ENDED = ("SUCCEEDED", "FAILED")
BUSY = ("READY", "RUNNING")
NO, MAYBE, YES = "no", "maybe", "yes"


class RunName(NamedTuple):
    """Which run."""

    job: str
    biz: str
    origin: str = ""
    part: str = ""

    @property
    def subject(self) -> str:
        more = [("backfill", self.origin), ("biz", self.biz), ("part", self.part)]
        return " && ".join([f"job={self.job}", *(f"{key}={value}" for key, value in more if value)])


class Told(NamedTuple):
    """A fact in the inbox: `key` has reached `value`, or the run is in `state`."""

    source: str
    number: int | None
    key: str
    value: int = 0
    run: RunName | None = None
    state: str = ""
    generation: int | None = None


@dataclass
class Run:
    """A run, and what of its needs was there when its generation started (`ran_on`; None when nobody can say).

    `changed` says whether `changed_at` must be set. `was_shaken` has what had been taken back, unknown to the center, when it was claimed.
    `weak` has the edges that are not judged need by need, `ready_at` the time by which what is ready is judged, and `noted` whether it
    starts without something.
    """

    name: RunName
    order: int
    made_at: datetime
    generation: int = 1
    state: str = "WAITING"
    receiver: str | None = None
    needs: tuple[Need, ...] = ()
    claimed: bool = False
    delivered: bool = False
    changed: str = NO
    ran_on: dict[Need, bool | None] = field(default_factory=dict)
    was_shaken: frozenset[str] = frozenset()
    weak: dict[int, Weak] = field(default_factory=dict)
    ready_at: datetime | None = None
    noted: bool = False

    @property
    def key(self) -> str:
        return f"{self.name.job}/{self.name.biz}/{self.name.origin or 'scheduled'}/{self.generation}"


class Oracle:
    """What must be so, after the transactions that it was told."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.jobs: dict[str, Job] = {}
        self.after: dict[str, list[str]] = {}
        self.runs: dict[RunName, Run] = {}
        self.reached: dict[str, int] = {}
        self.numbers: dict[tuple[str, str], int] = {}
        self.inbox: list[Told] = []
        self.dirty: set[str] = set()
        self.shaken: set[str] = set()
        self.started: dict[str, int] = {}
        self.counts: Counter[str] = Counter()
        self._order = 0

    # What doors do.

    def saved(self, file: Mapping[str, Any], now: datetime) -> None:
        before = {name: job for name, job in self.jobs.items() if job.project == file["project"]}
        after = {one["name"]: job_of(file, one, before.get(one["name"]), now) for one in file["jobs"]}
        for name in before.keys() - after.keys():
            for run in [run for run in self.runs.values() if run.name.job == name and not run.claimed and run.state not in ENDED]:
                if run.generation == 1:
                    del self.runs[run.name]
                else:
                    run.state, run.needs, run.claimed, run.delivered = "FAILED", (), True, True
        by_rule = {name: self._by_rule(job) for name, job in self.jobs.items() if name not in before}
        self.jobs = {name: job for name, job in self.jobs.items() if name not in before} | after
        self.after[file["project"]] = file.get("after", [])
        affected = {name for name in after if name in before and to_others(before[name]) != to_others(after[name])}
        touched = set(after) | {job.name for job in self.jobs.values() if any(need.get("job") in affected for need in self._needs(job))}
        touched |= {name for name, needs in by_rule.items() if needs != self._by_rule(self.jobs[name])}
        for run in self.runs.values():
            if run.name.job in touched and not run.claimed and run.state in ("WAITING", "READY"):
                job = self.jobs[run.name.job]
                self._need(run, self._together(run.name.origin))
                run.receiver = job.receiver
                self._wait(run)

    def posted(self, told: Told) -> None:
        self.inbox.append(told)

    def backfilled(self, origin: str, names: Sequence[str], first: str, last: str) -> None:
        leading = self.jobs[names[0]].kind
        start, end = span_of(leading, first).start, span_of(leading, last).end
        made = [(self.jobs[name], span.label) for name in names for span in spans(self.jobs[name].kind) if start <= span.start < end]
        together = self._together(origin) | {(job.name, label) for job, label in made}
        for job, label in made:
            self._make(job, label, origin, together)
            self.counts["backfill beside scheduled"] += RunName(job.name, label) in self.runs

    def claimed(self, receiver: str, names: Sequence[RunName], ids: Mapping[RunName, int], most: int) -> None:
        unsure = self.dirty | self._all_shaken()
        free = {run.name for run in self.runs.values() if self._is_claimable(run, receiver)}
        sure = {name for name in free if self.runs[name].claimed or not any(need.key in unsure for need in self.runs[name].needs)}
        for name in names:
            run = self.runs[name]
            assert run.state == "READY", f"{run.key} was claimed but is {run.state}"
            assert not run.delivered, f"{run.key} was claimed again"
            assert run.receiver == receiver, f"{run.key} was claimed by {receiver}"
            if run.claimed:
                self.counts["claimed again"] += 1
                continue
            assert self.satisfied(run), f"{run.key} was claimed, but it was withdrawn: {self.missing(run)}"
            assert run.key not in self.started, f"{run.key} was started before, as instance {self.started[run.key]}"
            self.started[run.key] = ids[name]
            run.claimed, run.changed = True, NO
            run.ran_on = {need: True if need.edge not in run.weak else self._known_there(need, unsure) for need in run.needs}
            if any(need.edge in run.weak and need.key in unsure for need in run.needs):
                # It fell, or came, before the claim, and the run could start without it.
                run.changed = MAYBE
            run.was_shaken = self._all_shaken() & {need.key for need in run.needs}
        assert set(names) <= free, f"claimed {names}"
        assert sure <= set(names) or len(names) == most, f"not claimed {sure - set(names)}"

    def delivered(self, names: Iterable[RunName]) -> None:
        for name in names:
            self.runs[name].delivered = True

    def run_again(self, name: RunName) -> None:
        run, job = self.runs[name], self.jobs[name.job]
        self._need(run, self._together(name.origin))
        run.generation += 1
        self._wait(run)
        run.receiver, run.claimed, run.delivered, run.changed = job.receiver, False, False, NO
        run.ran_on = {}
        self._reach(name.subject, min(self.reached.get(name.subject, 0), 0), made_anew=True)

    # What the leader does.

    def made(self, now: datetime, found: Collection[RunName]) -> None:
        """Scheduled runs were made: some of those that are due, the oldest of each job first."""
        for name in found:
            job = self.jobs[name.job]
            early = [span.label for span in self._due(job, now) if span < span_of(job.kind, name.biz)]
            left = [label for label in early if RunName(name.job, label) not in self.runs and RunName(name.job, label) not in found]
            assert not name.origin, f"{name} was made by a trigger"
            assert not left, f"{name} was made before {left}"
            assert any(span.label == name.biz for span in self._due(job, now)), f"{name} was made before its trigger"
            self._make(job, name.biz, "", frozenset())
            self.counts["made with a clock change"] += self.is_special(self.runs[name])
            self.counts["backfill beside scheduled"] += sum(other.job == name.job and other.biz == name.biz for other in self.runs) > 1

    def took_in(self, count: int) -> Sequence[RunName]:
        """So many facts were applied. Return the runs that there were not before."""
        known = set(self.runs)
        for told in self.inbox[:count]:
            self._apply(told)
        del self.inbox[:count]
        return [name for name in self.runs if name not in known]

    def took_back(self, names: Iterable[RunName]) -> None:
        """Runs wait again that nobody had claimed."""
        for name in names:
            run = self.runs[name]
            assert not run.claimed, f"{run.key} was taken back but was claimed"
            assert run.state in ("READY", "SUCCEEDED"), f"{run.key} was taken back but was {run.state}"
            # What came in a group may be told after what fell in it.
            told_later = run.weak and any(need.edge in run.weak and need.key in self.dirty for need in run.needs)
            assert not self.satisfied(run) or told_later or not self._is_held(run), (
                f"{run.key} was taken back, but all that it needs is there"
            )
            self.counts["withdrawn before claim"] += run.state == "READY"
            self.counts["weak withdrawn before claim"] += run.state == "READY" and bool(run.weak)
            was = run.state
            self._wait(run)
            if was == "SUCCEEDED":
                self.shaken.discard(name.subject)
                self._reach(name.subject, 0)

    def released(self, names: Iterable[RunName]) -> None:
        for name in names:
            run = self.runs[name]
            assert run.state == "WAITING", f"{run.key} was released but was {run.state}"
            assert self.satisfied(run), f"{run.key} was released early: {self.missing(run)}"
            assert not self._busy(run), f"{run.key} was released while another of its business time runs"
            self.counts["released"] += 1
            self.counts["released with a clock change"] += self.is_special(run)
            run.ready_at = self.now
            run.noted = not self._is_held(run)
            self.counts["released by its until"] += run.noted
            for strength in {weak.strength for weak in run.weak.values()}:
                self.counts[f"released with {strength}"] += 1
            if run.receiver is None:
                run.state = "SUCCEEDED"
                self._reach(name.subject, 1)
            else:
                run.state = "READY"

    def settled(self, now: datetime) -> None:
        """The leader has nothing left to do."""
        assert not self.inbox
        while self.shaken:
            key = self.shaken.pop()
            self._fall(key, self.reached.get(key, 0), 0)
        self.dirty = set()
        for job in self.jobs.values():
            late = [span.label for span in self._due(job, now) if RunName(job.name, span.label) not in self.runs]
            assert not late, f"{job.name} has no instance yet for {late}"
        for run in self.runs.values():
            run.was_shaken = frozenset()
            self.check_late(run)
            if not run.claimed and run.state in (*BUSY, "SUCCEEDED"):
                assert self.satisfied(run), f"{run.key} is {run.state}, but these are not there: {self.missing(run)}"
            if run.state == "READY" and not run.claimed:
                assert self._is_held(run) or run.noted, f"{run.key} starts without {self.missing(run)}, and does not say so"
            self.counts["waited for what failed"] += run.state == "WAITING" and any(
                weak.until is not None and weak.until <= now and not self._passes(weak, now) for weak in run.weak.values()
            )

    def check_late(self, run: Run) -> None:
        if run.state == "WAITING" and not run.claimed and self.satisfied(run):
            assert self._busy(run), f"{run.key} is late: all that it needs is there"

    def satisfied(self, run: Run) -> bool:
        """Whether a run may start: judged by the time at which it was made ready, or else by now."""
        return self.count_missing(run) == 0

    def count_missing(self, run: Run) -> int:
        at = run.ready_at or self.now
        strong = [need for need in run.needs if need.edge not in run.weak and not self.there(need)]
        return len(strong) + sum(not self._passes(weak, at) for weak in run.weak.values())

    def _is_held(self, run: Run) -> bool:
        """Whether enough of all weak edges is there, whatever their until."""
        return all(is_held(weak, run.ready_at or self.now, self.there) for weak in run.weak.values())

    def _passes(self, weak: Weak, at: datetime) -> bool:
        return is_satisfied(weak, at, self.there, lambda need: self.reached.get(need.key) == -1 and need.key.startswith("job="))

    def _wait(self, run: Run) -> None:
        run.state, run.ready_at, run.noted = "WAITING", None, False

    def there(self, need: Need) -> bool:
        return self.reached.get(need.key, 0) >= need.bound

    def missing(self, run: Run) -> list[Need]:
        return [need for need in run.needs if not self.there(need)]

    def rests_on_made_by(self, run: Run) -> bool:
        """Whether it needs a run that succeeds by itself, which is known one pass later."""
        makers = {name for name, job in self.jobs.items() if job.receiver is None and job.needs}
        return any(need.key.split(" && ")[0].removeprefix("job=") in makers for need in run.needs)

    # What follows.

    def _apply(self, told: Told) -> None:
        if told.number is not None:
            last = self.numbers.get((told.key, told.source))
            if last is not None and told.number <= last:
                self.counts["old number"] += 1
                return
            self.numbers[told.key, told.source] = told.number
        if told.run is None:
            self._reach(told.key, told.value)
        else:
            self._report(told.run, told.state, told.generation)

    def _report(self, name: RunName, state: str, generation: int | None) -> None:
        run = self.runs.get(name)
        if run is None:
            if generation is not None and generation > 2:
                self.counts["skips generations, and nobody made it"] += 1
                return
            self._order += 1
            run = self.runs[name] = Run(name, self._order, self.now)
        had = (run.generation, run.state)
        if generation is None:
            generation = run.generation + 1 if state == "RUNNING" and run.state in ENDED else run.generation
        if generation > run.generation + 1:
            return
        if generation < run.generation:
            self.counts["older generation"] += 1
            return
        if generation == run.generation and (state == run.state or (state == "RUNNING" and run.state in ENDED)):
            return
        is_new = generation > run.generation
        if is_new:
            self.counts["higher generation"] += 1
            run.noted = False
        self._start_by_report(run, is_new=is_new)
        run.generation, run.state, run.delivered = generation, state, True
        far = {"SUCCEEDED": 1, "FAILED": -1}.get(state, min(self.reached.get(name.subject, 0), 0))
        self._reach(name.subject, far, made_anew=is_new and had[1] == "SUCCEEDED")

    def _start_by_report(self, run: Run, *, is_new: bool) -> None:
        """Somebody started a run. What had changed just before, nobody can say whether it ran on that."""
        unsure = self.dirty | self._all_shaken()
        if not run.claimed:
            run.claimed, run.changed = True, NO
            run.ran_on = {need: self._known_there(need, unsure) for need in run.needs}
        elif is_new:
            before, run.changed = run.ran_on, NO
            for need in run.needs:
                was, is_there = before.get(need), self.there(need)
                run.ran_on[need] = was if was == is_there and need.key not in unsure else None
        if any(need.key in unsure and run.ran_on.get(need) is not False for need in run.needs):
            run.changed = MAYBE

    def _known_there(self, need: Need, unsure: Collection[str]) -> bool | None:
        return None if need.key in unsure else self.there(need)

    def _reach(self, key: str, value: int, *, made_anew: bool = False) -> None:
        before = self.reached.get(key, 0)
        self.reached[key] = value
        if value != before or made_anew:
            self.dirty.add(key)
        if value < before > 0 or made_anew:
            self._fall(key, before, 0 if made_anew else value)

    def _fall(self, key: str, before: int, lowest: int) -> None:
        """Something is not there any more, or is another. Who had started on it is told, and what had succeeded by it is shaken."""
        for run in self.runs.values():
            needs = [need for need in run.needs if need.key == key and lowest < need.bound]
            if run.claimed:
                for need in needs:
                    ran_on = run.ran_on.get(need)
                    if ran_on is True and need.bound <= before and key not in run.was_shaken:
                        self.counts["withdrawn after claim"] += run.changed != YES
                        run.changed = YES
                    elif ran_on is not False and run.changed == NO:
                        run.changed = MAYBE
            elif run.state == "SUCCEEDED" and any(need.bound <= before for need in needs):
                self.shaken.add(run.name.subject)

    def _all_shaken(self) -> set[str]:
        """The runs that must be told, and those that stand on them."""
        found, more = set(self.shaken), set(self.shaken)
        while more:
            more = {
                run.name.subject
                for run in self.runs.values()
                if run.state == "SUCCEEDED" and not run.claimed and any(need.key in more for need in run.needs)
            } - found
            found |= more
        return found

    def _is_claimable(self, run: Run, receiver: str) -> bool:
        is_open = run.state == "READY" and run.receiver == receiver and not run.delivered
        return is_open and (run.claimed or self.satisfied(run))

    def _busy(self, run: Run) -> bool:
        same = [other for other in self.runs.values() if (other.name.job, other.name.biz) == (run.name.job, run.name.biz)]
        return any(other is not run and other.state in BUSY for other in same)

    def _due(self, job: Job, now: datetime) -> list[Span]:
        if not job.has_instances:
            return []
        first = places(job.kind)[job.since.label]
        begun = takewhile(lambda span: span.start <= now, spans(job.kind)[first:])
        return [span for span in begun if trigger_at(job.kind, job.trigger, span.label) <= now]

    def _make(self, job: Job, label: str, origin: str, together: Collection[tuple[str, str]]) -> None:
        name = RunName(job.name, label, origin)
        if name not in self.runs:
            self._order += 1
            self.runs[name] = Run(name, self._order, self.now, receiver=job.receiver)
            self._need(self.runs[name], together)

    def _needs(self, job: Job) -> Sequence[Mapping[str, Any]]:
        return [*job.needs, *(need for need, _ in self._by_rule(job))]

    def _by_rule(self, job: Job) -> Sequence[tuple[Mapping[str, Any], Kind]]:
        return needs_by_rule(job, self.after.get(job.project, ()), self.jobs.values())

    def _together(self, origin: str) -> set[tuple[str, str]]:
        return {(name.job, name.biz) for name in self.runs if origin and name.origin == origin}

    def _need(self, run: Run, together: Collection[tuple[str, str]]) -> None:
        """Find out what a run needs, as its job is defined now."""
        job, label, origin = self.jobs[run.name.job], run.name.biz, run.name.origin
        found: dict[Need, None] = {}
        run.weak = {}
        self.counts["waits by a project rule"] += bool(self._by_rule(job))
        for edge, need in enumerate(self._needs(job)):
            upstream = self.jobs[need["job"]] if "job" in need else None
            kind = upstream.kind if upstream else Kind(need.get("period", job.kind.period), need.get("zone", job.kind.zone))
            times = []
            for span in upstream_spans(str(need.get("times", "0")), job.kind, kind, label):
                some = [Need(edge, key, bound) for key, bound in self._subjects(need, upstream, kind, span, origin, together)]
                if some:
                    times.append((trigger_at(kind, upstream.trigger, span.label) if upstream else span.end, some))
                found.update(dict.fromkeys(some))
            if times and is_weak(need):
                trigger = run.made_at if origin else trigger_at(job.kind, job.trigger, label)
                run.weak[edge] = weak_of(need, job.kind.zone, trigger, times)
        run.needs = tuple(found)

    def _subjects(
        self, need: Mapping[str, Any], upstream: Job | None, kind: Kind, span: Span, origin: str, together: Collection[tuple[str, str]]
    ) -> Iterable[tuple[str, int]]:
        if upstream is None:
            return [data_subject(need, kind, span)]
        is_here = bool(origin) and (upstream.name, span.label) in together
        if span < upstream.since and not is_here:
            return []
        parts = [need["part"]] if need.get("part") else list(upstream.parts) or [""]
        return [(RunName(upstream.name, span.label, origin if is_here else "", part).subject, 1) for part in parts]

    def is_special(self, run: Run) -> bool:
        """Whether clocks change in the business time of a run, or just before it."""
        job = self.jobs.get(run.name.job)
        return job is not None and is_special(span_of(job.kind, run.name.biz), job.kind)
