"""Remembers what was answered about a partition or a window, so that a withdrawal is seen as one, and a rule that is too early as such.

Only answers that somebody got count: what nobody was told cannot be withdrawn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from compaction_pipeline.core.dependencies.judge import Verdict


@dataclass(frozen=True, slots=True)
class Answer:
    """The last answer to one question about one table (by its uuid). `what` is the `Asked.what` of the question.

    It is `ready`, or not, since this time. `heads` are the heads of the table's stores, and `added_at` the last time at which files were
    added, when it became ready first. `withdrawals` counts how often it was taken back, and `gap` is the longest time that had passed
    without files, under `quiet`, before late ones came. `asked_at` is when somebody asked last.
    """

    what: str
    rule: str
    ready: bool
    since: datetime
    asked_at: datetime
    heads: tuple[int | None, ...] = ()
    added_at: datetime | None = None
    withdrawals: int = 0
    gap: timedelta | None = None


def answered(before: Answer | None, what: str, rule: str, verdict: Verdict, heads: tuple[int | None, ...], now: datetime) -> Answer:
    """The answer that this verdict makes of the one before. Another rule begins anew: what changed is the question. But what was ready and
    is ready has stayed so."""
    if before is not None and before.rule != rule and before.ready and verdict.ready:
        return replace(before, rule=rule, asked_at=now, added_at=verdict.added_at, withdrawals=0, gap=None)
    if before is None or before.rule != rule:
        return Answer(what, rule, verdict.ready, now, now, heads, verdict.added_at)
    if before.ready == verdict.ready:
        return replace(before, asked_at=now)
    if verdict.ready:
        return replace(before, ready=True, since=now, asked_at=now, heads=heads, added_at=verdict.added_at)
    gap = verdict.added_at - before.added_at if verdict.added_at is not None and before.added_at is not None else None
    longest = max((each for each in (gap, before.gap) if each is not None), default=None)
    return replace(before, ready=False, since=now, asked_at=now, withdrawals=before.withdrawals + 1, gap=longest)
