"""Turns: when a work of upkeep looked at a table the last time, and whether it may find something new now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

AGAIN = timedelta(hours=1)
"""A work that failed, or that was refused, has its next turn after this time, also when the table does not change."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn. `metadata_location` is that of the table as the work found or left it; None when the work failed or was refused.

    `next_look` is the time from which an unchanged table may have something to do; None when time alone changes nothing.
    """

    at: datetime
    metadata_location: str | None
    next_look: datetime | None = None


def is_due(turn: Turn | None, metadata_location: str | None, now: datetime) -> bool:
    """Whether a work may find something new in a table that has this metadata. A turn in the future was noted by a wrong clock."""
    if turn is None or turn.at > now:
        return True
    if turn.metadata_location is None:
        return now >= turn.at + AGAIN
    return turn.metadata_location != metadata_location or (turn.next_look is not None and now >= turn.next_look)
