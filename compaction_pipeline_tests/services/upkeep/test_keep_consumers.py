"""Registered consumers and the expiry of their tables: what they have not read stays, and nobody loses a registration without a word."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compaction_pipeline.core.errors import ConfigError, NotFoundError, StorageUnavailable
from compaction_pipeline.core.leases.names import commit_lease
from compaction_pipeline.core.upkeep.consumers import MOST_OF_TABLE
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.upkeep.expiring import DAY, expire, expired, snapshots


def with_old_snapshots(house: House, count: int = 4) -> tuple[LakeTable, list[int]]:
    """A table with snapshots of which only the last one may stay, and their ids, oldest first."""
    table = house.fragmented("t", 1, table_expire__enabled="true")
    for number in range(1, count):
        table.ids(number)
    house.pass_time(6 * DAY)
    return table, ids(table)


def ids(table: LakeTable) -> list[int]:
    return [one.snapshot_id for one in snapshots(table)]


def test_what_a_consumer_has_not_read_stays_until_it_has_read_on_and_until_its_registration_ends(house: House) -> None:
    table, every = with_old_snapshots(house)
    consumers = house.services.keep_consumers
    consumers.set(table.identifier, "etl", every[1], days=3)
    decided = expire(house, table, dry_run=True).stores[0].expiry
    assert decided is not None
    assert decided.kept[every[2]].reason.endswith("consumer etl has not read what came after it")
    expire(house, table)
    assert ids(table) == every[1:]
    moved = consumers.set(table.identifier, "etl", every[2], days=3)
    assert list(consumers.consumers()) == [moved]
    expire(house, table)
    assert ids(table) == every[2:]
    house.pass_time(3.1 * DAY)
    expire(house, table)
    assert ids(table) == every[3:]


def test_a_round_looks_at_a_table_again_when_a_consumer_has_read_on_or_is_gone_or_has_ended(house: House) -> None:
    table, every = with_old_snapshots(house)
    services = house.services
    services.one_table.refresh(table.identifier)

    def left_by_round() -> list[int]:
        house.pass_time(60)
        services.upkeep_tables.run()
        return ids(table)

    services.keep_consumers.set(table.identifier, "a", every[0], days=9)
    services.keep_consumers.set(table.identifier, "b", every[1], days=9)
    services.keep_consumers.set(table.identifier, "c", every[2], days=1)
    assert left_by_round() == every
    services.one_table.refresh(table.identifier)
    assert services.upkeep_tables.due() == []
    services.keep_consumers.set(table.identifier, "a", every[2], days=1)
    assert left_by_round() == every[1:]
    services.one_table.refresh(table.identifier)
    services.keep_consumers.remove(table.identifier, "b")
    assert left_by_round() == every[2:]
    services.one_table.refresh(table.identifier)
    house.pass_time(2 * DAY)
    assert left_by_round() == every[3:]


def test_a_registration_of_an_unknown_snapshot_table_or_name_is_refused_and_the_earlier_one_holds(house: House) -> None:
    table, every = with_old_snapshots(house)
    consumers = house.services.keep_consumers
    before = consumers.set(table.identifier, "etl", every[1], days=3)
    with pytest.raises(NotFoundError, match=r"cannot have read snapshot 7 of lake\.db\.t: no store of it has that"):
        consumers.set(table.identifier, "etl", 7, days=3)
    with pytest.raises(NotFoundError):
        consumers.set(replace(table.identifier, name="none"), "etl", every[1], days=3)
    with pytest.raises(ConfigError, match="must be > 0"):
        consumers.set(table.identifier, "etl", every[2], days=-1)
    with pytest.raises(NotFoundError, match="no consumer 'elt'"):
        consumers.remove(table.identifier, "elt")
    assert list(consumers.consumers(table.identifier)) == [before]


def test_nobody_registers_while_an_expiry_or_a_commit_may_remove_the_snapshot(house: House) -> None:
    table, every = with_old_snapshots(house)
    consumers, leases = house.services.keep_consumers, house.services._leases
    with leases.hold(commit_lease(table.identifier)) as renew:
        assert renew is not None
        with pytest.raises(StorageUnavailable, match="try again in some seconds"):
            consumers.set(table.identifier, "etl", every[0], days=1)
    real, said = house.services._snapshot_stores.remove, list[str]()

    def register_first(*given: object) -> object:
        with pytest.raises(StorageUnavailable) as refused:
            consumers.set(table.identifier, "etl", every[0], days=1)
        said.append(str(refused.value))
        return real(*given)  # type: ignore[arg-type]

    house.services._snapshot_stores.remove = register_first  # type: ignore[method-assign,assignment]
    assert expired(house, table).removed
    assert len(said) == 1
    assert list(consumers.consumers()) == []


def test_a_consumer_whose_snapshot_somebody_else_removed_is_told_of_by_each_expiry_and_stays_listed(house: House) -> None:
    table, every = with_old_snapshots(house)
    consumers = house.services.keep_consumers
    consumers.set(table.identifier, "etl", every[0], days=3)
    table.table.refresh().maintenance.expire_snapshots().by_id(every[0]).commit()
    (told,) = expire(house, table, dry_run=True).stores[0].lost_consumers
    assert consumers.consumers()[0].problem is None
    assert expire(house, table).stores[0].lost_consumers == (told,)
    (listed,) = consumers.consumers()
    assert listed == told
    assert f"snapshot {every[0]} of lake.db.t" in str(listed.problem)
    house.pass_time(DAY)
    assert expire(house, table).stores[0].lost_consumers == (told,)
    assert consumers.set(table.identifier, "etl", ids(table)[-1], days=3).problem is None
    assert expire(house, table).stores[0].lost_consumers == ()


def test_a_table_that_was_renamed_keeps_what_its_consumers_have_not_read(house: House) -> None:
    table, every = with_old_snapshots(house)
    house.services.keep_consumers.set(table.identifier, "etl", every[1], days=3)
    table.identifier = replace(table.identifier, name="renamed")
    table.lake.catalog.rename_table((table.lake.namespace, "t"), (table.lake.namespace, "renamed"))
    house.services.explore_catalogs.explore()
    expire(house, table)
    assert ids(table) == every[1:]


def test_a_table_has_at_most_a_hundred_consumers_and_each_of_them_may_read_on(house: House) -> None:
    table, every = with_old_snapshots(house)
    consumers = house.services.keep_consumers
    first = consumers.set(table.identifier, "c0", every[0], days=3)
    for number in range(1, MOST_OF_TABLE):
        house.services.stores.upkeep.set_consumer(replace(first, name=f"c{number}"))
    with pytest.raises(ConfigError, match="has 100 consumers"):
        consumers.set(table.identifier, "one-more", every[0], days=3)
    assert consumers.set(table.identifier, "c7", every[1], days=3).snapshot_id == every[1]


def test_a_registration_is_forgotten_a_month_after_its_end(house: House) -> None:
    table, every = with_old_snapshots(house)
    house.services.keep_consumers.set(table.identifier, "etl", every[0], days=1)
    for days, count in ((30, 1), (2, 0)):
        house.pass_time(days * DAY)
        house.services.upkeep_tables.run()
        assert len(house.services.keep_consumers.consumers()) == count
