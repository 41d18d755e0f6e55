from __future__ import annotations

from datetime import timedelta

from compaction_pipeline.core.leases.holders import LeaseHolder
from compaction_pipeline.core.stores import Stores
from compaction_pipeline_tests.builders import NOW

LEASE = timedelta(seconds=60)
EXPIRED = NOW + LEASE


def test_a_lease_has_one_holder_until_it_ends(stores: Stores) -> None:
    assert stores.leases.acquire("commit t", "a", NOW, LEASE)
    assert not stores.leases.acquire("commit t", "b", EXPIRED - timedelta(microseconds=1), LEASE)
    assert stores.leases.acquire("commit other", "b", NOW, LEASE)
    assert stores.leases.acquire("commit t", "b", EXPIRED, LEASE)


def test_an_owner_cannot_take_its_own_lease_twice(stores: Stores) -> None:
    assert stores.leases.acquire("x", "a", NOW, LEASE)
    assert not stores.leases.acquire("x", "a", NOW, LEASE)


def test_a_renewed_lease_stays_held_and_a_lost_one_cannot_be_renewed(stores: Stores) -> None:
    stores.leases.acquire("x", "a", NOW, LEASE)
    assert stores.leases.renew("x", "a", NOW + LEASE / 2, LEASE)
    assert not stores.leases.acquire("x", "b", EXPIRED, LEASE)
    assert stores.leases.acquire("x", "b", EXPIRED + LEASE, LEASE)
    assert not stores.leases.renew("x", "a", EXPIRED + LEASE, LEASE)
    assert not stores.leases.renew("unknown", "a", NOW, LEASE)


def test_the_holder_of_a_lease_is_known_until_the_lease_ends(stores: Stores) -> None:
    assert stores.leases.holder("x", NOW) is None
    stores.leases.acquire("x", "a", NOW, LEASE)
    assert stores.leases.holder("x", NOW) == LeaseHolder("a", EXPIRED)
    assert stores.leases.holder("x", EXPIRED) is None
    stores.leases.release("x", "a")
    assert stores.leases.holder("x", NOW) is None


def test_only_the_holder_releases(stores: Stores) -> None:
    stores.leases.acquire("x", "a", NOW, LEASE)
    stores.leases.release("x", "b")
    assert not stores.leases.acquire("x", "b", NOW, LEASE)
    stores.leases.release("x", "a")
    assert stores.leases.acquire("x", "b", NOW, LEASE)
