"""A run that lives never looks lost, whenever the keeper looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

from compaction_pipeline.core.leases.ports import LeaseStore
from compaction_pipeline.core.queue.ports.optimizers import WatcherStore
from compaction_pipeline.core.queue.watchers import WatcherKind
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.services.held_lease import Leases
from compaction_pipeline.services.run_leases import RunLeases

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
RUN = "a run"


class WatchedLeases:
    """Leases whose keeper looks after each change."""

    def __init__(self, leases: LeaseStore) -> None:
        self._leases = leases
        self.holder = leases.holder

    looked: Callable[[], object]

    def acquire(self, *arguments: Any) -> bool:
        answer = self._leases.acquire(*arguments)
        self.looked()
        return answer

    def renew(self, *arguments: Any) -> bool:
        answer = self._leases.renew(*arguments)
        self.looked()
        return answer

    def release(self, *arguments: Any) -> None:
        self._leases.release(*arguments)
        self.looked()


@contextmanager
def no_heartbeat(renew: Callable[[], bool]) -> Iterator[None]:
    yield


def test_a_run_that_begins_or_ends_is_not_lost_at_any_moment(stores: Stores) -> None:
    watchers, leases, seen = watched(stores, NOW), WatchedLeases(stores.leases), list[bool]()
    runs = RunLeases(watchers, Leases(leases, lambda: NOW, no_heartbeat, lambda: "me"))
    leases.looked = lambda: seen.append(runs.is_lost(RUN))
    with runs.hold(RUN):
        assert runs.is_held(RUN)
    assert len(seen) > 3
    assert not any(seen)


def test_a_run_whose_step_begins_while_the_process_of_another_step_ends_is_not_lost(stores: Stores) -> None:
    watchers, leases, first_ends = watched(stores, NOW), WatchedLeases(stores.leases), ExitStack()
    leases.looked = lambda: None
    runs = RunLeases(watchers, Leases(leases, lambda: NOW, no_heartbeat, lambda: "one"))
    first_ends.enter_context(runs.hold(RUN))
    later = RunLeases(watchers, Leases(leases, lambda: NOW, no_heartbeat, lambda: "two"))
    # The lease is not free when the second process asks for it, and is given back right after that.
    leases.looked = lambda: first_ends.pop_all().close()
    with later.hold(RUN):
        assert not runs.is_held(RUN)
        assert not runs.is_lost(RUN)


def test_a_run_whose_step_is_repeated_after_its_process_was_killed_is_not_lost(stores: Stores) -> None:
    leases, after = stores.leases, NOW + timedelta(minutes=10)
    watchers = watched(stores, after)
    killed = RunLeases(watchers, Leases(leases, lambda: NOW, no_heartbeat, lambda: "one")).hold(RUN)
    killed.__enter__()
    seen = RunLeases(watchers, Leases(leases, lambda: after, no_heartbeat, lambda: "keeper"))
    assert seen.is_lost(RUN)
    with RunLeases(watchers, Leases(leases, lambda: NOW, no_heartbeat, lambda: "two")).hold(RUN):
        assert not seen.is_lost(RUN)


def watched(stores: Stores, now: datetime) -> WatcherStore:
    """Watchers with a keeper that has looked for an hour."""
    watchers = stores.watchers
    watchers.renew("keeper", WatcherKind.KEEPER, now - timedelta(hours=1), timedelta(days=1))
    watchers.renew("keeper", WatcherKind.KEEPER, now, timedelta(days=1))
    return watchers
