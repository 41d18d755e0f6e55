"""Divides the life of an optimizer among what its slots did: they started, held attempts, were idle, or ended.

The optimizer counts on its own clock how long its slots have held an attempt and how long they have waited for one, and tells the totals.
The server knows how long the optimizer has been there. What is neither held nor idle is the start before the first poll, and the drain
after it. Totals can be told twice, late, or not at all: only what they grew by counts, and never more than the time that passed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class SlotTotals:
    """How long the slots of an optimizer have held an attempt, and have been idle, since it registered. Seconds, over all slots."""

    held: float = 0.0
    idle: float = 0.0

    def grown_to(self, told: SlotTotals, most: float) -> SlotTotals:
        """The totals after this was told. They never shrink, because a touch may arrive late, and grow by at most `most` together."""
        held = min(max(told.held - self.held, 0.0), most)
        return SlotTotals(self.held + held, self.idle + min(max(told.idle - self.idle, 0.0), most - held))


@dataclass(frozen=True, slots=True)
class SlotTime:
    """How long the slots of an optimizer did what, in slot-seconds."""

    starting: float = 0.0
    held: float = 0.0
    idle: float = 0.0
    ending: float = 0.0

    @property
    def seconds(self) -> float:
        """All of it together."""
        return self.starting + self.held + self.idle + self.ending

    def plus(self, more: SlotTime) -> SlotTime:
        """Both together."""
        return replace(
            self,
            starting=self.starting + more.starting,
            held=self.held + more.held,
            idle=self.idle + more.idle,
            ending=self.ending + more.ending,
        )


def passed(slots: int, between: timedelta, before: SlotTotals, now: SlotTotals, *, has_polled: bool) -> SlotTime:
    """What the slots did between two touches.

    `now` is what `before` has `grown_to`. `has_polled` says whether the optimizer had polled at the first of
    the two. The rest may be a little below 0, because two clocks and a network lie between: over a life it evens out.
    """
    held, idle = now.held - before.held, now.idle - before.idle
    rest = slots * between.total_seconds() - held - idle
    return SlotTime(0.0 if has_polled else rest, held, idle, rest if has_polled else 0.0)
