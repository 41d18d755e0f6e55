"""When a lease that ended means that its holder is lost. A holder that nobody could hear gets more time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from compaction_pipeline.core.leases.timeouts import LEASE
from compaction_pipeline.core.queue.watchers import LONGEST_GAP, MOST_PATIENCE, LostLeases, Watcher, WatcherKind, lost_leases, renewed
from compaction_pipeline_tests.builders import NOW

SECOND = timedelta(seconds=1)
AT_ONCE = LostLeases(NOW, NOW)
LATER_FOR_OPTIMIZERS = LostLeases(NOW, NOW - MOST_PATIENCE)
LATER_FOR_ALL = LostLeases(NOW - MOST_PATIENCE, NOW - MOST_PATIENCE)


def server(name: str, since: timedelta, renewed: timedelta) -> Watcher:
    """A server that has been there since `since` ago, and that noted it last `renewed` ago."""
    return Watcher(name, WatcherKind.SERVER, NOW - since, NOW - renewed)


def keeper(since: timedelta) -> Watcher:
    return Watcher("keeper", WatcherKind.KEEPER, NOW - since, NOW)


@pytest.mark.parametrize(
    ("watchers", "lost"),
    [
        pytest.param([], AT_ONCE, id="nobody ever noted anything"),
        pytest.param([server("s", LEASE, LONGEST_GAP)], AT_ONCE, id="a server is there for a whole lease"),
        pytest.param([server("s", LEASE - SECOND, 0 * SECOND)], LATER_FOR_OPTIMIZERS, id="a server has just started"),
        pytest.param([server("s", 10 * LEASE, LONGEST_GAP + SECOND)], LATER_FOR_OPTIMIZERS, id="the only server is silent"),
        pytest.param([server("s", 20 * LEASE, MOST_PATIENCE - SECOND)], LATER_FOR_OPTIMIZERS, id="it is silent for almost ten minutes"),
        pytest.param([server("s", 20 * LEASE, MOST_PATIENCE)], AT_ONCE, id="it is silent for ten minutes"),
        pytest.param(
            [server("old", 10 * LEASE, 2 * LEASE), server("new", SECOND, 0 * SECOND)],
            LATER_FOR_OPTIMIZERS,
            id="another server has just taken the place of a dead one",
        ),
        pytest.param(
            [server("old", 10 * LEASE, SECOND), server("new", SECOND, 0 * SECOND)], AT_ONCE, id="one of two servers has just started"
        ),
        pytest.param([keeper(LEASE)], AT_ONCE, id="a keeper watches for a whole lease"),
        pytest.param([keeper(LEASE - SECOND)], LATER_FOR_ALL, id="a keeper has just begun to watch"),
        pytest.param([keeper(SECOND), server("s", 10 * LEASE, SECOND)], LATER_FOR_ALL, id="a keeper has just begun beside a server"),
    ],
)
def test_a_lease_is_lost_only_when_its_holder_could_have_renewed_it(watchers: list[Watcher], lost: LostLeases) -> None:
    assert lost_leases(watchers, NOW) == lost


def test_a_break_begins_a_watch_anew() -> None:
    first = renewed(None, "s", WatcherKind.SERVER, NOW, LONGEST_GAP)
    assert (first.since, first.renewed_at) == (NOW, NOW)
    soon = renewed(first, "s", WatcherKind.SERVER, NOW + LONGEST_GAP, LONGEST_GAP)
    assert (soon.since, soon.renewed_at) == (NOW, NOW + LONGEST_GAP)
    at = soon.renewed_at + LONGEST_GAP + SECOND
    assert renewed(soon, "s", WatcherKind.SERVER, at, LONGEST_GAP) == Watcher("s", WatcherKind.SERVER, at, at)
