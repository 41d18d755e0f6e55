"""Files that other metadata than the catalog's names stay: newer metadata, a fork's, and that of a former table of the same name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.upkeep.cleaning import append, delete, deleted, local, looked_at, roomy, stray, table
from compaction_pipeline_tests.services.upkeep.expiring import DAY, expire, set_pointer, set_properties

__all__ = ["table"]


@pytest.mark.parametrize("seen_by", ["orphan look", "expiry"])
def test_a_pointer_that_was_set_back_refuses_where_newer_metadata_lies_elsewhere(house: House, seen_by: str) -> None:
    table = roomy(house, "t")
    set_properties(table, write__metadata__path=f"{table.table.metadata.location}-meta")
    append(table, 5)
    table.table.refresh()
    old, before = table.table.metadata_location, {file.path for file in table.files()}
    append(table, 9001)
    table.table.refresh()
    [live] = {file.path for file in table.files()} - before
    if seen_by == "expiry":
        expire(house, table)
    else:
        house.services.clean_orphans.look(table.identifier)
    set_pointer(table, old)
    house.pass_time(4 * DAY)
    found = house.services.clean_orphans.look(table.identifier)
    assert "its metadata is older than what was seen" in " ".join(found.refusals)
    assert found.orphans.files == ()
    house.pass_time(DAY)
    assert "its metadata is older than what was seen" in " ".join(delete(house, table).refusals)
    assert local(live).exists()


def test_a_look_for_orphan_files_does_not_hide_metadata_from_expiry(house: House, table: LakeTable) -> None:
    house.services.clean_orphans.look(table.identifier)
    sightings = house.services._stores.upkeep.sightings(table.identifier)
    assert sightings is not None
    assert (len(sightings.looks), sightings.metadata_location) == (1, "")


@pytest.mark.parametrize("outside", [True, False])
def test_a_former_table_of_the_same_name_and_place_that_may_be_registered_again_keeps_its_files(house: House, outside: bool) -> None:
    table = roomy(house, "t")
    location, catalog, schema = table.table.metadata.location, table.lake.catalog, table.table.schema()
    catalog.drop_table(("db", "t"))
    shutil.rmtree(local(location))

    def made(number: int, *ids: int) -> LakeTable:
        properties = {"write.metadata.path": f"{location}-meta{number}"} if outside else {}
        one = LakeTable(table.lake, table.identifier, catalog.create_table(("db", "t"), schema, location=location, properties=properties))
        append(one, *ids)
        house.services.explore_catalogs.explore()
        house.services.one_table.refresh(one.identifier)
        return one

    first = made(1, 1, 2, 3)
    [live] = {file.path for file in first.files()}
    catalog.drop_table(("db", "t"))
    anew = made(2, *range(4000))
    looked_at(house, anew)
    refusals = " ".join(delete(house, anew, accept_share=1.0).refusals)
    assert ("lake.db.t (as it was seen earlier)" if outside else str(first.table.metadata.table_uuid)) in refusals
    assert local(live).exists()
    if outside:
        house.services.other_places.forget_gone(anew.identifier)
        looked_at(house, anew)
        assert deleted(delete(house, anew, accept_share=1.0)) == [live]


@pytest.mark.parametrize("is_passed", [True, False])
def test_files_of_a_fork_stay_when_the_own_table_has_passed_it(house: House, table: LakeTable, tmp_path: Path, is_passed: bool) -> None:
    (tmp_path / "old").mkdir()
    old, path = Lake(tmp_path / "old"), stray(table)
    old.catalog.create_namespace_if_not_exists("db")
    table.table.refresh()
    fork = LakeTable(old, table.identifier, old.catalog.register_table(("db", "t"), table.table.metadata_location))
    before = {local(file) for file in map(str, local(table.table.location()).rglob("*"))}
    append(fork, 77)
    of_fork = {local(file) for file in map(str, local(table.table.location()).rglob("*"))} - before
    if is_passed:
        append(table, 1000)
        append(table, 1001)
    looked_at(house, table)
    cleaned = delete(house, table)
    assert deleted(cleaned) == ([path] if is_passed else [])
    assert ("is newer than the metadata" in " ".join(cleaned.refusals)) is not is_passed
    assert len(of_fork) == 4
    assert all(file.exists() for file in of_fork)


def test_a_look_that_found_a_file_referenced_takes_back_what_earlier_looks_said(house: House, table: LakeTable) -> None:
    path = stray(table, content=local(next(file.path for file in table.files())).read_bytes())
    looked_at(house, table)
    table.table.refresh()
    old = table.table.metadata_location
    table.table.add_files([path], check_duplicate_files=False)
    assert house.services.clean_orphans.look(table.identifier).orphans.files == ()
    house.pass_time(2 * DAY)
    table.table.refresh()
    local(table.table.metadata_location).unlink()
    set_pointer(table, old)
    house.services.expire_snapshots.forget_sightings(table.identifier)
    assert deleted(delete(house, table, accept_share=1.0)) == []
    house.pass_time(DAY)
    assert path in deleted(delete(house, table, accept_share=1.0))
