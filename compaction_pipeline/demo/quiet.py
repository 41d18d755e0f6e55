"""When the work is done: nothing due and nothing queued, and still so two ticks later."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_QUIET_TICKS = 2
_SHOW_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class WorkLeft:
    """What is still to do: a sentence per table, and the tasks that are not at an end. Empty: nothing."""

    tables: Mapping[str, str]
    open_tasks: int

    @property
    def nothing(self) -> bool:
        return not self.tables and not self.open_tasks

    @property
    def short(self) -> str:
        """For a line of progress."""
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
    limit: float,
    clock: Callable[[], float] = time.monotonic,
) -> WorkLeft:
    """Wait until nothing is left at two looks a tick apart, or the limit in seconds is over; answers what is left then."""
    deadline = clock() + limit
    quiet, shown = 0, clock()
    while True:
        found = left()
        quiet = quiet + 1 if found.nothing else 0
        if quiet > _QUIET_TICKS or clock() > deadline:
            return found
        if clock() - shown >= _SHOW_SECONDS:
            show(found)
            shown = clock()
        tick()
