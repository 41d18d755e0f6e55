"""Says what the work of the program itself is: planning, commits and ticks, which hold no slot and have no attempt.

It is measured while a lease is held, so a lease's name says whose work it is. It stands beside the costs of attempts, and no limit of a
team counts it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import Enum


class OwnKind(str, Enum):
    """A table is planned, a table is committed, or a tick looks which tables have changed and what is due."""

    PLAN = "plan"
    COMMIT = "commit"
    TICK = "tick"


@dataclass(frozen=True, slots=True)
class OwnWork:
    """What work of one kind has used on a UTC day: how often it was done, its seconds, and the CPU seconds of the thread that did it.

    `table` is the identifier of its table, and `team` who pays for that. Both are "" for ticks, which are of no table.
    """

    day: date
    kind: OwnKind
    table: str
    team: str
    times: int
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class OwnSum:
    """The sum of such work by one key of costs; "" is the key of what belongs to no table."""

    key: str
    kind: OwnKind
    times: int
    seconds: float
    cpu_seconds: float


def own_work_of(lease: str) -> tuple[OwnKind, str] | None:
    """Return what is done under a lease, and the table; None for a lease whose work belongs to what is around it."""
    kind, _, table = lease.partition(":")
    found = next((each for each in OwnKind if each.value == kind), None)
    return None if found is None else (found, table)
