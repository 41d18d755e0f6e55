from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.index import Reading, TableIndex
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.upkeep.orphan_looks import OrphanDeletion, OrphanLook, Place
from compaction_pipeline.core.upkeep.orphan_rules import ListedFile
from compaction_pipeline.core.upkeep.orphans import OrphanList
from compaction_pipeline_tests.builders import COMPLETE, LAYOUT, LOADED, NOW, TABLE, data, indexed

OTHER = TableIdentifier("lake", ("shop",), "others")
FILE = ListedFile("s3://b/t/data/ä.parquet", 2**40, NOW - timedelta(days=9, microseconds=7), "e1")
DAY = timedelta(days=1)


def look(at: datetime, table: TableIdentifier = TABLE) -> OrphanLook:
    return OrphanLook(table, (("uuid", "s3://b/t"), ("uuid-2", "s3://b/c")), OrphanList(at, (FILE, replace(FILE, version=None))))


def test_looks_are_read_newest_first_as_they_were_and_replaced_when_done(stores: Stores) -> None:
    assert stores.orphans.newest_look(TABLE) is None
    for one in (look(NOW), look(NOW + DAY), look(NOW + 2 * DAY, OTHER)):
        stores.orphans.save_look(one)
    assert list(stores.orphans.looks(TABLE)) == [look(NOW + DAY), look(NOW)]
    assert stores.orphans.newest_look(TABLE) == (NOW + DAY, False)
    stores.orphans.save_look(replace(look(NOW + DAY), is_done=True))
    assert stores.orphans.newest_look(TABLE) == (NOW + DAY, True)
    stores.orphans.expire(NOW + DAY, NOW)
    assert [one.found.listed_at for one in stores.orphans.looks(TABLE)] == [NOW + DAY]


def test_deletions_are_kept_with_every_path_until_they_are_old(stores: Stores) -> None:
    begun = OrphanDeletion(RecordId("r1"), TABLE, NOW, (FILE,))
    stores.orphans.save_deletion(begun)
    stores.orphans.save_deletion(OrphanDeletion(RecordId("r2"), OTHER, NOW + DAY, (FILE,)))
    assert list(stores.orphans.deletions(TABLE)) == [begun]
    ended = replace(begun, failed={FILE.path: "denied"}, ended_at=NOW + DAY)
    stores.orphans.save_deletion(ended)
    assert [one.record_id for one in stores.orphans.deletions()] == ["r2", "r1"]
    assert next(iter(stores.orphans.deletions(limit=1))).table == OTHER
    assert list(stores.orphans.deletions(TABLE)) == [ended]
    stores.orphans.expire(NOW, NOW + DAY)
    assert [one.record_id for one in stores.orphans.deletions()] == ["r2"]


def test_a_place_stays_when_its_table_is_forgotten_moved_or_its_catalog_removed(stores: Stores) -> None:
    stores.catalogs.add(CatalogEntry("lake", {}))
    indexed(stores, TableIndex(TABLE, COMPLETE))
    moved = replace(COMPLETE, loaded=replace(LOADED, layout=replace(LAYOUT, location="s3://b/new")))
    assert stores.index.save(TableIndex(TABLE, moved), stores.tables.state(TABLE).index_version)
    stores.index.forget(TABLE)
    stores.catalogs.remove("lake")
    places = [Place(TABLE, "uuid", location, metadata_location="m1") for location in ("s3://b", "s3://b/new")]
    assert list(stores.orphans.places()) == places


def test_a_place_is_unread_until_the_index_has_all_files_and_knows_then_where_they_lie(stores: Stores) -> None:
    indexed(stores, TableIndex(TABLE, Reading(LOADED)))
    assert [place.is_unread for place in stores.orphans.places()] == [True]
    files = [data(f"s3://{place}/data/{number}.parquet") for place in ("b", "c/t", "d") for number in range(2)]
    stores.files.apply(TABLE, (), {"m1": files[:4]})
    stores.files.apply(TABLE, ("m1",), {"m2": files[4:]})
    assert stores.index.save(TableIndex(TABLE, COMPLETE), stores.tables.state(TABLE).index_version)
    place = Place(TABLE, "uuid", "s3://b", ("s3://c/t/data", "s3://d/data"), COMPLETE.metadata_location)
    assert list(stores.orphans.places()) == [place]
    assert not place.is_unread


def test_what_was_read_of_a_place_stays_when_its_table_is_loaded_again(stores: Stores) -> None:
    read = Place(TABLE, "uuid", "s3://b", ("s3://b/elsewhere",), "s3://b/v7.metadata.json", NOW)
    stores.orphans.save_place(read)
    indexed(stores, TableIndex(TABLE, COMPLETE))
    assert list(stores.orphans.places()) == [read]
    other = replace(read, table_uuid="another")
    stores.orphans.save_place(other)
    stores.orphans.forget_place(read)
    assert list(stores.orphans.places()) == [other]
