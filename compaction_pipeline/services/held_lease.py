"""Holds a lease while a use case works, and renews it beside the work. A lease also remembers when something was done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from compaction_pipeline.core.leases.ports import Clock, Heartbeat, LeaseStore
from compaction_pipeline.core.leases.timeouts import LEASE

Renew = Callable[[], bool]
"""Renews a lease, and returns False when it was lost."""


@contextmanager
def held_lease(leases: LeaseStore, clock: Clock, heartbeat: Heartbeat, name: str, owner: str) -> Iterator[Renew | None]:
    """Hold the lease `name`, and renew it beside the block. Yield how to renew it, or None when another process holds it."""
    if not leases.acquire(name, owner, clock(), LEASE):
        yield None
        return

    def renew() -> bool:
        return leases.renew(name, owner, clock(), LEASE)

    try:
        with heartbeat(renew):
            yield renew
    finally:
        leases.release(name, owner)


def note_done(leases: LeaseStore, name: str, now: datetime, remembered: timedelta) -> None:
    """Remember that something was done now, whichever process did it. `done_at` knows this for the time `remembered`."""
    if not leases.renew(name, name, now, remembered):
        leases.acquire(name, name, now, remembered)


def done_at(leases: LeaseStore, name: str, now: datetime, remembered: timedelta) -> datetime | None:
    """Return when it was done the last time; None when nobody remembers."""
    last = leases.holder(name, now)
    return None if last is None else last.expires_at - remembered
