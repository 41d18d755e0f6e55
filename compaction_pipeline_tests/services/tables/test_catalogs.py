"""Listing, removing and checking catalogs, and pausing tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from compaction_pipeline.core.catalogs.change import CatalogChange
from compaction_pipeline.core.catalogs.definition import CatalogDefinition
from compaction_pipeline.core.catalogs.facts import Facts
from compaction_pipeline.core.errors import AccessDenied, ConfigError, NotFoundError, StorageUnavailable
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.listing import CatalogListing, Unseen
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.ports.scan import TableScan
from compaction_pipeline.core.tables.table import CatalogEntry, TableHead, TableIdentifier
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.services.table_filters import passing, why_no_pattern
from compaction_pipeline.services.tables.explore_catalogs import ExploreCatalogs
from compaction_pipeline.services.tables.let_go import LetGo
from compaction_pipeline.services.tables.manage_catalogs import ManageCatalogs
from compaction_pipeline.services.tables.note_listings import NoteListings
from compaction_pipeline_tests.behaviours.example_tasks import example
from compaction_pipeline_tests.builders import NOW
from compaction_pipeline_tests.core.catalogs.bad_definitions import BAD, SECRET
from compaction_pipeline_tests.defs.values import ORDERS, ago, head, snapshot

DEVICES = TableIdentifier("lake", ("shop",), "devices")


@pytest.fixture
def stores(stores: Stores) -> Stores:
    stores.catalogs.add(CatalogEntry("lake", {}))
    for table in (DEVICES, ORDERS):
        stores.index.add(table)
    return stores


@dataclass
class World:
    """A catalog with these tables. `broken` is the error of reading any metadata file."""

    tables: Sequence[TableIdentifier] = (DEVICES, ORDERS)
    broken: Exception | None = None
    steps: list[str] = field(default_factory=list)

    def list_tables(self, catalog: str) -> Sequence[TableIdentifier]:
        return self.tables

    def trying(self, entry: CatalogEntry) -> World:
        return self

    def listing(self, catalog: str) -> CatalogListing:
        return CatalogListing(dict.fromkeys(self.list_tables(catalog)))

    def head(self, table: TableIdentifier) -> TableHead:
        if self.broken is not None:
            raise self.broken
        self.steps.append(f"head {table.name}")
        return head(snapshot(7, ago()))

    def manifests(self, table: TableIdentifier, snapshot_id: int) -> Sequence[Any]:
        self.steps.append(f"manifests {table.name} {snapshot_id}")
        return ()

    def why_no_condition(self, text: str) -> str | None:
        return "it ends" if text.endswith(">") else None

    def check_writable(self, table: TableIdentifier) -> None:
        self.steps.append(f"write {table.name}")


def explored(stores: Stores, world: World | None = None) -> ExploreCatalogs:
    scan = cast(TableScan, world)
    let_go = LetGo(stores.tasks, stores.records, stores.index, lambda: NOW)
    note = NoteListings(let_go, stores.listings, lambda: scan, lambda: NOW, timedelta(minutes=3))
    return ExploreCatalogs(
        stores.catalogs,
        stores.tables,
        note,
        stores.switches,
        lambda: scan,
        world.check_writable if world else lambda table: None,
        let_go,
    )


def managed(stores: Stores, world: World | None = None, file: Path | None = None) -> ManageCatalogs:
    explore = explored(stores, world)

    def facts() -> Facts:
        groups = [group.name for group in stores.groups.groups()]
        teams = [team.name for team in stores.teams.teams()]
        return Facts(why_no_pattern, explore.why_no_condition, groups, teams, {file.id: file.kind for file in stores.site_files.files()})

    return ManageCatalogs(stores.catalogs, stores.tables, stores.tasks, stores.records, explore, file, facts)


def test_catalogs_are_listed_by_name_until_they_are_removed(stores: Stores) -> None:
    stores.catalogs.add(CatalogEntry("attic", {}, observe=True))
    listed = explored(stores)
    assert [entry.name for entry in listed.entries()] == ["attic", "lake"]
    explored(stores).remove("lake")
    assert [entry.name for entry in listed.entries()] == ["attic"]
    assert stores.tables.states() == ()
    with pytest.raises(NotFoundError):
        explored(stores).remove("lake")


MANY = tuple(TableIdentifier("lake", ("big",), f"t{number:05d}") for number in range(10_000))


@dataclass
class Erring(World):
    """A catalog of which one namespace errs."""

    answers: CatalogListing = CatalogListing({})

    def listing(self, catalog: str) -> CatalogListing:
        return self.answers

    def absent(self, tables: Sequence[TableIdentifier]) -> dict[TableIdentifier, bool]:
        return dict.fromkeys(tables, True)


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        (
            CatalogListing(dict.fromkeys((DEVICES, ORDERS)), failed={("big",): "HTTP 403 at http://c/v1/namespaces/big/tables"}),
            "namespace big of catalog lake could not be listed: HTTP 403 at http://c/v1/namespaces/big/tables. 10000 tables in it were not "
            "seen, and they stay as they are",
        ),
        (
            CatalogListing(dict.fromkeys((DEVICES, ORDERS)), missing=frozenset({("big",)})),
            "namespace big of catalog lake could not be listed: the catalog lists it, and then says that it does not exist. 10000 tables "
            "in it were not seen, and they stay as they are",
        ),
        (
            CatalogListing(dict.fromkeys((DEVICES, ORDERS, *MANY[:7]))),
            "catalog lake lists 9993 tables of 10002 no more, e.g. lake.big.t00007, in round 1 of 3. Nothing is removed before later "
            "rounds say the same. When these tables are gone for good, run `compaction-pipeline catalog explore lake --accept-vanished`",
        ),
        (
            CatalogListing(dict.fromkeys((DEVICES, ORDERS)), empty=frozenset({("big",)})),
            "catalog lake lists 10000 tables of 10002 no more, e.g. lake.big.t00000, in round 1 of 3. Nothing is removed before later "
            "rounds say the same. When these tables are gone for good, run `compaction-pipeline catalog explore lake --accept-vanished`",
        ),
    ],
)
def test_ten_thousand_tables_that_vanish_from_one_listing_stay(stores: Stores, answers: CatalogListing, told: str) -> None:
    explored(stores, Erring(answers=CatalogListing(dict.fromkeys((DEVICES, ORDERS, *MANY))))).explore()
    assert len(stores.tables.seen()) == 10_002
    explore = explored(stores, Erring(answers=answers))
    found = explore.explore()
    assert (found.dropped, [one.sentence for one in found.unseen]) == ((), [told])
    assert len(stores.tables.seen()) == 10_002
    assert [one.sentence for one in explore.unseen()] == [told]
    # `doctor` does not say OK meanwhile.
    with pytest.raises(StorageUnavailable, match=r"could not be listed|no more, e\.g\."):
        explore.check("lake")
    assert explored(stores, Erring(answers=CatalogListing(dict.fromkeys((DEVICES, ORDERS, *MANY))))).explore().unseen == ()
    assert not explore.unseen()


def test_one_table_or_all_are_paused_and_resumed(stores: Stores) -> None:
    tables = explored(stores)
    assert (tables.pause(ORDERS), tables.pause(), tables.resume(DEVICES), tables.resume()) == (1, 1, 1, 1)
    assert not any(state.paused for state in stores.tables.states())
    with pytest.raises(NotFoundError):
        tables.pause(replace(ORDERS, name="nothing"))


class NothingIsKnown:
    """Notes of listings of a catalog without known tables."""

    def look(self, catalog: str, listing: CatalogListing) -> Sequence[Unseen]:
        return ()


def check(world: World) -> ExploreCatalogs:
    none = cast(Any, None)
    return ExploreCatalogs(none, none, cast(Any, NothingIsKnown()), none, lambda: cast(TableScan, world), world.check_writable, none)


def test_the_first_table_is_read_and_written_only_when_asked() -> None:
    world = World()
    assert check(world).check("lake") == (DEVICES, ORDERS)
    assert world.steps == ["head devices", "manifests devices 7"]
    check(world).check("lake", write=True)
    assert world.steps[2:] == ["head devices", "manifests devices 7", "write devices"]


def test_a_catalog_without_tables_passes() -> None:
    world = World(tables=())
    assert check(world).check("lake", write=True) == ()
    assert world.steps == []


def test_a_refusal_of_the_storage_is_reported_and_a_problem_of_one_table_is_not() -> None:
    with pytest.raises(AccessDenied):
        check(World(broken=AccessDenied("no"))).check("lake")
    assert check(World(broken=StorageUnavailable("its metadata is gone"))).check("lake") == (DEVICES, ORDERS)


ATTIC = {"type": "rest", "uri": "http://attic"}


def test_declared_catalogs_are_registered_and_changed_without_asking_them(stores: Stores) -> None:
    manage = managed(stores)
    for _ in range(2):
        manage.apply([CatalogDefinition("attic", ATTIC, observe=True), CatalogDefinition("lake", {**ATTIC, "uri": "http://lake"})])
        assert [(entry.name, entry.properties, entry.observe) for entry in stores.catalogs.entries()] == [
            ("attic", ATTIC, True),
            ("lake", {**ATTIC, "uri": "http://lake"}, False),
        ]
        assert [state.table for state in stores.tables.states()] == [DEVICES, ORDERS]
    assert manage.apply([]).problems == ()
    assert len(stores.catalogs.entries()) == 2


class ListedBefore:
    """A store of catalogs that were listed a while ago."""

    def __init__(self, store: CatalogStore) -> None:
        self._store = store
        self._entries = store.entries()

    def entries(self) -> Sequence[CatalogEntry]:
        return self._entries

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_a_catalog_that_two_processes_declare_at_once_is_registered_once(stores: Stores) -> None:
    late = managed(replace(stores, catalogs=ListedBefore(stores.catalogs)))
    stores.catalogs.add(CatalogEntry("attic", {"token": "older"}, observe=True))
    assert late.apply([CatalogDefinition("attic", ATTIC)]).problems == ()
    [attic, _] = stores.catalogs.entries()
    assert (attic.properties, attic.observe) == ({"token": "older", **ATTIC}, True)


class WithoutKey:
    """A store of catalogs that cannot encrypt the secrets of one."""

    def __init__(self, store: CatalogStore, name: str) -> None:
        self._store = store
        self._name = name

    def add(self, entry: CatalogEntry) -> None:
        if entry.name == self._name:
            raise ConfigError("there is no key")
        self._store.add(entry)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_a_catalog_that_cannot_be_stored_keeps_no_other_from_being_registered(stores: Stores) -> None:
    manage = managed(replace(stores, catalogs=WithoutKey(stores.catalogs, "attic")))
    [problem] = manage.apply([CatalogDefinition("attic", ATTIC), CatalogDefinition("cellar", {**ATTIC, "uri": "http://cellar"})]).problems
    assert "there is no key" in problem
    assert "cellar" in [entry.name for entry in stores.catalogs.entries()]


def test_a_declaration_that_does_not_mention_observing_undoes_nothing_that_a_person_did(stores: Stores) -> None:
    manage = managed(stores)
    silent = CatalogDefinition("lake", ATTIC)
    explored(stores).pause(ORDERS)
    # A person removes the catalog, and adds it again to observe it only.
    explored(stores).remove("lake")
    stores.catalogs.add(CatalogEntry("lake", {**ATTIC, "token": "old"}, observe=True))
    manage.apply([silent])
    assert stores.catalogs.entry("lake").observe is True
    manage.apply([replace(silent, observe=False)])
    assert stores.catalogs.entry("lake").observe is False
    explored(stores).remove("lake")
    manage.apply([silent])
    stores.index.add(ORDERS)
    stores.index.add(DEVICES)
    assert (stores.tables.state(ORDERS).paused, stores.tables.state(DEVICES).paused) == (True, False)


def test_a_catalog_is_registered_under_one_name(stores: Stores) -> None:
    explore = explored(stores, World(tables=()))
    explore.register(CatalogEntry("first", {"uri": "https://c.example.com/"}))
    same = {"type": "rest", "uri": "https://C.example.com:443"}
    told = "'second' is the catalog 'first' under another name: both are the address https://c.example.com:443"
    with pytest.raises(ConfigError, match=told):
        explore.register(CatalogEntry("second", same))
    [problem] = managed(stores).apply([CatalogDefinition("second", same)]).problems
    assert told in problem
    assert [entry.name for entry in stores.catalogs.entries()] == ["first", "lake"]


def test_a_catalog_with_a_wrong_property_of_tables_is_not_registered(stores: Stores) -> None:
    world = World()
    explore = explored(stores, world)
    with pytest.raises(ConfigError, match=r"'table\.self-optimizing\.quota' is 'lots' but must be"):
        explore.register(CatalogEntry("second", {"table.self-optimizing.quota": "lots"}))
    assert [entry.name for entry in stores.catalogs.entries()] == ["lake"]


def test_a_catalog_with_a_filter_that_is_no_condition_is_not_registered(stores: Stores) -> None:
    explore, key = explored(stores, World()), "table.self-optimizing.filter"
    told = rf"catalog 'second': '{key}' is 'day >' but must be a SQL condition .*: it ends; correct the properties"
    with pytest.raises(ConfigError, match=told):
        explore.register(CatalogEntry("second", {key: "day >"}))
    assert [entry.name for entry in stores.catalogs.entries()] == ["lake"]


def test_a_declared_catalog_with_such_a_filter_is_not_stored_and_does_not_stop_the_others(stores: Stores) -> None:
    bad = CatalogDefinition("second", {**ATTIC, "table.self-optimizing.filter": "day >"})
    applied = managed(stores, World()).apply([bad, CatalogDefinition("third", {**ATTIC, "uri": "http://third"})])
    assert [entry.name for entry in stores.catalogs.entries()] == ["lake", "third"]
    assert ("'table.self-optimizing.filter' is 'day >'" in applied.problems[0], applied.added) == (True, ("third",))


def written(folder: Path, text: str) -> Path:
    path = folder / "catalogs.yaml"
    path.write_text(text)
    return path


def test_every_bad_definition_of_the_file_is_told_and_nothing_is_stored(stores: Stores, tmp_path: Path) -> None:
    before = stores.catalogs.entries()
    for bad in BAD:
        path = written(tmp_path, yaml.safe_dump({"catalogs": [bad.given]}))
        [problem] = managed(stores, World(), path).apply().problems
        assert bad.said in problem, (bad.name, problem)
        assert problem.startswith("the file of COMPACTION_CATALOGS_FILE: catalog ")
        assert SECRET not in problem
    assert stores.catalogs.entries() == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("catalogs: [", "no YAML"),
        ("catalogs:\n- name: a\n  type: glue\n  type: rest\n", "'type' stands twice in one mapping in line 4"),
        ("catalogs: []\ncatalogs: []\n", "'catalogs' stands twice"),
        ("catalogs:\n- {name: a, type: glue}\n- {name: a, type: glue}\n", "defines a more than once"),
        ("lakes: []\n", "must have the one key 'catalogs'"),
        ("[]", "must have the one key 'catalogs'"),
        ("", "must have the one key 'catalogs'"),
        ("catalogs: {a: {type: glue}}", "must have the one key 'catalogs'"),
        ("catalogs: !!python/object/apply:os.system [echo]", "no YAML"),
        ("? {a: b}\n: c", "a key is no text"),
    ],
)
def test_a_file_that_is_no_list_of_catalogs_changes_nothing_and_says_why(stores: Stores, tmp_path: Path, text: str, said: str) -> None:
    manage, before = managed(stores, World(), written(tmp_path, text)), stores.catalogs.entries()
    [problem] = manage.apply().problems
    assert said in problem
    with pytest.raises(ConfigError, match="COMPACTION_CATALOGS_FILE"):
        manage.check_file()
    assert stores.catalogs.entries() == before


def test_a_file_that_is_not_there_is_named(stores: Stores, tmp_path: Path) -> None:
    [problem] = managed(stores, World(), tmp_path / "none.yaml").apply().problems
    assert "none.yaml', which cannot be read: No such file" in problem


FILE = """
catalogs:
- name: prod
  type: rest
  properties: {uri: "https://file", token: file-token, prefix: p}
  database_filter: shop_.*
"""


def test_the_component_wins_over_the_file_and_the_file_over_people_key_by_key(stores: Stores, tmp_path: Path) -> None:
    manage = managed(stores, Shelf(apart=("devices", "orders")), written(tmp_path, FILE))
    of_component = CatalogDefinition("prod", {"type": "rest", "uri": "https://component"}, observe=True)
    for _ in range(2):
        applied = manage.apply([of_component])
        [problem] = applied.problems
        of = "the file of COMPACTION_CATALOGS_FILE"
        assert problem == f"catalog prod: {of} sets 'uri', but the YAML of the component CompactionPipeline holds it and wins"
        prod = stores.catalogs.entry("prod")
        assert prod.properties == {
            "type": "rest",
            "uri": "https://component",
            "token": "file-token",
            "prefix": "p",
            "database-filter": "shop_.*",
        }
        assert prod.held == {
            **dict.fromkeys(("type", "uri", "observe"), "component"),
            **dict.fromkeys(("token", "prefix", "database-filter"), "file"),
        }
    for change, holder in (
        (CatalogChange({"uri": "https://mine"}), "component CompactionPipeline"),
        (CatalogChange(observe=False), "component CompactionPipeline"),
        (CatalogChange({"prefix": "q"}), "COMPACTION_CATALOGS_FILE"),
        (CatalogChange(unset=("token",)), "COMPACTION_CATALOGS_FILE"),
    ):
        with pytest.raises(ConfigError, match=f"is held by .*{holder}.*: change it there"):
            manage.change("prod", change)
    assert stores.catalogs.entry("prod") == prod
    manage.change("prod", CatalogChange({"scope": "mine"}))
    # The file gives up a key: it goes. What a person has set beside it stays.
    written(tmp_path, FILE.replace(", prefix: p", ""))
    manage.apply([of_component])
    assert "prefix" not in stores.catalogs.entry("prod").properties
    assert stores.catalogs.entry("prod").properties["scope"] == "mine"
    # The file names the catalog no more: that is told, and it stays.
    written(tmp_path, "catalogs: []")
    [told] = manage.apply([of_component]).problems
    assert told.startswith("catalog prod is not named by the file of COMPACTION_CATALOGS_FILE any more; it stays")
    assert stores.catalogs.entry("prod").properties["token"] == "file-token"
    manage.change("prod", CatalogChange({"token": "mine"}), take_over=True)
    assert "token" not in stores.catalogs.entry("prod").held


def test_tables_that_a_filter_leaves_out_are_not_looked_after(stores: Stores) -> None:
    stores.catalogs.replace(CatalogEntry("lake", {"table-filter": "shop[.]o.*"}))
    stores.tasks.insert([example("waits", table=DEVICES)], [], NOW)
    found = explored(stores, World()).explore()
    assert (found.appeared, found.dropped, found.left_out) == ((), (), (DEVICES,))
    assert [state.table for state in stores.tables.states()] == [ORDERS]
    assert explored(stores, World()).explore().left_out == ()
    stores.catalogs.replace(CatalogEntry("lake", {"database-filter": "shop", "table-filter": ".*"}))
    assert explored(stores, World()).explore().appeared == (DEVICES,)


def test_a_table_whose_task_runs_is_let_go_when_the_task_has_ended(stores: Stores) -> None:
    stores.catalogs.replace(CatalogEntry("lake", {"database-filter": "other"}))
    stores.index.forget(ORDERS)
    stores.tasks.insert([example("runs", table=DEVICES), example("waits", table=DEVICES)], [], NOW)
    running = stores.tasks.poll(None, "owner", NOW, timedelta(minutes=1))
    assert running is not None
    assert explored(stores, World()).explore().left_out == ()
    assert [task.status for task in stores.tasks.tasks(DEVICES, statuses=(TaskStatus.PENDING, TaskStatus.EXECUTING))] == [
        TaskStatus.EXECUTING
    ]
    with pytest.raises(ConfigError, match="cannot be removed while 1 task of its tables run"):
        managed(stores).remove("lake")
    stores.tasks.cancel([running.task_id], EndReason.GIVEN_UP, "", NOW, running=True)
    assert explored(stores, World()).explore().left_out == (DEVICES,)


def test_a_stored_filter_that_is_no_expression_stops_the_listing_and_forgets_nothing(stores: Stores) -> None:
    stores.catalogs.replace(CatalogEntry("lake", {"table-filter": "("}))
    [(name, why)] = explored(stores, World()).explore().failed
    assert (name, "'table-filter' is no regular expression" in why) == ("lake", True)
    assert len(stores.tables.states()) == 2


def test_no_expression_makes_a_server_hang() -> None:
    long = TableIdentifier("lake", ("a" * 50_000,), "t")
    for text in ("(a+)+b", "(a|a)*b", "(.*a){80}b", "(a?){900}b"):
        assert why_no_pattern(text) is None
        assert passing([long], {"database-filter": text}) == ()


@dataclass
class Shelf(World):
    """Catalogs whose tables of one name are one table, unless the names are `apart`."""

    apart: Sequence[str] = ()

    def list_tables(self, catalog: str) -> Sequence[TableIdentifier]:
        return [replace(table, catalog=catalog) for table in self.tables]

    def head(self, table: TableIdentifier) -> TableHead:
        self.steps.append(f"head {table}")
        known = super().head(table)
        return replace(known, table=table, table_uuid=f"{table.catalog}-{table.name}" if table.name in self.apart else table.name)


def test_a_catalog_with_the_tables_of_another_one_is_not_registered(stores: Stores) -> None:
    explore = explored(stores, Shelf())
    told = "'second' holds the tables of the catalog 'lake': second.shop.devices and lake.shop.devices have one uuid and one location"
    with pytest.raises(ConfigError, match=told):
        explore.register(CatalogEntry("second", {"uri": "http://second"}))
    assert [entry.name for entry in stores.catalogs.entries()] == ["lake"]


def test_a_catalog_that_shares_only_some_tables_is_registered(stores: Stores) -> None:
    for apart in (["devices"], ["devices", "orders"]):
        explore = explored(stores, Shelf(apart=apart))
        assert len(explore.register(CatalogEntry("second", {"uri": "http://second"}))) == 2
        explored(stores).remove("second")


def test_a_catalog_whose_tables_cannot_be_compared_is_registered(stores: Stores) -> None:
    explore = explored(stores, Shelf(broken=AccessDenied("no")))
    assert len(explore.register(CatalogEntry("second", {"uri": "http://second"}))) == 2
