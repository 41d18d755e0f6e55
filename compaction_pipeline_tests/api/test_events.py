"""Catalogs tell of commits by events: the table is looked at, nothing that an event says is believed, and its token may do nothing else.

Neither catalog has recorded events in its tests. These are built after the sources of the senders: Lakekeeper's
`crates/lakekeeper/src/service/events/publisher.rs` at commit 90892e9cc1b515826fe07d2e2797a5620ec3e613, and Polaris's
`extensions/events/kafka/.../EventToJsonMapper.java`, with the values of its `KafkaEventListenerTest`, at commit
4b42186383089e2083ba857a0211c4ab36965703. The sender is the SDK of CloudEvents.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from cloudevents.core.bindings.http import to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent as StrictEvent
from cloudevents.v1.http import CloudEvent, to_binary, to_json, to_structured

from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.tables.catalog_events import report_of
from compaction_pipeline.core.tables.commit_report import TOGETHER, CommitReport
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline_tests.api.served import Served
from compaction_pipeline_tests.iceberg.lake import LakeTable

PATH = "/api/v1/catalogs/lake/events"
WAREHOUSE = "0192b3c4-0000-7000-8000-000000000001"


def commit_request(snapshot_id: int, number: int, files: str = "12") -> dict[str, Any]:
    """The request of a commit, as Lakekeeper puts it into the event."""
    snapshot = {"snapshot-id": snapshot_id, "sequence-number": number, "summary": {"operation": "append", "added-data-files": files}}
    refs = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}
    return {"requirements": [{"type": "assert-table-uuid"}], "updates": [{"action": "add-snapshot", "snapshot": snapshot}, refs]}


def lakekeepers(name: str = "t", namespace: str = "db", data: object = None, type: str = "updateTable", **more: Any) -> CloudEvent:
    attributes = {
        "type": type,
        "source": "uri:iceberg-catalog-service:host",
        "datacontenttype": "application/json",
        "tabular-type": "table",
        "tabular-id": "0192b3c4-0000-7000-8000-000000000002",
        "warehouse-id": WAREHOUSE,
        "name": name,
        "namespace": namespace,
        "prefix": "",
        "num-events": 1,
        "sequence-number": 0,
        "trace-id": "0192b3c4-0000-7000-8000-000000000003",
        "actor": '{"type":"anonymous"}',
        **more,
    }
    return CloudEvent(attributes, commit_request(7, 1) if data is None else data)


def polariss(type: str = "AFTER_UPDATE_TABLE", **more: Any) -> dict[str, Any]:
    return {
        "event_type": type,
        "event_id": "9f2c6f2e-6a53-4a0a-9d4c-5f0e2f4f0d11",
        "timestamp": "2026-08-21T14:17:47Z",
        "table_name": "t",
        "namespace": ["db"],
        "catalog_name": "test_catalog",
        "realm_id": "test-realm",
        "principal": "test-user",
        "activated_roles": ["role1", "role2"],
        **more,
    }


def sent(served: Served, headers: Any, body: bytes | str, token: str | None = None) -> dict[str, Any]:
    token = token or served.token(Role.EVENTS)
    answer = served.client.request("POST", PATH, headers={"Authorization": f"Bearer {token}", **headers}, content=body)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def in_each_mode(event: CloudEvent) -> dict[str, tuple[Any, bytes | str]]:
    (headers, body), binary = to_structured(event), to_binary(event)
    batch = f"[{to_json(event).decode()},{to_json(event).decode()}]"
    return {
        "structured": (headers, body),
        "batched": ({"content-type": "application/cloudevents-batch+json; charset=utf-8"}, batch),
        "binary": ({name: str(value) for name, value in binary[0].items()}, binary[1]),
    }


def is_looked_at(served: Served, table: LakeTable) -> bool:
    services = served.house.services
    assert [one.table for one in services.stores.reports.reported()] == [table.identifier]
    served.house.now += TOGETHER
    services.run_ticks.look_at_reported()
    assert services.stores.reports.reported() == ()
    return services.read_tasks.queue_counts().pending == 1


@pytest.mark.parametrize("mode", ["structured", "batched", "binary"])
def test_an_event_of_lakekeeper_has_its_table_looked_at_within_two_seconds(served: Served, mode: str) -> None:
    table = served.house.fragmented(files=12)
    headers, body = in_each_mode(lakekeepers(data=commit_request(table.head().snapshot_id or 0, 1)))[mode]
    assert sent(served, headers, body) == {"tables": 1, "left_out": 0, "why": []}
    assert served.house.services.stores.reports.reported()[0].urgency == 12
    assert is_looked_at(served, table)
    # The same event again: its snapshot is known now.
    assert sent(served, headers, body)["tables"] == 0


@pytest.mark.parametrize("wrapped", ["alone", "array", "structured", "binary"])
def test_an_event_of_polaris_has_its_table_looked_at(served: Served, wrapped: str) -> None:
    table = served.house.fragmented(files=12)
    attributes = {
        "type": "org.apache.polaris",
        "source": "/polaris",
        "id": "1",
        "specversion": "1.0",
        "datacontenttype": "application/json",
    }
    event = StrictEvent(attributes, polariss())
    message = to_structured_event(event) if wrapped == "structured" else to_binary_event(event)
    headers: Any = dict(message.headers) if wrapped in ("structured", "binary") else {"Content-Type": "application/json"}
    body: Any = {"alone": json.dumps(polariss()), "array": json.dumps([polariss()])}.get(wrapped, message.body)
    assert sent(served, headers, body)["tables"] == 1
    assert is_looked_at(served, table)


def test_an_event_is_not_believed(served: Served) -> None:
    """It names a snapshot that the table never had, and a million files: the look finds nothing new, and nothing is planned."""
    table = served.house.fragmented(files=2)
    services = served.house.services
    services.refresh_files.refresh(table.identifier)
    headers, body = to_structured(lakekeepers(data=commit_request(2**62, 99, "1000000")))
    assert sent(served, headers, body)["tables"] == 1
    assert not is_looked_at(served, table)
    known = services.stores.tables.state(table.identifier)
    assert known.whole is not None
    assert known.index.last_snapshot_id == table.head().snapshot_id


def test_a_table_that_nobody_knew_is_found_by_its_event(served: Served) -> None:
    served.house.fragmented(files=1)
    new = served.house.lake.table("new")
    new.ids(1)
    headers, body = to_structured(lakekeepers("new"))
    assert sent(served, headers, body)["tables"] == 1
    assert served.house.services.stores.tables.state(new.identifier).table == new.identifier


LEFT_OUT: dict[str, Any] = {
    "'dropTable' is no commit to a table": json.loads(to_json(lakekeepers(type="dropTable"))),
    "it is of a 'view'": json.loads(to_json(lakekeepers(**{"tabular-type": "view"}))),
    "'BEFORE_UPDATE_TABLE' is no commit to a table": polariss("BEFORE_UPDATE_TABLE"),
    "it names no table with its namespace": polariss(namespace=[]),
    "it is no object of JSON": 7,
    "it has neither the 'type' of a CloudEvent nor the 'event_type' of Polaris": {},
    "'None' is no commit to a table": {"type": None},
    "table lake.db.nowhere is not known": json.loads(to_json(lakekeepers("nowhere"))),
}


def test_what_is_no_commit_is_left_out_with_a_reason_and_stops_no_other_event(served: Served) -> None:
    table = served.house.fragmented(files=12)
    events = [*LEFT_OUT.values(), polariss()]
    answer = sent(served, {"Content-Type": "application/cloudevents-batch+json"}, json.dumps(events))
    assert (answer["tables"], answer["left_out"]) == (1, len(LEFT_OUT))
    assert all(any(why.startswith(expected) for why in answer["why"]) for expected in LEFT_OUT), answer["why"]
    assert is_looked_at(served, table)


def test_an_event_of_another_warehouse_is_left_out_where_the_registration_tells() -> None:
    theirs = json.loads(to_json(lakekeepers()))
    assert isinstance(report_of(theirs, "lake", {"prefix": WAREHOUSE}), CommitReport)
    assert "but 'lake' has the prefix 'other'" in str(report_of(theirs, "lake", {"prefix": "other"}))
    assert isinstance(report_of(polariss(), "lake", {"uri": "https://polaris", "warehouse": "test_catalog"}), CommitReport)
    assert "but 'lake' has the warehouse 'other'" in str(report_of(polariss(), "lake", {"uri": "https://polaris", "warehouse": "other"}))
    assert isinstance(report_of(polariss(), "lake", {"uri": "sqlite:////c.db", "warehouse": "file:///wh"}), CommitReport)


@pytest.mark.parametrize(
    "namespace", ["a\x1fb.c", "a%1Fb%2Ec"], ids=["as iceberg-rust joins levels", "percent-encoded, as in a URL or a header"]
)
def test_levels_of_a_namespace_are_told_apart(namespace: str) -> None:
    report = report_of(json.loads(to_json(lakekeepers("t", namespace))), "lake", {})
    assert isinstance(report, CommitReport)
    assert report.table == TableIdentifier("lake", ("a", "b.c"), "t")


def test_attributes_without_dashes_are_understood_too() -> None:
    event = {"type": "updateTable", "id": "1", "tabulartype": "table", "warehouseid": WAREHOUSE, "name": "t", "namespace": "db"}
    report = report_of(event, "lake", {"prefix": WAREHOUSE})
    assert isinstance(report, CommitReport)
    # It names no snapshot, so a number of its own stands for it, the same for the same event.
    assert report.snapshot_id < 0
    assert report == report_of(event, "lake", {})
    assert report != report_of({**event, "id": "2"}, "lake", {})


def test_a_lost_event_costs_nothing(served: Served) -> None:
    table = served.house.fragmented(files=12)
    services = served.house.services
    services.sweep_tables.sweep(None, timedelta(minutes=1))
    assert services.stores.tables.state(table.identifier).whole is not None


def test_a_catalog_that_does_not_answer_lets_the_sender_try_again(served: Served) -> None:
    served.house.fragmented(files=1)
    stores = served.house.services.stores
    stores.catalogs.replace(CatalogEntry("lake", {"type": "rest", "uri": "http://127.0.0.1:9"}))
    headers, body = to_structured(lakekeepers("unknown"))
    token = served.token(Role.EVENTS)
    answer = served.client.request("POST", PATH, headers={"Authorization": f"Bearer {token}", **headers}, content=body)
    assert (answer.status_code, answer.json()["reason_code"]) == (503, "UNAVAILABLE")


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"Content-Type": "text/plain"}, "{}", 415),
        ({"Content-Type": "application/cloudevents+json"}, "{", 422),
        ({"Content-Type": "application/cloudevents-batch+json"}, json.dumps([{}] * 1_001), 413),
        ({"Content-Type": "application/cloudevents+json"}, json.dumps({"data": "x" * 600_000}), 413),
    ],
)
def test_a_request_that_is_none_is_a_clear_problem(served: Served, headers: dict[str, str], body: str, status: int) -> None:
    token = served.token(Role.EVENTS)
    answer = served.client.request("POST", PATH, headers={"Authorization": f"Bearer {token}", **headers}, content=body)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert served.house.services.stores.reports.reported() == ()


def test_an_unknown_catalog_is_not_found(served: Served) -> None:
    answer = served.ask("POST", PATH.replace("lake", "nowhere"), served.token(Role.EVENTS), json=polariss())
    assert answer.status_code == 404
