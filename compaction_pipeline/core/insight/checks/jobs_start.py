"""Judges instances of jobs that are ready: each is started soon, and the count of what instances miss is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from compaction_pipeline.core.dependencies.center.instances import Instance
from compaction_pipeline.core.insight.checks.judgement import Failure, Judgement
from compaction_pipeline.core.words import count_text, duration_text

START_TIMEOUT = timedelta(minutes=10)
"""A receiver has so long to claim what is ready, and then so long to report that it runs. Nothing is started a second time by itself."""


@dataclass(frozen=True, slots=True)
class ReadyJobs:
    """The instances that are ready, the oldest first, by the receiver that starts them. `miscounted` is how many waiting instances have
    another count of what they miss than their requirements: a fault of this program."""

    by_receiver: Mapping[str, Sequence[Instance]]
    miscounted: int = 0


def jobs_start(ready: ReadyJobs, now: datetime) -> Judgement:
    """Fail each receiver that has not started an instance in time, and a wrong count."""
    failures = []
    for receiver, instances in sorted(ready.by_receiver.items()):
        late = [one for one in instances if now - (one.claimed_at or one.ready_at or now) > START_TIMEOUT]
        if late:
            failures.append(Failure(None, None, _reason(late, now), receiver=receiver))
    if ready.miscounted:
        would_wait = f"{count_text(ready.miscounted, 'instance')} would wait for ever"
        wrong = f"{would_wait}: their count is wrong; save their project again, and report this"
        failures.append(Failure(None, None, wrong, receiver="of every job"))
    judged = max(len(ready.by_receiver), len(failures))
    return Judgement("receivers", judged, tuple(failures), "with ready jobs", "no job waits to be started")


def _reason(late: Sequence[Instance], now: datetime) -> str:
    first = late[0]
    others = f" and {len(late) - 1} more" if len(late) > 1 else ""
    if first.claimed_at is None:
        age = duration_text(now - (first.ready_at or now))
        return f"{first.key}{others}: ready for {age}, and nobody claimed it: see that a scheduler claims for this receiver"
    age = duration_text(now - first.claimed_at)
    return (
        f"{first.key}{others}: claimed {age} ago, and no run was reported: see whether it runs, and report it; "
        "`compaction-pipeline dependencies run-again` starts it once more"
    )
