"""The life of one instance of a job, and what a report of its run makes of it.

    WAITING ─▶ READY ─▶ RUNNING ─▶ SUCCEEDED
       ▲         │         └─────▶ FAILED
       └─────────┘ taken back before anybody claimed it

A run that begins again has a higher generation. What an older one reports later changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import ClassVar


class InstanceState(str, Enum):
    """How far an instance is."""

    WAITING = "WAITING"
    READY = "READY"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


REPORTED = (InstanceState.RUNNING, InstanceState.SUCCEEDED, InstanceState.FAILED)
ENDED = (InstanceState.SUCCEEDED, InstanceState.FAILED)


@dataclass(frozen=True, slots=True)
class Instance:
    """One business time of a job. `biz` is its text, and `origin` is "" for what its trigger made, and else the id of a backfill. `part` is
    the part of a virtual job that was reported; "" for the whole of it.

    `missing` counts what it still waits for. `ready_at` is when nothing was missing any more, `claimed_at` when its receiver took it,
    `delivered_at` when the receiver was known to have it, and `changed_at` when data that it had been started on was taken back. `note`
    says what it was started without; None for nothing.
    """

    SCHEDULED_TEXT: ClassVar[str] = "scheduled"
    """How keys name the origin of what a trigger made. No backfill has this name."""

    id: int
    job: str
    biz: str
    origin: str
    part: str
    made_at: datetime
    generation: int = 1
    state: InstanceState = InstanceState.WAITING
    missing: int = 0
    ready_at: datetime | None = None
    claimed_at: datetime | None = None
    delivered_at: datetime | None = None
    ended_at: datetime | None = None
    changed_at: datetime | None = None
    note: str | None = None

    @property
    def key(self) -> str:
        """The idempotency key of its start: whoever gets it twice starts once."""
        return "/".join((self.job, self.biz, self.origin or self.SCHEDULED_TEXT, str(self.generation)))


@dataclass(frozen=True, slots=True)
class Report:
    """Somebody says how a run is: RUNNING, SUCCEEDED or FAILED. `generation` is None when the reporter does not count runs. What a run
    made that `is_judged` counts only when somebody has told that it is good."""

    state: InstanceState
    at: datetime
    generation: int | None = None
    is_judged: bool = False


def after_report(before: Instance, report: Report) -> Instance:
    """The instance as the report makes it; the same one when the report is of an older run, or came too late to say anything new.

    Generations follow each other, so one that skips some is of no run that anybody started.

    A run that starts after its end is a new generation. So does one that says it is, whoever started it. A run that nobody had released
    counts: its data is there, or is being made.
    """
    generation = before.generation
    if report.generation is not None:
        generation = report.generation
    elif report.state is InstanceState.RUNNING and before.state in ENDED:
        generation = before.generation + 1
    if not before.generation <= generation <= before.generation + 1:
        return before
    if generation == before.generation and report.state is InstanceState.RUNNING and before.state in REPORTED:
        return before
    if generation == before.generation and report.state is before.state:
        return before
    return replace(
        before,
        generation=generation,
        state=report.state,
        ready_at=before.ready_at or report.at,
        claimed_at=before.claimed_at or report.at,
        delivered_at=before.delivered_at or report.at,
        ended_at=report.at if report.state in ENDED else None,
        changed_at=before.changed_at if generation == before.generation else None,
        note=before.note if generation == before.generation else None,
    )
