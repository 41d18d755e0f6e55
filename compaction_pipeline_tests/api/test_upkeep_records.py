"""Readers see over HTTP what upkeep did."""

from __future__ import annotations

from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.upkeep.works import UpkeepWork
from compaction_pipeline_tests.api.served import Served
from compaction_pipeline_tests.services.upkeep.cleaning import delete, looked_at, roomy, stray
from compaction_pipeline_tests.services.upkeep.expiring import DAY, expired


def test_a_reader_sees_the_records_of_all_works_newest_first(served: Served) -> None:
    house, reader = served.house, served.token(Role.READER)
    assert served.ask("GET", "/api/v1/upkeep/records", reader).json() == []
    table = roomy(house, "t", commit__manifest__min_count_to_merge="2")
    house.services.commit_upkeep.carry_out(table.identifier, UpkeepWork.MANIFESTS)
    house.pass_time(6 * DAY)
    expiry = expired(house, table)
    path = stray(table)
    looked_at(house, table)
    [deletion] = delete(house, table, accept_share=1.0).deletions
    found = served.ask("GET", "/api/v1/upkeep/records", reader, params={"table": str(table.identifier)}).json()
    assert [one["record_id"] for one in found[:2]] == [deletion.record_id, expiry.record_id]
    assert path in {file["path"] for file in found[0]["files"]}
    assert (found[1]["table"], found[1]["status"]) == (str(table.identifier), "REMOVED")
    assert found[2]["target"]["work"] == UpkeepWork.MANIFESTS.value
    assert found[1]["created_at"].endswith("+00:00")
    assert served.ask("GET", "/api/v1/upkeep/records", reader, params={"limit": 1}).json() == found[:1]


def test_records_of_a_table_that_nobody_knows_are_not_found_and_nobody_else_may_ask(served: Served) -> None:
    reader = served.token(Role.READER)
    assert served.ask("GET", "/api/v1/upkeep/records", reader, params={"table": "lake.db.none"}).status_code == 404
    assert served.ask("GET", "/api/v1/upkeep/records", reader, params={"limit": 0}).status_code == 422
    assert served.ask("GET", "/api/v1/upkeep/records", None).status_code == 401
