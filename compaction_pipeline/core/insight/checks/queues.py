"""Judges whether the queues keep up with what is planned."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from compaction_pipeline.core.insight.checks.judgement import Failure, Judgement
from compaction_pipeline.core.queue.queue_work import QueueWork
from compaction_pipeline.core.words import count_text, duration_text

LATELY = timedelta(minutes=10)
"""The pace of a queue is what was merged in this time. A task that has waited no longer than this is never late."""
LONGEST = timedelta(hours=1)
"""At its pace, a queue should merge all that waits within this time."""


def queue_keeps_up(works: Iterable[QueueWork], now: datetime) -> Judgement:
    """Fail each queue whose oldest task has waited for long, and that will not be empty soon. The longest wait comes first.

    Fail each queue, too, of which a report was refused: an optimizer of it is broken, or is no friend. The figures of merges and reports in
    `works` are those of the time `LATELY`. Other queues in which no task waits are not judged.
    """
    works = tuple(works)
    waits = [(now - work.waiting_since, work) for work in works if work.pending and work.waiting_since is not None]
    waits.sort(key=lambda each: (-each[0], each[1].queue))
    late = [(work, why) for age, work in waits if age > LATELY and (why := _why_late(age, work)) is not None]
    refused = [(work, _refused(work)) for work in works if work.refused_reports]
    failures = tuple(Failure(None, None, why, group=work.queue) for work, why in (*refused, *late))
    oldest = max(waits[0][0], timedelta(0)) if waits else timedelta(0)
    return Judgement(
        "groups",
        len({work.queue for _, work in waits} | {work.queue for work, _ in refused}),
        failures,
        "with waiting tasks",
        "no task waits",
        f"the oldest task has waited for {duration_text(oldest)}" if waits else "",
        (("oldest_wait_seconds", round(oldest.total_seconds(), 1)),),
    )


def _refused(work: QueueWork) -> str:
    return (
        f"{count_text(work.refused_reports, 'report')} of its optimizers could not be true in the last {duration_text(LATELY)}; "
        "`compaction-pipeline optimizer list --all` shows whose they were, and `token list` which tokens are blocked"
    )


def _why_late(age: timedelta, work: QueueWork) -> str | None:
    waits = f"{count_text(work.pending, 'task')} wait, the oldest for {duration_text(age)}"
    if not work.merged and not work.executing:
        return f"{waits}, and nobody has merged any in the last {duration_text(LATELY)}"
    if not work.merged:
        return f"{waits}, and none was merged in the last {duration_text(LATELY)}" if age > LONGEST else None
    needs = LATELY * (work.pending / work.merged)
    if needs <= LONGEST:
        return None
    return f"{waits}; at the pace of the last {duration_text(LATELY)} they need {duration_text(needs)}"
