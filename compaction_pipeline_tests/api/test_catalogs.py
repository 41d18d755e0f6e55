"""Catalogs over HTTP."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline_tests.api.served import Served
from compaction_pipeline_tests.core.catalogs.bad_definitions import BAD, SECRET

REST: dict[str, Any] = {"name": "prod", "type": "rest", "properties": {"uri": "https://c.example.com", "token": "s3cret-token"}}


def test_every_bad_definition_is_answered_in_words_and_nothing_is_stored(served: Served) -> None:
    admin, before = served.token(Role.ADMIN), served.house.services.explore_catalogs.entries()
    for bad in (each for each in BAD if each.given is not None):
        answer = served.ask("POST", "/api/v1/catalogs", admin, json=bad.given)
        assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json"), (bad.name, answer.text)
        assert keys_of(answer) >= bad.keys, bad.name
        assert bad.said in answer.json()["detail"] or "server" in answer.json()["detail"], bad.name
        assert SECRET not in answer.text
    assert served.house.services.explore_catalogs.entries() == before


def keys_of(answer: Any) -> set[str]:
    return {problem["key"] for problem in answer.json()["problems"]}


def test_all_problems_of_a_catalog_are_in_one_answer_and_nothing_is_stored(served: Served) -> None:
    admin, before = served.token(Role.ADMIN), served.house.services.explore_catalogs.entries()
    bad = {"name": "a/b", "type": "rset", "observe": "yes", "table_filter": "(?=x)", "group": "nobodys", "properties": {"port": 8}, "b": 1}
    answer = served.ask("POST", "/api/v1/catalogs", admin, json=bad)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")
    assert keys_of(answer) == {"name", "type", "observe", "table-filter", "table.self-optimizing.group", "b", "port"}
    assert served.house.services.explore_catalogs.entries() == before


CODE_AND_FILES: list[tuple[dict[str, str], str]] = [
    ({"py-catalog-impl": "os.path"}, "py-catalog-impl"),
    ({"py-io-impl": "a.b"}, "py-io-impl"),
    ({"py-auth-impl": "a.b"}, "py-auth-impl"),
    ({"auth.manager": "a.b"}, "auth.manager"),
    ({"token": "file:/etc/passwd"}, "token"),
    ({"token": "env:COMPACTION_SECRET_KEY"}, "token"),
    ({"uri": "sqlite:////data/catalog.db"}, "uri"),
    ({"uri": "SQLite:////data/catalog.db", "type": "sql"}, "uri"),
    ({"uri": "duckdb:////data/catalog.db", "type": "sql"}, "uri"),
    ({"uri": "postgresql:///catalog", "type": "sql"}, "uri"),
    ({"uri": "postgresql://%2Fvar%2Frun/catalog", "type": "sql"}, "uri"),
    ({"uri": "postgresql://db/catalog?passfile=/root/.pgpass", "type": "sql"}, "uri"),
    ({"uri": "postgresql+pg8000://db/catalog", "type": "sql"}, "uri"),
    ({"warehouse": "/data/lake"}, "warehouse"),
    ({"warehouse": "file:///data/lake"}, "warehouse"),
    ({"ssl.client.cert": "/etc/server.pem"}, "ssl.client.cert"),
    ({"s3.retry-strategy-impl": "a.b"}, "s3.retry-strategy-impl"),
    ({"s3.profile-name": "root"}, "s3.profile-name"),
    ({"hdfs.kerberos_ticket": "/tmp/krb5cc"}, "hdfs.kerberos_ticket"),
    ({"kerberos.keytab": "/etc/krb5.keytab"}, "kerberos.keytab"),
    ({"gcp.bigquery.credential-file": "/etc/key.json"}, "gcp.bigquery.credential-file"),
    ({"auth.google.credentials_path": "/etc/key.json"}, "auth.google.credentials_path"),
    ({"gcs.service.host": "https://thief.example.com"}, "gcs.service.host"),
    ({"adls.blob-storage-authority": "thief.example.com"}, "adls.blob-storage-authority"),
    ({"auth.type": "google"}, "auth.type"),
    ({"auth.type": "Entra"}, "auth.type"),
    ({"nobody-knows-this": "x"}, "nobody-knows-this"),
]


def test_what_loads_code_or_reads_files_of_the_server_is_refused(served: Served) -> None:
    admin = served.token(Role.ADMIN)
    for properties, key in CODE_AND_FILES:
        body = {**REST, "properties": {"uri": "https://c.example.com", **properties}}
        if "type" in properties:
            del body["type"]
        answer = served.ask("POST", "/api/v1/catalogs", admin, json=body)
        assert answer.status_code == 400, (properties, answer.text)
        assert "server" in next(one["sentence"] for one in answer.json()["problems"] if one["key"] == key), properties
    assert [entry.name for entry in served.house.services.explore_catalogs.entries()] == ["lake"]


def test_a_change_over_http_keeps_tables_and_masks_secrets(served: Served) -> None:
    admin, house = served.token(Role.ADMIN), served.house
    table = house.fragmented().identifier
    entry = house.services.explore_catalogs.entries()[0]
    more = {"s3.secret-access-key": "hunter2hunter2", "s3.access-key-id": "me"}
    changed = served.ask("PATCH", "/api/v1/catalogs/lake", admin, json={"observe": True, "properties": more})
    assert changed.status_code == 200, changed.text
    answer = changed.json()
    assert (answer["observe"], answer["tables"], answer["properties"]["s3.secret-access-key"]) == (True, [str(table)], "***")
    assert answer["warnings"] == []
    shown = served.ask("GET", "/api/v1/catalogs/lake", served.token(Role.READER))
    assert "hunter2" not in shown.text
    assert shown.json()["sources"]["observe"] == "person"
    assert house.services.manage_catalogs.entry("lake").properties == {**entry.properties, **more}
    unset = served.ask("PATCH", "/api/v1/catalogs/lake", admin, json={"unset": list(more), "observe": False})
    assert unset.status_code == 200, unset.text
    assert house.services.manage_catalogs.entry("lake") == entry
    assert [state.table for state in house.services.stores.tables.states("lake")] == [table]
    assert served.ask("GET", "/api/v1/catalogs/lake", admin).json()["sources"]["observe"] == "default"


def test_a_dry_run_over_http_lists_and_stores_nothing(served: Served) -> None:
    admin, house = served.token(Role.ADMIN), served.house
    table = house.fragmented().identifier
    before = house.services.explore_catalogs.entries()
    changed = served.ask("PATCH", "/api/v1/catalogs/lake?dry_run=true", admin, json={"table_filter": "nothing"})
    assert (changed.status_code, changed.json()["tables"], changed.json()["left_out"]) == (200, [], 1)
    assert house.services.explore_catalogs.entries() == before
    assert [state.table for state in house.services.stores.tables.states("lake")] == [table]
    wrong = served.ask("PATCH", "/api/v1/catalogs/lake?dry_run=true", admin, json={"table_filter": "("})
    assert wrong.status_code == 400
    taken = served.ask("POST", "/api/v1/catalogs?dry_run=true", admin, json={**REST, "name": "lake"})
    assert (taken.status_code, "registered already" in taken.text) == (400, True)


MISTAKES: list[tuple[object, str]] = [
    ({"properties": {"warehouse": "s3://b"}, "unset": ["warehouse"]}, "set and unset at once"),
    ({"unset": ["warehosue"]}, "do you mean 'warehouse'"),
    ({"unset": "warehouse"}, "must be a list of texts"),
    ({"name": "pond"}, "cannot be changed"),
    ({}, "nothing is to be changed"),
    ([], "must be a mapping"),
    ({"properties": {"uri": "sqlite:////etc/other.db"}}, "database file of the server"),
    ({"unset": ["uri"]}, "'uri' is missing"),
]


def test_a_change_with_a_mistake_changes_nothing(served: Served) -> None:
    before, admin = served.house.services.manage_catalogs.entry("lake"), served.token(Role.ADMIN)
    for body, said in MISTAKES:
        answer = served.ask("PATCH", "/api/v1/catalogs/lake", admin, json=body)
        assert (answer.status_code, said in answer.text) == (400, True), answer.text
    assert served.house.services.manage_catalogs.entry("lake") == before


def test_a_secret_is_not_sent_to_a_new_address(served: Served) -> None:
    stores, admin = served.house.services.stores, served.token(Role.ADMIN)
    stores.catalogs.add(CatalogEntry("prod", {"type": "rest", "uri": "https://c.example.com", "token": "s3cret-token"}))
    for body in ({"properties": {"uri": "https://thief.example.com"}}, {"properties": {"s3.endpoint": "https://thief.example.com"}}):
        answer = served.ask("PATCH", "/api/v1/catalogs/prod", admin, json=body)
        assert (answer.status_code, "give token anew" in answer.text) == (400, True), answer.text


def test_a_key_that_the_file_holds_is_not_changed_over_http(served: Served) -> None:
    house = served.house
    entry = house.services.manage_catalogs.entry("lake")
    house.services.stores.catalogs.replace(CatalogEntry("lake", entry.properties, held={"warehouse": "file", "observe": "component"}))
    answer = served.ask("PATCH", "/api/v1/catalogs/lake", served.token(Role.ADMIN), json={"observe": True, "unset": ["warehouse"]})
    assert (answer.status_code, keys_of(answer)) == (400, {"observe", "warehouse"})
    assert "COMPACTION_CATALOGS_FILE" in answer.text
    assert "component CompactionPipeline" in answer.text


def test_an_admin_lists_and_removes_a_catalog_and_nobody_else_does(served: Served) -> None:
    admin, table = served.token(Role.ADMIN), served.house.fragmented().identifier
    served.house.services.stores.index.forget(table)
    for role in (Role.READER, Role.WRITER, Role.OPTIMIZER):
        token = served.token(role)
        for method, path in (("POST", ""), ("PATCH", "/lake"), ("DELETE", "/lake"), ("POST", "/lake/explore")):
            assert served.ask(method, f"/api/v1/catalogs{path}", token, json={}).status_code == 403
    explored = served.ask("POST", "/api/v1/catalogs/lake/explore", admin).json()
    assert explored == {"appeared": [str(table)], "dropped": [], "left_out": [], "others": {}, "not_seen": []}
    assert served.ask("GET", "/api/v1/catalogs/nobody", admin).status_code == 404
    gone = served.ask("DELETE", "/api/v1/catalogs/lake", admin)
    assert (gone.status_code, gone.json()) == (200, {"catalog": "lake", "tables": 1, "open_tasks": 0, "records": 0})
    assert served.ask("GET", "/api/v1/catalogs", admin).json() == []


def test_a_site_file_comes_over_http_and_never_goes_out_again(served: Served) -> None:
    admin, reader = served.token(Role.ADMIN), served.token(Role.READER)
    content = b"<configuration><property><name>fs.defaultFS</name><value>hdfs://Zq7vT9Lm2Kp</value></property></configuration>"
    body = {"kind": "core-site", "content": base64.b64encode(content).decode()}
    answer = served.ask("POST", "/api/v1/catalog-files", admin, json=body)
    assert answer.status_code == 201, answer.text
    stored = answer.json()
    assert (stored["kind"], stored["size_bytes"], stored["reference"]) == ("core-site", len(content), f"site:{stored['file']}")
    listed = served.ask("GET", "/api/v1/catalog-files", admin)
    assert listed.json() == [stored]
    assert "Zq7" not in listed.text
    for method, path in (("POST", "/api/v1/catalog-files"), ("GET", "/api/v1/catalog-files"), ("DELETE", "/api/v1/catalog-files/x")):
        assert served.ask(method, path, reader, json=body if method == "POST" else None).status_code == 403
    assert served.ask("DELETE", f"/api/v1/catalog-files/{stored['file']}", admin).status_code == 204
    assert served.ask("DELETE", f"/api/v1/catalog-files/{stored['file']}", admin).status_code == 404


@pytest.mark.parametrize(
    ("kind", "content", "why"),
    [
        ("core-site", b"<!DOCTYPE configuration><configuration/>", "DOCTYPE"),
        ("keytab", b"\x05\x02" + bytes(1024 * 1024), "1 MiB"),
        ("passwd", b"x", "must be one of"),
        ("core-site", None, "base64"),
    ],
)
def test_a_bad_site_file_over_http_is_refused_in_words(served: Served, kind: str, content: bytes | None, why: str) -> None:
    body = {"kind": kind, "content": "no base64!" if content is None else base64.b64encode(content).decode()}
    admin = served.token(Role.ADMIN)
    answer = served.ask("POST", "/api/v1/catalog-files", admin, json=body)
    assert (answer.status_code, why in answer.text) == (400, True), answer.text
    assert served.ask("GET", "/api/v1/catalog-files", admin).json() == []
