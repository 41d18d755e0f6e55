"""Says what a commit waited for, as one sentence with durations that add up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.commit.table_commits import TableCommits
from compaction_pipeline.core.words import count_text, duration_text

_SHORT = timedelta(seconds=1)
"""A shorter wait needs no explanation: ticks and runs look at most every two seconds."""


def waited_for(
    merged_at: Iterable[datetime],
    begins_at: datetime,
    commits: TableCommits,
    interval: timedelta,
    before: Sequence[CompactionRecord],
    at_once: bool,
) -> str:
    """Say what a commit of these merges waited for, by what is known of the table's commits. `before` begins with the newest record."""
    last = commits.last_committed_at
    return wait_text(
        merged_at,
        begins_at,
        interval_ends_at=last + interval if last is not None else None,
        pause_ends_at=commits.retry_at,
        other_ended_at=before[0].ended_at if before else None,
        at_once=at_once,
    )


def wait_text(
    merged_at: Iterable[datetime],
    begins_at: datetime,
    *,
    interval_ends_at: datetime | None = None,
    pause_ends_at: datetime | None = None,
    other_ended_at: datetime | None = None,
    at_once: bool = False,
) -> str:
    """Say what passed between the first of these merges and the commit, which `begins_at`. Return "" without a merge.

    `interval_ends_at` is when the table's commit interval ends, and `pause_ends_at` when the pause after a failed commit does.
    `other_ended_at` is the end of the table's commit before this one. With `at_once` somebody asked for the commit, so neither interval
    nor pause held it back, and it waited for the merges of its tasks.
    """
    merges = sorted(merged_at)
    if not merges:
        return ""
    at, last = merges[0], merges[-1]
    waited = begins_at - at
    if waited < _SHORT:
        return "did not wait"
    merging = (last, f"while {count_text(len(merges) - 1, 'more task')} of it {'was' if len(merges) == 2 else 'were'} merged")
    causes = [(other_ended_at, "for another commit of the table")]
    if at_once:
        causes.append(merging)
    else:
        causes += [(pause_ends_at, "for the pause after a failed commit"), (interval_ends_at, "for 'self-optimizing.commit.interval'")]
    parts: list[str] = []
    # Tasks that were merged while something else held the commit back delayed nothing, so they come last unless it was asked for at once.
    for ends_at, what in [*sorted((end, what) for end, what in causes if end is not None), *([] if at_once else [merging])]:
        until = min(ends_at, begins_at)
        if until - at >= _SHORT:
            early = ", which was cut short because waiting would cost more" if ends_at > begins_at else f" until {until:%H:%M:%S} UTC"
            parts.append(f"{duration_text(until - at)} {what}{early}")
            at = until
    if begins_at - at >= _SHORT:
        asked = at_once and interval_ends_at is not None and interval_ends_at > begins_at
        what = "for 'self-optimizing.commit.interval', until it was asked for at once" if asked else "for the next look at what is due"
        parts.append(f"{duration_text(begins_at - at)} {'for its turn' if at_once and not asked else what}")
    return f"waited {duration_text(waited)} after its first merge: {', '.join(parts)}"
