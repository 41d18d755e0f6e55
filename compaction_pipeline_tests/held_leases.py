"""A lease that somebody else holds for a moment, whoever opens the state database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from compaction_pipeline.storage.leases import SqlLeaseStore


@pytest.fixture
def held_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Takes a lease's name: who asks for it first is refused, as a sensor holds it just then. The answer names it when that was."""

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
