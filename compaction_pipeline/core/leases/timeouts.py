"""How long a holder may go without renewing its lease before another process may take the attempt, or the work on the table."""

from __future__ import annotations

from datetime import datetime, timedelta

LEASE = timedelta(seconds=60)
"""A lease ends this long after its last renewal. It outlives five lost renewals in a row."""
RENEWAL_INTERVAL = timedelta(seconds=10)
"""A holder's thread renews its leases this often."""


def expires_at(now: datetime, lease: timedelta = LEASE) -> datetime:
    """Return when a lease that is taken or renewed now ends."""
    return now + lease
