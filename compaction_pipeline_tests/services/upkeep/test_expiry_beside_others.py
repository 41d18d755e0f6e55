"""What other programs and people do to a table while its expiry is under way, or what they have of its files, is never lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyiceberg.table import Table

from compaction_pipeline.core.catalogs.change import CatalogChange
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.upkeep.record import UpkeepStatus
from compaction_pipeline.iceberg.upkeep.managed import why_the_catalog_decides
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable
from compaction_pipeline_tests.iceberg.reached import files_on_disk, reached
from compaction_pipeline_tests.rest_catalog import RestServer, done_but
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.upkeep.expiring import (
    DAY,
    HOUR,
    behind_rest,
    compacted,
    expire,
    expired,
    files_of,
    finished,
    gone_on,
    set_pointer,
    set_properties,
    snapshots,
)


def on_step(house: House, step: str, act: Callable[[], object]) -> None:
    """Let somebody act once, the next time that a removal or a deletion has come to this step."""
    stores: Any = house.services._snapshot_stores

    def told(reached: str) -> None:
        if reached == step:
            stores._on_step = lambda reached: None
            act()

    stores._on_step = told


def put_back(table: LakeTable, files: list[str]) -> None:
    """Another program puts files of an old snapshot into the table again."""
    table.table.refresh()
    table.table.add_files(files, check_duplicate_files=False)


# ---- the pointer is set back -----------------------------------------------------------------------------------------


def test_a_pointer_that_was_set_back_in_the_grace_time_keeps_the_files_of_the_newer_metadata(house: House) -> None:
    table = house.fragmented("t", 3)
    old = table.lake.catalogs.load(table.identifier).metadata_location
    table.ids(100)
    table.ids(101)
    house.pass_time(6 * DAY)
    assert len(expired(house, table).removed) == 2
    newest, needed, rows = table.lake.catalogs.load(table.identifier).metadata_location, reached(table.table), table.rows()
    set_pointer(table, old)
    house.pass_time(2 * HOUR)
    record = gone_on(house, table)
    assert record.status is UpkeepStatus.REMOVED
    assert "set the catalog's pointer back" in (record.reason or "")
    set_pointer(table, newest)
    assert needed <= files_on_disk(table.table)
    assert table.rows() == rows
    assert gone_on(house, table).status is UpkeepStatus.DONE


def test_a_pointer_that_was_set_back_does_not_tell_how_a_request_ended(house: House, server: RestServer) -> None:
    table = house.fragmented("t", 3)
    table.ids(100)
    old = table.lake.catalogs.load(table.identifier).metadata_location
    table.ids(101)
    behind_rest(house, server)
    house.pass_time(6 * DAY)
    server.commits = [done_but(500)]
    assert expired(house, table).status is UpkeepStatus.UNKNOWN
    newest = table.lake.catalogs.load(table.identifier).metadata_location
    set_pointer(table, old)
    house.pass_time(2 * DAY)
    record = gone_on(house, table)
    assert record.status is UpkeepStatus.UNKNOWN, "the older metadata still has the snapshots"
    assert "set the catalog's pointer back" in (record.reason or "")
    set_pointer(table, newest)
    assert gone_on(house, table).status is UpkeepStatus.REMOVED


# ---- files come back -------------------------------------------------------------------------------------------------


def two_under_way(house: House) -> tuple[LakeTable, str]:
    """A table with two records whose grace times are over, and the path of a file that only snapshots of the second record name."""
    table = house.fragmented("t", 3, compaction__expire__grace="30d")
    table.ids(100)
    house.pass_time(6 * DAY)
    assert expired(house, table).removed
    file = table.ids(200).path
    house.pass_time(6 * DAY)
    table.table.refresh()
    table.table.delete("id = 200")
    assert expired(house, table).removed
    set_properties(table, compaction__expire__grace="1h")
    house.pass_time(HOUR)
    return table, file


def test_a_file_that_came_back_while_an_earlier_deletion_took_long_stays(house: House) -> None:
    table, file = two_under_way(house)
    on_step(house, "lists-deleted", lambda: put_back(table, [file]))
    done = expire(house, table)
    assert [record.status for record in done.earlier] == [UpkeepStatus.DONE, UpkeepStatus.DONE]
    assert urlsplit(file).path in reached(table.table)
    assert reached(table.table) <= files_on_disk(table.table)


def test_what_a_table_forbids_while_an_earlier_deletion_takes_long_is_heard(house: House) -> None:
    table, file = two_under_way(house)
    on_step(house, "lists-deleted", lambda: set_properties(table, gc__enabled="false"))
    first, second = expire(house, table).earlier
    assert first.status is UpkeepStatus.DONE
    assert second.status is UpkeepStatus.REMOVED
    assert "'gc.enabled' is false" in (second.reason or "")
    assert urlsplit(file).path in files_on_disk(table.table)


def test_a_file_that_comes_back_after_it_was_judged_stays(house: House) -> None:
    table = compacted(house)
    files = files_of(table, snapshots(table)[0])
    house.pass_time(6 * DAY)
    expired(house, table)
    house.pass_time(2 * HOUR)
    on_step(house, "files-judged", lambda: put_back(table, files[:3]))
    record = gone_on(house, table)
    assert (record.status, record.deleted.content_files) == (UpkeepStatus.DONE, 9)
    assert reached(table.table) <= files_on_disk(table.table)
    assert len(table.rows()) == 15


def test_another_table_that_got_the_name_after_the_files_were_judged_keeps_them(house: House) -> None:
    table = compacted(house)
    house.pass_time(6 * DAY)
    expired(house, table)
    house.pass_time(2 * HOUR)
    files = files_on_disk(table.table)

    def replace() -> None:
        house.lake.catalog.rename_table(("db", "t"), ("db", "u"))
        house.lake.table("t")

    on_step(house, "files-judged", replace)
    record = gone_on(house, table)
    assert record.status is UpkeepStatus.REMOVED
    assert "another table has the name now" in (record.reason or "")
    assert files_on_disk(table.table) == files


def test_a_process_that_was_suspended_deletes_nothing_when_another_one_has_its_lease(house: House) -> None:
    table = compacted(house)
    house.pass_time(6 * DAY)
    expired(house, table)
    house.pass_time(2 * HOUR)
    files = files_on_disk(table.table)

    def suspend() -> None:
        house.pass_time(600)
        with house.services._leases.hold(f"upkeep:{table.identifier}") as renew:
            assert renew is not None, "the lease of the suspended process has ended"

    on_step(house, "files-judged", suspend)
    record = gone_on(house, table)
    assert record.status is UpkeepStatus.REMOVED
    assert "another process goes on with it" in (record.reason or "")
    assert files_on_disk(table.table) == files
    assert gone_on(house, table).status is UpkeepStatus.DONE


# ---- other tables have the files -------------------------------------------------------------------------------------


def same_path(house: House, location: str) -> Table:
    return house.lake.catalog.register_table(("db", "again"), location)


def without_scheme(house: House, location: str) -> Table:
    return house.lake.catalog.register_table(("db", "again"), urlsplit(location).path)


def metadata_elsewhere(house: House, location: str) -> Table:
    """The second registration writes its own metadata, into a folder of its own."""
    again = house.lake.catalog.register_table(("db", "again"), location)
    for properties in ({"write.metadata.path": f"file://{house.lake.folder}/elsewhere"}, {"a": "b"}):
        with again.transaction() as transaction:
            transaction.set_properties(properties)
    return again.refresh()


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("register", [same_path, without_scheme, metadata_elsewhere])
def test_a_second_registration_keeps_the_files_however_it_is_made(
    house: House, register: Callable[[House, str], Table], known: bool
) -> None:
    table = compacted(house)
    again = register(house, table.lake.catalogs.load(table.identifier).metadata_location)
    if known:
        house.services.explore_catalogs.explore()
        house.services.refresh_files.refresh(TableIdentifier("lake", ("db",), "again"))
    house.pass_time(6 * DAY)
    record = finished(house, table)
    assert record.status is UpkeepStatus.REMOVED
    assert "lake.db.again is another registration of this table" in (record.reason or "")
    assert reached(again) <= files_on_disk(again)
    assert len(again.scan(snapshot_id=again.metadata.snapshots[0].snapshot_id).to_arrow()) == 12


def test_a_second_registration_in_a_catalog_of_another_name_keeps_the_files(house: House) -> None:
    table = compacted(house)
    house.services.stores.catalogs.add(CatalogEntry("mirror", house.lake.properties))
    house.pass_time(6 * DAY)
    record = finished(house, table)
    assert record.status is UpkeepStatus.REMOVED
    assert "mirror.db.t is another registration of this table" in (record.reason or "")


def test_a_catalog_that_does_not_answer_keeps_the_files_because_it_may_have_a_second_registration(house: House) -> None:
    table = compacted(house)
    house.pass_time(6 * DAY)
    expired(house, table)
    house.services.stores.catalogs.add(CatalogEntry("silent", {"type": "rest", "uri": "http://127.0.0.1:9"}))
    house.pass_time(2 * HOUR)
    record = gone_on(house, table)
    assert record.status is UpkeepStatus.REMOVED
    assert "it is not certain that no other table has them" in (record.reason or "")


def left_out(house: House, catalog: str = "lake") -> None:
    """Let the filter of a catalog leave out the table `clone`."""
    house.services.manage_catalogs.change(catalog, CatalogChange({"table-filter": "(db|wild)[.][^c].*"}))


@pytest.mark.parametrize("when", ["never known", "left out later", "in another catalog"])
def test_files_that_a_table_names_which_a_filter_leaves_out_stay(house: House, tmp_path: Path, when: str) -> None:
    table = compacted(house)
    files = files_of(table, snapshots(table)[0])
    lake = house.lake
    if when == "in another catalog":
        (tmp_path / "second").mkdir()
        lake = Lake(tmp_path / "second")
        house.services.stores.catalogs.add(CatalogEntry("second", lake.properties))
        left_out(house, "second")
    elif when == "never known":
        left_out(house)
    clone = lake.table("clone")
    clone.table.add_files(files[:2], check_duplicate_files=False)
    house.services.explore_catalogs.explore()
    if when == "left out later":
        house.services.refresh_files.refresh(clone.identifier)
        left_out(house)
    assert "clone" not in {state.table.name for state in house.services.stores.tables.states()}
    house.pass_time(6 * DAY)
    record = finished(house, table)
    assert (record.status, record.reason) == (UpkeepStatus.DONE, None)
    assert record.deleted.kept_elsewhere >= 2
    assert len(clone.rows()) == 2
    assert {urlsplit(path).path for path in files[:2]} <= files_on_disk(table.table)


def test_a_table_that_a_filter_leaves_out_and_that_cannot_be_read_keeps_all_files(house: House) -> None:
    table = compacted(house)
    clone = house.lake.table("clone")
    clone.table.add_files(files_of(table, snapshots(table)[0])[:2], check_duplicate_files=False)
    left_out(house)
    house.pass_time(6 * DAY)
    expired(house, table)
    house.pass_time(2 * HOUR)
    lists = clone.table.refresh().current_snapshot()
    assert lists is not None
    before = files_on_disk(table.table)
    Path(urlsplit(lists.manifest_list).path).unlink()
    record = gone_on(house, table)
    assert (record.status, "clone" in (record.reason or "")) == (UpkeepStatus.REMOVED, True)
    assert files_on_disk(table.table) == before


# ---- catalogs that look after tables themselves -----------------------------------------------------------------------


def test_nothing_expires_in_nessie_which_says_itself_what_it_is(house: House, server: RestServer) -> None:
    table = compacted(house)
    server.overrides = {"nessie.is-nessie-catalog": "true", "nessie.default-branch.name": "main"}
    behind_rest(house, server)
    house.pass_time(6 * DAY)
    before = table.table.refresh().metadata_location
    (store,) = expire(house, table).stores
    assert store.refusal is not None
    assert "the catalog is Nessie" in store.refusal
    assert table.table.refresh().metadata_location == before


def test_amazon_s3_tables_look_after_themselves(house: House) -> None:
    table: Any = compacted(house).table
    assert why_the_catalog_decides(table) is None
    table.metadata = table.metadata.model_copy(update={"location": "s3://63a8e430-6e0b-46f5-k833abtwr6s8tmtsycedn8s4yc3xhuse1b--table-s3"})
    assert "Amazon S3 Tables" in str(why_the_catalog_decides(table))


def test_files_of_a_merge_that_landed_stay_for_newer_metadata_when_the_pointer_was_set_back(house: House) -> None:
    table = compacted(house)
    newest = table.table.refresh()
    needed = reached(newest)
    set_pointer(table, newest.metadata.metadata_log[-1].metadata_file)
    house.pass_time(2 * DAY)
    house.services.one_table.refresh(table.identifier)
    house.services.maintain_tables.maintain()
    assert needed <= files_on_disk(newest)
