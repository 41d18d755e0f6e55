"""A plan or a refresh that takes longer than its lease keeps the lease. One that lost its lease while it stood still changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from compaction_pipeline.core.fragmentation.verdict import PlanReasonCode
from compaction_pipeline.core.leases.timeouts import LEASE, RENEWAL_INTERVAL
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline_tests.services.house import House


class SlowHouse(House):
    """A house whose `work` lets time pass, with the heartbeats of that time."""

    beats: list[Callable[[], object]]

    def work(self, seconds: float, *, beating: bool = True) -> None:
        for _ in range(int(seconds / RENEWAL_INTERVAL.total_seconds())):
            self.pass_time(RENEWAL_INTERVAL.total_seconds())
            if beating:
                for renew in self.beats:
                    renew()

    def may_take(self, name: str) -> bool:
        return self.services.stores.leases.acquire(name, "another#1", self.now, LEASE)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[SlowHouse]:
    house = SlowHouse(tmp_path)
    house.beats = []

    @contextmanager
    def heartbeat(renew: Callable[[], object]) -> Iterator[None]:
        house.beats.append(renew)
        try:
            yield
        finally:
            house.beats.remove(renew)

    house.services._heartbeat = heartbeat
    yield house
    house.services.close()


def test_a_plan_of_seventy_seconds_keeps_its_lease_to_the_end(house: SlowHouse) -> None:
    table = house.fragmented()
    house.services.one_table.refresh(table.identifier)
    taken: list[bool] = []

    def check_writable(identifier: object) -> None:
        house.work(70)
        taken.append(house.may_take(f"plan:{identifier}"))

    house.services.plan_tables._check_writable = check_writable
    planned = house.services.plan_tables.plan(table.identifier)
    assert taken == [False]
    assert len(planned.tasks) == 1
    assert house.may_take(f"plan:{table.identifier}")


def test_a_plan_that_lost_its_lease_queues_nothing(house: SlowHouse) -> None:
    table = house.fragmented()
    house.services.one_table.refresh(table.identifier)

    def check_writable(identifier: object) -> None:
        house.work(70, beating=False)
        assert house.may_take(f"plan:{identifier}")

    house.services.plan_tables._check_writable = check_writable
    planned = house.services.plan_tables.plan(table.identifier, PlanRequest())
    assert (planned.plan.reason.code, planned.tasks, planned.busy) == (PlanReasonCode.FILES_IN_USE, (), True)
    assert house.services.stores.tasks.tasks(table.identifier) == ()
    # The other process still holds the lease.
    assert not house.services.stores.leases.acquire(f"plan:{table.identifier}", "third#1", house.now, timedelta(seconds=1))


def test_a_refresh_whose_first_request_takes_seventy_seconds_keeps_its_lease(house: SlowHouse) -> None:
    table = house.fragmented()
    taken: list[bool] = []
    scan = house.services.scan

    def slow(*arguments: object) -> object:
        house.work(70)
        taken.append(house.may_take(f"refresh:{table.identifier}"))
        return scan.real.manifests(*arguments)

    scan.instead(manifests=slow)
    assert house.services.refresh_files.refresh(table.identifier).complete
    assert taken == [False]
    assert house.may_take(f"refresh:{table.identifier}")
