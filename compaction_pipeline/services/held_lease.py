"""Holds a lease while a use case works, and renews it beside the work. A lease also remembers when something was done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime, timedelta

from compaction_pipeline.core.leases.holders import LeaseHolder
from compaction_pipeline.core.leases.ports import Clock, Heartbeat, LeaseStore, Renew
from compaction_pipeline.core.leases.timeouts import LEASE


def _unmeasured(name: str) -> AbstractContextManager[None]:
    return nullcontext()


class Leases:
    """The leases that this process takes, by the clock that all processes share.

    The verbs are hold and holder, lead and release for a lease that outlasts a block, and note_done and done_at.
    """

    def __init__(
        self,
        store: LeaseStore,
        clock: Clock,
        heartbeat: Heartbeat,
        new_owner: Callable[[], str],
        measured: Callable[[str], AbstractContextManager[None]] = _unmeasured,
    ) -> None:
        """`new_owner` returns an owner that no other lease has. It names this process for others that wait.

        `measured` measures what is done under a lease, by its name.
        """
        self._store = store
        self._heartbeat = heartbeat
        self.clock = clock
        self.new_owner = new_owner
        self.measured = measured

    @contextmanager
    def hold(self, name: str) -> Iterator[Renew | None]:
        """Hold a lease, and renew it beside the block. Yield how to renew it, or None when another process holds it."""
        owner = self.new_owner()
        if not self._store.acquire(name, owner, self.clock(), LEASE):
            yield None
            return

        def renew() -> bool:
            return self._store.renew(name, owner, self.clock(), LEASE)

        try:
            with self.measured(name), self._heartbeat(renew):
                yield renew
        finally:
            self._store.release(name, owner)

    def holder(self, name: str, at: datetime | None = None) -> LeaseHolder | None:
        """Return who holds a lease now, or held it at another time; None when it was free or had ended."""
        return self._store.holder(name, at or self.clock())

    def lead(self, name: str, owner: str, lease: timedelta) -> bool:
        """Renew a lease, or take it when nobody holds it. Return whether this owner has it now."""
        now = self.clock()
        return self._store.renew(name, owner, now, lease) or self._store.acquire(name, owner, now, lease)

    def release(self, name: str, owner: str | None = None) -> None:
        """Free a lease of this owner. Without an owner, forget that something was done."""
        self._store.release(name, owner or name)

    def note_done(self, name: str, remembered: timedelta) -> None:
        """Remember that something was done now, whichever process did it. `done_at` knows this for the time `remembered`."""
        self.lead(name, name, remembered)

    def done_at(self, name: str, remembered: timedelta) -> datetime | None:
        """Return when it was done the last time; None when nobody remembers."""
        last = self.holder(name)
        return None if last is None else last.expires_at - remembered
