"""Discovery in a REST catalog of many tables: what it asks, what it stores, and that a catalog that errs removes nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.tables.index import Empty
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.iceberg.catalogs.etags import ETags
from compaction_pipeline.iceberg.catalogs.rest_catalog import _silent_until
from compaction_pipeline.services.tables.explore_catalogs import Exploration
from compaction_pipeline_tests.light_rest import LightRest, light_rest
from compaction_pipeline_tests.rest_catalog import rest_server
from compaction_pipeline_tests.services.house import House

NAMESPACES, TABLES = 3, 12
LONG = timedelta(hours=1)
FORCED = PlanRequest(types=(CompactionType.MINOR,), force=True)


@pytest.fixture(scope="module")
def catalog() -> Iterator[LightRest]:
    with light_rest(NAMESPACES, TABLES) as lake:
        yield lake


@pytest.fixture
def lake(catalog: LightRest, house: House) -> Iterator[LightRest]:
    _silent_until.clear()
    house.services.stores.catalogs.replace(CatalogEntry("lake", {"type": "rest", "uri": catalog.uri}))
    catalog.requests()
    yield catalog
    catalog.end_faults()
    for number in range(NAMESPACES):
        catalog.show(f"ns{number:03d}", TABLES)


def named(namespace: int, table: int) -> TableIdentifier:
    return TableIdentifier("lake", (f"ns{namespace:03d}",), f"t{table:05d}")


def test_a_first_listing_asks_once_for_each_table_and_a_round_for_none(house: House, lake: LightRest) -> None:
    services, count = house.services, NAMESPACES * TABLES
    assert len(services.explore_catalogs.explore().appeared) == count
    assert not [one for one in lake.requests() if "/tables/" in one]
    swept = services.sweep_tables.sweep(None, LONG)
    assert (len(swept.refreshed), swept.cursor) == (count, None)
    assert len(lake.requests("/tables/")) == count
    assert {type(state.index.state) for state in services.stores.tables.states()} == {Empty}
    explored = services.explore_catalogs.explore()
    assert (explored.appeared, explored.dropped, explored.unseen) == ((), (), ())
    requests = lake.requests()
    assert not [one for one in requests if "/tables/" in one]
    assert len(requests) == 2 * NAMESPACES + 1
    # Each unchanged head costs one request, and no metadata.
    assert services.sweep_tables.sweep(None, LONG).unmoved == count
    requests = lake.requests()
    assert len(requests) == count
    assert {one.split()[0] for one in requests} == {"304"}
    lake.move("ns001", "t00003")
    swept = services.sweep_tables.sweep(None, LONG)
    assert ([each.table for each in swept.refreshed], swept.unmoved) == ([named(1, 3)], count - 1)
    state = services.stores.tables.state(named(1, 3))
    assert state.layout is not None
    assert state.layout.properties["version"] == "00001"
    assert services.sweep_tables.sweep(None, LONG).unmoved == count


def test_a_commit_and_a_plan_load_a_table_without_a_condition(house: House, lake: LightRest) -> None:
    services = house.services
    services.explore_catalogs.explore()
    services.sweep_tables.sweep(None, LONG)
    services.sweep_tables.sweep(None, LONG)
    lake.requests()
    services.catalogs.load(named(0, 0))
    (request,) = lake.requests()
    assert request.startswith("200")


@pytest.mark.parametrize("status", [403, 404, 503])
def test_a_namespace_that_fails_hides_no_other_and_removes_nothing(house: House, lake: LightRest, status: int) -> None:
    services, count = house.services, NAMESPACES * TABLES
    services.explore_catalogs.explore()
    services.sweep_tables.sweep(None, LONG)
    lake.show("ns002", TABLES - 1)
    lake.fault("ns001", status)
    for _ in range(4):
        explored = services.explore_catalogs.explore()
        (told,) = explored.unseen
        assert (told.namespace, told.tables) == (("ns001",), TABLES)
        assert told.sentence.startswith("namespace ns001 of catalog lake could not be listed: ")
        assert f"{TABLES} tables in it were not seen, and they stay as they are" in told.sentence
        services.sweep_tables.sweep(None, LONG)
        house.pass_time(180)
    # The other namespaces were listed all the time.
    assert len(services.stores.tables.states()) == count - 1
    assert services.read_status.status().unseen == (told,)
    lake.end_faults()
    assert services.explore_catalogs.explore().unseen == ()
    assert services.sweep_tables.sweep(None, LONG).cursor is None
    assert {state.problem for state in services.stores.tables.states()} == {None}


@pytest.mark.parametrize("left", [0, 2])
def test_tables_that_vanish_together_stay_until_later_rounds_agree(house: House, lake: LightRest, left: int) -> None:
    services = house.services
    services.explore_catalogs.explore()
    services.sweep_tables.sweep(None, LONG)
    lake.show("ns001", left)
    for number in (1, 2):
        explored = services.explore_catalogs.explore()
        assert explored.dropped == ()
        assert [one.tables for one in explored.unseen] == [TABLES - left]
        assert f"in round {number} of 3" in explored.unseen[0].sentence
        # A tick asks nothing about them, and does not forget them either.
        lake.requests()
        services.sweep_tables.sweep(None, LONG)
        assert not [one for one in lake.requests("ns001") if one.startswith("404")]
        services.maintain_tables.maintain()
        assert len(services.stores.tables.states()) == NAMESPACES * TABLES
        house.pass_time(180)
    lake.show("ns001", TABLES)
    assert services.explore_catalogs.explore().unseen == ()
    assert services.sweep_tables.sweep(None, LONG).unmoved == NAMESPACES * TABLES
    lake.show("ns001", left)
    for _ in range(2):
        assert services.explore_catalogs.explore().dropped == ()
        house.pass_time(180)
    assert len(services.explore_catalogs.explore().dropped) == TABLES - left
    assert services.explore_catalogs.explore().unseen == ()


def test_a_person_accepts_what_vanished_and_a_table_that_is_still_there_stays(house: House, lake: LightRest) -> None:
    services = house.services
    services.explore_catalogs.explore()
    lake.show("ns001", 0)
    assert services.explore_catalogs.explore().dropped == ()
    # The catalog does not list the tables, but does not say that they do not exist either.
    lake.fault("GET /v1/namespaces/ns001/tables/", 403)
    explored = services.explore_catalogs.explore("lake", accept_vanished=True)
    assert explored.dropped == ()
    assert "does not say either that they were dropped" in explored.unseen[0].sentence
    lake.end_faults()
    assert len(services.explore_catalogs.explore("lake", accept_vanished=True).dropped) == TABLES


def test_a_catalog_without_any_namespace_removes_nothing(house: House, lake: LightRest) -> None:
    services = house.services
    services.explore_catalogs.explore()
    lake.fault("GET /v1/namespaces$", 404)
    failed = services.explore_catalogs.explore().failed
    assert [name for name, _ in failed] == ["lake"]
    assert len(services.stores.tables.states()) == NAMESPACES * TABLES


def test_the_memory_of_etags_is_bounded_and_knows_which_metadata_an_etag_is_of() -> None:
    etags = ETags(most=2)
    for number in range(3):
        etags.note("catalog", named(0, number), f'"{number}"', f"m{number}")
    assert etags.etag("catalog", named(0, 0), "m0") is None
    assert etags.etag("catalog", named(0, 2), "m2") == '"2"'
    assert etags.etag("catalog", named(0, 2), "m1") is None
    assert etags.etag("other", named(0, 2), "m2") is None


def test_commits_go_on_beside_listings_and_sweeps(house: House) -> None:
    """Discovery shares the sessions of the catalog with commits, in threads. Neither disturbs the other, and no row is lost."""
    services, rounds = house.services, 3
    tables = [house.fragmented(f"t{number}", 3) for number in range(3)]
    with rest_server(house.lake.catalog) as server:
        services.stores.catalogs.replace(CatalogEntry("lake", {"type": "rest", "uri": server.uri}))
        ended = threading.Event()
        explored: list[Exploration] = []

        def discover() -> None:
            number = 0
            while not ended.is_set():
                house.lake.table(f"new{number}")
                number += 1
                explored.append(services.explore_catalogs.explore())
                services.sweep_tables.sweep(None, LONG)

        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(discover)
            try:
                for number in range(rounds):
                    for table in tables:
                        table.ids(*range(100 * (number + 1), 100 * (number + 1) + 3))
                        done = services.compact_tables.compact(table.identifier, FORCED)
                        assert done.committed or "read" in done.plan.reason.text, done.plan.reason
            finally:
                ended.set()
            running.result()
        assert all(each.dropped == () and each.unseen == () and each.failed == () for each in explored)
        expected = sorted([*range(3), *(100 * (number + 1) + one for number in range(rounds) for one in range(3))])
        for table in tables:
            found = house.lake.catalog.load_table(("db", table.identifier.name)).scan().to_arrow()["id"].to_pylist()
            assert sorted(found) == expected
        known = {state.table.name for state in services.stores.tables.states()}
        services.explore_catalogs.explore()
        assert known <= {state.table.name for state in services.stores.tables.states()}
