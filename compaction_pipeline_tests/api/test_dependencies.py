"""Outside schedulers ask over HTTP whether data is ready, and writers report that it is."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from compaction_pipeline.core.access.token import Role
from compaction_pipeline_tests.api.served import Served
from compaction_pipeline_tests.iceberg.lake import LakeTable

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "dt", StringType()))
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "dt"))
NEW_YEAR = "dt=20260101"


def daily(served: Served, rule: str) -> LakeTable:
    properties = {"compaction.ready-when": rule, "compaction.ready-time": "dt,yyyyMMdd,UTC"}
    return served.house.lake.table("daily", SCHEMA, SPEC, properties=properties)


def path_of(table: LakeTable, verb: str = "ready") -> str:
    return f"/api/v1/tables/{quote(str(table.identifier))}/{verb}"


def test_a_writer_reports_a_partition_and_a_reader_asks_for_it_and_for_its_window(served: Served) -> None:
    table, reader, writer = daily(served, "reported"), served.token(Role.READER), served.token(Role.WRITER)
    window = {"from": "2026-01-01T00:00Z", "to": "2026-01-02T00:00:00+00:00"}
    before = served.ask("GET", path_of(table), reader, params={"partition": NEW_YEAR})
    assert before.status_code == 200, before.text
    assert (before.json()["ready"], before.json()["answers"][0]["rule"]) == (False, "reported")
    made = served.ask("POST", path_of(table), writer, json={"partition": NEW_YEAR})
    assert (made.status_code, made.json()["ready"], made.json()["what"]) == (200, True, NEW_YEAR)
    assert served.ask("GET", path_of(table), reader, params=window).json()["ready"] is True
    two = served.ask("GET", path_of(table), reader, params={"partition": [NEW_YEAR, "dt=20260102"]}).json()
    assert (two["ready"], [one["ready"] for one in two["answers"]]) == (False, [True, False])
    back = served.ask("POST", path_of(table), writer, json={"partition": NEW_YEAR, "ready": False})
    assert (back.json()["ready"], back.json()["withdrawals"]) == (False, 1)


def test_only_a_writer_and_an_admin_report(served: Served) -> None:
    table = daily(served, "reported")
    for role in (Role.READER, Role.OPTIMIZER, Role.EVENTS):
        assert served.ask("POST", path_of(table), served.token(role), json={"partition": NEW_YEAR}).status_code == 403
    assert served.ask("GET", path_of(table), served.token(Role.WRITER), params={"partition": NEW_YEAR}).status_code == 403


def test_a_table_without_a_watermark_says_so(served: Served) -> None:
    table, reader = daily(served, "watermark"), served.token(Role.READER)
    found = served.ask("GET", path_of(table, "watermark"), reader).json()
    assert (found["watermark"], found["heads"]) == (None, [None])
    answer = served.ask("GET", path_of(table), reader, params={"partition": NEW_YEAR}).json()["answers"][0]
    assert (answer["ready"], answer["why"][:26]) == (False, "the table has no watermark")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({}, "name partitions, such as day=2026-01-01, in partition, or give a window by from and to"),
        ({"partition": NEW_YEAR, "from": "2026-01-01T00:00Z", "to": "2026-01-02T00:00Z"}, "name partitions"),
        ({"from": "2026-01-01T00:00Z"}, "belong together"),
        ({"from": "2026-01-01", "to": "2026-01-02"}, "no time with a zone"),
        ({"from": "2026-01-02T00:00Z", "to": "2026-01-01T00:00Z"}, "is empty"),
        ({"partition": "day=2026-01-01"}, "no such partition field"),
        ({"partition": "dt=2026-01-01"}, "means no time"),
    ],
)
def test_a_wrong_question_is_refused_in_words(served: Served, query: dict[str, str], words: str) -> None:
    answer = served.ask("GET", path_of(daily(served, "reported")), served.token(Role.READER), params=query)
    assert answer.status_code == 400
    assert words in answer.json()["detail"]


def test_an_unknown_table_is_not_found(served: Served) -> None:
    for name in ("lake.db.none", "none.db.t"):
        asked = served.ask("GET", f"/api/v1/tables/{name}/ready", served.token(Role.READER), params={"partition": NEW_YEAR})
        assert asked.status_code == 404


def test_without_a_receiver_nothing_can_be_awaited(served: Served) -> None:
    table = daily(served, "reported")
    answer = served.ask("POST", path_of(table, "awaited"), served.token(Role.READER), json={"partitions": [NEW_YEAR]})
    assert answer.status_code == 400
    assert "set COMPACTION_READY_CALLBACK_URL" in answer.json()["detail"]
