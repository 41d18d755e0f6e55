"""The route that lists tables answers the health score of each, with its parts and its sentences."""

from __future__ import annotations

from compaction_pipeline.core.access.token import Role
from compaction_pipeline_tests.api.served import Served


def test_a_table_is_answered_with_the_parts_of_its_score_and_both_sentences(served: Served) -> None:
    table = served.house.fragmented(files=12, self_optimizing__target_size="20000")
    unread = served.ask("GET", "/api/v1/tables", served.token(Role.READER)).json()
    served.house.services.refresh_files.refresh(table.identifier)
    [found] = served.ask("GET", "/api/v1/tables", served.token(Role.READER)).json()
    parts = found["score"]["parts"]
    assert set(parts) == {"total", "small_files", "equality_deletes", "position_deletes"}
    assert parts["total"] == parts["small_files"] + parts["equality_deletes"] + parts["position_deletes"]
    assert found["score"]["reason"]
    assert set(found["score"]["after"]) == {"MINOR", "MAJOR", "FULL"}
    assert found["score"]["outlook"] == "a MINOR would leave about 100 points, a MAJOR 100, a FULL 100"
    assert found["read_costs"].endswith("with 1 snapshot; a reader of one partition opens 1 of 1 manifest")
    assert found["score"]["remedy"] == "`compaction-pipeline plan` says what is due"
    assert [each["score"]["parts"] for each in unread] == [None for _ in unread]
    schema = served.ask("GET", "/openapi.json", served.token(Role.READER)).json()["paths"]["/api/v1/tables"]["get"]["responses"]["200"]
    properties = schema["content"]["application/json"]["schema"]["items"]["properties"]
    assert set(properties["score"]["properties"]) == {"parts", "reason", "remedy", "after", "outlook"}
