"""How the dependency center does: how much waits, for how long, and how fast what is there lets instances start."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from compaction_pipeline.core.dependencies.center.instances import InstanceState

COUNTED = (InstanceState.WAITING, InstanceState.READY, InstanceState.RUNNING, InstanceState.FAILED)
"""All but those that have succeeded: they are the millions of a year, and nothing is to be done for them."""
NEWEST = 1_000
LATELY = timedelta(hours=25)
"""Missed events of so long are shown and judged: the last day, and the hour in which it began, because they are counted by the hour."""


@dataclass(frozen=True, slots=True)
class MissedEvents:
    """How many changes of a table (`name`) the patrol found that a `detector` should have seen before. `last_at` is the hour of the last
    one."""

    detector: str
    name: str
    events: int
    last_at: datetime


@dataclass(frozen=True, slots=True)
class CenterFigures:
    """How many instances that somebody starts are in each state of `COUNTED`. `unclaimed_since` is when the first of those that are ready
    and unclaimed became ready, and `report_since` is when the first report came that the leader has not taken in; None when there is none.

    `delays` are of the newest 1,000 instances that became ready: how long it took from the moment at which the leader had taken in the last
    thing that they needed. `set_aside` counts the facts that could not be applied, and `missed` the events of the last day that a detector
    missed. `alerts` counts what owners of jobs should look at, by owner. All is as it was `at` this time.
    """

    at: datetime

    instances: Mapping[InstanceState, int]
    unclaimed_since: datetime | None
    report_since: datetime | None
    delays: tuple[timedelta, ...]
    set_aside: int = 0
    missed: int = 0
    alerts: Mapping[str, int] = field(default_factory=dict)

    def age(self, since: datetime | None) -> timedelta:
        """How long ago that was; nothing for None."""
        return timedelta(0) if since is None else max(self.at - since, timedelta(0))

    def delay(self, share: float) -> timedelta | None:
        """The delay that this share of them did not exceed, e.g. 0.99; None without any."""
        return sorted(self.delays)[math.ceil(share * len(self.delays)) - 1] if self.delays else None


class CenterFiguresReader(Protocol):
    """The figures of the dependency center."""

    def figures(self, now: datetime) -> CenterFigures:
        """Return the figures of now."""
