"""Groups and queues over HTTP."""

from __future__ import annotations

from compaction_pipeline.core.access.token import Role
from compaction_pipeline_tests.api.conftest import Served

HEAVY = {"group": "heavy", "capacity": 50, "order": "quota", "container": "external", "properties": {"instances": "2"}}


def test_an_admin_makes_changes_and_deletes_groups(served: Served) -> None:
    admin = served.token(Role.ADMIN)
    made = served.ask("POST", "/api/v1/groups", admin, json=HEAVY)
    assert (made.status_code, made.json()) == (201, HEAVY)
    assert served.ask("POST", "/api/v1/groups", admin, json=HEAVY).status_code == 400
    changed = served.ask("PATCH", "/api/v1/groups/heavy", admin, json={"capacity": 7, "properties": {}})
    assert changed.json() == {**HEAVY, "capacity": 7, "properties": {}}
    assert served.ask("GET", "/api/v1/groups/heavy", served.token(Role.READER)).json() == changed.json()
    assert [group["group"] for group in served.ask("GET", "/api/v1/groups", admin).json()] == ["default", "heavy"]
    assert served.ask("DELETE", "/api/v1/groups/heavy", admin).status_code == 204
    assert served.ask("DELETE", "/api/v1/groups/heavy", admin).status_code == 404
    in_use = served.ask("DELETE", "/api/v1/groups/default", admin)
    assert (in_use.status_code, "cannot be deleted" in in_use.json()["detail"]) == (400, True)


def test_only_an_admin_changes_groups(served: Served) -> None:
    for role in (Role.READER, Role.WRITER, Role.OPTIMIZER):
        token = served.token(role)
        assert served.ask("POST", "/api/v1/groups", token, json=HEAVY).status_code == 403
        assert served.ask("PATCH", "/api/v1/groups/default", token, json={"capacity": 1}).status_code == 403
        assert served.ask("DELETE", "/api/v1/groups/default", token).status_code == 403
    assert served.house.services.manage_groups.group("default").queue.capacity == 10_000


def test_a_reader_sees_what_waits_in_each_queue(served: Served) -> None:
    table = served.house.fragmented().identifier
    served.house.services.compact_table.refresh(table)
    served.house.services.plan_tables.plan(table)
    [queue] = served.ask("GET", "/api/v1/queues", served.token(Role.READER)).json()
    assert (queue["group"], queue["waiting"], queue["free"], queue["order"]) == ("default", 1, 9_999, "priority")
