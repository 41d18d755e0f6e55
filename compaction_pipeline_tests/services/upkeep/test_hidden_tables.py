"""Catalogs that hide tables, for a moment or for long: what these tables need of another table's files is never deleted."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.upkeep.record import UpkeepRecord, UpkeepStatus
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable
from compaction_pipeline_tests.iceberg.reached import files_on_disk, reached
from compaction_pipeline_tests.rest_catalog import Fault, RestServer, no_tables, status
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.upkeep.cleaning import append, delete, local, looked_at, roomy
from compaction_pipeline_tests.services.upkeep.expiring import DAY, HOUR, behind_rest, compacted, expired, files_of, gone_on, snapshots

AGAIN = TableIdentifier("lake", ("mirror",), "again")

LOST = {"404": status(404), "403": status(403), "500": status(500), "empty": no_tables}


def registered_again(house: House, table: LakeTable) -> LakeTable:
    """A second registration in a namespace of its own. It writes its own metadata, into a folder of its own."""
    house.lake.catalog.create_namespace("mirror")
    again = house.lake.catalog.register_table(("mirror", "again"), table.lake.catalogs.load(table.identifier).metadata_location)
    for properties in ({"write.metadata.path": f"file://{house.lake.folder}/elsewhere"}, {"a": "b"}):
        with again.transaction() as transaction:
            transaction.set_properties(properties)
    return LakeTable(house.lake, AGAIN, again.refresh())


# ---- a second registration -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 2, 20])
@pytest.mark.parametrize("fault", LOST.values(), ids=LOST)
def test_an_expiry_keeps_the_files_of_a_registration_in_a_namespace_that_is_not_told(
    house: House, server: RestServer, fault: Fault, times: int
) -> None:
    table = compacted(house)
    again = registered_again(house, table)
    if fault is no_tables and times > 1:
        # A catalog that lies twice is believed where nobody ever saw a table.
        house.services.explore_catalogs.explore()
    house.pass_time(6 * DAY)
    behind_rest(house, server)
    assert expired(house, table).status is UpkeepStatus.REMOVED
    house.pass_time(2 * HOUR)
    server.lists_of["mirror"] = [fault] * times
    record = gone_on(house, table)
    assert record.status is UpkeepStatus.REMOVED
    assert record.reason is not None
    assert reached(again.table) <= files_on_disk(again.table)


@pytest.mark.parametrize("times", [1, 20])
@pytest.mark.parametrize("fault", LOST.values(), ids=LOST)
def test_a_look_for_orphans_keeps_the_files_of_a_registration_in_a_namespace_that_is_not_told(
    house: House, server: RestServer, fault: Fault, times: int
) -> None:
    table = roomy(house, "t")
    again = registered_again(house, table)
    if times > 1:
        house.services.explore_catalogs.explore()
    append(again, 7)
    needed = [path for path in map(Path, reached(again.table)) if path.exists()]
    behind_rest(house, server)

    def hide() -> None:
        server.lists_of["mirror"] = [fault] * times

    try:
        hide()
        looked_at(house, table)
    except CompactionError:
        house.pass_time(DAY)
    for _ in range(2):
        hide()
        try:
            delete(house, table, accept_share=1.0)
        except CompactionError as error:
            assert "mirror" in str(error)  # noqa: PT017
        house.pass_time(DAY)
    assert len(needed) > 5
    assert [path for path in needed if not path.exists()] == []


def test_a_namespace_that_is_gone_hides_nothing(house: House, server: RestServer) -> None:
    table = compacted(house)
    registered_again(house, table)
    house.services.explore_catalogs.explore()
    house.services.one_table.refresh(AGAIN)
    house.lake.catalog.drop_table(("mirror", "again"))
    house.lake.catalog.drop_namespace("mirror")
    house.services.explore_catalogs.explore()
    behind_rest(house, server)
    house.pass_time(6 * DAY)
    expired(house, table)
    house.pass_time(2 * HOUR)
    assert gone_on(house, table).status is UpkeepStatus.DONE


def test_an_empty_namespace_hides_nothing(house: House, server: RestServer) -> None:
    table = compacted(house)
    house.lake.catalog.create_namespace("mirror")
    behind_rest(house, server)
    house.pass_time(6 * DAY)
    expired(house, table)
    house.pass_time(2 * HOUR)
    assert gone_on(house, table).status is UpkeepStatus.DONE


# ---- a clone ---------------------------------------------------------------------------------------------------------


@dataclass
class Cloned:
    """A table with an expiry in its grace time, and a table in a second catalog that names `shared`, one of the files that will go."""

    table: LakeTable
    second: Lake
    clone: LakeTable
    shared: str

    @property
    def name(self) -> TableIdentifier:
        return TableIdentifier("second", ("db",), "clone")

    def hide(self) -> str:
        """Let the second catalog list the clone no more, and return where its metadata is."""
        self.clone.table.refresh()
        self.second.catalog.drop_table(("db", "clone"))
        return self.clone.table.metadata_location


@pytest.fixture
def cloned(house: House, tmp_path: Path) -> Cloned:
    table = house.fragmented("t", 12)
    (tmp_path / "two").mkdir()
    second = Lake(tmp_path / "two")
    house.services.stores.catalogs.add(CatalogEntry("second", second.properties))
    shared = files_of(table, snapshots(table)[0])[0]
    clone = second.table("clone")
    clone.table.add_files([shared], check_duplicate_files=False)
    made = Cloned(table, second, clone, shared)
    house.services.explore_catalogs.explore()
    house.services.one_table.refresh(made.name)
    house.services.compact_tables.compact(table.identifier)
    house.pass_time(6 * DAY)
    expired(house, table)
    house.pass_time(2 * HOUR)
    return made


def test_a_clone_that_its_catalog_lists_no_more_refuses_the_deletion_until_a_person_says_that_it_is_gone(
    house: House, cloned: Cloned
) -> None:
    metadata = cloned.hide()
    house.services.explore_catalogs.explore()
    record = gone_on(house, cloned.table)
    assert record.status is UpkeepStatus.REMOVED
    assert "second.db.clone" in (record.reason or "")
    assert "--forget-gone-tables" in (record.reason or "")
    assert local(cloned.shared).exists()
    cloned.second.catalog.register_table(("db", "clone"), metadata)
    assert cloned.clone.table.refresh().scan().to_arrow().num_rows == 1
    cloned.hide()
    house.services.other_places.forget_gone(cloned.table.identifier)
    assert gone_on(house, cloned.table).status is UpkeepStatus.DONE


def back(record: UpkeepRecord, cloned: Cloned) -> None:
    """The deletion is done, and what the clone names is there."""
    assert (record.status, record.deleted.content_files) == (UpkeepStatus.DONE, 11)
    assert local(cloned.shared).exists()


def test_a_clone_that_came_back_and_that_nobody_has_looked_at_again_keeps_its_files_alone(house: House, cloned: Cloned) -> None:
    metadata = cloned.hide()
    house.services.explore_catalogs.explore()
    cloned.second.catalog.register_table(("db", "clone"), metadata)
    back(gone_on(house, cloned.table), cloned)


def test_a_clone_that_a_filter_leaves_out_keeps_its_files_alone(house: House, cloned: Cloned) -> None:
    house.services.stores.index.forget(cloned.name)
    back(gone_on(house, cloned.table), cloned)


def test_an_old_snapshot_of_a_clone_keeps_its_files(house: House, cloned: Cloned) -> None:
    cloned.clone.table.refresh()
    cloned.clone.table.delete("id >= 0")
    house.services.one_table.refresh(cloned.name)
    back(gone_on(house, cloned.table), cloned)


def test_a_clone_that_was_renamed_keeps_its_files_alone(house: House, cloned: Cloned) -> None:
    cloned.second.catalog.rename_table(("db", "clone"), ("db", "renamed"))
    house.services.explore_catalogs.explore()
    back(gone_on(house, cloned.table), cloned)


def test_a_clone_of_a_catalog_that_was_removed_refuses_the_deletion(house: House, cloned: Cloned) -> None:
    house.services.stores.catalogs.remove("second")
    record = gone_on(house, cloned.table)
    assert record.status is UpkeepStatus.REMOVED
    assert "second.db.clone" in (record.reason or "")
    assert local(cloned.shared).exists()


@pytest.mark.parametrize("lost", ["metadata", "manifests"])
def test_a_clone_that_cannot_be_read_refuses_the_deletion(house: House, cloned: Cloned, lost: str) -> None:
    cloned.clone.table.refresh()
    snapshot = cloned.clone.table.current_snapshot()
    assert snapshot is not None
    folder = local(cloned.clone.table.metadata_location).parent
    if lost == "metadata":
        shutil.move(folder, f"{folder}.away")
    else:
        local(snapshot.manifest_list).unlink()
    record = gone_on(house, cloned.table)
    assert record.status is UpkeepStatus.REMOVED
    assert record.reason
    assert local(cloned.shared).exists()


def test_a_table_made_anew_in_place_of_a_clone_does_not_stand_for_it(house: House, cloned: Cloned) -> None:
    cloned.hide()
    cloned.second.table("clone")
    house.services.explore_catalogs.explore()
    record = gone_on(house, cloned.table)
    assert record.status is UpkeepStatus.REMOVED
    assert "second.db.clone" in (record.reason or "")
    assert local(cloned.shared).exists()


def test_a_registration_that_was_gone_a_moment_ago_counts_when_it_is_back(house: House) -> None:
    table = compacted(house)
    again = registered_again(house, table)
    house.pass_time(6 * DAY)
    house.lake.catalog.rename_table(("mirror", "again"), ("mirror", "away"))
    tables = house.services._other_tables
    assert tables.known(AGAIN, None) is None
    house.lake.catalog.rename_table(("mirror", "away"), ("mirror", "again"))
    back = tables.known(AGAIN, None)
    assert back is not None
    assert back.table_uuid == str(again.table.metadata.table_uuid)


def test_a_person_gives_up_no_table_that_its_catalog_only_hides(house: House, server: RestServer) -> None:
    table = house.fragmented("t", 12)
    shared = files_of(table, snapshots(table)[0])[0]
    house.services.compact_tables.compact(table.identifier)
    house.lake.catalog.create_namespace("mirror")
    clone = house.lake.catalog.create_table(("mirror", "clone"), table.table.schema(), location=f"file://{house.lake.folder}/mirror/clone")
    clone.add_files([shared], check_duplicate_files=False)
    behind_rest(house, server)
    entry = house.services.stores.catalogs.entry("lake")
    house.services.stores.catalogs.replace(replace(entry, properties={**entry.properties, "database-filter": "db"}))
    house.services.explore_catalogs.explore()
    with suppress(CompactionError):
        looked_at(house, table)
    house.pass_time(6 * DAY)
    expired(house, table)
    house.pass_time(2 * HOUR)
    server.lists_of["mirror"] = [no_tables] * 40
    assert house.services.other_places.forget_gone(table.identifier) == []
    gone_on(house, table)
    assert local(shared).exists()
