"""The time of the demo's events. A day of it lasts a minute and a half, so that a person sees days end.

It begins forty days before the demo was first started (`DemoOptions.first_day`), so for an hour a person sees the lag shrink until it is
nearly now. It goes on where the last commit of an earlier demo stood, and never passes the clock. While the writer stands still it stands
still, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

SECONDS_OF_A_DAY = 90
WATERMARK_KEY = "watermark"
"""The key in the summaries of snapshots, in ms since 1970. The program looks for it by itself."""
LATENESS = timedelta(days=2, hours=1)
"""No event comes later than so long after it occurred. So a commit at this much behind a time says that all before that time is there."""
_LONGEST_STEP_SECONDS = 10.0
_RATE = 86_400 / SECONDS_OF_A_DAY


class EventTime:
    """Tells the writer of events at which time its events occur."""

    def __init__(self, first_day: datetime, watermark: datetime | None, seconds: Callable[[], float] = time.monotonic) -> None:
        """`watermark` is what the table's newest snapshot says."""
        self._seconds = seconds
        self._at = max(watermark or first_day, first_day) + LATENESS
        self._moved = seconds()

    def next(self, now: datetime, *, runs: bool) -> datetime:
        """The time of the next commit. It stands still unless it `runs`, as while a backlog is written."""
        passed, self._moved = self._seconds() - self._moved, self._seconds()
        if runs:
            self._at = min(self._at + timedelta(seconds=min(passed, _LONGEST_STEP_SECONDS) * _RATE), max(now, self._at))
        return self._at


def watermark_ms(at: datetime) -> str:
    """The watermark of a commit whose newest events occurred at this time, as summaries of snapshots have it."""
    return str(round((at - LATENESS).timestamp() * 1000))


def watermark_at(text: str | None) -> datetime | None:
    """The time that a summary says; None when it says none."""
    return None if text is None else datetime.fromtimestamp(int(text) / 1000, timezone.utc)
