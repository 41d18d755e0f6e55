"""Tables that are renamed, swapped, dropped and made anew: what is known of one goes along with it, and never to another."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from pyiceberg.table import Table

from compaction_pipeline.core.commit.record import RecordStatus
from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.leases.names import commit_lease
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.upkeep.record import UpkeepStatus
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.iceberg.rewrite_files import Transaction
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.services.heard import Between
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.serving import serving
from compaction_pipeline_tests.services.upkeep.expiring import DAY, expire

SEVERAL = {"self-optimizing.max-task-size-bytes": "1", "self-optimizing.target-size": "12000"}
FORCED = PlanRequest(types=(CompactionType.MINOR,), force=True)


def named(table: LakeTable, name: str) -> TableIdentifier:
    return replace(table.identifier, name=name)


def rename(house: House, before: str, after: str) -> None:
    house.lake.catalog.rename_table(("db", before), ("db", after))


def swap(house: House, one: str, other: str) -> None:
    for before, after in ((one, "between"), (other, one), ("between", other)):
        rename(house, before, after)


def loaded(house: House, name: str) -> Table:
    return house.lake.catalog.load_table(("db", name))


def rows(house: House, name: str) -> list[int]:
    """The ids of the live rows, read with everything that the newest snapshot names."""
    return sorted(loaded(house, name).scan().to_arrow()["id"].to_pylist())


def keys(house: House, table: TableIdentifier) -> list[str]:
    return [node.key for node in house.services.stores.tables.nodes(table)]


def known(house: House) -> list[str]:
    return [state.table.name for state in house.services.stores.tables.states()]


def test_a_renamed_table_keeps_its_pause_tasks_records_nodes_and_keys(house: House) -> None:
    table = house.fragmented("orders")
    services = house.services
    (record,) = services.compact_tables.compact(table.identifier, FORCED).records
    table.ids(*range(100, 120))
    assert services.one_table.plan_nodes(table.identifier, FORCED).tasks
    services.explore_catalogs.pause(table.identifier)
    before = services.stores.tables.nodes(table.identifier)
    rename(house, "orders", "sales")
    sales = named(table, "sales")
    # The listing sees the new name and misses the old one in the same round.
    assert services.explore_catalogs.explore().dropped == ()
    assert services.refresh_files.refresh(sales).complete
    assert known(house) == ["sales"]
    assert services.stores.tables.state(sales).paused
    assert [one.record_id for one in services.stores.records.records(sales)] == [record.record_id]
    assert {one.table for one in services.stores.records.records()} == {sales}
    assert {task.table for task in services.stores.tasks.tasks()} == {sales}
    after = services.stores.tables.nodes(sales)
    assert [(node.key, node.first_seen, node.last_done, node.verdict) for node in after] == [
        (node.key, node.first_seen, node.last_done, node.verdict) for node in before
    ]
    assert keys(house, sales) == ["db.orders"]
    services.explore_catalogs.resume(sales)
    assert services.compact_tables.compact(sales, FORCED).committed
    assert rows(house, "sales") == [*range(12), *range(100, 120)]
    house.pass_time(180)
    explored = services.explore_catalogs.explore()
    assert (explored.dropped, explored.unseen) == ((), ())


def test_another_table_with_the_old_name_of_a_renamed_one_has_keys_and_a_history_of_its_own(house: House) -> None:
    table = house.fragmented("orders")
    services = house.services
    assert services.compact_tables.compact(table.identifier, FORCED).committed
    rename(house, "orders", "sales")
    again = house.fragmented("orders", 3)
    assert services.refresh_files.refresh(named(table, "sales")).complete
    assert services.refresh_files.refresh(again.identifier).complete
    assert keys(house, named(table, "sales")) == ["db.orders"]
    assert keys(house, again.identifier) == ["lake.db.orders/0//0-0"]
    assert len(services.stores.records.records(named(table, "sales"))) == 1
    assert services.stores.records.records(again.identifier) == ()


def test_a_task_that_runs_while_its_table_is_renamed_is_committed_under_the_new_name(house: House) -> None:
    table = house.fragmented("orders", files=24, **SEVERAL)
    services, sales = house.services, named(table, "sales")
    running: list[TaskStatus] = []

    def renamed() -> None:
        rename(house, "orders", "sales")
        services.explore_catalogs.explore()
        assert services.refresh_files.refresh(sales).complete
        running.extend(task.status for task in services.stores.tasks.tasks(sales))

    services.engine_override = Between(renamed)
    planned = services.one_table.plan_nodes(table.identifier, FORCED).tasks
    assert len(planned) > 1
    services.compact_tables.carry_out({}, serving(until=lambda: False, linger=timedelta(0)))
    assert TaskStatus.EXECUTING in running
    services.commit_tables.commit(sales)
    tasks = services.stores.tasks.tasks()
    assert {(task.table, task.status) for task in tasks} == {(sales, TaskStatus.COMMITTED)}
    assert len(tasks) == len(planned)
    assert rows(house, "sales") == list(range(24))
    assert {record.table for record in services.stores.records.records()} == {sales}


@pytest.mark.parametrize("first", ["a", "b"])
def test_two_tables_that_swap_their_names_never_mix(house: House, first: str) -> None:
    services = house.services
    for name, ids in (("a", range(12)), ("b", range(100, 110))):
        table = house.fragmented(name, 1, table_expire__enabled="true")
        for one in ids:
            table.ids(one + 1_000)
        house.services.explore_catalogs.explore()
    a, b = named(table, "a"), named(table, "b")
    for one in (a, b):
        assert services.compact_tables.compact(one, FORCED).committed
    house.pass_time(6 * DAY)
    records = {one: [record.record_id for record in services.stores.records.records(one)] for one in (a, b)}
    uuids = {one: str(loaded(house, one.name).metadata.table_uuid) for one in (a, b)}
    # Both have files that wait for the end of their grace time.
    for one in (a, b):
        (store,) = services.expire_snapshots.expire(one).stores
        assert store.record is not None
        assert store.record.status is UpkeepStatus.REMOVED
    services.explore_catalogs.pause(a)
    swap(house, "a", "b")
    before = {name: (rows(house, name), loaded(house, name).metadata_location) for name in ("a", "b")}
    for name in (first, "b" if first == "a" else "a"):
        services.refresh_files.refresh(named(table, name))
    services.explore_catalogs.explore()
    states = {state.table: state for state in services.stores.tables.states()}
    assert {one: state.index.loaded.table_uuid for one, state in states.items() if state.index.loaded} == {a: uuids[b], b: uuids[a]}
    assert {one: state.paused for one, state in states.items()} == {a: False, b: True}
    assert [record.record_id for record in services.stores.records.records(a)] == records[b]
    assert [record.record_id for record in services.stores.records.records(b)] == records[a]
    assert (keys(house, a), keys(house, b)) == (["db.b"], ["db.a"])
    under_way = services.stores.upkeep.records(under_way=True)
    assert {record.table: record.table_uuid for record in under_way} == {a: uuids[b], b: uuids[a]}
    services.explore_catalogs.resume(b)
    # The grace time ends: each expiry deletes files of its own table alone.
    for _ in range(2):
        house.pass_time(2 * DAY)
        for one in (a, b):
            services.expire_snapshots.expire(one)
        services.maintain_tables.maintain()
    assert services.stores.upkeep.records(under_way=True) == ()
    for name, (ids, location) in before.items():
        assert rows(house, name) == ids
        metadata = loaded(house, name).metadata
        assert all(loaded(house, name).io.new_input(entry.metadata_file).exists() for entry in metadata.metadata_log)
        assert loaded(house, name).io.new_input(location).exists()


def test_three_tables_that_pass_on_their_names_never_mix(house: House) -> None:
    services = house.services
    for name in ("a", "b", "c"):
        table = house.fragmented(name, 14)
        assert services.compact_tables.compact(table.identifier, FORCED).committed
    every = [named(table, name) for name in ("a", "b", "c")]
    services.explore_catalogs.pause(every[0])
    records = {one: [record.record_id for record in services.stores.records.records(one)] for one in every}
    for before, after in (("a", "between"), ("c", "a"), ("b", "c"), ("between", "b")):
        rename(house, before, after)
    for _ in range(2):
        for one in every:
            services.refresh_files.refresh(one)
    a, b, c = every
    came_from = {a: c, b: a, c: b}
    assert {one: [record.record_id for record in services.stores.records.records(one)] for one in every} == {
        one: records[before] for one, before in came_from.items()
    }
    assert {one: services.stores.tables.state(one).paused for one in every} == {a: False, b: True, c: False}
    assert {one: keys(house, one) for one in every} == {one: [f"db.{before.name}"] for one, before in came_from.items()}


def test_a_rename_that_two_processes_find_at_once_is_carried_out_once(house: House) -> None:
    table = house.fragmented("orders")
    services = house.services
    assert services.compact_tables.compact(table.identifier, FORCED).committed
    uuid, sales = str(table.table.metadata.table_uuid), named(table, "sales")
    rename(house, "orders", "sales")
    services.explore_catalogs.explore()
    moves = services.stores.moves
    assert moves.move(uuid, table.identifier, sales)
    # The other process asks for the same, and then for a table of which a new one has the name already.
    assert not moves.move(uuid, table.identifier, sales)
    services.explore_catalogs.explore()
    again = house.fragmented("orders", 2)
    assert services.refresh_files.refresh(again.identifier).complete
    assert not moves.move(uuid, table.identifier, sales)
    assert services.stores.records.records(again.identifier) == ()
    assert len(services.stores.records.records(sales)) == 1
    assert services.refresh_files.refresh(sales).complete


def test_a_rename_waits_while_somebody_commits_to_the_old_name(house: House) -> None:
    table = house.fragmented("orders")
    services = house.services
    assert services.refresh_files.refresh(table.identifier).complete
    rename(house, "orders", "sales")
    with services._leases.hold(commit_lease(table.identifier)):
        assert services.refresh_files.refresh(named(table, "sales")).busy
        assert known(house) == ["orders", "sales"]
    assert services.refresh_files.refresh(named(table, "sales")).complete
    assert known(house) == ["sales"]


def test_a_table_that_was_dropped_and_made_anew_has_no_history(house: House) -> None:
    table = house.fragmented("orders")
    services = house.services
    assert services.compact_tables.compact(table.identifier, FORCED).committed
    house.lake.catalog.drop_table(("db", "orders"))
    house.fragmented("orders", 2)
    assert services.refresh_files.refresh(table.identifier).complete
    assert services.stores.records.records(table.identifier) == ()
    # Nothing was lost: the record still stands in the list of all records.
    assert len(services.stores.records.records()) == 1


def test_a_table_that_had_vanished_is_found_again_by_its_uuid_under_any_name(house: House) -> None:
    table, _ = house.fragmented("orders"), house.fragmented("other", 1)
    services, catalog = house.services, house.lake.catalog
    (record,) = services.compact_tables.compact(table.identifier, FORCED).records
    services.explore_catalogs.pause(table.identifier)
    location = loaded(house, "orders").metadata_location
    catalog.drop_table(("db", "orders"))
    assert services.explore_catalogs.explore().dropped == (table.identifier,)
    assert services.stores.tasks.tasks(table.identifier) == ()
    assert len(services.stores.records.records(table.identifier)) == 1
    house.fragmented("orders", 2)
    assert services.refresh_files.refresh(table.identifier).complete
    catalog.register_table(("db", "back"), location)
    services.explore_catalogs.explore()
    back = named(table, "back")
    assert services.refresh_files.refresh(back).complete
    assert [one.record_id for one in services.stores.records.records(back)] == [record.record_id]
    assert services.stores.tables.state(back).paused
    assert services.stores.records.records(table.identifier) == ()


def test_a_commit_that_landed_is_found_when_its_table_is_though_another_has_the_name(house: House) -> None:
    table = house.fragmented("orders")
    services = house.services
    records = services.stores.records
    (record,) = services.compact_tables.compact(table.identifier, FORCED).records
    # Its answer was lost, and before anybody looked, the table was renamed and another one made.
    records.save(replace(record, status=RecordStatus.UNKNOWN, answered=False, ended_at=None, committed_task_ids=()))
    rename(house, "orders", "sales")
    house.fragmented("orders", 2)
    assert services.refresh_files.refresh(table.identifier).complete
    services.commit_tables.commit(table.identifier)
    # The other table does not have it, and is not held up by it.
    assert records.record(record.record_id).status is RecordStatus.FAILED
    services.explore_catalogs.explore()
    sales = named(table, "sales")
    assert services.refresh_files.refresh(sales).complete
    services.commit_tables.commit(sales)
    found = records.record(record.record_id)
    assert (found.status, found.table, found.snapshot_after) == (RecordStatus.COMMITTED, sales, record.snapshot_after)


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("is_displaced", [True, False])
def test_a_commit_that_was_cut_off_holds_up_its_table_no_longer_than_it_takes_to_ask(
    house: House, monkeypatch: pytest.MonkeyPatch, landed: bool, is_displaced: bool
) -> None:
    table, services = house.fragmented("orders"), house.services
    sales, records = named(table, "sales"), services.stores.records
    services.one_table.refresh(table.identifier)
    assert services.plan_tables.plan(table.identifier, FORCED).tasks
    services.work_on_queue.drain("somebody")
    commit = Transaction.commit

    class Killed(BaseException):
        pass

    def cut_off(transaction: Transaction) -> None:
        if landed:
            commit(transaction)
        raise Killed

    monkeypatch.setattr(Transaction, "commit", cut_off)
    with pytest.raises(Killed):
        services.commit_tables.commit(table.identifier)
    monkeypatch.setattr(Transaction, "commit", commit)
    (record,) = records.records()
    rename(house, "orders", "sales")
    house.fragmented("orders", 2)
    house.pass_time(61)
    if is_displaced:
        assert services.refresh_files.refresh(table.identifier).complete
    # It is looked for in the other table, whose head is not the one on which it was built.
    services.commit_tables.commit(table.identifier)
    assert records.record(record.record_id).status is RecordStatus.FAILED
    services.explore_catalogs.explore()
    assert services.refresh_files.refresh(sales).complete
    house.pass_time(3600)
    services.commit_tables.commit(sales)
    assert not records.records(unsettled=True)
    assert records.record(record.record_id).status is (RecordStatus.COMMITTED if landed else RecordStatus.FAILED)
    assert not records.record(record.record_id).answered
    services.compact_tables.compact(sales, FORCED)
    assert len(loaded(house, "sales").inspect.data_files()) == 1
    assert rows(house, "sales") == list(range(12))


def test_a_consumer_goes_along_with_its_table_and_not_with_the_name(house: House) -> None:
    table = house.fragmented("orders", 1, table_expire__enabled="true")
    for number in range(1, 4):
        table.ids(number)
    house.pass_time(6 * DAY)
    services = house.services
    snapshots = [one.snapshot_id for one in loaded(house, "orders").snapshots()]
    services.keep_consumers.set(table.identifier, "etl", snapshots[1], days=3)
    services.refresh_files.refresh(table.identifier)
    rename(house, "orders", "sales")
    again = house.fragmented("orders", 1)
    table.identifier = named(table, "sales")
    for one in (again, table):
        assert services.refresh_files.refresh(one.identifier).complete
    assert [(one.table.name, one.store.name) for one in services.keep_consumers.consumers()] == [("sales", "sales")]
    expire(house, table)
    assert [one.snapshot_id for one in loaded(house, "sales").snapshots()] == snapshots[1:]


def test_a_table_of_two_catalogs_that_leaves_one_of_them_keeps_its_history_in_the_other(house: House) -> None:
    table = house.fragmented("orders")
    services = house.services
    link = house.lake.folder / "link.db"
    link.symlink_to(house.lake.folder / "catalog.db")
    services.stores.catalogs.add(CatalogEntry("second", {**house.lake.properties, "uri": f"sqlite:///{link}"}))
    assert services.compact_tables.compact(table.identifier, FORCED).committed
    second = replace(table.identifier, catalog="second")
    refused = services.refresh_files.refresh(second)
    assert "second.db.orders is the table lake.db.orders under another name" in str(refused.problem)
    swept = services.sweep_tables.sweep(None, timedelta(seconds=20))
    assert all(not one.changed for one in swept.refreshed if one.table == second)
    house.lake.catalog.drop_table(("db", "orders"))
    with pytest.raises(NotFoundError):
        services.refresh_files.refresh(second)
