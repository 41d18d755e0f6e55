"""Consumers register over HTTP what they have read."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from compaction_pipeline.core.access.token import Role
from compaction_pipeline_tests.api.served import Served
from compaction_pipeline_tests.iceberg.lake import LakeTable


def path_of(table: LakeTable, name: str = "etl") -> str:
    return f"/api/v1/tables/{quote(str(table.identifier))}/consumers/{quote(name, safe='')}"


def test_a_writer_registers_a_consumer_lets_it_read_on_and_removes_it(served: Served) -> None:
    table, token = served.house.fragmented(), served.token(Role.WRITER)
    first = table.head().snapshot_id
    made = served.ask("PUT", path_of(table), token, json={"snapshot_id": first})
    assert made.status_code == 200
    assert (made.json()["snapshot_id"], made.json()["name"], made.json()["missing_at"]) == (first, "etl", None)
    table.ids(100)
    moved = served.ask("PUT", path_of(table), token, json={"snapshot_id": table.head().snapshot_id, "days": 0.5})
    reader = served.token(Role.READER)
    assert served.ask("GET", "/api/v1/consumers", reader, params={"table": str(table.identifier)}).json() == [moved.json()]
    assert served.ask("GET", "/api/v1/consumers", reader, params={"table": "lake.db.none"}).json() == []
    assert served.ask("DELETE", path_of(table), token).status_code == 204
    assert served.ask("GET", "/api/v1/consumers", reader).json() == []
    assert served.ask("DELETE", path_of(table), token).status_code == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"snapshot_id": "1"}, 422),
        ({"snapshot_id": True}, 422),
        ({"snapshot_id": 0}, 422),
        ({"snapshot_id": 1, "days": 0}, 422),
        ({"snapshot_id": 1, "days": 367}, 422),
        ({"snapshot_id": 1, "until": "2027-01-01"}, 422),
        ({"snapshot_id": 1}, 404),
    ],
)
def test_a_body_that_breaks_a_rule_or_names_an_unknown_snapshot_registers_nothing(served: Served, body: Any, status: int) -> None:
    table = served.house.fragmented()
    assert served.ask("PUT", path_of(table), served.token(Role.WRITER), json=body).status_code == status
    assert list(served.house.services.keep_consumers.consumers()) == []


def test_a_bad_name_or_an_unknown_table_is_refused(served: Served) -> None:
    table, token = served.house.fragmented(), served.token(Role.WRITER)
    body = {"snapshot_id": table.head().snapshot_id}
    refused = served.ask("PUT", path_of(table, "a b"), token, json=body)
    assert (refused.status_code, "must be 1 to 100 letters" in refused.json()["detail"]) == (400, True)
    assert served.ask("PUT", "/api/v1/tables/lake.db.none/consumers/etl", token, json=body).status_code == 404
    assert served.ask("PUT", "/api/v1/tables/none.db.t/consumers/etl", token, json=body).status_code == 404


def test_only_a_writer_and_an_admin_change_consumers(served: Served) -> None:
    table = served.house.fragmented()
    body = {"snapshot_id": table.head().snapshot_id}
    for role in (Role.READER, Role.OPTIMIZER):
        assert served.ask("PUT", path_of(table), served.token(role), json=body).status_code == 403
        assert served.ask("DELETE", path_of(table), served.token(role)).status_code == 403
    assert served.ask("PUT", path_of(table), served.token(Role.ADMIN), json=body).status_code == 200
    assert served.ask("GET", "/api/v1/consumers", served.token(Role.OPTIMIZER)).status_code == 403
