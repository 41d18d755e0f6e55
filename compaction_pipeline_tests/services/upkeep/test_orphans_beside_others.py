"""Files below a table's location that another table may need stay: a table there now, hidden, gone, or naming files from elsewhere."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from compaction_pipeline.core.catalogs.change import CatalogChange
from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.upkeep.orphan_rules import OtherTable, Standing
from compaction_pipeline.core.upkeep.record import UpkeepStatus
from compaction_pipeline_tests.builders import task
from compaction_pipeline_tests.core.upkeep.listings import standing
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.upkeep.cleaning import (
    append,
    delete,
    deleted,
    in_the_next_run,
    local,
    looked_at,
    roomy,
    stray,
    table,
)
from compaction_pipeline_tests.services.upkeep.expiring import DAY, HOUR, expire, set_properties

__all__ = ["table"]


def refused(house: House, table: LakeTable) -> str:
    return " ".join(delete(house, table).refusals)


def imported(house: House, table: LakeTable, *paths: str, name: str = "importing") -> LakeTable:
    """A table elsewhere that names these files of another one."""
    made = house.lake.table(name)
    made.table.add_files(list(paths), check_duplicate_files=False)
    return made


def copied(table: LakeTable, number: int = 7) -> str:
    """A stray file with rows, which a table can import."""
    source = next(file.path for file in table.files() if file.path.rsplit("/", 1)[-1].startswith("0000"))
    return stray(table, number, content=local(source).read_bytes())


# ---- tables that name files of this one ------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["import", "look"])
@pytest.mark.parametrize("known", [True, False])
def test_a_table_that_imported_files_keeps_them_whichever_came_first(house: House, table: LakeTable, first: str, known: bool) -> None:
    path = copied(table)
    if first == "import":
        other = imported(house, table, path)
        looked_at(house, table)
    else:
        looked_at(house, table)
        house.services.clean_orphans.look(table.identifier)
        other = imported(house, table, path)
    if known:
        house.services.explore_catalogs.explore()
        house.services.one_table.refresh(other.identifier)
    assert "importing" in refused(house, table) or "another table has 1 file(s)" in refused(house, table)
    assert local(path).exists()


def test_a_table_that_a_filter_leaves_out_keeps_the_files_that_it_names(house: House, table: LakeTable) -> None:
    path = copied(table)
    other = imported(house, table, path)
    house.services.explore_catalogs.explore()
    house.services.one_table.refresh(other.identifier)
    house.services.manage_catalogs.change("lake", CatalogChange({"table-filter": ".*[.]t"}))
    assert other.identifier not in house.services.stores.tables.seen()
    looked_at(house, table)
    assert "importing names files in" in refused(house, table)
    assert local(path).exists()


def test_a_tag_of_an_importing_table_keeps_files_that_its_newest_snapshot_lacks(house: House, table: LakeTable) -> None:
    path = copied(table)
    other = imported(house, table, path)
    other.table.manage_snapshots().create_tag(other.table.current_snapshot().snapshot_id, "kept").commit()
    other.table.refresh()
    other.table.delete("id >= 0")
    house.services.explore_catalogs.explore()
    house.services.one_table.refresh(other.identifier)
    looked_at(house, table)
    assert "importing names files in" in refused(house, table)
    assert local(path).exists()


def test_a_table_that_imports_a_file_between_two_batches_keeps_it(house: House, table: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compaction_pipeline.services.upkeep.clean_orphans._BATCH", 1)
    paths = [copied(table, 1), copied(table, 2)]
    looked_at(house, table)
    late: list[str] = []

    def import_the_rest() -> None:
        late.extend(path for path in paths if local(path).exists())
        other = imported(house, table, *late)
        house.services.explore_catalogs.explore()
        house.services.one_table.refresh(other.identifier)

    in_the_next_run(house, "orphans-deleted", import_the_rest)
    delete(house, table, accept_share=1.0)
    assert [local(path).exists() for path in late] == [True]


def test_a_table_that_cannot_be_read_refuses_the_run(house: House, table: LakeTable) -> None:
    path = stray(table)
    other = roomy(house, "other")
    other.table.refresh()
    lists = other.table.current_snapshot()
    assert lists is not None
    Path(urlsplit(lists.manifest_list).path).unlink()
    house.pass_time(4 * DAY)
    with pytest.raises(StorageUnavailable, match="manifest list"):
        house.services.clean_orphans.look(table.identifier)
    assert local(path).exists()


def test_what_was_read_of_other_tables_is_not_read_again(house: House, table: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    stray(table)
    others = [roomy(house, f"other{number}") for number in range(3)]
    read: list[str] = []
    place = house.services._files_looker.place

    def counted(store: Any, noted: Any, kept: Any) -> Any:
        read.append(store.name)
        return place(store, noted, kept)

    monkeypatch.setattr(house.services._files_looker, "place", counted)
    house.pass_time(4 * DAY)
    # The time ends after each table, and the next run goes on.
    for number in range(2):
        with pytest.raises(StorageUnavailable, match="the next run goes on"):
            house.services.clean_orphans.clean(table.identifier, is_over=lambda number=number: len(read) > number)
    house.services.clean_orphans.clean(table.identifier)
    assert sorted(read) == [other.identifier.name for other in others]
    # Within a day, the index tells of what changes; after that, the changed table is read again.
    append(others[0], 7)
    house.services.one_table.refresh(others[0].identifier)
    house.pass_time(HOUR)
    house.services.clean_orphans.look(table.identifier)
    assert len(read) == 3
    house.pass_time(DAY)
    house.services.clean_orphans.look(table.identifier)
    assert read[3:] == ["other0"]
    # Nobody else tells of a change that the index has not seen.
    append(others[1], 8)
    house.services.clean_orphans.look(table.identifier)
    assert read[4:] == ["other1"]


def test_a_table_that_imports_a_file_after_it_was_read_keeps_it_by_its_index(house: House, table: LakeTable) -> None:
    path, other = copied(table), roomy(house, "other")
    looked_at(house, table)
    house.services.clean_orphans.look(table.identifier)
    other.table.refresh()
    other.table.add_files([path], check_duplicate_files=False)
    house.services.one_table.refresh(other.identifier)
    assert f"another table has 1 file(s) below the location, e.g. {path}" in refused(house, table)


def known(house: House, table: LakeTable) -> None:
    house.services.explore_catalogs.explore()
    house.services.one_table.refresh(table.identifier)


@pytest.mark.parametrize("how", ["branch", "history", "another spelling"])
def test_what_a_table_names_that_changed_since_it_was_read_within_a_day_is_read_before_a_deletion(
    house: House, table: LakeTable, how: str
) -> None:
    path, other = copied(table), roomy(house, "importing")
    known(house, other)
    house.pass_time(4 * DAY)
    house.services.clean_orphans.look(table.identifier)
    house.pass_time(23 * HOUR)
    house.services.clean_orphans.look(other.identifier)
    house.pass_time(HOUR)
    other.table.refresh()
    if how == "branch":
        snapshot = other.table.current_snapshot()
        assert snapshot is not None
        other.table.manage_snapshots().create_branch(snapshot.snapshot_id, "audit").commit()
    other.table.refresh()
    named, branch = str(local(path)) if how == "another spelling" else path, "audit" if how == "branch" else "main"
    other.table.add_files([named], check_duplicate_files=False, branch=branch)
    if how == "history":
        other.table.refresh()
        other.table.delete("id >= 0")
    known(house, other)
    assert "importing names files in" in " ".join(delete(house, table, accept_share=1.0).refusals)
    assert local(path).exists()


def test_a_table_is_asked_anew_before_a_deletion_when_its_catalog_lists_no_metadata(
    house: House, table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(house.services._scan, "locations", lambda catalog: {})
    path, other = copied(table), roomy(house, "importing")
    looked_at(house, table)
    house.services.clean_orphans.look(table.identifier)
    other.table.refresh()
    other.table.add_files([path], check_duplicate_files=False)
    assert "importing names files in" in " ".join(delete(house, table, accept_share=1.0).refusals)
    assert local(path).exists()


def second_lake(house: House, folder: Path) -> Lake:
    """A second catalog that is registered here."""
    folder.mkdir()
    second = Lake(folder)
    house.services.stores.catalogs.add(CatalogEntry("second", second.properties))
    return second


def in_second(house: House, name: str) -> TableIdentifier:
    house.services.explore_catalogs.explore()
    tables = (state.table for state in house.services._stores.tables.states())
    return next(table for table in tables if (table.catalog, table.name) == ("second", name))


@pytest.mark.parametrize("how", ["dropped", "catalog removed"])
@pytest.mark.parametrize("indexed", [True, False])
def test_a_table_that_vanished_before_anybody_read_where_it_names_files_keeps_them(
    house: House, table: LakeTable, tmp_path: Path, how: str, indexed: bool
) -> None:
    path, second = copied(table), second_lake(house, tmp_path / "two")
    second.table("clone").table.add_files([path], check_duplicate_files=False)
    clone = in_second(house, "clone")
    house.services.one_table.refresh(clone)
    if not indexed:
        # Its first read was not finished.
        [place] = (place for place in house.services._stores.orphans.places() if place.table == clone)
        house.services._stores.orphans.save_place(replace(place, roots=(), metadata_location=None))
    if how == "dropped":
        second.catalog.drop_table((*clone.namespace, clone.name))
        house.services.maintain_tables.maintain()
    else:
        house.services.stores.catalogs.remove("second")
    looked_at(house, table)
    wanted = "clone (as it was seen earlier) names files in" if indexed else "nobody has read where table second.db.clone"
    assert wanted in refused(house, table)
    house.services.other_places.forget_gone(table.identifier)
    looked_at(house, table)
    assert path in deleted(delete(house, table, accept_share=1.0))


def test_a_table_that_was_made_and_dropped_between_two_looks_does_not_refuse(house: House, table: LakeTable) -> None:
    path, passing = stray(table), roomy(house, "passing")
    known(house, passing)
    house.lake.catalog.drop_table(("db", "passing"))
    house.services.maintain_tables.maintain()
    looked_at(house, table)
    assert deleted(delete(house, table)) == [path]


def test_files_that_an_expiry_of_another_table_keeps_for_ever_stay(house: House, table: LakeTable) -> None:
    path = copied(table)
    other = imported(house, table, path)
    set_properties(other, write__metadata__previous_versions_max="1")
    other.table.refresh()
    other.table.delete("id >= 0")
    append(other, 1)
    known(house, other)
    house.pass_time(6 * DAY)
    [record] = (store.record for store in expire(house, other).stores)
    assert record is not None
    house.services._stores.upkeep.save(replace(record, status=UpkeepStatus.KEPT))
    [place] = (place for place in house.services._stores.orphans.places() if place.table == other.identifier)
    house.services._stores.orphans.save_place(replace(place, roots=()))
    append(other, 4)
    append(other, 5)
    other.table.refresh()
    for metadata in local(other.table.location()).rglob("*.metadata.json"):
        if metadata.name not in other.table.metadata_location:
            metadata.unlink()
    looked_at(house, table)
    assert "importing names files in" in refused(house, table)
    assert local(path).exists()


# ---- tables that lie there -------------------------------------------------------------------------------------------


def inside(table: LakeTable, name: str = "inside") -> LakeTable:
    """A table whose data and metadata lie in the location of another one, but for metadata files, which would tell of it."""
    location = f"{table.table.metadata.location}/{name}"
    properties = {"write.metadata.path": f"{table.table.metadata.location}-of-{name}"}
    made = table.lake.catalog.create_table(("db", name), table.table.schema(), location=location, properties=properties)
    return LakeTable(table.lake, replace(table.identifier, name=name), made)


def test_a_table_that_vanished_counts_until_a_person_says_that_it_is_gone(house: House, table: LakeTable) -> None:
    other = inside(table)
    append(other, 1)
    house.services.explore_catalogs.explore()
    house.services.one_table.refresh(other.identifier)
    [file] = (one.path for one in other.files())
    table.lake.catalog.drop_table(("db", "inside"))
    house.services.maintain_tables.maintain()
    looked_at(house, table)
    assert "lake.db.inside (as it was seen earlier)" in refused(house, table)
    house.pass_time(DAY)
    assert local(file).exists()
    [gone] = house.services.other_places.forget_gone(table.identifier)
    assert gone.location == other.table.metadata.location
    looked_at(house, table, 0)
    assert file in deleted(delete(house, table, accept_share=1.0))


def test_a_table_that_is_not_known_to_the_program_counts(house: House, table: LakeTable) -> None:
    other = inside(table)
    assert str(other.identifier) not in {str(one.table) for one in house.services._stores.tables.states()}
    looked_at(house, table)
    assert "lake.db.inside" in refused(house, table)


def test_a_table_of_another_format_that_a_catalog_hides_counts(house: House, table: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = OtherTable("lake.db.csv (no Iceberg table)", f"{table.table.metadata.location}/csv")
    monkeypatch.setattr(house.services._files_looker, "hidden", lambda catalog: [hidden])
    looked_at(house, table)
    assert "lake.db.csv (no Iceberg table)" in refused(house, table)


def test_a_table_of_a_catalog_that_was_removed_counts(house: House, table: LakeTable) -> None:
    path = stray(table)
    house.services.stores.catalogs.add(CatalogEntry("second", house.lake.properties))
    house.services.explore_catalogs.explore()
    house.pass_time(4 * DAY)
    assert house.services.clean_orphans.look(table.identifier).refusals
    house.services.stores.catalogs.remove("second")
    looked_at(house, table)
    assert "second.db.t (as it was seen earlier)" in refused(house, table)
    house.services.other_places.forget_gone(table.identifier)
    looked_at(house, table, 0)
    assert deleted(delete(house, table)) == [path]


@pytest.mark.parametrize("how", ["imports", "lies there", "reached itself by a link"])
def test_a_table_that_names_files_of_this_one_through_a_link_keeps_them(house: House, table: LakeTable, tmp_path: Path, how: str) -> None:
    link, location = tmp_path / "link", local(table.table.metadata.location)
    link.symlink_to(location)
    schema, catalog = table.table.schema(), table.lake.catalog
    if how == "imports":
        live = copied(table)
        imported(house, table, f"file://{link}/data/{local(live).name}")
    elif how == "lies there":
        properties = {"write.metadata.path": f"file://{tmp_path}/elsewhere"}
        made = catalog.create_table(("db", "inside"), schema, location=f"file://{link}/inside", properties=properties)
        append(LakeTable(table.lake, replace(table.identifier, name="inside"), made), 1)
        [live] = made.refresh().inspect.files()["file_path"].to_pylist()
    else:
        made = catalog.create_table(("db", "linked"), schema, location=f"file://{link}/linked")
        by_link = LakeTable(table.lake, replace(table.identifier, name="linked"), made)
        append(by_link, *range(4000))
        real, live = f"{table.table.metadata.location}/linked", copied(by_link)
        other = roomy(house, "importing")
        other.table.add_files([f"{real}/data/{local(live).name}"], check_duplicate_files=False)
        catalog.drop_table(("db", "t"))
        shutil.rmtree(location / "metadata")
        table = by_link
    looked_at(house, table)
    assert refused(house, table)
    assert local(live).exists()


def test_a_registration_in_another_catalog_counts_when_that_catalog_hides_it(house: House, table: LakeTable, tmp_path: Path) -> None:
    second = second_lake(house, tmp_path / "two")
    second.catalog.create_namespace_if_not_exists("db")
    table.table.refresh()
    second.catalog.register_table(("db", "t"), table.table.metadata_location)
    in_second(house, "t")
    append(table, 1000)
    house.pass_time(4 * DAY)
    assert "second.db.t" in " ".join(house.services.clean_orphans.look(table.identifier).refusals)
    second.catalog.drop_table(("db", "t"))
    assert "second.db.t (as it was seen earlier)" in " ".join(house.services.clean_orphans.look(table.identifier).refusals)
    house.services.other_places.forget_gone(table.identifier)
    assert house.services.clean_orphans.look(table.identifier).refusals == ()


def test_a_place_is_forgotten_whose_name_another_table_has_now(house: House, table: LakeTable) -> None:
    other = inside(table)
    append(other, 1)
    known(house, other)
    table.lake.catalog.drop_table(("db", "inside"))
    known(house, LakeTable(house.lake, other.identifier, house.lake.table("inside").table))
    looked_at(house, table)
    assert "lake.db.inside (as it was seen earlier)" in refused(house, table)
    assert [place.table_uuid for place in house.services.other_places.forget_gone(table.identifier)] == [
        str(other.table.metadata.table_uuid)
    ]
    assert house.services.clean_orphans.look(table.identifier).refusals == ()


def test_a_second_registration_since_the_looks_refuses(house: House, table: LakeTable) -> None:
    stray(table)
    looked_at(house, table)
    house.services.clean_orphans.look(table.identifier)
    table.table.refresh()
    table.lake.catalog.register_table(("db", "again"), table.table.metadata_location)
    assert "lake.db.again" in refused(house, table)


def test_former_names_and_places_of_the_table_itself_do_not_refuse(house: House, table: LakeTable) -> None:
    path = stray(table)
    house.services.one_table.refresh(table.identifier)
    table.lake.catalog.rename_table(("db", "t"), ("db", "now"))
    house.services.explore_catalogs.explore()
    house.services.maintain_tables.maintain()
    now = LakeTable(table.lake, replace(table.identifier, name="now"), table.lake.catalog.load_table(("db", "now")))
    house.services.one_table.refresh(now.identifier)
    looked_at(house, now)
    assert deleted(delete(house, now)) == [path]


def test_files_of_tasks_that_the_table_had_under_a_former_name_stay(house: House, table: LakeTable) -> None:
    house.services.one_table.refresh(table.identifier)
    assert house.services._stores.tasks.insert([task("0123456789ab-00001", table=table.identifier)], (), house.now)
    path = stray(table, name="ba9876543210-0123456789ab-00001-deadbeef-00001.parquet")
    table.lake.catalog.rename_table(("db", "t"), ("db", "now"))
    house.pass_time(9 * DAY)
    found = house.services.clean_orphans.look(replace(table.identifier, name="now"))
    assert standing(path, found) is Standing.OURS


def test_a_table_that_is_dropped_with_its_files_and_made_anew_is_not_refused(house: House, table: LakeTable) -> None:
    house.services.one_table.refresh(table.identifier)
    table.lake.catalog.drop_table(("db", "t"))
    shutil.rmtree(local(table.table.location()))
    anew = roomy(house, "t")
    house.services.one_table.refresh(anew.identifier)
    path = stray(anew)
    looked_at(house, anew)
    assert deleted(delete(house, anew)) == [path]


def test_a_table_beside_it_with_a_longer_name_loses_nothing(house: House, table: LakeTable) -> None:
    beside = roomy(house, "t2")
    strays = stray(table), stray(beside)
    looked_at(house, table)
    assert deleted(delete(house, table)) == [strays[0]]
    assert local(strays[1]).exists()
