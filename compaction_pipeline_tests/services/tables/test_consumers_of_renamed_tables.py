"""Consumers of tables that were renamed: what they have not read stays, whoever has the old name meanwhile."""

from __future__ import annotations

import pytest

from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.tables.test_follow_names import loaded, named, rename
from compaction_pipeline_tests.services.upkeep.expiring import DAY, expire


@pytest.mark.parametrize("order", [("orders", "orders_old"), ("orders_old", "orders")])
def test_a_consumer_stays_with_its_table_when_another_takes_the_name(house: House, order: tuple[str, str]) -> None:
    services = house.services
    old = house.fragmented("orders", 1, table_expire__enabled="true")
    new = house.fragmented("orders_new", 1, table_expire__enabled="true")
    for table in (old, new):
        for number in range(1, 4):
            table.ids(number)
    house.pass_time(6 * DAY)
    before = [one.snapshot_id for one in loaded(house, "orders").snapshots()]
    fresh = [one.snapshot_id for one in loaded(house, "orders_new").snapshots()]
    services.keep_consumers.set(old.identifier, "etl", before[1], days=30)
    services.keep_consumers.set(new.identifier, "etl", fresh[2], days=30)
    for table in (old, new):
        assert services.refresh_files.refresh(table.identifier).complete
    rename(house, "orders", "orders_old")
    rename(house, "orders_new", "orders")
    services.explore_catalogs.explore()
    for name in order:
        assert services.refresh_files.refresh(named(old, name)).complete
    for _ in range(3):
        house.pass_time(300)
        services.explore_catalogs.explore()
        for state in services.stores.tables.states():
            services.refresh_files.refresh(state.table)
    old.identifier = named(old, "orders_old")
    expire(house, old)
    assert [one.snapshot_id for one in loaded(house, "orders_old").snapshots()] == before[1:]


def test_a_consumer_of_the_new_table_of_a_name_leaves_that_of_the_renamed_one(house: House) -> None:
    services = house.services
    old = house.fragmented("orders", 1, table_expire__enabled="true")
    for number in range(1, 4):
        old.ids(number)
    house.pass_time(6 * DAY)
    before = [one.snapshot_id for one in loaded(house, "orders").snapshots()]
    services.keep_consumers.set(old.identifier, "etl", before[1], days=30)
    services.refresh_files.refresh(old.identifier)
    rename(house, "orders", "sales")
    new = house.fragmented("orders", 1)
    head = loaded(house, "orders").current_snapshot()
    assert head is not None
    services.keep_consumers.set(new.identifier, "etl", head.snapshot_id, days=30)
    old.identifier = named(old, "sales")
    for table in (old, new):
        services.refresh_files.refresh(table.identifier)
    expire(house, old)
    assert [one.snapshot_id for one in loaded(house, "sales").snapshots()] == before[1:]
