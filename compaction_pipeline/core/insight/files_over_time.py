"""How many files all tables held over time, and how many they would hold if this program had merged nothing.

The history is short, because each age has its own distance between points: a minute in the last hour, 15 minutes in the last day, and
6 hours before that, for 30 days. So it has at most 277 points, and an hour ago is still shown in detail.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

KEPT = timedelta(days=30)
"""Older points are forgotten. Records are kept for 30 days by default too."""

_DISTANCES = (
    (timedelta(hours=1), timedelta(minutes=1)),
    (timedelta(days=1), timedelta(minutes=15)),
    (KEPT, timedelta(hours=6)),
)


@dataclass(frozen=True, slots=True)
class FilesPoint:
    """The files of all tables at one time.

    `files` counts data files and delete files: a reader of all tables opens them. `merged_away` is by how many files the commits of
    this program have made these tables smaller, as far as their records are kept.
    """

    at: datetime
    files: int
    merged_away: int

    @property
    def without_us(self) -> int:
        """The number of files if this program had merged nothing, and if writers had done the same."""
        return self.files + self.merged_away


def thinned(points: Iterable[FilesPoint], now: datetime) -> tuple[FilesPoint, ...]:
    """Return the points to keep, oldest first: the newest of all, and the newest of each step of time."""
    ordered = sorted(points, key=lambda point: point.at)
    kept = {slot: point for point in ordered if (slot := _slot(point.at, now)) is not None}
    if ordered:
        kept[(timedelta(0), 0)] = ordered[-1]
    return tuple(sorted(set(kept.values()), key=lambda point: point.at))


def continued(points: Sequence[FilesPoint], latest: FilesPoint) -> tuple[FilesPoint, ...]:
    """Return the history with the latest point behind it. While the figures stay the same, no point is added, so quiet days need none."""
    last = points[-1] if points else None
    if last is not None and (last.files, last.merged_away) == (latest.files, latest.merged_away):
        return tuple(points)
    return (*points, latest)


def _slot(at: datetime, now: datetime) -> tuple[timedelta, int] | None:
    """Return the step of time that a point belongs to; None when the point is too old."""
    for age, distance in _DISTANCES:
        if now - at < age:
            return distance, int(at.timestamp() // distance.total_seconds())
    return None
