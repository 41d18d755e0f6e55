"""Which works a round of upkeep does in which tables, in which turn, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.record import UpkeepStatus
from compaction_pipeline.core.upkeep.works import UpkeepWork
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.iceberg.reached import files_on_disk, reached
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.rest_catalog import RestServer, status
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.upkeep.cleaning import local, roomy, stray
from compaction_pipeline_tests.services.upkeep.expiring import DAY, HOUR, behind_rest, expire

_ON = {"table_expire__enabled": "true"}


def read(house: House, *tables: LakeTable) -> None:
    for table in tables:
        house.services.refresh_files.refresh(table.identifier)


def expired(house: House, **options: Any) -> list[TableIdentifier]:
    return [one.table for one in house.services.upkeep_tables.run(**options).done if one.work is UpkeepWork.SNAPSHOTS]


def old(house: House, name: str, **properties: str) -> LakeTable:
    """A table with two snapshots, of which the older one may go in six days."""
    table = house.fragmented(name, 2, **properties)
    table.ids(50)
    read(house, table)
    return table


def test_only_tables_that_ask_for_it_are_expired(house: House) -> None:
    asks, _ = old(house, "asks", **_ON), old(house, "other")
    house.pass_time(6 * DAY)
    assert expired(house) == [asks.identifier]


def test_a_property_of_the_catalog_asks_for_all_its_tables(house: House) -> None:
    table = old(house, "t")
    entry = house.services.stores.catalogs.entry("lake")
    house.services.stores.catalogs.replace(entry.__class__("lake", {**entry.properties, "table.table-expire.enabled": "true"}))
    house.pass_time(6 * DAY)
    assert expired(house) == [table.identifier]


def test_a_table_that_did_not_change_is_looked_at_again_only_when_time_tells_something_new(house: House) -> None:
    table = old(house, "t", **_ON)
    assert expired(house) == [table.identifier]
    assert expired(house) == []
    house.pass_time(4 * DAY)
    assert expired(house) == []
    house.pass_time(DAY + 60)
    # Its snapshot goes now, and that is a change of the table. The files of the snapshot are due after the grace time.
    assert expired(house) == [table.identifier]
    read(house, table)
    house.pass_time(1800)
    assert expired(house) == [table.identifier]
    house.pass_time(1800)
    assert expired(house) == [table.identifier]
    (record,) = house.services.expire_snapshots.records(table.identifier, 9)
    assert record.status is UpkeepStatus.DONE
    assert expired(house) == []


def test_a_table_that_changed_is_looked_at(house: House) -> None:
    table = old(house, "t", **_ON)
    expired(house)
    table.ids(60)
    read(house, table)
    assert expired(house) == [table.identifier]


def test_a_round_that_ran_out_of_time_is_gone_on_with(house: House) -> None:
    tables = [old(house, name, **_ON).identifier for name in ("a", "b", "c")]
    real = house.services.expire_snapshots.expire

    def slow(table: TableIdentifier, **options: Any) -> Any:
        house.pass_time(200)
        return real(table, **options)

    service: Any = house.services.expire_snapshots
    service.expire = slow
    done = house.services.upkeep_tables.run()
    assert [one.table for one in done.done] == tables[:2]
    assert done.rest == 1
    assert expired(house) == tables[2:]


def test_tables_that_were_not_looked_at_for_the_longest_time_come_first_in_a_new_process_too(house: House) -> None:
    tables = [old(house, name, **_ON) for name in ("a", "b", "c")]
    turns: list[str] = []
    for number in range(6):
        services = OpenedServices(house.services.settings, clock=lambda: house.now)
        service: Any = services.expire_snapshots
        real = service.expire

        def slow(table: TableIdentifier, real: Any = real, **options: Any) -> Any:
            house.pass_time(300)
            return real(table, **options)

        service.expire = slow
        turns += [one.table.name for one in services.upkeep_tables.run().done]
        services.close()
        house.pass_time(HOUR)
        # Writers are busy, so each of the tables is due in each round, and each round has time for one.
        for table in tables:
            table.ids(100 + number)
        read(house, *tables)
    assert turns == ["a", "b", "c", "a", "b", "c"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (StorageUnavailable("its storage did not answer"), "its storage did not answer"),
        (ValueError("a property of nobody knows what"), "ValueError: a property of nobody knows what"),
    ],
)
def test_a_table_that_fails_does_not_keep_the_others(house: House, error: Exception, said: str) -> None:
    broken, fine = old(house, "a", **_ON).identifier, old(house, "b", **_ON).identifier
    real = house.services.expire_snapshots.expire

    def fail(table: TableIdentifier, **options: Any) -> Any:
        if table == broken:
            raise error
        return real(table, **options)

    service: Any = house.services.expire_snapshots
    service.expire = fail
    done = house.services.upkeep_tables.run()
    assert [one.table for one in done.done] == [fine]
    assert done.failed == {(broken, UpkeepWork.SNAPSHOTS): said}


def test_files_of_a_table_that_a_person_expired_once_go_although_it_does_not_ask_for_expiry(house: House) -> None:
    table = old(house, "t")
    house.pass_time(6 * DAY)
    assert expire(house, table).stores[0].record is not None
    table.ids(60)
    read(house, table)
    house.pass_time(6 * DAY)
    assert expired(house) == [table.identifier]
    assert files_on_disk(table.table) == reached(table.table)
    (record,) = house.services.expire_snapshots.records(None, 9)
    assert record.status is UpkeepStatus.DONE, "its files went, and no further snapshot was removed"


def test_files_of_a_table_that_was_renamed_in_the_grace_time_go(house: House) -> None:
    table = old(house, "t")
    table.table.refresh()
    table.table.delete("id = 50")
    house.pass_time(6 * DAY)
    assert expire(house, table).stores[0].record is not None
    table.lake.catalog.rename_table(("db", "t"), ("db", "u"))
    house.services.explore_catalogs.explore()
    renamed = TableIdentifier("lake", ("db",), "u")
    house.services.maintain_tables.maintain()
    house.services.refresh_files.refresh(renamed)
    house.pass_time(2 * HOUR)
    assert expired(house) == [renamed]
    table.table = house.lake.catalog.load_table(("db", "u"))
    assert files_on_disk(table.table) == reached(table.table)
    (record,) = house.services.expire_snapshots.records(None, 9)
    assert (record.table, record.status) == (renamed, UpkeepStatus.DONE)


def test_old_records_are_forgotten(house: House) -> None:
    table = old(house, "t", **_ON)
    house.pass_time(6 * DAY)
    expired(house)
    read(house, table)
    house.pass_time(DAY)
    expired(house)
    assert len(house.services.expire_snapshots.records(None, 9)) == 1
    house.pass_time(31 * DAY)
    expired(house)
    assert [record.status for record in house.services.expire_snapshots.records(None, 9)] == []


def test_a_wrong_property_of_a_table_that_asks_for_nothing_is_nobodys_failure(house: House) -> None:
    old(house, "asks_nothing", history__expire__max_snapshot_age_ms="soon")
    asks = old(house, "asks", history__expire__max_snapshot_age_ms="soon", **_ON).identifier
    done = house.services.upkeep_tables.run()
    assert done.failed.keys() == {(asks, UpkeepWork.SNAPSHOTS)}


def test_the_record_of_a_dropped_table_ends_after_a_day(house: House) -> None:
    table = old(house, "t", **_ON)
    house.pass_time(6 * DAY)
    expired(house)
    house.lake.catalog.drop_table(("db", "t"))
    house.services.maintain_tables.maintain()
    expired(house)
    assert [one.status for one in house.services.expire_snapshots.records(table.identifier, 9)] == [UpkeepStatus.REMOVED]
    house.pass_time(DAY)
    expired(house)
    (record,) = house.services.expire_snapshots.records(table.identifier, 9)
    assert (record.status, record.reason) == (UpkeepStatus.DONE, "the table was dropped, so the files stay")


# ---- works that commit -----------------------------------------------------------------------------------------------

_MANIFESTS = {"compaction__rewrite-manifests__enabled": "true", "commit__manifest__min-count-to-merge": "3"}


def rewritten(house: House) -> list[tuple[str, ...]]:
    """What a round says of the manifests that it looked at."""
    return [(*one.lines, *one.refusals) for one in house.services.upkeep_tables.run().done if one.work is UpkeepWork.MANIFESTS]


def scattered(house: House, name: str = "t", **properties: str) -> LakeTable:
    table = house.fragmented(name, 1, **properties)
    for number in range(1, 4):
        table.ids(number)
    read(house, table)
    return table


def test_manifests_are_rewritten_where_a_property_asks_for_it_and_an_unchanged_table_has_no_second_turn(house: House) -> None:
    table, _ = scattered(house, **_MANIFESTS), scattered(house, "other")
    assert house.services.upkeep_tables.due() == [(table.identifier, UpkeepWork.MANIFESTS)]
    ((said,),) = rewritten(house)
    assert said.startswith("lake.db.t: 4 small manifests → 1; ")
    read(house, table)
    assert rewritten(house) == [()], "the table has changed, and nothing is due"
    house.pass_time(30 * DAY - HOUR)
    assert rewritten(house) == []
    assert table.live_ids() == [0, 1, 2, 3]


def test_a_refused_work_has_its_next_turn_an_hour_later(house: House) -> None:
    table = scattered(house, **_MANIFESTS, commit__manifest__target_size_bytes="8 MB")
    ((said,),) = rewritten(house)
    assert "lake.db.t: the manifests are not rewritten: " in said
    assert "'commit.manifest.target-size-bytes' is '8 MB'" in said
    house.pass_time(HOUR - 1)
    assert rewritten(house) == []
    house.pass_time(1)
    assert len(rewritten(house)) == 1
    assert len(table.table.refresh().metadata.snapshots) == 4


def test_a_work_without_an_answer_is_looked_at_again_until_its_record_has_ended(house: House, server: RestServer) -> None:
    table = scattered(house, **_MANIFESTS)
    behind_rest(house, server)
    server.commits = [status(503)]
    ((said,),) = rewritten(house)
    assert "the outcome of the commit is unknown" in said
    house.pass_time(HOUR)
    ((said,),) = rewritten(house)
    assert said.startswith("lake.db.t: 4 small manifests → 1; ")
    assert [one.status for one in house.services.stores.upkeep.commits(table.identifier)] == [UpkeepStatus.DONE, UpkeepStatus.FAILED]


def test_a_table_whose_turn_fails_does_not_keep_its_place_before_the_others(house: House) -> None:
    tables = [scattered(house, name, **_MANIFESTS).identifier for name in ("a", "b")]
    real = house.services.commit_upkeep.turn

    def slow(work: UpkeepWork, table: TableIdentifier, is_over: Callable[[], bool]) -> Any:
        house.pass_time(300)
        if table == tables[0]:
            raise StorageUnavailable("its storage did not answer")
        return real(work, table)

    service: Any = house.services.commit_upkeep
    service.turn = slow
    turns = []
    for _ in range(3):
        done = house.services.upkeep_tables.run()
        turns += [*(table.name for table, _ in done.failed), *(one.table.name for one in done.done)]
        house.pass_time(HOUR)
    assert turns == ["a", "b", "a"]


def test_old_rows_leave_tables_that_ask_for_it_also_when_nobody_writes(house: House) -> None:
    """The ids are seconds since 1970."""
    rules = {
        "data_expire__field": "id",
        "data_expire__datetime_number_format": "TIMESTAMP_S",
        "data_expire__retention_time": "9d",
        "data_expire__base_on_rule": "CURRENT_TIME",
    }
    asks, other = house.fragmented("asks", 0, data_expire__enabled="true", **rules), house.fragmented("other", 0, **rules)
    born = int(house.now.timestamp())
    for table in (asks, other):
        table.ids(born)
    read(house, asks, other)
    lines = []
    for days in (0, 8.5, 1.1):
        house.pass_time(days * DAY)
        lines.append([one.lines for one in house.services.upkeep_tables.run().done if one.work is UpkeepWork.OLD_ROWS])
    assert [bool(line and line[0]) for line in lines] == [False, False, True]
    assert (asks.live_ids(), other.live_ids()) == ([], [born])


# ---- the other works -------------------------------------------------------------------------------------------------


def test_orphan_files_go_by_themselves_after_two_looks_a_day_apart(house: House) -> None:
    table = roomy(house, "t", clean_orphan_file__enabled="true")
    ids, path = table.live_ids(), stray(table)
    house.pass_time(9 * DAY)
    said = []
    for _ in range(4):
        read(house, table)
        said += [one for one in house.services.upkeep_tables.run().done if one.work is UpkeepWork.ORPHAN_FILES]
        house.pass_time(13 * HOUR)
    assert [line for one in said for line in one.lines] == ["lake.db.t: 1 orphan file deleted (5 B)"]
    assert not local(path).exists()
    assert table.live_ids() == ids


def test_the_works_of_one_table_have_their_turns_in_one_round(house: House) -> None:
    table = scattered(house, **_MANIFESTS, **_ON, clean_orphan_file__enabled="true", data_expire__enabled="true")
    assert house.services.upkeep_tables.due() == [(table.identifier, work) for work in UpkeepWork if work is not UpkeepWork.CHANGE_FILES]


@pytest.mark.parametrize("value", ["no", "off", "0", "yes", "1"])
def test_no_work_is_done_where_its_switch_has_another_value_than_true(house: House, value: str) -> None:
    switches = ("table_expire__enabled", "data_expire__enabled", "clean_orphan_file__enabled", "compaction__rewrite-manifests__enabled")
    table = house.fragmented("t", 2, **dict.fromkeys(switches, value))
    read(house, table)
    house.pass_time(30 * DAY)
    assert house.services.upkeep_tables.due() == []
