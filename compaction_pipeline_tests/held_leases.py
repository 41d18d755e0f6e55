"""A fixture that lets a sensor hold a lease for a moment."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from compaction_pipeline.storage.leases import SqlLeaseStore


@pytest.fixture
def held_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """A function that takes a lease's name. The first process that asks for this lease is refused, because a sensor holds it.

    The function returns a list, which is empty at first and holds the lease's name after that refusal.
    """

    def hold(name: str) -> list[str]:
        refused: list[str] = []
        acquire = SqlLeaseStore.acquire

        def asked(store: SqlLeaseStore, wanted: str, owner: str, now: datetime, lease: timedelta) -> bool:
            if wanted != name or refused:
                return acquire(store, wanted, owner, now, lease)
            assert acquire(store, name, "sensor#1", now, lease)
            taken = acquire(store, name, owner, now, lease)
            store.release(name, "sensor#1")
            refused.append(name)
            return taken

        monkeypatch.setattr(SqlLeaseStore, "acquire", asked)
        return refused

    return hold
