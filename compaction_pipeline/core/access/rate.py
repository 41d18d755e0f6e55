"""How many requests a token may make: a bucket that fills steadily, and from which each request takes one, and each part of a body too."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

PER_SECOND = 100.0
"""A token may make so many requests in a second on average."""
BURST = 300.0
"""It may make so many at once after a pause."""
BYTES_OF_ONE = 64 * 1024
"""Each so many bytes of a body take as much as a request."""
COST_OF_OWN = 100
"""An optimizer may make one request a second whatever others of its issued token do, and three at once after a pause: its heartbeats must
get through. Each of these takes so much of its own bucket. Its other requests take from the bucket of the issued token."""
MOST_AT_ONCE, MOST_AT_ONCE_TOGETHER = 64, 1_024
"""So many requests of a token are answered at a time, and so many of all that share one issued token. Polls that wait count too."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many requests a token may make at this time."""

    requests: float
    at: datetime


def after_request(before: Allowance | None, now: datetime, requests: int = 1) -> tuple[Allowance, float]:
    """Return what is left after so many requests, and for how many seconds the caller must wait instead; 0 when they are allowed.

    `before` is None for a token that made no request lately. Requests that are not allowed take nothing. `requests` is at most BURST.
    """
    passed = max((now - before.at).total_seconds(), 0.0) if before is not None else 0.0
    left = min(BURST, before.requests + passed * PER_SECOND) if before is not None else BURST
    if left < requests:
        return Allowance(left, now), (requests - left) / PER_SECOND
    return Allowance(left - requests, now), 0.0


def is_full(allowance: Allowance, now: datetime) -> bool:
    """Return whether nothing need be remembered of a token, because it may make a whole burst again."""
    return allowance.requests + (now - allowance.at).total_seconds() * PER_SECOND >= BURST
