"""Every table that a catalog names tells its facts, whatever its metadata holds: from SQL, REST, Hive and Glue."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hive_metastore.ttypes import Database, NoSuchObjectException, StorageDescriptor, Table
from sqlalchemy import event, text

from compaction_pipeline.core.dependencies.ports import StoreFacts, TableFacts
from compaction_pipeline.core.dependencies.ready_time import SpecField
from compaction_pipeline.core.errors import AccessDenied, CompactionError, ConfigError, NotFoundError, StorageUnavailable, TableRefused
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.upkeep.history import MAIN, Ref
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.dependencies.facts_reader import IcebergFactsReader
from compaction_pipeline_tests.iceberg.dependencies.raw_tables import FIRST, HEAD, KINDS, TAGGED, UUID, metadata, written
from compaction_pipeline_tests.iceberg.lake import Lake
from compaction_pipeline_tests.iceberg.test_hidden_tables import hive_catalog
from compaction_pipeline_tests.rest_catalog import Call, RestServer, rest_server

T = TableIdentifier("lake", ("db",), "raw")
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

Named = Callable[[str], Catalogs]
"""Makes catalogs in which the table T has its metadata at this place."""


def of_sql(lake: Lake) -> Named:
    def named(location: str) -> Catalogs:
        add(lake, "raw", location)
        return lake.catalogs

    return named


def add(lake: Lake, name: str, location: str, namespace: str = "db") -> None:
    catalog: Any = lake.catalog
    row = {"catalog": catalog.name, "namespace": namespace, "name": name, "location": location}
    into = "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location)"
    with catalog.engine.begin() as connection:
        connection.execute(text(f"{into} VALUES (:catalog, :namespace, :name, :location)"), row)


def move(lake: Lake, location: str) -> None:
    catalog: Any = lake.catalog
    with catalog.engine.begin() as connection:
        connection.execute(text("UPDATE iceberg_tables SET metadata_location = :location WHERE table_name = 'raw'"), {"location": location})


class _Metastore:
    """As much of the client of a metastore as is asked. It is its own connection."""

    def __init__(self, **parameters: str) -> None:
        self.parameters = parameters

    def __enter__(self) -> _Metastore:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def get_table(self, dbname: str, tbl_name: str) -> Table:
        if (dbname, tbl_name) != ("db", "raw"):
            raise NoSuchObjectException(tbl_name)
        return Table(tbl_name, dbname, parameters=self.parameters, sd=StorageDescriptor(location="s3://b/raw"))

    def get_database(self, name: str) -> Database:
        return Database(name, "", "s3://b", {"compaction.ready-when": "exists"})


def hive(**parameters: str) -> Catalogs:
    return opened(hive_catalog(lambda: _Metastore(**parameters)))


def opened(catalog: Any) -> Catalogs:
    """Catalogs in which `lake` is this one."""
    catalogs = Catalogs(lambda name: CatalogEntry(name, {"type": "sql", "uri": "sqlite://"}))
    catalogs.catalog = lambda name: catalog  # type: ignore[method-assign]
    return catalogs


class GlueCatalog(Lake):
    """A catalog that is called like PyIceberg's for Glue, and as much of the client as is asked. It opens files as a SQL catalog does."""

    class exceptions:
        class EntityNotFoundException(Exception):
            pass

    def __init__(self, lake: Lake, **parameters: str) -> None:
        self.glue, self.parameters = self, parameters
        self._load_file_io = lake.catalog._load_file_io
        self.identifier_to_database_and_table = lake.catalog.identifier_to_database_and_table
        self.load_namespace_properties = lambda namespace: {"location": "s3://b"}

    def get_table(self, DatabaseName: str, Name: str) -> dict[str, Any]:
        if (DatabaseName, Name) != ("db", "raw"):
            raise self.exceptions.EntityNotFoundException
        return {"Table": {"Name": Name, "DatabaseName": DatabaseName, "Parameters": self.parameters}}


class _Rest:
    """A REST catalog that answers with this metadata, and says 304 to a request with its ETag."""

    def __init__(self, server: RestServer, *, etag: str | None = None, location: str | None = "s3://b/00001.metadata.json") -> None:
        self.server, self.etag, self.location = server, etag, location
        self.said: Mapping[str, Any] = metadata()
        self.more: dict[str, Any] = {}
        server.everything = self
        self.asked: list[str | None] = []
        self.catalogs = Catalogs(lambda name: CatalogEntry(name, {"type": "rest", "uri": server.uri}))

    def __call__(self, call: Call) -> None:
        if call.path == "/v1/config":
            call.answer(200, {"defaults": {}, "overrides": {}})
        elif "/tables/" not in call.path:
            call.answer(200, {"namespace": ["db"], "properties": {"compaction.ready-when": "quiet:6h"}})
        else:
            assert call.path.endswith("snapshots=all")
            asked = call.headers.get("If-None-Match")
            self.asked.append(asked)
            headers = {"ETag": self.etag} if self.etag is not None else {}
            if asked is not None and asked == self.etag:
                call.answer(304, headers=headers)
            else:
                place = {"metadata-location": self.location} if self.location is not None else {}
                call.answer(200, {**place, "metadata": self.said, **self.more}, headers)


@pytest.fixture
def rest(lake: Lake) -> Iterator[Callable[..., _Rest]]:
    with rest_server(lake.catalog) as running:
        yield lambda **how: _Rest(running, **how)


def facts_of(kind: str, lake: Lake, folder: Path, rest: Callable[..., _Rest], said: Mapping[str, Any]) -> TableFacts:
    """What the reader tells of T, when its metadata is this one and its catalog is of this kind."""
    if kind == "rest":
        served = rest()
        served.said = said
        return IcebergFactsReader(served.catalogs).read(T)
    location = written(folder, said)
    catalogs = {
        "sql": lambda: of_sql(lake)(location),
        "hive": lambda: hive(table_type="ICEBERG", metadata_location=location),
        "glue": lambda: opened(GlueCatalog(lake, table_type="ICEBERG", metadata_location=location)),
    }[kind]()
    return IcebergFactsReader(catalogs).read(T)


def only(facts: TableFacts) -> StoreFacts:
    [store] = facts.stores
    return store


@pytest.mark.parametrize("kind", ["sql", "rest", "hive", "glue"])
@pytest.mark.parametrize("what", KINDS)
def test_every_table_tells_its_facts(what: str, kind: str, lake: Lake, tmp_path: Path, rest: Callable[..., _Rest]) -> None:
    facts = facts_of(kind, lake, tmp_path, rest, KINDS[what])
    store = only(facts)
    said = KINDS[what]
    assert facts.table == store.store == T
    assert facts.uuid == store.table_uuid == said.get("table-uuid", said.get("location"))
    assert store.properties == said["properties"]
    assert store.history.refs[MAIN].snapshot_id == HEAD
    newest = [one.summary["flink.watermark"] for one in store.history.ancestry(HEAD) if "flink.watermark" in one.summary]
    assert newest == ["3600000"]
    assert [one.name for one in store.specs[store.spec_id]][:1] == ["at_day"]


def test_pyiceberg_refuses_what_the_reader_is_for(lake: Lake, tmp_path: Path) -> None:
    """When PyIceberg learns one of these, the test of that kind proves nothing any more."""
    refused = set()
    for number, (what, said) in enumerate(KINDS.items()):
        add(lake, f"t{number}", written(tmp_path, said))
        try:
            lake.catalogs.load(TableIdentifier("lake", ("db",), f"t{number}"))
        except CompactionError:
            refused.add(what)
    assert refused >= {"variant", "geometry", "unknown type", "struct default", "transform of several columns", "v4"}


def test_the_facts_are_those_of_the_metadata(lake: Lake, tmp_path: Path) -> None:
    location = written(tmp_path, metadata(), packed=True)
    store = only(IcebergFactsReader(of_sql(lake)(location)).read(T))
    assert store.metadata_location == location
    assert list(store.history.snapshots) == [FIRST, HEAD, TAGGED]
    head = store.history.snapshots[HEAD]
    assert (head.parent_id, head.made_at, head.sequence_number) == (FIRST, EPOCH + timedelta(hours=2), 2)
    assert dict(head.summary) == {"operation": "replace"}
    assert store.history.refs == {
        MAIN: Ref(MAIN, HEAD, is_branch=True),
        "audit": Ref("audit", TAGGED, is_branch=False, max_age=timedelta(hours=9)),
    }
    assert (store.table_uuid, store.spec_id) == (UUID, 1)
    assert store.specs == {
        0: (),
        1: (SpecField("at_day", "day", 2, "timestamptz"), SpecField("town_bucket", "bucket[16]", 4, "string")),
    }


def test_specs_of_any_kind_are_told(lake: Lake, tmp_path: Path) -> None:
    add(lake, "v1", written(tmp_path, KINDS["v1"]))
    add(lake, "several", written(tmp_path, KINDS["transform of several columns"]))
    reader = IcebergFactsReader(lake.catalogs)
    early = only(reader.read(TableIdentifier("lake", ("db",), "v1")))
    assert (early.spec_id, early.specs) == (0, {0: (SpecField("at_day", "day", 2, "timestamptz"),)})
    several = only(reader.read(TableIdentifier("lake", ("db",), "several")))
    assert several.specs[1][-1] == SpecField("new", "bucketV2[4]", 1, "long")


def test_the_type_of_a_dropped_column_is_known_from_an_older_schema(lake: Lake, tmp_path: Path) -> None:
    said = metadata(current_schema_id=2)
    said["schemas"].append({"type": "struct", "schema-id": 2, "fields": [{"id": 1, "name": "id", "required": True, "type": "long"}]})
    store = only(IcebergFactsReader(of_sql(lake)(written(tmp_path, said))).read(T))
    assert [one.source_type for one in store.specs[1]] == ["timestamptz", "string"]


# ---- namespaces ------------------------------------------------------------------------------------------------------


def test_properties_of_namespaces_are_told(lake: Lake, tmp_path: Path, rest: Callable[..., _Rest]) -> None:
    lake.catalog.update_namespace_properties("db", updates={"compaction.ready-when": "watermark"})
    assert facts_of("sql", lake, tmp_path, rest, metadata()).namespace["compaction.ready-when"] == "watermark"
    assert facts_of("hive", lake, tmp_path, rest, metadata()).namespace["compaction.ready-when"] == "exists"
    assert facts_of("rest", lake, tmp_path, rest, metadata()).namespace == {"compaction.ready-when": "quiet:6h"}


def test_an_inner_namespace_overrides_an_outer_one(lake: Lake, tmp_path: Path) -> None:
    for levels, value in ((("a",), "outer"), (("a", "b"), "inner")):
        lake.catalog.create_namespace(levels, {"x": value, f"of-{value}": "1"})
    add(lake, "t", written(tmp_path, metadata()), "a.b")
    namespace = IcebergFactsReader(lake.catalogs).read(TableIdentifier("lake", ("a", "b"), "t")).namespace
    assert {key: namespace[key] for key in ("x", "of-outer", "of-inner")} == {"x": "inner", "of-outer": "1", "of-inner": "1"}


def of_namespaces(served: _Rest, answer: Callable[[Call], None]) -> Callable[[Call], None]:
    """What a server answers that is asked for tables as ever, and for namespaces as `answer` says."""
    return lambda call: served(call) if "/tables/" in call.path or call.path == "/v1/config" else answer(call)


@pytest.mark.parametrize(
    ("status", "error", "sentence"),
    [
        (401, AccessDenied, "no permission: .*; they must let its properties be read, which may say when a table is ready"),
        (403, AccessDenied, "no permission: .*; they must let its properties be read, which may say when a table is ready"),
        (404, StorageUnavailable, "has table lake.db.raw, and the catalog says that the namespace does not exist"),
        (503, StorageUnavailable, "check that it is healthy"),
    ],
)
def test_a_namespace_that_is_hidden_for_a_moment_is_no_namespace_without_properties(
    rest: Callable[..., _Rest], status: int, error: type[CompactionError], sentence: str
) -> None:
    """Without its namespace a table would follow another rule for that moment, and for half a minute after it."""
    served = rest()
    served.server.everything = of_namespaces(served, lambda call: call.answer(status))
    reader = IcebergFactsReader(served.catalogs)
    with pytest.raises(error, match=f"namespace db of catalog 'lake'.*{sentence}"):
        reader.read(T)
    served.server.everything = served
    assert reader.read(T).namespace == {"compaction.ready-when": "quiet:6h"}


def test_one_answer_that_a_namespace_does_not_exist_is_not_believed(rest: Callable[..., _Rest]) -> None:
    served = rest()
    answers = [lambda call: call.answer(404), served]
    served.server.everything = of_namespaces(served, lambda call: answers.pop(0)(call))
    assert IcebergFactsReader(served.catalogs).read(T).namespace == {"compaction.ready-when": "quiet:6h"}


def test_a_table_that_is_gone_with_its_namespace_is_not_found(rest: Callable[..., _Rest]) -> None:
    served = rest()

    def dropped(call: Call) -> None:
        served.server.everything = lambda call: call.answer(200, {"namespaces": []}) if call.path == "/v1/namespaces" else call.answer(404)
        call.answer(404)

    served.server.everything = of_namespaces(served, dropped)
    with pytest.raises(NotFoundError, match=r"table lake\.db\.raw does not exist"):
        IcebergFactsReader(served.catalogs).read(T)


@pytest.mark.parametrize("status", [405, 501])
def test_a_catalog_without_properties_of_namespaces_has_none(rest: Callable[..., _Rest], status: int) -> None:
    served = rest()
    served.server.everything = of_namespaces(served, lambda call: call.answer(status))
    assert IcebergFactsReader(served.catalogs).read(T).namespace == {}


@pytest.mark.parametrize("is_listed", [False, True])
def test_the_upper_level_of_a_namespace_need_not_be_there_unless_it_is_listed(rest: Callable[..., _Rest], is_listed: bool) -> None:
    served, table = rest(), TableIdentifier("lake", ("a", "b"), "raw")

    def answer(call: Call) -> None:
        if call.path == "/v1/namespaces":
            call.answer(200, {"namespaces": [["a"]] if is_listed else []})
        elif call.path.endswith("/namespaces/a"):
            call.answer(404)
        else:
            served(call)

    served.server.everything = of_namespaces(served, answer)
    reader = IcebergFactsReader(served.catalogs)
    if not is_listed:
        assert reader.read(table).namespace == {"compaction.ready-when": "quiet:6h"}
        return
    with pytest.raises(StorageUnavailable, match=r"namespace a of catalog 'lake' has table lake\.a\.b\.raw"):
        reader.read(table)


def test_namespaces_are_asked_for_twice_a_minute(rest: Callable[..., _Rest]) -> None:
    served, now = rest(), [0.0]
    reader = IcebergFactsReader(served.catalogs, lambda: now[0])
    for now[0] in (0, 10, 29, 31, 50):
        reader.read(T)
    assert sum("/tables/" not in one and "namespaces/db" in one for one in served.server.requests) == 2


# ---- REST ------------------------------------------------------------------------------------------------------------


def test_a_table_that_has_not_moved_is_not_sent_again(rest: Callable[..., _Rest]) -> None:
    place = "s3://b/metadata/00001-9c12d441-03fe-4693-9a96-a0705ddf69c1.metadata.json"
    served = rest(etag='"one"', location=place)
    reader = IcebergFactsReader(served.catalogs)
    first = reader.read(T)
    assert reader.read(T).stores[0] is first.stores[0]
    assert served.asked == [None, '"one"']
    served.etag, served.said, served.location = '"two"', metadata(properties={"new": "1"}), place.replace("00001", "00002")
    assert only(reader.read(T)).properties == {"new": "1"}
    assert served.asked == [None, '"one"', '"one"']


def test_an_answer_that_says_unchanged_to_no_question_is_an_error(rest: Callable[..., _Rest]) -> None:
    served = rest()
    served.server.everything = lambda call: served(call) if "/tables/" not in call.path else call.answer(304)
    with pytest.raises(StorageUnavailable):
        IcebergFactsReader(served.catalogs).read(T)


def test_a_catalog_that_does_not_tell_the_place_of_metadata_is_read_each_time(rest: Callable[..., _Rest]) -> None:
    served = rest(location=None, etag='"one"')
    reader = IcebergFactsReader(served.catalogs)
    assert only(reader.read(T)).metadata_location == ""
    served.said = metadata(properties={"new": "1"})
    assert only(reader.read(T)).properties == {"new": "1"}


def test_vended_credentials_open_the_files(rest: Callable[..., _Rest]) -> None:
    served = rest()
    served.more = {
        "config": {"s3.access-key-id": "of the table", "py-io-impl": "evil.Code"},
        "storage-credentials": [
            {"prefix": "s3://b", "config": {"s3.access-key-id": "of the bucket", "s3.secret-access-key": "hush"}},
            {"prefix": "s3://other", "config": {"s3.access-key-id": "of another"}},
        ],
    }
    io = only(IcebergFactsReader(served.catalogs).read(T)).handle.io
    assert (io.properties["s3.access-key-id"], io.properties["s3.secret-access-key"]) == ("of the bucket", "hush")
    assert "evil" not in io.properties.get("py-io-impl", "")


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, AccessDenied), (403, AccessDenied), (404, NotFoundError), (429, StorageUnavailable), (500, StorageUnavailable)],
)
def test_what_a_rest_catalog_answers_is_said(rest: Callable[..., _Rest], status: int, error: type[CompactionError]) -> None:
    served = rest()

    def answered(call: Call) -> None:
        if call.path.endswith("/tables"):
            call.answer(200, {"identifiers": []})
        elif "/tables/" in call.path:
            call.answer(status)
        else:
            served(call)

    served.server.everything = answered
    with pytest.raises(error):
        IcebergFactsReader(served.catalogs).read(T)


def test_a_token_that_has_ended_is_renewed(lake: Lake) -> None:
    lake.table("raw").ids(1)
    with rest_server(lake.catalog) as server:
        properties = {"type": "rest", "uri": server.uri, "credential": "me:secret"}
        catalogs = Catalogs(lambda name: CatalogEntry(name, properties))
        catalogs.catalog("lake")
        server.loads.append(lambda call: call.answer(419))
        assert len(only(IcebergFactsReader(catalogs).read(T)).history.snapshots) == 1
        assert server.count("POST /v1/oauth/tokens") == 2


# ---- other catalogs --------------------------------------------------------------------------------------------------


def test_a_table_of_hive_must_be_the_one_that_the_metastore_names(tmp_path: Path) -> None:
    location = written(tmp_path, metadata())
    row = {"table_type": "ICEBERG", "metadata_location": location}
    assert IcebergFactsReader(hive(**row, uuid=UUID.upper())).read(T).uuid == UUID
    with pytest.raises(StorageUnavailable, match=f"has the uuid other, but its metadata file {location} is of the table {UUID}"):
        IcebergFactsReader(hive(**row, uuid="other")).read(T)


def test_tables_of_other_formats_are_refused_in_words(lake: Lake) -> None:
    with pytest.raises(TableRefused, match=r"db\.raw is a Paimon table, not an Iceberg table"):
        IcebergFactsReader(hive(table_type="paimon")).read(T)
    with pytest.raises(TableRefused, match="the metastore does not say where its metadata is"):
        IcebergFactsReader(hive(table_type="ICEBERG")).read(T)
    with pytest.raises(TableRefused, match=r"db\.raw is not an Iceberg table"):
        IcebergFactsReader(opened(GlueCatalog(lake))).read(T)
    with pytest.raises(TableRefused, match="Glue does not say where its metadata is"):
        IcebergFactsReader(opened(GlueCatalog(lake, table_type="iceberg"))).read(T)


def test_a_table_that_is_not_there_is_not_found(lake: Lake) -> None:
    with pytest.raises(NotFoundError, match=r"table lake\.db\.raw does not exist"):
        IcebergFactsReader(lake.catalogs).read(T)


def test_metadata_of_a_file_is_read_once(lake: Lake, tmp_path: Path) -> None:
    location = written(tmp_path, metadata())
    reader = IcebergFactsReader(of_sql(lake)(location))
    first = reader.read(T)
    Path(location.removeprefix("file://")).unlink()
    assert reader.read(T) == first
    move(lake, written(tmp_path, metadata(properties={"new": "1"})))
    assert only(reader.read(T)).properties == {"new": "1"}


def test_a_file_whose_name_may_come_again_is_read_each_time(lake: Lake, tmp_path: Path) -> None:
    """A Hadoop table that was dropped and made anew has the same names."""
    path = tmp_path / "v1.metadata.json"
    Path(written(tmp_path, metadata()).removeprefix("file://")).rename(path)
    reader = IcebergFactsReader(of_sql(lake)(str(path)))
    assert only(reader.read(T)).table_uuid == UUID
    Path(written(tmp_path, metadata(table_uuid="new")).removeprefix("file://")).rename(path)
    assert only(reader.read(T)).table_uuid == "new"


def test_what_is_kept_is_bounded_by_the_number_of_snapshots(lake: Lake, tmp_path: Path) -> None:
    reader = IcebergFactsReader(lake.catalogs, most_snapshots=7)
    tables = [TableIdentifier("lake", ("db",), f"t{number}") for number in range(3)]
    first = []
    for one in tables:
        add(lake, one.name, written(tmp_path, metadata()))
        first.append(only(reader.read(one)))
    assert [only(reader.read(one)) is known for one, known in zip(reversed(tables), reversed(first), strict=True)] == [True, True, False]


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (metadata(snapshots=[{"snapshot-id": "1", "timestamp-ms": 1}]), "its 'snapshots.0.snapshot-id' is '1' but must be a whole number"),
        (metadata(snapshots=[{"snapshot-id": 1}]), "its 'snapshots.0.timestamp-ms' is None but must be a whole number"),
        (metadata(refs=[1]), "its 'refs' is .1. but must be an object"),
        (metadata(properties=["x"]), "its 'properties' is .'x'. but must be an object"),
        (metadata(current_snapshot_id=5, refs=None), "the current snapshot id is 5 but the metadata holds no such snapshot"),
        (
            metadata(snapshots=[{"snapshot-id": HEAD, "timestamp-ms": 1}] * 2),
            "'snapshots.1.snapshot-id' is 3055729675574597004 but must be an id",
        ),
        (metadata(format_version="2"), "its 'format-version' is '2' but must be a whole number"),
        (metadata(partition_specs=[{"spec-id": 0}]), "its 'fields of a spec' is None but must be a list"),
    ],
)
def test_damaged_metadata_is_said_with_its_place(said: Mapping[str, Any], sentence: str, lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match=sentence) as raised:
        IcebergFactsReader(of_sql(lake)(written(tmp_path, said))).read(T)
    assert "table lake.db.raw: its metadata file://" in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"{", b"\x1f\x8b\x08cut", b"\xff\xfe"])
def test_a_damaged_file_is_called_corrupt(content: bytes, lake: Lake, tmp_path: Path) -> None:
    path = tmp_path / "00001.metadata.json"
    path.write_bytes(content)
    with pytest.raises(StorageUnavailable, match=r"00001.metadata.json is corrupt: .*; restore it or roll the table back"):
        IcebergFactsReader(of_sql(lake)(str(path))).read(T)


def test_a_file_that_is_no_metadata_is_refused(lake: Lake, tmp_path: Path) -> None:
    path = tmp_path / "00001.metadata.json"
    path.write_text("[]")
    with pytest.raises(TableRefused, match="is no metadata of an Iceberg table"):
        IcebergFactsReader(of_sql(lake)(str(path))).read(T)


# ---- many tables at a time -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sql", "hive", "glue"])
def test_tables_that_have_not_moved_are_told_without_reading_them(kind: str, lake: Lake, tmp_path: Path) -> None:
    place = written(tmp_path, metadata())
    parameters = {"table_type": "ICEBERG", "metadata_location": place}
    catalogs = {
        "sql": lambda: of_sql(lake)(place),
        "hive": lambda: hive(**parameters),
        "glue": lambda: opened(GlueCatalog(lake, **parameters)),
    }[kind]()
    reader = IcebergFactsReader(catalogs)
    seen = reader.read(T).seen
    Path(place.removeprefix("file://")).unlink()
    moved = replace(seen, stores={T: place.replace("00001-", "00000-")})
    gone = replace(seen, table=replace(T, name="gone"), stores={replace(T, name="gone"): place})
    otherwise = replace(seen, namespace={"compaction.ready-when": "reported"})
    assert reader.unmoved([seen, gone]) == {T}
    assert reader.unmoved([moved]) == reader.unmoved([otherwise]) == reader.unmoved([]) == frozenset()


def test_a_sql_catalog_is_asked_once_for_many_tables(lake: Lake, tmp_path: Path) -> None:
    place = written(tmp_path, metadata())
    lake.catalog.create_namespace(("a",))
    lake.catalog.create_namespace(("a", "b"))
    for number in range(600):
        add(lake, f"t{number}", place, "a.b")
    of_all = [TableIdentifier("lake", ("a", "b"), f"t{number}") for number in range(600)]
    reader = IcebergFactsReader(lake.catalogs)
    seen = replace(reader.read(of_all[0]).seen)
    assert reader.unmoved([replace(seen, table=one, stores={one: place}) for one in of_all]) == set(of_all)
    catalog: Any = lake.catalogs.catalog("lake")
    asked: list[str] = []
    event.listen(catalog.engine, "before_cursor_execute", lambda *of: asked.append(of[2]))
    reader.unmoved([replace(seen, table=one, stores={one: place}) for one in of_all])
    assert len(asked) == 2


def test_a_rest_catalog_is_asked_with_etags(rest: Callable[..., _Rest]) -> None:
    served = rest(etag='"1"', location=f"s3://b/00001-{UUID}.metadata.json")
    reader = IcebergFactsReader(served.catalogs)
    seen = reader.read(T).seen
    assert (reader.unmoved([seen]), served.asked) == ({T}, [None, '"1"'])
    served.etag, served.location = '"2"', f"s3://b/00002-{UUID}.metadata.json"
    assert reader.unmoved([seen]) == frozenset()


def test_a_metadata_file_that_may_be_another_one_under_its_name_says_nothing(lake: Lake, tmp_path: Path) -> None:
    path = tmp_path / "v1.metadata.json"
    path.write_text(json.dumps(metadata()))
    reader = IcebergFactsReader(of_sql(lake)(str(path)))
    assert reader.unmoved([reader.read(T).seen]) == frozenset()


def test_a_keyed_table_moves_with_either_store(lake: Lake, tmp_path: Path) -> None:
    change = written(tmp_path, metadata(table_uuid="change", properties=CHANGE))
    add(lake, "raw_change_", change)
    reader = IcebergFactsReader(of_sql(lake)(written(tmp_path, metadata(properties=BASE))))
    seen = reader.read(T).seen
    assert reader.unmoved([seen]) == {T}
    assert reader.unmoved([replace(seen, stores={**seen.stores, replace(T, name="raw_change_"): f"{change}x"})]) == frozenset()
    move(lake, written(tmp_path, metadata(properties=BASE)))
    assert reader.unmoved([seen]) == frozenset()


def test_a_catalog_that_does_not_answer_hides_no_change_of_its_tables(rest: Callable[..., _Rest], tmp_path: Path) -> None:
    served = rest(location=f"s3://b/00001-{UUID}.metadata.json")
    now = [0.0]
    reader = IcebergFactsReader(served.catalogs, lambda: now[0])
    seen = reader.read(T).seen
    now[0] = 30.0
    served.server.everything = of_namespaces(served, lambda call: call.answer(503))
    assert reader.unmoved([seen]) == frozenset()
    served.server.everything = lambda call: call.answer(503)
    assert reader.unmoved([seen]) == frozenset()


def test_the_properties_of_a_namespace_are_asked_for_again_after_thirty_seconds(lake: Lake, tmp_path: Path) -> None:
    now = [0.0]
    reader = IcebergFactsReader(of_sql(lake)(written(tmp_path, metadata())), lambda: now[0])
    seen = reader.read(T).seen
    lake.catalog.update_namespace_properties("db", updates={"compaction.ready-when": "reported"})
    now[0] = 29.9
    assert reader.unmoved([seen]) == {T}
    now[0] = 30.0
    assert reader.unmoved([seen]) == frozenset()


# ---- keyed tables ----------------------------------------------------------------------------------------------------

BASE = {
    "table-format": "MIXED_ICEBERG",
    "mixed-format.table-store": "base",
    "mixed-format.primary-key-fields": "id",
    "mixed-format.change.identifier": "db.raw_change_",
    "compaction.sink.eu.watermark": "3600000",
}
CHANGE = {"table-format": "MIXED_ICEBERG", "mixed-format.table-store": "change", "compaction.sink.us.watermark": "7200000"}


def test_a_keyed_table_has_both_stores_with_the_marks_of_sinks(lake: Lake, tmp_path: Path) -> None:
    add(lake, "raw_change_", written(tmp_path, metadata(table_uuid="change", properties=CHANGE)))
    facts = IcebergFactsReader(of_sql(lake)(written(tmp_path, metadata(properties=BASE)))).read(T)
    assert facts.uuid == UUID
    assert [(one.store.name, one.table_uuid, dict(one.properties)) for one in facts.stores] == [
        ("raw", UUID, BASE),
        ("raw_change_", "change", CHANGE),
    ]


def test_a_change_store_that_is_named_itself_is_one_store(lake: Lake, tmp_path: Path) -> None:
    assert only(IcebergFactsReader(of_sql(lake)(written(tmp_path, metadata(properties=CHANGE)))).read(T)).properties == CHANGE


def test_a_keyed_table_without_its_change_store_tells_no_half(lake: Lake, tmp_path: Path) -> None:
    reader = IcebergFactsReader(of_sql(lake)(written(tmp_path, metadata(properties=BASE))))
    with pytest.raises(NotFoundError, match="raw_change_"):
        reader.read(T)
    add(lake, "raw_change_", written(tmp_path, metadata()))
    with pytest.raises(ConfigError, match=r"names lake\.db\.raw_change_ as its change store, but that is no change store"):
        reader.read(T)
    move(lake, written(tmp_path, metadata(properties={key: BASE[key] for key in BASE if "identifier" not in key})))
    with pytest.raises(ConfigError, match="names no change store"):
        reader.read(T)
