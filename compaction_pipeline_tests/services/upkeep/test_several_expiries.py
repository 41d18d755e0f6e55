"""What one expiry owes to the snapshots of another one of the same table, and to a table that goes and comes back under other names."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.record import UpkeepStatus
from compaction_pipeline_tests.iceberg.lake import SCHEMA, LakeTable
from compaction_pipeline_tests.iceberg.reached import files_on_disk, reached
from compaction_pipeline_tests.rest_catalog import RestServer
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.upkeep.expiring import (
    DAY,
    HOUR,
    behind_rest,
    compacted,
    expire,
    expired,
    files_of,
    gone_on,
    snapshots,
    tagging_first,
)


def needed_by(table: LakeTable, *of: object) -> set[str]:
    """The manifest lists of these snapshots, and the files that their manifests name."""
    return {urlsplit(path).path for one in of for path in (one.manifest_list, *files_of(table, one))}  # type: ignore[attr-defined]


def with_two_old_snapshots(house: House) -> tuple[LakeTable, object]:
    """A table with two old snapshots of the same files, of which only the older one may go yet; and the other one."""
    table = house.fragmented("t", 12, history__expire__min_snapshots_to_keep="2")
    table.ids(100)
    assert house.services.compact_tables.compact(table.identifier).committed
    house.pass_time(6 * DAY)
    return table, snapshots(table)[-2]


def test_files_stay_for_the_whole_grace_time_of_the_last_snapshot_that_had_them(house: House) -> None:
    table, second = with_two_old_snapshots(house)
    files = needed_by(table, second)
    assert expired(house, table).status is UpkeepStatus.REMOVED
    house.pass_time(0.8 * HOUR)
    table.ids(200)
    assert expired(house, table).status is UpkeepStatus.REMOVED
    house.pass_time(0.5 * HOUR)
    # The grace time of the first expiry is over, and that of the second one is not.
    statuses = [one.status for one in expire(house, table).earlier]
    assert statuses == [UpkeepStatus.DONE, UpkeepStatus.REMOVED]
    assert files <= files_on_disk(table.table)
    house.pass_time(0.6 * HOUR)
    expire(house, table)
    house.pass_time(2 * HOUR)
    expire(house, table)
    assert files_on_disk(table.table) == reached(table.table)


def test_files_stay_while_nobody_knows_whether_a_tag_was_dropped_with_another_snapshot(house: House, server: RestServer) -> None:
    table, second = with_two_old_snapshots(house)
    files = needed_by(table, second)
    assert expired(house, table).status is UpkeepStatus.REMOVED
    house.pass_time(0.8 * HOUR)
    table.ids(200)
    behind_rest(house, server)
    server.commits = [tagging_first(table, second.snapshot_id, answered=False)]  # type: ignore[attr-defined]
    assert expired(house, table).status is UpkeepStatus.UNKNOWN
    house.pass_time(0.5 * HOUR)
    assert UpkeepStatus.KEPT in [one.status for one in expire(house, table).earlier]
    assert files <= files_on_disk(table.table)


@pytest.mark.parametrize("in_grace_time", [True, False])
def test_a_name_that_had_another_table_before_is_recognised_as_a_second_registration(house: House, in_grace_time: bool) -> None:
    again = TableIdentifier("lake", ("db",), "again")
    house.lake.table("again").ids(1)
    table = compacted(house)
    house.services.explore_catalogs.explore()
    house.services.refresh_files.refresh(again)
    old = table.lake.catalogs.load(table.identifier)
    files = needed_by(table, *old.metadata.snapshots)

    def register() -> None:
        house.lake.catalog.drop_table(("db", "again"))
        registered = house.lake.catalog.register_table(("db", "again"), old.metadata_location)
        with registered.transaction() as transaction:
            transaction.set_properties({"somebody": "works with it"})
        house.services.explore_catalogs.explore()
        house.services.refresh_files.refresh(again)

    house.pass_time(6 * DAY)
    if not in_grace_time:
        register()
    assert expired(house, table).status is UpkeepStatus.REMOVED
    if in_grace_time:
        register()
    house.pass_time(2 * HOUR)
    assert "lake.db.again is another registration" in (gone_on(house, table).reason or "")
    assert files <= files_on_disk(table.table)


@pytest.mark.parametrize("goes", ["it is renamed, and another table gets its name", "it is away for a round"])
def test_an_open_question_about_a_tag_outlives_the_absence_of_the_table(house: House, server: RestServer, goes: str) -> None:
    table = house.fragmented("t", 12, history__expire__min_snapshots_to_keep="2")
    table.ids(100)
    assert house.services.compact_tables.compact(table.identifier).committed
    tagged = snapshots(table)[0]
    files = needed_by(table, tagged)
    behind_rest(house, server)
    house.pass_time(6 * DAY)
    server.commits = [tagging_first(table, tagged.snapshot_id, answered=False)]
    assert expired(house, table).status is UpkeepStatus.UNKNOWN
    catalog, services = house.lake.catalog, house.services
    if goes == "it is away for a round":
        house.pass_time(25 * HOUR)
        place = catalog.load_table(("db", "t")).metadata_location
        catalog.drop_table(("db", "t"))
        services.maintain_tables.maintain()
        services.upkeep_tables.run()
        found = LakeTable(house.lake, table.identifier, catalog.register_table(("db", "t"), place))
    else:
        catalog.rename_table(("db", "t"), ("db", "u"))
        catalog.create_table(("db", "t"), SCHEMA, location=f"file://{house.lake.folder}/elsewhere/t")
        found = LakeTable(house.lake, TableIdentifier("lake", ("db",), "u"), catalog.load_table(("db", "u")))
        services.explore_catalogs.explore()
        services.refresh_files.refresh(found.identifier)
        expire(house, LakeTable(house.lake, table.identifier, catalog.load_table(("db", "t"))))
    found.ids(200)
    services.explore_catalogs.explore()
    services.refresh_files.refresh(found.identifier)
    house.pass_time(6 * DAY)
    for _ in range(2):
        expire(house, found)
        house.pass_time(2 * HOUR)
    assert files <= files_on_disk(found.table)
    assert [one.status for one in services.expire_snapshots.records(None, 99)][-1] is UpkeepStatus.KEPT


def test_leftovers_of_commits_stay_where_the_catalog_forbids_deletions(tmp_path: Path) -> None:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/wh",
        "init_catalog_tables": "true",
        "catalog-name": "lake",
        "s3.delete-enabled": "false",
    }
    house = House(tmp_path, properties=properties)
    table = compacted(house)
    table.ids(100)
    house.pass_time(6 * DAY)
    assert len(expired(house, table).removed) > 0
    files = files_on_disk(table.table)
    house.pass_time(2 * HOUR)
    record = gone_on(house, table)
    assert (record.status, "'s3.delete-enabled' of the catalog is false" in (record.reason or "")) == (UpkeepStatus.REMOVED, True)
    house.pass_time(3 * DAY)
    house.services.maintain_tables.maintain()
    assert files_on_disk(table.table) == files
    house.services.close()


def test_a_request_that_never_landed_keeps_no_files_of_the_one_that_did(house: House, server: RestServer) -> None:
    table = compacted(house)
    behind_rest(house, server)
    house.pass_time(6 * DAY)
    server.commits = [lambda call: call.answer(500)]
    assert expired(house, table).status is UpkeepStatus.UNKNOWN
    landed = expired(house, table)
    assert landed.status is UpkeepStatus.REMOVED
    house.pass_time(2 * HOUR)
    (done,) = [one for one in expire(house, table).earlier if one.record_id == landed.record_id]
    assert (done.status, done.deleted.content_files) == (UpkeepStatus.DONE, 12)
    assert files_on_disk(table.table) == reached(table.table)
