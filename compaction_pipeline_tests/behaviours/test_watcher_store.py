from __future__ import annotations

from datetime import timedelta

from compaction_pipeline.core.queue.watchers import FORGOTTEN_AFTER, LONGEST_GAP, Watcher, WatcherKind
from compaction_pipeline.core.stores import Stores
from compaction_pipeline_tests.behaviours.example_tasks import example
from compaction_pipeline_tests.builders import NOW

SECOND = timedelta(seconds=1)
SERVER, KEEPER = WatcherKind.SERVER, WatcherKind.KEEPER


def test_a_watcher_is_there_since_it_was_first_noted_until_it_has_a_break(stores: Stores) -> None:
    assert stores.watchers.watchers() == ()
    stores.watchers.renew("s1", SERVER, NOW, LONGEST_GAP)
    soon = NOW + LONGEST_GAP
    stores.watchers.renew("s1", SERVER, soon, LONGEST_GAP)
    stores.watchers.renew("keeper", KEEPER, soon, LONGEST_GAP)
    assert stores.watchers.watchers() == (Watcher("keeper", KEEPER, soon, soon), Watcher("s1", SERVER, NOW, soon))
    after_a_break = soon + LONGEST_GAP + SECOND
    stores.watchers.renew("s1", SERVER, after_a_break, LONGEST_GAP)
    stores.watchers.renew("keeper", KEEPER, after_a_break, 2 * LONGEST_GAP)
    assert stores.watchers.watchers() == (
        Watcher("keeper", KEEPER, soon, after_a_break),
        Watcher("s1", SERVER, after_a_break, after_a_break),
    )


def test_a_new_watcher_makes_those_forgotten_that_were_silent_for_long(stores: Stores) -> None:
    stores.watchers.renew("old", SERVER, NOW, LONGEST_GAP)
    stores.watchers.renew("later", SERVER, NOW + SECOND, LONGEST_GAP)
    stores.watchers.renew("new", SERVER, NOW + SECOND + FORGOTTEN_AFTER, LONGEST_GAP)
    assert [watcher.name for watcher in stores.watchers.watchers()] == ["later", "new"]


def test_only_leases_that_ended_in_time_are_lost_and_spared_owners_keep_theirs(stores: Stores) -> None:
    lease = timedelta(seconds=60)
    names = ("early", "spared", "late")
    stores.tasks.insert([example(name, files=(name,)) for name in names], [], NOW)
    for owner, at in zip(names, (NOW, NOW, NOW + SECOND), strict=True):
        assert stores.tasks.poll(None, owner, at, lease, [owner]) is not None
    ended, now = NOW + lease, NOW + timedelta(hours=1)
    assert stores.tasks.release_expired(now, ended, ["spared", "another"]) == ("early",)
    assert stores.tasks.release_expired(now, ended) == ("spared",)
    assert stores.tasks.release_expired(now) == ("late",)
