"""Teams over HTTP: an asset system sets them as often as it likes, and only an admin changes limits, loans and the whitelist."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from threading import Event, Semaphore
from unittest import mock

from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.capacity.scaling.action import Action, ActionKind, Direction, PastAction
from compaction_pipeline.core.capacity.scaling.target import Target
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.core.queue.drain import Drain, Takes
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.core.queue.merge_version import MERGE_VERSION
from compaction_pipeline.core.queue.optimizer import Registration
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline_tests.api.served import Served
from compaction_pipeline_tests.behaviours.example_tasks import example

TRIED = PastAction(
    Action(ActionKind.OPTIMIZERS, Direction.OUT, Target(0, 2), Target(1, 2), "5 tasks wait"),
    datetime(2026, 11, 28, tzinfo=timezone.utc),
    "p",
)


def test_a_team_is_put_shown_and_deleted(served: Served) -> None:
    token, reader = served.token(Role.ADMIN), served.token(Role.READER)
    body = {"slots": 2, "gb_hours": 1.5, "owners": ["ann"]}
    made = served.ask("PUT", "/api/v1/teams/shop", token, json=body)
    assert made.status_code == 200
    assert made.json()["limits"] == {"slots": 2, "memory_bytes": None, "gb_hours": 1.5}
    assert served.ask("PUT", "/api/v1/teams/shop", token, json=body).json() == made.json()
    (change,) = served.ask("GET", "/api/v1/team-changes", reader, params={"team": "shop"}).json()
    assert (change["what"], change["who"].split()[0], change["before"]) == ("limits and owners", "token", None)
    assert [team["team"] for team in served.ask("GET", "/api/v1/teams", reader).json()] == ["shop", "unassigned"]
    stopped = served.ask("PUT", "/api/v1/teams/shop", token, json={"slots": 0}).json()
    assert stopped["held"] == "team shop uses 0 of 0 slots"
    assert stopped["lifts"] == ["GB-hours a day (was 1.5)", "owners (were ann)"]
    assert served.ask("GET", "/api/v1/team-changes", reader, params={"team": "ghost"}).status_code == 404
    assert served.ask("POST", "/api/v1/teams/shop/whitelist", token, json={"reason": "a release"}).status_code == 200
    shown = served.ask("GET", "/api/v1/teams/shop", reader).json()
    assert shown["whitelisted_until"]
    assert "held" not in shown
    assert served.ask("DELETE", "/api/v1/teams/shop", token).status_code == 204
    assert served.ask("GET", "/api/v1/teams/shop", reader).status_code == 404
    assert served.ask("DELETE", "/api/v1/teams/unassigned", token).status_code == 400


def test_a_loan_is_asked_for_approved_and_ended(served: Served) -> None:
    token, reader = served.token(Role.ADMIN), served.token(Role.READER)
    for name in ("shop", "lake"):
        served.ask("PUT", f"/api/v1/teams/{name}", token, json={"slots": 4})
    body = {"lender": "lake", "borrower": "shop", "slots": 3, "days": 2}
    loan = served.ask("POST", "/api/v1/loans", token, json=body).json()
    assert loan["began_at"] is None
    begun = served.ask("POST", f"/api/v1/loans/{loan['loan_id']}/approve", token, json={"consent": "Bob"})
    assert (begun.status_code, begun.json()["consent"]) == (200, "Bob")
    assert served.ask("GET", "/api/v1/loans", reader).json() == [begun.json()]
    assert served.ask("GET", "/api/v1/teams/shop", reader).json()["allowed"]["slots"] == 7
    refused = served.ask("PUT", "/api/v1/teams/lake", token, json={"slots": 2})
    assert (refused.status_code, "must be at least 3" in refused.json()["detail"]) == (400, True)
    assert served.ask("DELETE", f"/api/v1/loans/{loan['loan_id']}", token).json()["ended_at"] is not None
    assert served.ask("GET", "/api/v1/loans", reader).json() == []
    assert served.ask("POST", "/api/v1/loans", token, json={**body, "gb_hours": 1}).status_code == 400
    assert served.ask("POST", "/api/v1/loans", token, json={**body, "lender": "ghost"}).status_code == 404


def test_a_table_is_given_to_a_team_and_taken_away(served: Served) -> None:
    token, reader = served.token(Role.ADMIN), served.token(Role.READER)
    served.ask("PUT", "/api/v1/teams/shop", token, json={})
    table = str(served.house.fragmented().identifier)
    path = f"/api/v1/team-mapping/{table}"
    for _ in range(2):
        assert served.ask("PUT", path, token, json={"team": "shop"}).json() == {"target": table, "team": "shop"}
    assert served.ask("GET", "/api/v1/team-mapping", reader).json() == {table: "shop"}
    changes = served.ask("GET", "/api/v1/team-changes", reader, params={"team": "shop"}).json()
    assert [change["what"] for change in changes] == [f"mapping of {table}", "limits and owners"]
    assert served.ask("PUT", "/api/v1/team-mapping/attic", token, json={"team": "shop"}).json()["warning"].startswith("no table or catalog")
    assert served.ask("PUT", "/api/v1/team-mapping/lake.shop", token, json={"team": "shop"}).status_code == 400
    assert served.ask("PUT", path, token, json={"team": "ghost"}).status_code == 404
    for _ in range(2):
        assert served.ask("DELETE", path, token).status_code == 204
    assert served.ask("GET", "/api/v1/team-mapping", reader).json() == {"attic": "shop"}


def test_the_dry_run_of_a_policy_is_that_of_the_command(served: Served) -> None:
    reader, services = served.token(Role.READER), served.house.services
    path = "/api/v1/scaling/heavy/dry-run"
    assert served.ask("GET", path, reader).status_code == 404
    services.stores.groups.add(ResourceGroup("heavy", "workers"))
    refused = served.ask("GET", path, reader)
    assert (refused.status_code, "lacks 'dynamic-allocation.max-parallelism'" in refused.json()["detail"]) == (400, True)
    assert served.ask("GET", path, reader, params={"hours": 193}).status_code == 422
    with mock.patch.object(services.read_scaling, "dry_run", return_value=(TRIED,)) as tried:
        assert served.ask("GET", path, reader, params={"hours": 12}).json() == [plain(TRIED)]
    tried.assert_called_once_with("heavy", 12)


def test_dry_runs_wait_for_each_other_and_keep_nobody_else_waiting(served: Served) -> None:
    readers = [served.token(Role.READER) for _ in range(3)]
    begun, goes_on, running, most = Semaphore(0), Event(), [0], [0]

    def slow(*_: object) -> tuple[PastAction, ...]:
        running[0] += 1
        most[0] = max(most[0], running[0])
        begun.release()
        assert goes_on.wait(60)
        running[0] -= 1
        return (TRIED,)

    with mock.patch.object(served.house.services.read_scaling, "dry_run", slow), ThreadPoolExecutor(len(readers)) as askers:
        asked = [askers.submit(served.ask, "GET", "/api/v1/scaling/heavy/dry-run", reader) for reader in readers]
        try:
            assert begun.acquire(timeout=60)
            # While one counts, others are answered, and no second one begins.
            for _ in range(5):
                assert served.ask("GET", "/api/v1/scaling", readers[0]).status_code == 200
        finally:
            goes_on.set()
        assert [one.result().json() for one in asked] == [[plain(TRIED)]] * len(readers)
    assert most == [1]


def test_only_an_admin_changes_teams(served: Served) -> None:
    for role in (Role.READER, Role.WRITER, Role.OPTIMIZER):
        token = served.token(role)
        assert served.ask("PUT", "/api/v1/teams/shop", token, json={"slots": 1}).status_code == 403
        assert served.ask("POST", "/api/v1/loans", token, json={}).status_code == 403
        assert served.ask("PUT", "/api/v1/team-mapping/lake", token, json={"team": "shop"}).status_code == 403
        assert served.ask("DELETE", "/api/v1/team-mapping/lake", token).status_code == 403


def test_nothing_of_a_team_over_its_limit_begins_by_any_door(served: Served) -> None:
    """A thousand tasks wait when the limit is set. An optimizer over HTTP, one at the state database and a run get none of them."""
    services, table = served.house.services, served.house.fragmented().identifier
    services.one_table.refresh(table)
    token = served.token(Role.ADMIN)
    served.ask("PUT", "/api/v1/teams/shop", token, json={"slots": 50})
    services.manage_teams.map(str(table), "shop", "root")
    waiting = [example(f"t{number:04}", table=table) for number in range(1_000)]
    assert services.stores.tasks.insert(waiting, [], served.house.now, team="shop")
    worker = served.registered(parallelism=4)
    (begun,) = worker.poll("first")
    served.ask("PUT", "/api/v1/teams/shop", token, json={"slots": 1})
    served.house.pass_time(5)
    assert worker.poll("second", slots=4) == []
    at_state = services.serve_optimizers.register(Registration("default", "host", "1", "1", MERGE_VERSION, 4))
    assert services.serve_tasks.poll_many(at_state.optimizer_id, "default", 4) == ()
    assert services.serve_tasks.poll("a run", None) is None
    assert services.serve_tasks.poll("a run", None, [task.task_id for task in waiting]) is None
    services.work_on_queue.drain("a run", Drain(Takes.only([task.task_id for task in waiting[:50]])))
    counts = services.stores.tasks.counts()
    assert (counts[TaskStatus.PENDING], counts[TaskStatus.EXECUTING], sum(counts.values())) == (999, 1, 1_000)
    assert 'compaction_queue_tasks{group="default",queue="default",state="held"} 999.0' in served.ask("GET", "/metrics", token).text
    assert begun["task"]["task_id"] in {task.task_id for task in waiting}
