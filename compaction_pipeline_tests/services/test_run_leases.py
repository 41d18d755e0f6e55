"""A run that lives never looks lost, whenever the keeper looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

from compaction_pipeline.core.queue.watchers import WatcherKind
from compaction_pipeline.services.run_leases import RunLeases
from compaction_pipeline_tests.fake_workers import FakeWatcherStore
from compaction_pipeline_tests.fakes import FakeLeaseStore

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
RUN = "a run"


class WatchedLeases(FakeLeaseStore):
    """Leases whose keeper looks after each change."""

    looked: Callable[[], object]

    def acquire(self, *arguments: Any) -> bool:
        answer = super().acquire(*arguments)
        self.looked()
        return answer

    def renew(self, *arguments: Any) -> bool:
        answer = super().renew(*arguments)
        self.looked()
        return answer

    def release(self, *arguments: Any) -> None:
        super().release(*arguments)
        self.looked()


@contextmanager
def no_heartbeat(renew: Callable[[], bool]) -> Iterator[None]:
    yield


def test_a_run_that_begins_or_ends_is_not_lost_at_any_moment() -> None:
    watchers, leases, seen = FakeWatcherStore(), WatchedLeases(), list[bool]()
    watchers.renew("keeper", WatcherKind.KEEPER, NOW - timedelta(hours=1), timedelta(days=1))
    watchers.renew("keeper", WatcherKind.KEEPER, NOW, timedelta(days=1))
    runs = RunLeases(watchers, leases, lambda: NOW, no_heartbeat, lambda: "me")
    leases.looked = lambda: seen.append(runs.is_lost(RUN))
    with runs.hold(RUN):
        assert runs.is_held(RUN)
    assert len(seen) > 3
    assert not any(seen)
