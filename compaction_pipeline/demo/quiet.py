"""Finds out when all work is done: nothing is due and nothing is queued, and two ticks later this still holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_QUIET_TICKS = 2
_SHOW_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class WorkLeft:
    """What is still to do: a reason for each table with work, and the number of open tasks. Both are empty when nothing is left."""

    tables: Mapping[str, str]
    open_tasks: int

    @property
    def nothing(self) -> bool:
        return not self.tables and not self.open_tasks

    @property
    def short(self) -> str:
        """The same in a few words, for a line of progress."""
        parts = [*self.tables, *([f"{self.open_tasks} tasks in the queue"] if self.open_tasks else [])]
        return ", ".join(parts) or "nothing"

    def __str__(self) -> str:
        parts = [f"{name}: {reason}" for name, reason in self.tables.items()]
        if self.open_tasks:
            parts.append(f"{self.open_tasks} tasks in the queue")
        return "; ".join(parts) or "nothing"


def wait_until_quiet(
    left: Callable[[], WorkLeft],
    tick: Callable[[], None],
    show: Callable[[WorkLeft], None],
    patience: float,
    clock: Callable[[], float] = time.monotonic,
) -> WorkLeft:
    """Wait until two looks, a tick apart, find no work left, or until nothing has changed for `patience` seconds. Answer the work that is
    left.

    A slow or busy machine takes its time, so how long all of it takes says nothing.
    """
    quiet, shown, changed = 0, clock(), clock()
    before = ""
    while True:
        found = left()
        quiet = quiet + 1 if found.nothing else 0
        if found.short != before:
            before, changed = found.short, clock()
        if quiet > _QUIET_TICKS or clock() - changed > patience:
            return found
        if clock() - shown >= _SHOW_SECONDS:
            show(found)
            shown = clock()
        tick()
