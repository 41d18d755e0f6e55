"""Old snapshots leave the metadata, their files follow after the grace time, and nothing that anybody can still reach goes."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest

from compaction_pipeline.core.dependencies.watermark import WatermarkRule
from compaction_pipeline.core.errors import ConfigError, StorageUnavailable
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.upkeep.record import UpkeepStatus
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.iceberg.upkeep.history import history_of
from compaction_pipeline_tests.iceberg.reached import files_on_disk, reached
from compaction_pipeline_tests.one_store import watermark_of
from compaction_pipeline_tests.rest_catalog import RestServer, done_but
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.upkeep.expiring import (
    DAY,
    HOUR,
    behind_rest,
    compacted,
    denied,
    expire,
    expire_twice,
    files_of,
    finished,
    tagging_first,
)


class Killed(BaseException):
    """Ends a process in the middle of a run."""


def test_old_files_of_a_compacted_table_go_after_the_grace_time_and_every_row_stays(house: House) -> None:
    table = compacted(house)
    before, files = table.rows(), files_on_disk(table.table)
    house.pass_time(6 * DAY)

    first = expire(house, table)
    record = first.stores[0].record
    assert record is not None
    assert (record.status, len(record.removed)) == (UpkeepStatus.REMOVED, 1)
    assert files_on_disk(table.table) == files, "readers that began before need the files for a while"

    house.pass_time(HOUR - 1)
    assert expire(house, table).earlier[0].status is UpkeepStatus.REMOVED
    assert files_on_disk(table.table) == files
    house.pass_time(1)
    (done,) = expire(house, table).earlier
    assert done.status is UpkeepStatus.DONE
    assert done.deleted.content_files == 12
    assert files_on_disk(table.table) == reached(table.table)
    assert len(files) - len(files_on_disk(table.table)) == done.deleted.files
    assert table.rows() == before


def test_a_young_snapshot_stays(house: House) -> None:
    table = compacted(house)
    house.pass_time(4 * DAY)
    store = expire(house, table).stores[0]
    assert store.record is None
    assert store.expiry is not None
    assert len(store.expiry.kept) == 2


def test_a_dry_run_says_what_would_go_and_changes_nothing(house: House) -> None:
    table = compacted(house)
    house.pass_time(6 * DAY)
    table.table.refresh()
    location = table.table.metadata_location
    store = expire(house, table, dry_run=True).stores[0]
    assert store.expiry is not None
    assert len(store.expiry.removed) == 1
    table.table.refresh()
    assert table.table.metadata_location == location
    assert house.services.expire_snapshots.records(table.identifier, 10) == ()


def test_a_tag_can_still_be_read_when_everything_around_it_is_gone(house: House) -> None:
    table = house.fragmented()
    table.table.refresh()
    tagged = table.table.current_snapshot()
    assert tagged is not None
    table.table.manage_snapshots().create_tag(tagged.snapshot_id, "release").commit()
    table.ids(100)
    assert house.services.compact_tables.compact(table.identifier).committed
    house.pass_time(9 * DAY)
    record = finished(house, table)
    assert record.status is UpkeepStatus.DONE
    assert files_on_disk(table.table) == reached(table.table)
    table.table.refresh()
    assert sorted(table.table.scan(snapshot_id=tagged.snapshot_id).to_arrow()["id"].to_pylist()) == list(range(12))


def test_a_file_that_came_back_into_the_table_during_the_grace_time_stays(house: House) -> None:
    table = compacted(house)
    house.pass_time(6 * DAY)
    old = table.lake.catalogs.load(table.identifier).metadata.snapshots[0]
    files = files_of(table, old)
    assert expire(house, table).stores[0].record is not None
    table.table.refresh()
    table.table.add_files(files[:3], check_duplicate_files=False)
    house.pass_time(2 * HOUR)
    (done,) = expire(house, table).earlier
    assert done.deleted.content_files == 9
    assert {urlsplit(path).path for path in files[:3]} <= files_on_disk(table.table)
    house.pass_time(2 * HOUR)
    expire(house, table)
    assert files_on_disk(table.table) == reached(table.table)
    assert len(table.rows()) == 15


@pytest.mark.parametrize(
    "step",
    [
        *("before-removal", "after-removal"),
        *("files-judged", "content-deleted", "statistics-deleted", "manifests-deleted", "lists-deleted"),
    ],
)
def test_a_run_that_was_killed_is_finished_by_the_next_one(house: House, step: str) -> None:
    table = compacted(house)
    rows = table.rows()
    house.pass_time(6 * DAY)

    def kill(reached: str) -> None:
        if reached == step:
            raise Killed

    stores: Any = house.services._snapshot_stores
    stores._on_step = kill
    with pytest.raises(Killed):
        expire_twice(house, table)
    stores._on_step = lambda reached: None
    expire_twice(house, table)
    # A removal that never happened is settled after a day.
    house.pass_time(DAY)
    expire(house, table)
    records = house.services.expire_snapshots.records(table.identifier, 10)
    assert {record.status for record in records} <= {UpkeepStatus.DONE, UpkeepStatus.FAILED}
    assert files_on_disk(table.table) == reached(table.table)
    assert table.rows() == rows


def test_a_file_that_cannot_be_deleted_keeps_the_manifest_that_leads_to_it(house: House) -> None:
    table = compacted(house)
    house.pass_time(6 * DAY)
    expire(house, table)
    house.pass_time(2 * HOUR)
    stores: Any = house.services._snapshot_stores
    look = stores.look

    def look_without_rights(identifier: TableIdentifier) -> Any:
        looks = look(identifier)
        looks[0].handle.io.delete = denied
        return looks

    stores.look = look_without_rights
    files = files_on_disk(table.table)
    (stuck,) = expire(house, table).earlier
    assert stuck.status is UpkeepStatus.REMOVED
    assert "12 files cannot be deleted" in (stuck.reason or "")
    assert files_on_disk(table.table) == files
    stores.look = look
    (done,) = expire(house, table).earlier
    assert done.status is UpkeepStatus.DONE
    assert files_on_disk(table.table) == reached(table.table)


def test_leftovers_of_commits_wait_for_the_grace_time_too(house: House) -> None:
    table = compacted(house)
    table.ids(*range(100, 112))
    house.pass_time(6 * DAY)
    expire(house, table)
    files = files_on_disk(table.table)
    house.services.maintain_tables.maintain()
    assert files_on_disk(table.table) == files
    house.pass_time(2 * HOUR)
    expire(house, table)
    assert files_on_disk(table.table) == reached(table.table)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [("gc.enabled", "false", "'gc.enabled' is false"), ("compaction.catalog-has-branches", "true", "other branches of the catalog")],
)
def test_a_table_that_forbids_it_loses_nothing(house: House, key: str, value: str, said: str) -> None:
    table = compacted(house)
    with table.table.transaction() as transaction:
        transaction.set_properties({key: value})
    house.pass_time(6 * DAY)
    store = expire(house, table).stores[0]
    assert store.expiry is None
    assert said in (store.refusal or "")


def test_gc_that_is_switched_off_in_the_grace_time_keeps_the_files(house: House) -> None:
    table = compacted(house)
    house.pass_time(6 * DAY)
    expire(house, table)
    files = files_on_disk(table.table)
    table.table.refresh()
    with table.table.transaction() as transaction:
        transaction.set_properties({"gc.enabled": "false"})
    house.pass_time(2 * HOUR)
    (record,) = expire(house, table).earlier
    assert record.status is UpkeepStatus.REMOVED
    assert "'gc.enabled' is false" in (record.reason or "")
    assert files_on_disk(table.table) == files


def test_a_wrong_property_is_told_and_nothing_goes(house: House) -> None:
    table = compacted(house)
    with table.table.transaction() as transaction:
        transaction.set_properties({"history.expire.max-snapshot-age-ms": "soon"})
    house.pass_time(6 * DAY)
    with pytest.raises(ConfigError, match=r"history\.expire\.max-snapshot-age-ms"):
        expire(house, table)


def test_the_plan_of_an_open_task_keeps_its_snapshot(house: House) -> None:
    table = house.fragmented()
    house.services.refresh_files.refresh(table.identifier)
    house.services.plan_tables.plan(table.identifier)
    (task,) = house.services.stores.tasks.tasks(table.identifier)
    table.ids(50)
    house.pass_time(9 * DAY)
    store = expire(house, table).stores[0]
    assert store.record is None
    assert store.expiry is not None
    assert store.expiry.kept[task.snapshot_id].reason == f"task {task.task_id} was planned from it"


def test_a_paused_table_and_an_observed_catalog_lose_nothing(house: House) -> None:
    table = compacted(house)
    house.pass_time(6 * DAY)
    house.services.stores.switches.pause(table.identifier, True)
    assert "a person paused it" in (expire(house, table).stores[0].refusal or "")
    house.services.stores.switches.pause(table.identifier, False)
    house.services.stores.catalogs.remove("lake")
    house.services.stores.catalogs.add(CatalogEntry("lake", house.lake.properties, observe=True))
    assert "only observed" in (expire(house, table).stores[0].refusal or "")


def test_two_registrations_of_one_table_keep_its_files(house: House) -> None:
    table = compacted(house)
    house.lake.catalog.register_table(("db", "again"), table.lake.catalogs.load(table.identifier).metadata_location)
    house.services.explore_catalogs.explore()
    house.services.refresh_files.refresh(TableIdentifier("lake", ("db",), "again"))
    files = files_on_disk(table.table)
    house.pass_time(6 * DAY)
    record = finished(house, table)
    assert record.status is UpkeepStatus.REMOVED
    assert "another registration" in (record.reason or "")
    assert files_on_disk(table.table) == files


def test_files_that_another_table_names_stay(house: House) -> None:
    table = compacted(house)
    old = table.lake.catalogs.load(table.identifier).metadata.snapshots[0]
    files = files_of(table, old)
    clone = house.lake.table("clone")
    clone.table.add_files(files[:2])
    house.services.explore_catalogs.explore()
    house.services.refresh_files.refresh(clone.identifier)
    house.pass_time(6 * DAY)
    record = finished(house, table)
    assert record.status is UpkeepStatus.DONE
    assert (record.deleted.content_files, record.deleted.kept_elsewhere) == (10, 2)
    assert len(clone.rows()) == 2


def test_files_outside_the_folders_of_the_table_stay(house: House) -> None:
    source = house.fragmented("source")
    imported = house.lake.table("t")
    imported.table.add_files(sorted(source.paths(source.files()[0].content)))
    house.lake.catalog.drop_table(("db", "source"))
    house.services.explore_catalogs.explore()
    house.services.maintain_tables.maintain()
    assert house.services.compact_tables.compact(imported.identifier).committed
    house.pass_time(6 * DAY)
    record = finished(house, imported)
    assert record.status is UpkeepStatus.DONE
    assert (record.deleted.content_files, record.deleted.kept_elsewhere) == (0, 12)


def test_metadata_that_was_set_back_stops_everything_until_a_person_accepts_it(house: House) -> None:
    table = compacted(house)
    old = table.lake.catalogs.load(table.identifier).metadata_location
    expire(house, table)
    table.ids(100)
    expire(house, table)
    house.lake.catalog.drop_table(("db", "t"))
    house.lake.catalog.register_table(("db", "t"), old)
    house.pass_time(6 * DAY)
    assert "set the catalog's pointer back" in (expire(house, table).stores[0].refusal or "")
    house.services.expire_snapshots.forget_sightings(table.identifier)
    assert expire(house, table).stores[0].record is not None


def test_a_snapshot_with_a_late_clock_counts_from_the_look_that_did_not_see_it(house: House) -> None:
    table = compacted(house, history__expire__max_snapshot_age_ms=str(int(DAY * 1000)))
    house.pass_time(2 * DAY)
    expire(house, table)
    # The real clock of the writer is two days behind that of the program.
    table.ids(100)
    table.ids(101)
    house.pass_time(HOUR)
    table.table.refresh()
    late = table.table.metadata.snapshots[-2].snapshot_id
    expire(house, table)
    house.pass_time(DAY - HOUR)
    expire(house, table)
    assert table.lake.catalogs.load(table.identifier).metadata.snapshot_by_id(late) is not None
    house.pass_time(1)
    record = expire(house, table).stores[0].record
    assert record is not None
    assert [one.snapshot_id for one in record.removed] == [late]


def test_two_processes_at_one_table_do_not_work_at_once(house: House) -> None:
    table = compacted(house)
    house.pass_time(6 * DAY)
    with house.services._leases.hold(f"commit:{table.identifier}"), pytest.raises(StorageUnavailable, match="committing"):
        expire(house, table)
    with house.services._leases.hold(f"upkeep:{table.identifier}"), pytest.raises(StorageUnavailable, match="looking after the files"):
        expire(house, table)
    assert expire(house, table).stores[0].record is not None


# ---- catalogs that do not answer -------------------------------------------------------------------------------------


def test_a_lost_answer_of_a_removal_that_landed_is_found_out_and_its_files_go(house: House, server: RestServer) -> None:
    table = compacted(house)
    rows = table.rows()
    behind_rest(house, server)
    house.pass_time(6 * DAY)

    server.commits = [done_but(500)]
    record = expire(house, table).stores[0].record
    assert record is not None
    assert record.status is UpkeepStatus.UNKNOWN
    (settled,) = expire(house, table).earlier
    assert settled.status is UpkeepStatus.REMOVED
    house.pass_time(2 * HOUR)
    (done,) = expire(house, table).earlier
    assert done.status is UpkeepStatus.DONE
    assert files_on_disk(table.table) == reached(table.table)
    assert table.rows() == rows


def test_a_removal_that_never_arrives_ends_after_a_day_and_another_one_does_its_work(house: House, server: RestServer) -> None:
    table = compacted(house)
    behind_rest(house, server)
    house.pass_time(6 * DAY)
    server.commits = [lambda call: call.answer(500), lambda call: call.answer(500)]
    first = expire(house, table).stores[0].record
    assert first is not None
    assert first.status is UpkeepStatus.UNKNOWN
    second = expire(house, table)
    assert second.earlier[0].status is UpkeepStatus.UNKNOWN
    house.pass_time(DAY + 1)
    third = expire(house, table)
    assert {record.status for record in third.earlier} == {UpkeepStatus.FAILED}
    record = third.stores[0].record
    assert record is not None
    assert record.status is UpkeepStatus.REMOVED


@pytest.mark.parametrize("answered", [True, False])
def test_a_tag_that_a_rest_catalog_dropped_unseen_keeps_the_files(house: House, server: RestServer, answered: bool) -> None:
    table = compacted(house)
    behind_rest(house, server)
    house.pass_time(6 * DAY)
    files = files_on_disk(table.table)
    old = table.lake.catalogs.load(table.identifier).metadata.snapshots[0].snapshot_id

    server.commits = [tagging_first(table, old, answered=answered)]
    assert expire(house, table).stores[0].record is not None
    expire(house, table)
    house.pass_time(2 * HOUR)
    expire(house, table)
    record = house.services.expire_snapshots.records(table.identifier, 1)[0]
    assert "ref 'release' was made on a snapshot while it was removed" in (record.reason or "")
    assert files_on_disk(table.table) == files


def test_a_tag_that_is_made_between_look_and_swap_stands_on_a_sql_catalog(house: House) -> None:
    table = compacted(house)
    house.pass_time(6 * DAY)
    files = files_on_disk(table.table)
    stores: Any = house.services._snapshot_stores
    old = table.lake.catalogs.load(table.identifier).metadata.snapshots[0].snapshot_id
    real = stores.remove

    def tag_first(*arguments: Any) -> Any:
        table.table.refresh()
        table.table.manage_snapshots().create_tag(old, "release").commit()
        return real(*arguments)

    stores.remove = tag_first
    record = expire(house, table).stores[0].record
    assert record is not None
    assert record.status is UpkeepStatus.FAILED
    house.pass_time(2 * HOUR)
    expire(house, table)
    assert table.lake.catalogs.load(table.identifier).metadata.refs["release"].snapshot_id == old
    assert files <= files_on_disk(table.table)


@pytest.mark.parametrize("order", ["writer, merge", "merge, writer", "writer, merge, writer that knows none"])
def test_no_expiry_takes_a_watermark_with_it(house: House, order: str) -> None:
    """Of a writer's snapshot below a compaction the copy stays, and above it the snapshot itself, with all that lies above."""
    table = house.fragmented("t", 12)
    for step in order.split(", "):
        if step == "merge":
            assert house.services.compact_tables.compact(table.identifier).committed
        else:
            row_delta(table.table, properties={"watermark": "-1" if "none" in step else "1767225600000"})
    row_delta(table.table)
    house.pass_time(6 * DAY)
    before = history_of(table.table.refresh().metadata)
    expire_twice(house, table)
    after = history_of(table.table.refresh().metadata)
    assert len(after.snapshots) < len(before.snapshots)
    found, expected = watermark_of(after, {}, WatermarkRule()), watermark_of(before, {}, WatermarkRule())
    assert found is not None
    assert expected is not None
    assert found.at == expected.at
