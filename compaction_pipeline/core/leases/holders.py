"""Names the holders of leases and attempts, so that a person knows which process to look at.

A holder is a process or a Dagster run. An owner is the text that is stored: the holder and a unique part. The unique part makes
two threads of one process exclude each other too.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

_BEFORE_UNIQUE = "#"


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """The owner of a lease that has not ended, and the time at which the lease ends."""

    owner: str
    expires_at: datetime


def owner_of(holder: str, unique: str) -> str:
    """Return the owner under which a holder takes one lease."""
    return f"{holder}{_BEFORE_UNIQUE}{unique}"


def shown_owner(owner: str) -> str:
    """Return the holder part of an owner, which is what a person can look for."""
    return owner.partition(_BEFORE_UNIQUE)[0]


def held_in_words(held: LeaseHolder | None, doing: str) -> str:
    """Return a text that says who holds a lease and until when.

    Example: "process 4711 on lake-1 is planning lake.shop.orders (its lease ends at 12:00:30 UTC unless renewed)". `doing` is what the
    holder does, here "planning lake.shop.orders". `held` is None when the lease was free again by the time somebody looked.
    """
    if held is None:
        return f"another process was {doing} a moment ago"
    return f"{shown_owner(held.owner)} is {doing} (its lease ends at {held.expires_at:%H:%M:%S} UTC unless renewed)"
