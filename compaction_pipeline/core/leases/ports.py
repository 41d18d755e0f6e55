"""The clock, the leases and the threads that renew them: what every column needs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Protocol

from compaction_pipeline.core.leases.holders import LeaseHolder

Clock = Callable[[], datetime]
"""Now, aware, in UTC. Only `bootstrap` reads the real one."""


Heartbeat = Callable[[Callable[[], object]], AbstractContextManager[None]]
"""Calls its argument every `RENEWAL_INTERVAL` beside the block that it opens; one call that fails does not end it."""


class LeaseStore(Protocol):
    """Named leases: one committer per table, one refresher per table."""

    def acquire(self, name: str, owner: str, now: datetime, lease: timedelta) -> bool: ...

    def holder(self, name: str, now: datetime) -> LeaseHolder | None:
        """Who holds it; None when it is free, or its time is over."""

    def renew(self, name: str, owner: str, now: datetime, lease: timedelta) -> bool: ...

    def release(self, name: str, owner: str) -> None: ...
