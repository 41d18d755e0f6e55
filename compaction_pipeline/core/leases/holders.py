"""Who holds a lease or an attempt, in words: what is held is shown to people, who want to know which process to look at.

An owner is a holder (a process, a Dagster run) and what makes it unique: two threads of one process exclude each other too.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

_BEFORE_UNIQUE = "#"


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """The owner of a lease that has not ended yet."""

    owner: str
    expires_at: datetime


def owner_of(holder: str, unique: str) -> str:
    """The owner under which a holder takes one lease."""
    return f"{holder}{_BEFORE_UNIQUE}{unique}"


def shown_owner(owner: str) -> str:
    """The holder behind an owner, as a person may look for it."""
    return owner.partition(_BEFORE_UNIQUE)[0]


def held_in_words(held: LeaseHolder | None, doing: str) -> str:
    """ "process 4711 on lake-1 is planning lake.shop.orders (its lease ends at 12:00:30 UTC unless renewed)"."""
    if held is None:
        return f"another process was {doing} a moment ago"
    return f"{shown_owner(held.owner)} is {doing} (its lease ends at {held.expires_at:%H:%M:%S} UTC unless renewed)"
