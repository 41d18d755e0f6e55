"""Counts how long the slots of this optimizer have held an attempt, and how long they have waited for one, on a monotonic clock."""

from __future__ import annotations

import time
from collections.abc import Callable

from compaction_pipeline.core.capacity.slot_time import SlotTotals


class SlotClock:
    """The totals since this object was created. A slot is idle from the first poll until polls end, whenever it holds no attempt.

    The caller makes sure that one thread uses it at a time.
    """

    def __init__(self, slots: int, seconds: Callable[[], float] = time.monotonic) -> None:
        self._slots = slots
        self._seconds = seconds
        self._since = seconds()
        self._held = self._idle = 0.0
        self._holding = 0
        self._polls = False

    def polls(self, polls: bool) -> None:
        """Note that polls begin, or that they have ended."""
        self._count()
        self._polls = polls

    def holds(self, attempts: int) -> None:
        """Note how many attempts the slots hold from now on."""
        self._count()
        self._holding = min(attempts, self._slots)

    def totals(self) -> SlotTotals:
        """Return the totals until now."""
        self._count()
        return SlotTotals(self._held, self._idle)

    def _count(self) -> None:
        now = self._seconds()
        passed, self._since = now - self._since, now
        self._held += self._holding * passed
        if self._polls:
            self._idle += (self._slots - self._holding) * passed
