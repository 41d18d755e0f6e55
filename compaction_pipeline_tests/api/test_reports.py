"""Writers report their commits over HTTP."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.tables.commit_report import TOGETHER
from compaction_pipeline_tests.api.served import Served
from compaction_pipeline_tests.iceberg.lake import LakeTable


def body_of(table: LakeTable, **more: Any) -> dict[str, Any]:
    head = table.head()
    return {"snapshot_id": head.snapshot_id, "sequence_number": head.sequence_number, **more}


def path_of(name: object) -> str:
    return f"/api/v1/tables/{quote(str(name))}/commits"


def test_a_reported_commit_is_planned_within_seconds(served: Served) -> None:
    table, services = served.house.fragmented(files=12), served.house.services
    token = served.token(Role.WRITER)
    answer = served.ask("POST", path_of(table.identifier), token, json=body_of(table, added=[{"partition": "", "files": 12}]))
    assert answer.json() == {"accepted": True, "why": "the table is looked at within seconds"}
    assert services.stores.reports.reported()[0].urgency == 12
    served.house.now += TOGETHER
    services.run_ticks.look_at_reported()
    assert services.read_tasks.queue_counts().pending == 1
    again = served.ask("POST", path_of(table.identifier), token, json=body_of(table))
    assert again.json()["accepted"] is False
    assert services.stores.reports.reported() == ()


def test_a_replayed_report_is_answered_by_the_same_look(served: Served) -> None:
    table = served.house.fragmented(files=1)
    token, body = served.token(Role.WRITER), body_of(table, added=[{"files": 3}])
    for _ in range(3):
        assert served.ask("POST", path_of(table.identifier), token, json=body).json()["accepted"] is True
    [reported] = served.house.services.stores.reports.reported()
    assert (reported.reports, reported.urgency) == (1, 3)


def test_a_reported_watermark_counts_for_its_table_as_long_as_main_has_the_snapshot(served: Served) -> None:
    table, other = served.house.fragmented("t", files=1), served.house.fragmented("u", files=1)
    token, reader = served.token(Role.WRITER), served.token(Role.READER)
    before = table.table.refresh().metadata.current_snapshot_id
    assert before is not None
    table.ids(900)
    for when in ("2026-01-02T00:00:00+01:00", "2026-01-02T00:00:00Z"):
        answer = served.ask("POST", path_of(table.identifier), token, json=body_of(table, watermark=when))
        assert answer.json()["accepted"] is True

    def watermark(of: LakeTable) -> Any:
        return served.ask("GET", path_of(of.identifier).replace("/commits", "/watermark"), reader).json()["watermark"]

    assert (watermark(table)["key"], watermark(table)["at"][:19]) == ("reported", "2026-01-02T00:00:00")
    assert watermark(other) is None
    table.table.manage_snapshots().rollback_to_snapshot(before).commit()
    assert watermark(table) is None


def test_a_watermark_of_a_snapshot_that_the_table_does_not_have_is_refused(served: Served) -> None:
    table = served.house.fragmented(files=1)
    body = {"snapshot_id": 5, "watermark": "2026-01-02T00:00:00Z"}
    answer = served.ask("POST", path_of(table.identifier), served.token(Role.WRITER), json=body)
    assert (answer.status_code, "has no snapshot 5" in answer.json()["detail"]) == (404, True)
    without_zone = {**body_of(table), "watermark": "2026-01-02T00:00:00"}
    assert served.ask("POST", path_of(table.identifier), served.token(Role.WRITER), json=without_zone).status_code in (400, 422)


@pytest.mark.parametrize(("name", "status"), [("lake.db.nowhere", 404), ("nowhere.db.t", 404), ("t", 400), ("lake.`db.t", 400)])
def test_a_wrong_table_is_a_clear_problem(served: Served, name: str, status: int) -> None:
    served.house.fragmented(files=1)
    answer = served.ask("POST", path_of(name), served.token(Role.WRITER), json={"snapshot_id": 1})
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert name.rpartition(".")[2].strip("`") in answer.json()["detail"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"snapshot_id": "x"},
        {"snapshot_id": 2**63},
        {"snapshot_id": -1},
        {"snapshot_id": 0},
        {"snapshot_id": 1, "sequence_number": -1},
        {"snapshot_id": 1, "unknown": 1},
        {"snapshot_id": 1, "added": [{"files": -1}]},
        {"snapshot_id": 1, "added": [{"files": 2**31}]},
        {"snapshot_id": 1, "added": [{"partition": "p" * 2_001, "files": 1}]},
        {"snapshot_id": 1, "added": [{"files": 1}] * 1_001},
        [],
        None,
    ],
)
def test_a_report_that_is_none_changes_nothing(served: Served, body: object) -> None:
    table = served.house.fragmented(files=1)
    answer = served.ask("POST", path_of(table.identifier), served.token(Role.WRITER), json=body)
    assert answer.status_code == 422
    assert answer.json()["reason_code"] == "INVALID_INPUT"
    assert served.house.services.stores.reports.reported() == ()


def test_a_body_that_is_no_json_says_where(served: Served) -> None:
    table = served.house.fragmented(files=1)
    token, path = served.token(Role.WRITER), path_of(table.identifier)
    as_json = {"Authorization": f"Bearer {token}", "Content-Type": "application/json; charset=utf-8"}
    answer = served.client.post(path, headers=as_json, content='{"snapshot_id": 1,\n  snapshot: 2}')
    says = "the body is not JSON: key must be a string at line 2 column 3; correct it, and send it again"
    assert (answer.status_code, answer.json()["detail"], answer.json()["key"]) == (422, says, "body")


@pytest.mark.parametrize(
    ("sent_as", "says"),
    [
        ({}, "the body has no content type, but this service reads JSON alone: send the header 'Content-Type: application/json'"),
        ({"Content-Type": "text/plain; charset=utf-8"}, "the body has the content type 'text/plain', but"),
    ],
)
def test_a_body_that_is_not_sent_as_json_is_refused(served: Served, sent_as: dict[str, str], says: str) -> None:
    table = served.house.fragmented(files=1)
    headers = {"Authorization": f"Bearer {served.token(Role.WRITER)}", **sent_as}
    answer = served.client.post(path_of(table.identifier), headers=headers, content='{"snapshot_id": 1}')
    assert (answer.status_code, answer.headers["content-type"]) == (415, "application/problem+json")
    assert answer.json()["detail"].startswith(says)
    assert served.house.services.stores.reports.reported() == ()
