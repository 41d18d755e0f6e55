"""What is known of a table follows its uuid from name to name, on both databases. `test_follow_names.py` has the use case."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.figures import MeasuredNode, NodeMetrics
from compaction_pipeline.core.tables.index import Complete, LoadedTable, TableIndex
from compaction_pipeline.core.tables.listing import CatalogListing, KnownName, judge_listing
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.upkeep.consumers import Consumer
from compaction_pipeline.core.upkeep.record import UpkeepRecord, UpkeepStatus
from compaction_pipeline.core.upkeep.sightings import Sightings
from compaction_pipeline_tests.builders import LAYOUT, NOW, TABLE, node

A, B, C = (replace(TABLE, name=name) for name in "abc")
ONE, TWO = "uuid-1", "uuid-2"


@pytest.fixture
def stores(stores: Stores) -> Stores:
    stores.catalogs.add(CatalogEntry("lake", {}))
    return stores


def known(stores: Stores, table: TableIdentifier, uuid: str) -> None:
    """A table with a node, a record, a consumer and an expiry."""
    stores.index.add(table)
    state = Complete(LoadedTable(uuid, LAYOUT), 1, 1, f"m-{uuid}", uuid, NOW)
    assert stores.index.save(TableIndex(table, state), stores.tables.state(table).index_version)
    stores.index.save_figures(table, [MeasuredNode(node("1"), NodeMetrics(data_files=1), 1)], NOW)
    stores.records.save(CompactionRecord(RecordId(f"r-{uuid}"), table, RecordStatus.COMMITTED, NOW, ()))
    stores.upkeep.save(UpkeepRecord(RecordId(f"u-{uuid}"), table, table, uuid, UpkeepStatus.REMOVED, NOW, ()))
    stores.upkeep.set_consumer(Consumer(table, "etl", table, uuid, 1, NOW, NOW + timedelta(days=1)))
    stores.upkeep.note(table, Sightings(uuid))


def all_of(stores: Stores, table: TableIdentifier) -> list[object]:
    """Which table everything is about that is known under a name, by uuid."""
    state = stores.tables.state(table)
    assert state.index.loaded is not None
    sightings = stores.upkeep.sightings(table)
    return [
        state.index.loaded.table_uuid,
        state.metadata_location,
        [one.key for one in stores.tables.nodes(table)],
        [(one.record_id, one.table) for one in stores.records.records(table)],
        [(one.table_uuid, one.table, one.store) for one in stores.upkeep.records(table)],
        [(one.table_uuid, one.store) for one in stores.upkeep.consumers() if one.table == table],
        sightings.table_uuid if sightings is not None else None,
    ]


def told(table: TableIdentifier, uuid: str, key: str) -> list[object]:
    return [uuid, f"m-{uuid}", [key], [(f"r-{uuid}", table)], [(uuid, table, table)], [(uuid, table)], uuid]


def test_all_that_is_known_goes_from_name_to_name_once(stores: Stores) -> None:
    known(stores, A, ONE)
    stores.switches.pause(A, True)
    # A listing has found the new name already.
    stores.index.add(B)
    assert not stores.moves.move(TWO, A, B)
    assert stores.moves.move(ONE, A, B)
    assert not stores.moves.move(ONE, A, B)
    assert all_of(stores, B) == told(B, ONE, "shop.a/dt=1")
    assert [state.table for state in stores.tables.states()] == [B]
    assert stores.tables.state(B).paused
    # A later table of the old name is another one, with a key of its own.
    stores.index.add(A)
    assert not stores.tables.state(A).paused
    assert stores.node_keys.keys(A, [node("1")]) == {node("1"): "lake.shop.a/0/dt=1/0-0"}


def test_two_tables_swap(stores: Stores) -> None:
    known(stores, A, ONE)
    known(stores, B, TWO)
    assert not stores.moves.move(ONE, A, B, "uuid-3")
    assert stores.moves.move(ONE, A, B, TWO)
    assert not stores.moves.move(ONE, A, B, TWO)
    assert all_of(stores, A) == told(A, TWO, "shop.b/dt=1")
    assert all_of(stores, B) == told(B, ONE, "shop.a/dt=1")
    assert stores.moves.move(TWO, A, B, ONE)
    assert all_of(stores, A) == told(A, ONE, "shop.a/dt=1")
    assert all_of(stores, B) == told(B, TWO, "shop.b/dt=1")


def test_a_table_whose_name_another_one_takes_is_found_again_under_any_name(stores: Stores) -> None:
    known(stores, A, ONE)
    known(stores, B, TWO)
    stores.switches.pause(B, True)
    assert stores.moves.move(ONE, A, B)
    assert all_of(stores, B)[2] == ["shop.a/dt=1"]
    assert not stores.tables.state(B).paused
    assert [one.record_id for one in stores.records.records(B)] == ["r-uuid-1"]
    assert not stores.moves.find_again("uuid-3", C)
    stores.index.add(C)
    assert stores.moves.find_again(TWO, C)
    assert not stores.moves.find_again(TWO, C)
    assert stores.tables.state(C).paused
    assert [one.record_id for one in stores.records.records(C)] == ["r-uuid-2"]
    assert [(one.table_uuid, one.table) for one in stores.upkeep.records(C)] == [(TWO, C)]
    assert stores.node_keys.keys(C, [node("1")]) == {node("1"): "shop.b/dt=1"}


def test_a_vanished_table_is_forgotten_with_its_records(stores: Stores) -> None:
    known(stores, A, ONE)
    stores.index.forget(A)
    stores.records.expire(NOW - timedelta(days=1))
    assert stores.tables.known_uuids([ONE, TWO]) == {ONE}
    stores.records.expire(NOW + timedelta(days=36_500))
    assert stores.tables.known_uuids([ONE]) == set()
    stores.index.add(B)
    assert not stores.moves.find_again(ONE, B)


def test_a_table_that_is_made_anew_has_no_records_of_the_former_one(stores: Stores) -> None:
    known(stores, A, ONE)
    version = stores.index.begin_anew(A, stores.tables.state(A).index_version)
    assert version is not None
    assert stores.index.save(TableIndex(A, Complete(LoadedTable(TWO, LAYOUT), 1, 1, "m2", "two", NOW)), version)
    assert stores.records.records(A) == ()
    stores.records.save(CompactionRecord(RecordId("new"), A, RecordStatus.COMMITTED, NOW, ()))
    assert [one.record_id for one in stores.records.records(A)] == ["new"]
    assert {one.record_id for one in stores.records.records(A, former=True)} == {"new", f"r-{ONE}"}
    # An outcome that is not known yet still decides about files, whoever the table is.
    stores.records.save(CompactionRecord(RecordId(f"r-{ONE}"), A, RecordStatus.UNKNOWN, NOW, ()))
    assert {one.record_id for one in stores.records.records(A, unsettled=True)} == {f"r-{ONE}"}


def test_a_listing_is_stored_whole(stores: Stores) -> None:
    def listed(*tables: TableIdentifier) -> None:
        names = stores.listings.names("lake")
        stores.listings.note("lake", judge_listing("lake", CatalogListing(dict.fromkeys(tables)), names, NOW, timedelta(minutes=3)))

    listed(A, B, C)
    assert list(stores.tables.seen()) == [A, B, C]
    listed(A)
    assert set(stores.listings.names("lake")) == {KnownName(A), KnownName(B, 1, NOW), KnownName(C, 1, NOW)}
    assert stores.tables.missed() == {B, C}
    (told,) = stores.listings.unseen()
    assert (told.catalog, told.namespace, told.tables) == ("lake", (), 2)
    listed(A, B, C)
    assert set(stores.listings.names("lake")) == {KnownName(A), KnownName(B), KnownName(C)}
    assert (list(stores.listings.unseen()), stores.tables.missed()) == ([], set())
    listed(A)
    stores.catalogs.remove("lake")
    assert list(stores.listings.unseen()) == []


def test_unread_tables_are_stored_together_unless_somebody_was_faster(stores: Stores) -> None:
    for table in (A, B):
        stores.index.add(table)
    unread = stores.tables.unread([A, B, C])
    assert {one.table for one in unread} == {A, B}
    indexes = [
        (TableIndex(one.table, Complete(LoadedTable(one.table.name, LAYOUT), 1, 1, "m", "read", NOW)), one.index_version) for one in unread
    ]
    assert stores.index.save(TableIndex(A), stores.tables.state(A).index_version)
    assert set(stores.index.save_all(indexes)) == {B}
    assert [one.table for one in stores.tables.unread([A, B])] == [A]
