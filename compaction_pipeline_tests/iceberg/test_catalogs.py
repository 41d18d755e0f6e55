from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from sqlalchemy import text

from compaction_pipeline.core.errors import CompactionError, ConfigError, StorageUnavailable
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.iceberg.catalogs import open_catalogs
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline_tests.iceberg.lake import SCHEMA, Lake


def catalogs_with(**properties: str) -> Catalogs:
    given = {key.replace("__", "-"): value for key, value in properties.items()}
    return Catalogs(lambda name: CatalogEntry(name, given))


def test_a_missing_database_file_is_an_error_and_is_not_created(tmp_path: Path) -> None:
    path = tmp_path / "typo.db"
    with pytest.raises(ConfigError, match=r"catalog 'lake' cannot be opened: .*typo\.db"):
        catalogs_with(type="sql", uri=f"sqlite:///{path}").catalog("lake")
    assert not path.exists()


def test_a_database_without_catalog_tables_is_an_error_and_gets_none(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    path.touch()
    with pytest.raises(ConfigError, match="iceberg_tables"):
        catalogs_with(type="sql", uri=f"sqlite:///{path}").catalog("lake")
    assert path.stat().st_size < 8192


def test_tables_of_nested_namespaces_are_listed(lake: Lake) -> None:
    for namespace in (("db",), ("db", "inner"), ("top", "middle", "low")):
        lake.catalog.create_namespace_if_not_exists(namespace)
        lake.catalog.create_table((*namespace, "t"), SCHEMA)
    assert lake.scan.list_tables("lake") == (
        TableIdentifier("lake", ("db",), "t"),
        TableIdentifier("lake", ("db", "inner"), "t"),
        TableIdentifier("lake", ("top", "middle", "low"), "t"),
    )


def test_a_name_that_the_database_does_not_hold_lists_those_that_it_does(lake: Lake) -> None:
    lake.table()
    wrong = catalogs_with(type="sql", uri=lake.properties["uri"])
    with pytest.raises(ConfigError, match="catalog-name=lake"):
        wrong.tables("spark")
    right = catalogs_with(type="sql", uri=lake.properties["uri"], catalog__name="lake")
    assert right.tables("spark") == (TableIdentifier("spark", ("db",), "t"),)


def test_an_empty_catalog_of_its_own_database_is_just_empty(tmp_path: Path) -> None:
    catalogs = catalogs_with(type="sql", uri=f"sqlite:///{tmp_path}/new.db", init_catalog_tables="true")
    assert catalogs.tables("lake") == ()


def test_sqlite_catalogs_wait_for_locks(lake: Lake) -> None:
    from compaction_pipeline.iceberg.catalogs import SqlCatalog

    assert isinstance(lake.catalog, SqlCatalog)
    with lake.catalog.engine.connect() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA busy_timeout")).scalar() == 30_000


def test_a_catalog_is_opened_once_and_again_when_its_properties_change(lake: Lake) -> None:
    assert lake.catalogs.catalog("lake") is lake.catalog
    lake.properties["s3.region"] = "eu-central-1"
    assert lake.catalogs.catalog("lake") is not lake.catalog


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        ({"type": "nonsense"}, ConfigError),
        ({"type": "sql", "uri": "not a url"}, CompactionError),
        ({"type": "sql", "uri": "nosuchdialect://x"}, ConfigError),
        ({"type": "rest", "uri": "http://127.0.0.1:1"}, StorageUnavailable),
    ],
)
def test_what_cannot_be_opened_is_one_clear_error(properties: dict[str, str], error: type[Exception]) -> None:
    with pytest.raises(error, match="'lake'"):
        catalogs_with(**properties).tables("lake")


def test_a_token_with_a_line_break_is_refused_and_not_shown() -> None:
    properties = {"type": "rest", "uri": "http://127.0.0.1:1", "token": "super\nsecret"}
    with pytest.raises(ConfigError, match="such as 'token', begins with a blank or has a line break") as caught:
        Catalogs(lambda name: CatalogEntry(name, properties)).catalog("re")
    assert "super" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_password_that_breaks_a_url_is_not_shown() -> None:
    for uri in ("http://me:sec/ret@127.0.0.1:1", "http://me:sec#ret@127.0.0.1:1", "http://me:sec?ret@127.0.0.1:1"):
        with pytest.raises(CompactionError) as caught:
            Catalogs(lambda name, uri=uri: CatalogEntry(name, {"type": "rest", "uri": uri})).catalog("re")
        assert "sec" not in str(caught.value)


def test_a_database_that_is_read_only_is_named_so_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    path.touch()
    read_only = catalogs_with(type="sql", uri=f"sqlite:///file:{path}?mode=ro&uri=true", init_catalog_tables="true")
    said = r"catalog 'lake' has a database that is read-only \(.*readonly database\): let this user write the file that the catalog's 'uri'"
    with pytest.raises(StorageUnavailable, match=said):
        read_only.catalog("lake")


def test_a_catalog_that_is_slow_to_open_keeps_nobody_from_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = Lake(tmp_path)
    slow, opened, go = CatalogEntry("slow", {"type": "rest"}), Event(), Event()
    catalogs = Catalogs(lambda name: slow if name == "slow" else CatalogEntry(name, fast.properties))
    real = open_catalogs.open_catalog

    def open_it(entry: CatalogEntry) -> object:
        if entry.name == "slow":
            opened.set()
            go.wait(60)
        return real(CatalogEntry(entry.name, fast.properties))

    monkeypatch.setattr(open_catalogs, "open_catalog", open_it)
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(catalogs.catalog, "slow") for _ in range(2)]
        assert opened.wait(60)
        catalogs.catalog("lake").list_namespaces()
        assert not any(each.done() for each in waiting)
        go.set()
        first, second = (each.result(60) for each in waiting)
    # It is opened once, whoever asks first.
    assert first is second
