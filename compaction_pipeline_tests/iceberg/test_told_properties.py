"""What a table or a server tells about how files are opened, and what of it is followed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.catalogs.rest_catalog import OneAddress
from compaction_pipeline.iceberg.catalogs.told_properties import told_by_server
from compaction_pipeline_tests.iceberg.lake import Lake
from compaction_pipeline_tests.rest_catalog import RestServer, rest_server

SECRET = "a-secret-of-the-catalog"
CODE = {"py-io-impl": "builtins.print"}


@contextmanager
def served(folder: Path) -> Iterator[tuple[Lake, RestServer, Catalogs]]:
    """A table behind a REST catalog, and what opens that."""
    lake = Lake(folder)
    lake.table("t")
    with rest_server(lake.catalog) as server:
        properties = {"type": "rest", "uri": server.uri, "s3.access-key-id": "me", "s3.secret-access-key": SECRET}
        yield lake, server, Catalogs(lambda name: CatalogEntry(name, properties))


@pytest.mark.parametrize(
    "key",
    [
        "py-io-impl",
        "py-catalog-impl",
        "auth.type",
        "auth.google.credentials_path",
        "ssl.client.cert",
        "s3.profile-name",
        "gcs.service.host",
        "adls.account-host",
        "hdfs.user",
        "kerberos.keytab",
        "oauth2-server-uri",
    ],
)
def test_a_server_tells_no_code_no_files_and_no_logins(key: str) -> None:
    assert told_by_server({key: "told", "s3.endpoint": "http://s3"}) == {"s3.endpoint": "http://s3"}
    assert told_by_server({key: "told"}, {key: "defined"}) == {key: "defined"}


@pytest.mark.parametrize(
    "key", ["s3.endpoint", "s3.access-key-id", "s3.session-token", "s3.signer.uri", "client.region", "token", "prefix"]
)
def test_a_server_tells_how_its_storage_is_reached(key: str) -> None:
    assert told_by_server({key: "told"}) == {key: "told"}


def test_code_that_a_rest_catalog_names_is_not_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served(tmp_path) as (_, server, catalogs):
        server.overrides, server.table_config = dict(CODE), dict(CODE)
        table = catalogs.load(TableIdentifier("lake", ("db",), "t"))
    assert table.io.properties["s3.secret-access-key"] == SECRET
    assert type(table.io).__module__.startswith("compaction_pipeline.")
    assert SECRET not in capsys.readouterr().out


def test_a_rest_catalog_chooses_no_login(tmp_path: Path) -> None:
    with served(tmp_path) as (_, server, catalogs):
        server.overrides = {"auth.type": "basic", "auth.basic.username": "me", "auth.basic.password": SECRET}
        assert catalogs.load(TableIdentifier("lake", ("db",), "t")).name() == ("db", "t")
        assert set(server.logins) == {None}


@pytest.mark.parametrize("properties", [CODE, {"gcs.service.host": "http://evil"}, {"hdfs.user": "root"}, {"s3.endpoint": "http://evil"}])
def test_a_table_does_not_say_how_its_files_are_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], properties: dict[str, str]
) -> None:
    """A writer such as Spark sets any property. Behind a REST catalog and in a SQL catalog nobody follows it."""
    with served(tmp_path) as (lake, _, by_rest):
        with lake.catalogs.load(TableIdentifier("lake", ("db",), "t")).transaction() as transaction:
            transaction.set_properties(properties)
        by_sql = Catalogs(lambda name: CatalogEntry(name, {**lake.properties, "s3.access-key-id": "me", "s3.secret-access-key": SECRET}))
        for catalogs in (by_rest, by_sql):
            table = catalogs.load(TableIdentifier("lake", ("db",), "t"))
            assert table.metadata.properties.items() >= properties.items()
            assert type(table.io).__module__.startswith("compaction_pipeline.")
            assert not properties.keys() & table.io.properties.keys() - {"py-io-impl"}
    assert SECRET not in capsys.readouterr().out


def test_no_request_follows_a_redirection_to_another_address() -> None:
    """`requests` takes only `Authorization` out of such a request, and headers of gateways hold secrets too."""
    answer = requests.Response()
    answer.status_code, answer.url = 307, "http://catalog.example/v1/namespaces"
    answer.headers["location"] = "http://other.example/v1/namespaces"
    with pytest.raises(requests.RequestException, match=r"another address, http://other\.example"):
        OneAddress().get_redirect_target(answer)
    answer.headers["location"] = "/iceberg/v1/namespaces"
    assert OneAddress().get_redirect_target(answer) == "/iceberg/v1/namespaces"
