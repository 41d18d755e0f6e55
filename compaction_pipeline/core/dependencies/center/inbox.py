"""Decides what facts make of instances and of what is known, in the order in which they came.

A reporter may number what it says of one thing. Then what has a number that is not higher than the last one from there is old, or came
twice, and changes nothing. Without numbers, what comes later counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from compaction_pipeline.core.dependencies.center.instances import Instance, InstanceState, Report, after_report
from compaction_pipeline.core.dependencies.center.jobs import SCHEDULED, run_subject
from compaction_pipeline.core.dependencies.center.subjects import THERE

NOTHING = 0
"""How far a subject is that nobody told anything of. No watermark is asked for at or before 1970."""
FAILED = -1
"""How far a run is that has failed, until it has succeeded. It is not there, as one is not that nobody told anything of."""


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


@dataclass(frozen=True, slots=True)
class Fact:
    """What somebody (`source`) says of one thing: how a `run` is, by its `report`, or how far what `key` names has got (`reached`)."""

    key: str
    at: datetime
    source: str
    reached: int = NOTHING
    run: RunId | None = None
    report: Report | None = None
    number: int | None = None


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


def apply(facts: Sequence[Fact], known: Known) -> None:
    """Change what is known by these facts, one after the other."""
    for fact in facts:
        if fact.number is not None:
            last = known.numbers.get((fact.key, fact.source))
            if last is not None and fact.number <= last:
                continue
            known.numbers[fact.key, fact.source] = fact.number
        reached = fact.reached if fact.run is None or fact.report is None else _reported(known, fact.run, fact.report)
        before = known.reached.get(fact.key, NOTHING)
        if reached < before and before > NOTHING:
            known.fell[fact.key] = min(reached, known.fell.get(fact.key, reached))
        known.reached[fact.key] = reached


def _reported(known: Known, run: RunId, report: Report) -> int:
    before = known.instances.get(run) or Instance(0, run.job, run.biz, run.origin, run.part, report.at)
    after = after_report(before, report)
    if after == before:
        # What an older run reports changes nothing. A run that nobody started makes no instance: one that needs nothing would succeed.
        return known.reached.get(run.key, NOTHING)
    known.instances[run] = after
    if after.generation > before.generation and before.state is InstanceState.SUCCEEDED:
        # What it made is made anew, also when it has succeeded again by now.
        known.fell[run.key] = NOTHING
    if after.state is InstanceState.SUCCEEDED:
        return THERE
    return FAILED if after.state is InstanceState.FAILED else min(known.reached.get(run.key, NOTHING), NOTHING)
