"""Decides what facts make of instances and of what is known, in the order in which they came.

A reporter may number what it says of one thing. Then what has a number that is not higher than the last one from there is old, or came
twice, and changes nothing. Without numbers, what comes later counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from compaction_pipeline.core.dependencies.center.instances import Instance, InstanceState, Report, after_report
from compaction_pipeline.core.dependencies.center.jobs import SCHEDULED, run_subject
from compaction_pipeline.core.dependencies.center.subjects import QUALITY, THERE

NOTHING = 0
"""How far a subject is that nobody told anything of. No watermark is asked for at or before 1970."""
FAILED = -1
"""How far a run is that has failed, until it has succeeded. It is not there, as one is not that nobody told anything of."""
UNJUDGED = -2
"""How far a run is that has succeeded, and whose quality nobody has told yet. It is not there, and it has not failed."""


@dataclass(frozen=True, slots=True)
class RunId:
    """Which run a report is about."""

    job: str
    biz: str
    origin: str = SCHEDULED
    part: str = ""

    @property
    def key(self) -> str:
        """The key of its subject."""
        return run_subject(self.job, self.biz, self.origin, self.part).key

    @property
    def quality_key(self) -> str:
        """The key of what was told of its quality: `reached` is the generation that passed, below zero for one that did not."""
        return f"{self.key} && {QUALITY}=told"


class Quality(str, Enum):
    """Whether what a run made is good."""

    PASSED = "PASSED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class QualityTold:
    """What somebody tells of the quality of a run. `generation` says which run. Without it, the first one or one that has succeeded is
    meant; while a run has failed, or runs again, nobody knows which that would be, so it changes nothing."""

    quality: Quality
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """What somebody (`source`) says of one thing: how a `run` is, by its `report`, whether what it made is good, by `told`, or how
    far what `key` names has got (`reached`)."""

    key: str
    at: datetime
    source: str
    reached: int = NOTHING
    run: RunId | None = None
    report: Report | None = None
    number: int | None = None
    told: QualityTold | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """What must be known to apply it."""
        # A failed run loses what was told of it, also while nobody judges the runs of its job.
        is_judged = self.told is not None or (
            self.report is not None and (self.report.is_judged or self.report.state is InstanceState.FAILED)
        )
        return (self.key,) if self.run is None or not is_judged else (self.run.key, self.run.quality_key)


@dataclass(frozen=True, slots=True)
class SetAside:
    """A fact that could not be applied: its number, what it is about, who said it and when, each None where that cannot be read; what was
    wrong (`problem`), and all of it as it is stored (`text`)."""

    id: int
    subject: str | None
    source: str | None
    at: datetime | None
    problem: str
    text: str


@dataclass(slots=True)
class Known:
    """What is known before facts are applied, and after. `fell` has, by key, the lowest point to which something fell in between."""

    reached: dict[str, int]
    instances: dict[RunId, Instance]
    numbers: dict[tuple[str, str], int]
    fell: dict[str, int] = field(default_factory=dict)


def run_fact(run: RunId, report: Report, source: str, number: int | None = None) -> Fact:
    """A report of a run."""
    return Fact(run.key, report.at, source, run=run, report=report, number=number)


def quality_fact(run: RunId, told: QualityTold, at: datetime, source: str, number: int | None = None) -> Fact:
    """What somebody says of the quality of a run."""
    return Fact(run.quality_key, at, source, run=run, number=number, told=told)


def apply(facts: Sequence[Fact], known: Known) -> None:
    """Change what is known by these facts, one after the other."""
    for fact in facts:
        number = (fact.key, fact.source)
        if fact.number is not None and fact.number <= known.numbers.get(number, fact.number - 1):
            continue
        if fact.told is not None and fact.run is not None and not _judge(known, fact.run, fact.told):
            # It says nothing of the present run, and may be said again with the same number when it does.
            continue
        if fact.number is not None:
            known.numbers[number] = fact.number
        if fact.run is None:
            _reach(known, fact.key, fact.reached)
        elif fact.told is None:
            _reach(known, fact.key, fact.reached if fact.report is None else _reported(known, fact.run, fact.report))


def _reach(known: Known, key: str, reached: int) -> None:
    before = known.reached.get(key, NOTHING)
    if reached < before and before > NOTHING:
        known.fell[key] = min(reached, known.fell.get(key, reached))
    known.reached[key] = reached


def _judge(known: Known, run: RunId, said: QualityTold) -> bool:
    """Note what was told of the quality of a run. What is told of an older run than the newest one changes nothing.

    Return whether it says something of a run that is, or that comes next.
    """
    one, before = known.instances.get(run), known.reached.setdefault(run.quality_key, NOTHING)
    newest, is_good = 1 if one is None else one.generation, said.quality is Quality.PASSED
    generation = said.generation
    if generation is None:
        if one is not None and (one.state is InstanceState.FAILED or (one.state is InstanceState.RUNNING and newest > 1)):
            # It may be of what was there before, and must not let pass what is made now.
            return False
        generation = newest
    if not newest <= generation <= newest + 1:
        return False
    if generation >= abs(before):
        known.reached[run.quality_key] = generation if is_good else -generation
    if one is not None and generation == newest and one.state is InstanceState.SUCCEEDED:
        _reach(known, run.key, THERE if is_good else FAILED)
    return True


def _reported(known: Known, run: RunId, report: Report) -> int:
    before = known.instances.get(run) or Instance(0, run.job, run.biz, run.origin, run.part, report.at)
    after = after_report(before, report)
    if after == before:
        # What an older run reports changes nothing. A run that nobody started makes no instance: one that needs nothing would succeed.
        return _again(known, run, report, before)
    known.instances[run] = after
    if after.generation > before.generation and before.state is InstanceState.SUCCEEDED:
        # What it made is made anew, also when it has succeeded again by now.
        known.fell[run.key] = NOTHING
    if after.state is InstanceState.SUCCEEDED:
        return _quality(known, run, after.generation) if report.is_judged else THERE
    if after.state is InstanceState.FAILED:
        if abs(known.reached.get(run.quality_key, NOTHING)) == after.generation:
            # When it succeeds after all, what it made then is judged anew.
            known.reached[run.quality_key] = NOTHING
        return FAILED
    return FAILED if known.reached.get(run.key) == FAILED else NOTHING


def _quality(known: Known, run: RunId, generation: int) -> int:
    """How far a run is that has succeeded, and that is judged."""
    told = known.reached.get(run.quality_key, NOTHING)
    if abs(told) != generation:
        return UNJUDGED
    return THERE if told > NOTHING else FAILED


def _again(known: Known, run: RunId, report: Report, before: Instance) -> int:
    """How far a run is of which the same was reported before. Where its job is judged no more, it waits for nobody any longer."""
    reached = known.reached.get(run.key, NOTHING)
    is_same = report.state is before.state is InstanceState.SUCCEEDED and report.generation in (None, before.generation)
    return THERE if reached in (UNJUDGED, FAILED) and is_same and not report.is_judged else reached
