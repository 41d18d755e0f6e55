"""Errors of a REST catalog that answers name its HTTP status and its URL. They never call it silent, and say when it is no catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from compaction_pipeline.core.errors import AccessDenied, CompactionError, ConfigError, StorageUnavailable
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline_tests.iceberg.lake import Lake
from compaction_pipeline_tests.rest_catalog import Call, Fault, RestServer, rest_server, status

PAGE = "<html><body>Please log in</body></html>"


@pytest.fixture
def server(lake: Lake) -> Iterator[RestServer]:
    lake.table()
    with rest_server(lake.catalog) as running:
        yield running


def said(server: RestServer, kind: type[CompactionError], fault: Fault, uri: str | None = None) -> str:
    """The error of listing the tables of this catalog."""
    server.everything = fault
    properties: Mapping[str, str] = {"type": "rest", "uri": uri or server.uri}
    with pytest.raises(kind) as raised:
        Catalogs(lambda name: CatalogEntry(name, properties)).tables("lake")
    assert type(raised.value) is kind
    return str(raised.value)


def page(code: int) -> Fault:
    return lambda call: call.answer_page(code, PAGE)


def test_a_uri_without_a_catalog_is_bad_input(server: RestServer) -> None:
    url = f"{server.uri}/v1/config"
    text = said(server, ConfigError, page(404))
    sentence = "'uri' does not lead to an Iceberg REST catalog; correct 'uri', to which /v1/config is added"
    assert text == f"catalog 'lake': HTTP 404 at {url}: {sentence}"


def test_a_catalog_that_knows_no_such_warehouse_is_quoted(server: RestServer) -> None:
    text = said(server, ConfigError, status(404))
    assert "FaultException: the test says 404: 'uri' does not lead to an Iceberg REST catalog, or there is no such warehouse" in text


@pytest.mark.parametrize("fault", [status(500), page(500), status(501), status(429)])
def test_a_failing_catalog_is_reported_with_its_status(server: RestServer, fault: Fault) -> None:
    text = said(server, StorageUnavailable, fault)
    assert text.startswith("catalog 'lake' answered HTTP ")
    assert f" at {server.uri}/v1/config" in text
    assert text.endswith("; check that it is healthy, and try again later")
    assert "did not answer" not in text
    assert "<html>" not in text


@pytest.mark.parametrize("code", [401, 403, 419])
def test_a_missing_permission_is_reported_with_its_status(server: RestServer, code: int) -> None:
    text = said(server, AccessDenied, status(code))
    assert f"catalog 'lake': no permission: HTTP {code} at {server.uri}/v1/config: FaultException: the test says {code}; check" in text


def test_a_page_in_place_of_the_configuration_is_one_clear_sentence(server: RestServer) -> None:
    assert said(server, ConfigError, page(200)) == (
        "catalog 'lake' answered something that is not the configuration of an Iceberg REST catalog: "
        "check 'uri', and whether a proxy or a login page answered"
    )


def test_a_catalog_that_lists_no_namespaces_is_not_called_missing(server: RestServer) -> None:
    def lost(call: Call) -> None:
        if len(server.requests) > 1:
            call.answer_page(404, PAGE)
        else:
            call.answer(200, {"defaults": {}, "overrides": {}})

    text = said(server, ConfigError, lost)
    assert text.startswith(f"catalog 'lake' answered HTTP 404 at {server.uri}/v1/namespaces when asked for its namespaces; correct 'uri'")


def test_a_page_in_place_of_a_table_blames_no_file(server: RestServer) -> None:
    catalogs = Catalogs(lambda name: CatalogEntry(name, {"type": "rest", "uri": server.uri}))
    [table] = catalogs.tables("lake")
    server.everything = page(200)
    with pytest.raises(StorageUnavailable, match="never answers: check 'uri', and whether a proxy or a login page answered") as raised:
        catalogs.load(table)
    assert "roll" not in str(raised.value)


def test_metadata_that_breaks_a_rule_is_still_the_table_s(server: RestServer) -> None:
    catalogs = Catalogs(lambda name: CatalogEntry(name, {"type": "rest", "uri": server.uri}))
    catalogs.catalog("lake")

    def strange(call: Call) -> None:
        call.answer(200, {"metadata-location": "x", "metadata": {"format-version": 2}, "config": {}})

    server.everything = strange
    with pytest.raises(CompactionError, match=r"table lake\.db\.t: its metadata cannot be read: metadata\."):
        catalogs.load(TableIdentifier("lake", ("db",), "t"))


def test_a_login_in_the_uri_stays_hidden(server: RestServer) -> None:
    uri = server.uri.replace("://", "://me:hunter2@")
    for kind, fault in ((ConfigError, page(404)), (StorageUnavailable, status(500)), (AccessDenied, status(403))):
        assert "hunter2" not in said(server, kind, fault, uri)


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({"type": "rest", "uri": "notaurl"}, "the 'uri' of a REST catalog must begin with http:// or https://"),
        ({"type": "rest", "uri": "ftp://hunter2"}, "the 'uri' of a REST catalog must begin with http:// or https://"),
        ({"uri": "hunter2"}, "'uri' does not tell the kind of catalog: add -p type=…"),
        ({"type": "sql", "uri": "mysql://me:hunter2@host/db"}, "must name a SQLite or a PostgreSQL database"),
        ({"type": "sql", "uri": "hunter2"}, "must name a SQLite or a PostgreSQL database"),
    ],
)
def test_a_uri_of_another_kind_is_refused_with_our_own_sentence(properties: Mapping[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Catalogs(lambda name: CatalogEntry(name, properties)).tables("lake")
    assert sentence in str(raised.value)
    assert "hunter2" not in str(raised.value)
    assert "-p " in str(raised.value)
