"""Holds a lease while a use case works, and renews it beside the work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
