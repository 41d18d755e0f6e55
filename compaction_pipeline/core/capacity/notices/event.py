"""Says in which words people are told of an event, and when a notice that did not arrive is sent again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from compaction_pipeline.core.words import count_text, printable, time_text

TRIED_FOR = timedelta(hours=24)
"""A notice that has not arrived after so long is given up."""
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=30), timedelta(hours=1)
"""The pause after the first try, and the longest one. Each is twice as long as the one before it."""
CLAIMED_FOR = timedelta(minutes=5)
"""Nobody else sends a notice for so long after a server has begun to. A server that dies meanwhile may have sent it: it is sent again."""
KEPT_FOR = timedelta(days=8)
"""Events, and what became of their notices, are kept for so long."""
MOST_LINES, LONGEST_LINE = 50, 1_000


@dataclass(frozen=True, slots=True)
class Event:
    """Something that people are told of. The id is unique, and stands in every notice, because a notice may arrive twice.

    `kind` says in a few words what happened, e.g. "scaled out" or "rolled back". `team` is that of the group; None tells administrators.
    """

    event_id: str
    kind: str
    group: str
    team: str | None
    at: datetime
    lines: tuple[str, ...]

    @property
    def title(self) -> str:
        """For example: Group heavy: scaled out."""
        return f"Group {self.group}: {printable(self.kind, 100)}"

    @property
    def body(self) -> str:
        """The lines, and below them the time and the id."""
        shown = [printable(line, LONGEST_LINE) for line in self.lines[:MOST_LINES]]
        more = len(self.lines) - len(shown)
        return "\n".join(
            [*shown, *([f"and {count_text(more, 'more line')}"] if more else []), f"{time_text(self.at)} UTC, event {self.event_id}"]
        )


def next_try(tries: int, first: datetime, now: datetime) -> datetime | None:
    """When a notice that was tried so often, at first at `first`, is tried again; None when it is given up."""
    at = now + min(FIRST_PAUSE * (1 << min(max(tries, 1) - 1, 12)), LONGEST_PAUSE)
    return at if at - first <= TRIED_FOR else None
