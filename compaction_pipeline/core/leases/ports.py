"""What every column needs: the clock, the leases, and the threads that renew leases."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Protocol

from compaction_pipeline.core.leases.holders import LeaseHolder

Clock = Callable[[], datetime]
"""Returns the time now, aware, in UTC. The services get the real clock from `bootstrap`, and tests give them a clock of their own."""


Heartbeat = Callable[[Callable[[], object]], AbstractContextManager[None]]
"""Opens a block and calls its argument every `RENEWAL_INTERVAL`, in a thread, until the block ends. A call that fails does not end this."""


Renew = Callable[[], bool]
"""Renews a lease, and returns False when it was lost."""


class HeldLeases(Protocol):
    """Holds a lease while a use case works. `Leases` (services/held_lease.py) does so, and has verbs for longer leases too."""

    @property
    def clock(self) -> Clock:
        """The clock that all processes share."""

    @property
    def new_owner(self) -> Callable[[], str]:
        """Returns an owner that no other lease has."""

    def hold(self, name: str) -> AbstractContextManager[Renew | None]:
        """Hold a lease, and renew it beside the block. Yield how to renew it, or None when another process holds it."""

    def holder(self, name: str) -> LeaseHolder | None:
        """Return who holds a lease now; None when it is free or has ended."""


class LeaseStore(Protocol):
    """Named leases. Each has at most one owner: for example one committer, one planner and one refresher per table.

    `lease` is how long a lease lasts after it is taken or renewed.
    """

    def acquire(self, name: str, owner: str, now: datetime, lease: timedelta) -> bool:
        """Take a lease and return True; False when anybody holds it, even the same owner."""

    def holder(self, name: str, now: datetime) -> LeaseHolder | None:
        """Return who holds a lease; None when it is free or has ended."""

    def renew(self, name: str, owner: str, now: datetime, lease: timedelta) -> bool:
        """Renew a lease and return True; False when the owner lost it. An owner may renew late while nobody else took the lease."""

    def release(self, name: str, owner: str) -> None:
        """Free a lease of this owner. Nothing happens when the owner does not hold it."""
