"""Groups and queues over HTTP."""

from __future__ import annotations

from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState
from compaction_pipeline_tests.api.served import Served

HEAVY = {"group": "heavy", "capacity": 50, "order": "quota", "container": "external", "properties": {"instances": "2"}}


def test_an_admin_makes_changes_and_deletes_groups(served: Served) -> None:
    admin = served.token(Role.ADMIN)
    made = served.ask("POST", "/api/v1/groups", admin, json=HEAVY)
    useless = "instances of group heavy has no effect, because people start the optimizers of container external; "
    assert (made.status_code, made.json()) == (
        201,
        {**HEAVY, "warning": f"{useless}name a container of kind local or spark or yarn or kubernetes"},
    )
    unknown = served.ask("POST", "/api/v1/groups", admin, json={**HEAVY, "group": "light", "properties": {"instnaces": "2"}})
    assert (unknown.status_code, "did you mean 'instances'?" in unknown.json()["detail"]) == (400, True)
    assert served.ask("POST", "/api/v1/groups", admin, json=HEAVY).status_code == 400
    changed = served.ask("PATCH", "/api/v1/groups/heavy", admin, json={"capacity": 7, "properties": {"memory": "5"}})
    assert changed.json()["properties"] == {"instances": "2", "memory": "5"}
    changed = served.ask("PATCH", "/api/v1/groups/heavy", admin, json={"properties": {"instances": "", "memory": ""}})
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


def test_an_admin_sees_containers_and_the_command_of_a_group_and_no_reader_does(served: Served) -> None:
    admin = served.token(Role.ADMIN)
    assert served.ask("GET", "/api/v1/containers", admin).json() == [{"container": "external", "kind": "external", "properties": {}}]
    command = served.ask("GET", "/api/v1/groups/default/command", admin).json()
    assert command[:6] == ["compaction-pipeline", "optimizer", "--server", "https://SERVER:8787", "--group", "default"]
    assert served.ask("GET", "/api/v1/groups/heavy/command", admin).status_code == 404
    served.ask("POST", "/api/v1/groups", admin, json={**HEAVY, "container": "workers"})
    unknown = served.ask("GET", "/api/v1/groups/heavy/command", admin)
    assert (unknown.status_code, "has no container 'workers'" in unknown.json()["detail"]) == (400, True)
    reader = served.token(Role.READER)
    for path in ("/api/v1/containers", "/api/v1/groups/default/command"):
        assert served.ask("GET", path, reader).status_code == 403


def test_an_optimizer_that_a_container_has_started_registers_in_the_place_that_waits_for_it(served: Served) -> None:
    optimizers, now = served.house.services.stores.optimizers, served.house.now
    row = Optimizer("o1", "default", "here", "", "", 1, now, now, OptimizerState.STARTING, resource_id="r", container="workers")
    assert optimizers.begin(row, 1)
    admin = served.token(Role.ADMIN)
    for door in ("drain", "stack"):
        refused = served.ask("POST", f"/api/v1/optimizers/o1/{door}", admin)
        assert (refused.status_code, "has not registered yet" in refused.json()["detail"]) == (404, True)
    worker = served.registered(resource_id="r")
    assert worker.optimizer_id == "o1"
    assert worker.touch() == {"lost": [], "drain": False, "why": "", "log_level": "", "stack_request": ""}
    [listed] = served.ask("GET", "/api/v1/optimizers", admin).json()
    assert (listed["state"], listed["container"], listed["resource_id"], listed["parallelism"]) == ("RUNNING", "workers", "r", 2)


def test_a_reader_sees_why_a_group_gets_no_optimizers(served: Served) -> None:
    served.ask("POST", "/api/v1/groups", served.token(Role.ADMIN), json={**HEAVY, "container": "workers"})
    now = served.house.now
    for number in range(3):
        lost = Optimizer(f"o{number}", "heavy", "here", "", "", 1, now, now, OptimizerState.LOST, container="workers", why="no token")
        served.house.services.stores.optimizers.add(lost)
    reader = served.token(Role.READER)
    assert "the last time: no token" in served.ask("GET", "/api/v1/groups/heavy", reader).json()["problem"]
    assert ["problem" in group for group in served.ask("GET", "/api/v1/groups", reader).json()] == [False, True]


def test_a_reader_sees_what_waits_in_each_queue(served: Served) -> None:
    table = served.house.fragmented().identifier
    served.house.services.one_table.refresh(table)
    served.house.services.plan_tables.plan(table)
    [queue] = served.ask("GET", "/api/v1/queues", served.token(Role.READER)).json()
    assert (queue["group"], queue["waiting"], queue["free"], queue["order"]) == ("default", 1, 9_999, "priority")
