"""The route that lists the files of a node of a plain table. `keyed/test_listed_files.py` has those of keyed tables."""

from __future__ import annotations

from compaction_pipeline.core.access.token import Role
from compaction_pipeline_tests.api.served import Served


def test_the_files_of_a_node_of_a_plain_table_are_those_of_its_last_refresh(served: Served) -> None:
    table = served.house.fragmented(files=3)
    services = served.house.services
    services.refresh_files.refresh(table.identifier)
    [key] = services.read_tables.nodes(table.identifier)
    answer = served.ask("GET", f"/api/v1/tables/{table.identifier}/nodes/{key}/files", served.token(Role.READER)).json()
    assert answer["total"] == 3
    assert {file["path"] for file in answer["files"]} == {file.path for file in table.files()}
    assert {(file["store"], file["holds"], file["merged"], file["hides"]) for file in answer["files"]} == {("TABLE", "rows", False, None)}
    assert served.ask("GET", f"/api/v1/tables/lake.db.none/nodes/{key}/files", served.token(Role.READER)).status_code == 404
