"""How long a holder may stay silent before its attempt, or its table's commit, is taken from it."""

from __future__ import annotations

from datetime import datetime, timedelta

LEASE = timedelta(seconds=60)
"""A lease ends this long after its last renewal; six renewals may get lost before work is given to another."""
RENEWAL_INTERVAL = timedelta(seconds=10)
"""How often a holder's thread renews."""


def expires_at(now: datetime, lease: timedelta = LEASE) -> datetime:
    """When a lease that is taken or renewed now ends."""
    return now + lease


def is_expired(lease_expires_at: datetime | None, now: datetime) -> bool:
    """Whether the holder lost it. Without a lease nobody holds it, so it counts as expired."""
    return lease_expires_at is None or lease_expires_at <= now
