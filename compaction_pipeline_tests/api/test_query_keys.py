from __future__ import annotations

import pytest

from compaction_pipeline.core.access.token import Role
from compaction_pipeline_tests.api.served import Served

KNOWN = "the keys that it knows are node, type"


@pytest.mark.parametrize(
    ("method", "path", "exist"),
    [
        ("POST", "/api/v1/tables/lake.db.t/compact", KNOWN),
        ("GET", "/api/v1/tables/lake.db.t/plan", KNOWN),
        ("GET", "/api/v1/tasks", "the keys that it knows are limit, status, table"),
        ("POST", "/api/v1/tables/lake.db.t/pause", "it knows none"),
        ("GET", "/api/v1/groups/default", "it knows none"),
        ("DELETE", "/api/v1/optimizers/one", "the keys that it knows are failed, why"),
    ],
)
def test_a_key_that_a_route_does_not_know_is_refused(served: Served, method: str, path: str, exist: str) -> None:
    answer = served.ask(method, path, served.token(Role.ADMIN), params={"nonsense": "secret"})
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    told = answer.json()
    assert told["key"] == "query.nonsense"
    assert told["detail"] == f"query: this route knows no key 'nonsense' there: {exist}; correct the key, or leave it out"


def test_what_load_balancers_and_scrapers_ask_may_have_keys_of_their_own(served: Served) -> None:
    for path in ("/metrics", "/health/live", "/health/ready", "/openapi.json"):
        assert served.ask("GET", path, served.token(Role.READER), params={"nonsense": "1"}).status_code == 200


def test_whoever_has_no_right_token_learns_nothing_about_keys(served: Served) -> None:
    assert served.ask("GET", "/api/v1/tasks?nonsense=1").status_code == 401
    assert served.ask("GET", "/api/v1/tasks?nonsense=1", "wrong.token").status_code == 401
    assert served.ask("POST", "/api/v1/tables/lake.db.t/compact?nonsense=1", served.token(Role.READER)).status_code == 403


def test_a_method_that_a_path_does_not_take_is_answered_with_those_that_it_takes(served: Served) -> None:
    for path, taken in (("tables", "GET"), ("groups", "GET, POST"), ("groups/default", "DELETE, GET, PATCH")):
        answer = served.ask("PUT", f"/api/v1/{path}", served.token(Role.ADMIN))
        assert (answer.status_code, answer.headers["allow"]) == (405, taken)
        assert answer.json()["detail"] == f"this path does not take PUT: it takes {taken}"


@pytest.mark.parametrize(
    ("method", "path", "query", "key"),
    [
        ("GET", "/api/v1/tasks", "limit=abc&limit=3", "limit"),
        ("GET", "/api/v1/tasks", "table=lake.db.t&limit=3&table=lake.db.u", "table"),
        ("POST", "/api/v1/tables/lake.db.t/compact", "type=FULL&type=MINOR", "type"),
    ],
)
def test_a_key_that_is_given_twice_is_refused_because_only_one_of_the_values_would_count(
    served: Served, method: str, path: str, query: str, key: str
) -> None:
    answer = served.ask(method, f"{path}?{query}", served.token(Role.ADMIN))
    assert (answer.status_code, answer.json()["key"]) == (422, f"query.{key}")
    assert answer.json()["detail"] == f"query: this route takes the key {key!r} once, but it is there again; give it once"


def test_a_key_of_several_values_is_given_once_for_each(served: Served) -> None:
    assert served.ask("GET", "/api/v1/tasks?status=FAILED&status=PENDING", served.token(Role.READER)).status_code == 200
