"""Compares the moments at which a project rule lets instances start with those of its shadow, the form by nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from compaction_pipeline.core.dependencies.center.instances import Instance
from compaction_pipeline.core.dependencies.center.jobs import SCHEDULED

SAME = timedelta(seconds=10)
"""Moments that differ by no more are the same: the leader tells in steps, so one of two may come some passes later."""


@dataclass(frozen=True, slots=True)
class OtherMoment:
    """An instance that started at another moment by the project rule than it would by nodes; None for not yet."""

    job: str
    biz: str
    by_rule: datetime | None
    by_nodes: datetime | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """How many instances started at the same moment (`same`), which did not (`others`), how many wait both (`open`), and how many cannot be
    compared (`left_out`): they ran again, on data that changed, or beside a backfill. `farthest` is the greatest difference of two moments.
    """

    same: int = 0
    others: tuple[OtherMoment, ...] = ()
    open: int = 0
    left_out: int = 0
    farthest: timedelta = timedelta(0)

    def __add__(self, other: Comparison) -> Comparison:
        counts = self.same + other.same, (*self.others, *other.others), self.open + other.open, self.left_out + other.left_out
        return Comparison(*counts, max(self.farthest, other.farthest))


def compared(by_rule: Sequence[Instance], by_nodes: Sequence[Instance], now: datetime) -> Comparison:
    """Compare the instances of a job with those of its shadow, where there are both. Those of all origins of the job are given."""
    often = Counter(one.biz for one in by_rule)
    shadows = {one.biz: one for one in by_nodes}
    found = Comparison()
    for one in by_rule:
        shadow = shadows.get(one.biz)
        if shadow is None or one.origin != SCHEDULED:
            continue
        if one.generation > 1 or one.changed_at is not None or often[one.biz] > 1:
            found += Comparison(left_out=1)
            continue
        found += _compared(one, shadow, now)
    return found


def _compared(one: Instance, shadow: Instance, now: datetime) -> Comparison:
    moments = [at for at in (one.ready_at, shadow.ready_at) if at is not None]
    if not moments:
        return Comparison(open=1)
    apart = max(moments) - min(moments) if len(moments) > 1 else now - moments[0]
    if apart > SAME:
        return Comparison(others=(OtherMoment(one.job, one.biz, one.ready_at, shadow.ready_at),), farthest=apart)
    return Comparison(same=1, farthest=apart) if len(moments) > 1 else Comparison(open=1)


@dataclass(frozen=True, slots=True)
class Started:
    """When an instance started, and when the last of what it names itself had come; its trigger, where it names nothing."""

    at: datetime
    own: datetime


def earlier(started: Sequence[Started]) -> timedelta:
    """How much earlier instances would start without what they do not name: half of them so much or more. What makes their data would start
    earlier, too, so it may be more."""
    return timedelta(seconds=median(max((one.at - one.own).total_seconds(), 0.0) for one in started))
