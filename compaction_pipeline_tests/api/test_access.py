"""Who may call which route. No route but health answers without a token, and none gives a 5xx to bad input."""

from __future__ import annotations

import pytest
from fastapi.routing import APIRoute

from compaction_pipeline.api.app import http_app
from compaction_pipeline.core.access.token import Role
from compaction_pipeline_tests.api.served import REGISTRATION, Served

OPEN = {"/health/live", "/health/ready"}
ROLES = {"/api/v1/optimizers": Role.OPTIMIZER, "/api/v1/attempts/x/complete": Role.OPTIMIZER, "/metrics": Role.READER}


def routes(served: Served) -> list[tuple[str, str]]:
    paths = served.client.get("/openapi.json").json()["paths"]
    return [(method.upper(), path.replace("{", "").replace("}", "")) for path, methods in paths.items() for method in methods]


def test_only_health_answers_without_a_token(served: Served) -> None:
    found = routes(served)
    assert len(found) > 8
    for method, path in found:
        for token in (None, "nonsense", "a.b", "a" * 10_000, served.token(Role.ADMIN)[:-1]):
            answer = served.ask(method, path, token, json={})
            if path in OPEN:
                assert answer.status_code == 200
            else:
                assert answer.status_code == 401, (method, path, answer.text)
                assert answer.headers["content-type"] == "application/problem+json"
                assert answer.json()["reason_code"] == "NO_ACCESS"


def test_each_role_has_its_routes(served: Served) -> None:
    tokens = {role: served.token(role) for role in Role}
    workers = {"/api/v1/optimizers", "/api/v1/attempts"}
    for method, path in routes(served):
        if path in OPEN:
            continue
        is_workers = any(path.startswith(each) for each in workers) and (method, path) != ("GET", "/api/v1/optimizers")
        allowed = {Role.ADMIN, Role.OPTIMIZER} if is_workers else {Role.ADMIN, Role.READER}
        of_writers = ("/commits", "/consumers/name", "/reports", "/quality", "/claims", "/deliveries")
        if path.endswith(of_writers) or (method == "POST" and path.endswith("/ready")):
            allowed = {Role.ADMIN, Role.WRITER}
        if path.endswith("/events"):
            allowed = {Role.ADMIN, Role.EVENTS}
        if path.endswith(("/drain", "/log-level", "/stack")):
            allowed = {Role.ADMIN}
        for role, token in tokens.items():
            status = served.ask(method, path, token, json={}).status_code
            assert status < 500
            if role not in allowed:
                assert status == 403, (method, path, role)
            elif path not in ("/api/v1/optimizers/optimizer_id", "/api/v1/attempts/attempt_id/complete") and "touch" not in path:
                assert status != 401


def test_a_revoked_token_is_refused_with_the_optimizers_that_registered_by_it(served: Served) -> None:
    token = served.token(Role.OPTIMIZER)
    own = served.ask("POST", "/api/v1/optimizers", token, json=REGISTRATION).json()
    path = f"/api/v1/optimizers/{own['optimizer_id']}/touch"
    assert served.ask("POST", path, own["token"], json={"running": []}).status_code == 200
    served.house.services.keep_tokens.revoke(token.partition(".")[0])
    assert served.ask("POST", path, own["token"], json={"running": []}).status_code == 401
    assert served.ask("POST", "/api/v1/optimizers", token, json=REGISTRATION).status_code == 401


def test_an_optimizer_speaks_for_itself_only(served: Served) -> None:
    one, other = served.registered(), served.registered()
    for path, body in (("touch", {"running": []}), ("poll", {"poll_id": "p"})):
        answer = served.ask("POST", f"/api/v1/optimizers/{one.optimizer_id}/{path}", other.token, json=body)
        assert answer.status_code == 403
    assert served.ask("DELETE", f"/api/v1/optimizers/{one.optimizer_id}", other.token).status_code == 403
    assert served.ask("POST", "/api/v1/optimizers", one.token, json=REGISTRATION).status_code == 403


@pytest.mark.parametrize(
    "changes",
    [
        {"group": "a b"},
        {"group": ""},
        {"parallelism": 0},
        {"parallelism": 10**9},
        {"memory_bytes": -1},
        {"memory_bytes": 2**50 + 1},
        {"merge_version": 0},
        {"merge_version": "x"},
        {"host": "h" * 201},
        {"unknown": 1},
    ],
)
def test_a_bad_registration_is_a_clear_problem(served: Served, changes: dict[str, object]) -> None:
    answer = served.ask("POST", "/api/v1/optimizers", served.token(Role.OPTIMIZER), json={**REGISTRATION, **changes})
    assert answer.status_code in (400, 422)
    assert answer.json()["reason_code"] == "INVALID_INPUT"
    assert next(iter(changes)).split("_")[0] in answer.json()["detail"]
    assert served.house.services.stores.optimizers.optimizers() == ()


def test_an_optimizer_that_merges_by_other_rules_is_told_what_to_install(served: Served) -> None:
    body = {**REGISTRATION, "merge_version": REGISTRATION["merge_version"] - 1}
    answer = served.ask("POST", "/api/v1/optimizers", served.token(Role.OPTIMIZER), json=body)
    assert answer.status_code == 400
    assert f"install compaction-pipeline {served.house.services.version}" in answer.json()["detail"]


def test_a_secret_stands_in_no_answer_of_the_state(served: Served) -> None:
    text = served.token(Role.ADMIN)
    secret = text.partition(".")[2]
    stored = served.house.services.stores.tokens.tokens()
    assert stored
    assert all(secret not in repr(token) and secret not in (token.digest, token.salt) for token in stored)


def test_every_route_is_described(served: Served) -> None:
    app = http_app(served.house.services)
    undocumented = [route.path for route in app.routes if isinstance(route, APIRoute) and not (route.endpoint.__doc__ or "").strip()]
    assert undocumented == []


def test_a_wrong_token_a_missing_one_and_a_wrong_path_are_told_apart(served: Served) -> None:
    assert "the token is not known here" in served.ask("GET", "/api/v1/groups", "a.b").json()["detail"]
    assert "send the header" in served.ask("GET", "/api/v1/groups").json()["detail"]
    assert served.ask("GET", "/nowhere").json()["detail"] == "there is no such page: /docs lists those that there are"
