"""Who sends a body is known before it is read, each route bounds it, and it is parsed beside the event loop."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest

from compaction_pipeline.api import bodies
from compaction_pipeline.api.large_bodies import OF_ONE_AT_ONCE, LargeBodies, NoTurn
from compaction_pipeline.api.wrong_tokens import MOST, REMEMBERED, WrongTokens
from compaction_pipeline.core.access.body_bounds import COMMIT_REPORT, MOST_ERRORS_TOLD, OTHER, REPORT, TOUCH, BodyBounds
from compaction_pipeline.core.access.rate import BURST, BYTES_OF_ONE
from compaction_pipeline.core.access.token import Role
from compaction_pipeline_tests.api.served import REGISTRATION, Served
from compaction_pipeline_tests.api.sockets import answer_on, connected, listening
from compaction_pipeline_tests.builders import NOW

REGISTER = "/api/v1/optimizers"


def test_the_body_of_nobody_is_not_waited_for(served: Served) -> None:
    with listening(served) as port:
        for authorization in ("", "Authorization: Bearer a.b\r\n"):
            head = f"POST {REGISTER} HTTP/1.1\r\nHost: x\r\n{authorization}Content-Type: application/json\r\nContent-Length: 7900000\r\n"
            with connected(port, f"{head}Expect: 100-continue\r\n\r\n".encode()) as nobody:
                # Nothing of the body was sent, and the server does not ask for it either.
                assert answer_on(nobody).startswith(b"HTTP/1.1 401")


def test_a_wrong_token_that_comes_again_and_again_costs_one_look(served: Served) -> None:
    keep_tokens = served.house.services.keep_tokens
    with mock.patch.object(keep_tokens, "check", wraps=keep_tokens.check) as check:
        for _ in range(50):
            assert served.ask("GET", "/api/v1/groups", "0123.4567").status_code == 401
        assert check.call_count == 1
        served.house.pass_time(REMEMBERED.total_seconds())
        assert served.ask("GET", "/api/v1/groups", "0123.4567").status_code == 401
        assert check.call_count == 2


def test_wrong_tokens_are_remembered_for_a_while_and_only_so_many_of_them() -> None:
    now = [NOW]
    wrong = WrongTokens(lambda: now[0])
    for number in range(MOST + 1):
        wrong.add(f"{number}.\udc80")
    assert not wrong.has("0.\udc80")
    assert wrong.has("1.\udc80")
    assert wrong.has(f"{MOST}.\udc80")
    now[0] += REMEMBERED - timedelta(seconds=1)
    assert wrong.has("1.\udc80")
    now[0] += timedelta(seconds=1)
    assert not wrong.has("1.\udc80")


@pytest.fixture
def doors(served: Served) -> list[tuple[str, str, BodyBounds]]:
    """(path, token, bounds) of each kind of route with a body."""
    worker = served.registered()
    return [
        (f"/api/v1/attempts/{'a' * 12}/complete", worker.token, REPORT),
        ("/api/v1/tables/lake.db.t/commits", served.token(Role.WRITER), COMMIT_REPORT),
        (f"{REGISTER}/{worker.optimizer_id}/touch", worker.token, TOUCH),
        (f"{REGISTER}/{worker.optimizer_id}/poll", worker.token, OTHER),
        (REGISTER, served.token(Role.OPTIMIZER), OTHER),
        ("/api/v1/groups", served.token(Role.ADMIN), OTHER),
    ]


def test_each_route_has_its_bound(served: Served, doors: list[tuple[str, str, BodyBounds]]) -> None:
    for path, token, bounds in doors:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        for length, status in ((bounds.most_bytes, 422), (bounds.most_bytes + 1, 413)):
            body = b'"' + b"x" * (length - 2) + b'"'

            def parts(body: bytes = body) -> Iterator[bytes]:
                yield body[:100]
                yield body[100:]

            for content in (body, parts()):
                served.house.pass_time(60)
                answer = served.client.post(path, headers=headers, content=content)
                expected = 400 if (status, path.endswith("complete")) == (422, True) else status
                assert (answer.status_code, answer.json()["reason_code"]) == (expected, "INVALID_INPUT"), (path, length, answer.text)
                if status == 413:
                    assert answer.json()["detail"].startswith("a body may have at most ")


def test_a_body_may_not_become_too_many_values(served: Served, doors: list[tuple[str, str, BodyBounds]]) -> None:
    for path, token, bounds in doors:
        marks = bounds.most_marks + 1
        if marks < bounds.most_bytes:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            answer = served.client.post(path, headers=headers, content=b"[" * marks)
            assert (answer.status_code, "too many values" in answer.json()["detail"]) == (413, True)


def test_a_body_that_is_nested_too_deep_is_no_crash(served: Served, doors: list[tuple[str, str, BodyBounds]]) -> None:
    for path, token, _ in doors:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        answer = served.client.post(path, headers=headers, content=b'{"a":' * 1_000 + b"1" + b"}" * 1_000)
        assert (answer.status_code, "recursion limit exceeded" in answer.json()["detail"]) == (422, True)


def test_only_so_many_errors_are_told(served: Served) -> None:
    for count in (3, MOST_ERRORS_TOLD, 500, 1_500):
        body = {**REGISTRATION, **{f"k{number}": number for number in range(count)}}
        answer = served.ask("POST", REGISTER, served.token(Role.OPTIMIZER), json=body)
        detail = answer.json()["detail"]
        assert answer.status_code == 422
        if count == 1_500:
            assert detail.startswith("1,500 of its values are wrong; see the description of the body at /docs; correct it")
            continue
        assert detail.count("Extra inputs are not permitted") == min(count, MOST_ERRORS_TOLD)
        assert (f"; and {count - MOST_ERRORS_TOLD} more; correct it" in detail) == (count > MOST_ERRORS_TOLD)


def test_a_wrong_value_is_not_repeated(served: Served) -> None:
    answer = served.ask("POST", REGISTER, served.token(Role.OPTIMIZER), json={**REGISTRATION, "parallelism": "s3cret"})
    assert (answer.status_code, answer.json()["key"]) == (422, "body.parallelism")
    assert "s3cret" not in answer.text


@pytest.mark.parametrize(("length", "beside"), [(1024, False), (1025, True)])
def test_bodies_that_are_not_small_are_parsed_beside_the_event_loop(served: Served, length: int, beside: bool) -> None:
    threads: list[str] = []
    real = bodies._json

    def noted(text: bytes) -> Any:
        threads.append(threading.current_thread().name)
        return real(text)

    token = served.token(Role.WRITER)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    body = b'{"reports": []}'.ljust(length)
    with mock.patch.object(bodies, "_json", noted):
        assert served.client.post("/api/v1/dependencies/reports", headers=headers, content=body).status_code == 422
    assert ["worker thread" in name for name in threads] == [beside]


def test_the_bytes_of_bodies_count_for_the_limit_of_their_token(served: Served) -> None:
    token = served.token(Role.WRITER)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    body = json.dumps({"x": "y" * (COMMIT_REPORT.most_bytes - 100)}).encode()
    each = 1 + len(body) // BYTES_OF_ONE
    answers = [served.client.post("/api/v1/tables/lake.db.t/commits", headers=headers, content=body) for _ in range(int(BURST) // each + 1)]
    assert {answer.status_code for answer in answers[:-1]} == {422}
    assert answers[-1].status_code == 429
    assert "KiB of a body" in answers[-1].json()["detail"]


@pytest.mark.parametrize("bound", ["MOST_AT_ONCE", "MOST_AT_ONCE_TOGETHER"])
def test_a_token_has_only_so_many_requests_at_once(bound: str, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"compaction_pipeline.api.security.{bound}", 1)
    token = served.token(Role.OPTIMIZER)
    worker, sibling, other = served.registered(token), served.registered(token), served.registered()
    second = worker if bound == "MOST_AT_ONCE" else sibling
    taken, answered = threading.Event(), threading.Event()

    def take(*_: object) -> tuple[()]:
        taken.set()
        assert answered.wait(60)
        return ()

    with mock.patch.object(served.house.services.serve_optimizers, "poll", take), ThreadPoolExecutor(1) as pool:
        poll = pool.submit(worker.poll)
        assert taken.wait(60)
        path = f"/api/v1/optimizers/{second.optimizer_id}/touch"
        refused = served.ask("POST", path, second.token, json={"running": []})
        other.touch()
        answered.set()
        assert poll.result() == []
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    worker.touch()


def test_one_sender_has_only_some_of_the_places_for_large_bodies() -> None:
    async def scene() -> None:
        large = LargeBodies()
        done = asyncio.Event()

        async def hold(sender: str) -> None:
            async with large.place(sender, 30):
                await done.wait()

        held = [asyncio.create_task(hold("one")) for _ in range(OF_ONE_AT_ONCE)]
        await asyncio.sleep(0)
        with pytest.raises(NoTurn):
            async with large.place("one", 0.01):
                raise AssertionError("nobody has a third place")
        async with large.place("another", 0.01):
            done.set()
        await asyncio.gather(*held)
        async with large.place("one", 0.01):
            pass
        assert not large._of

    asyncio.run(scene())


def test_a_body_that_is_no_json_is_a_clear_problem(served: Served) -> None:
    headers = {"Authorization": f"Bearer {served.token(Role.OPTIMIZER)}", "Content-Type": "application/json"}
    for body in (b"", b"{", b"\xff\xfe", b'{"a": NaN}', b'"\\ud800"'):
        answer = served.client.post(REGISTER, headers=headers, content=body)
        assert (answer.status_code, answer.json()["key"]) == (422, "body")
        assert answer.json()["detail"].startswith(("the body is not JSON: ", "body: this route needs a body"))


def test_a_remembered_wrong_token_gets_the_same_answer_as_at_first_and_health_needs_none(served: Served) -> None:
    first, again = (served.ask("GET", "/api/v1/groups", "0123.4567") for _ in range(2))
    assert (first.status_code, first.json(), first.headers["www-authenticate"]) == (401, again.json(), "Bearer")
    assert (again.status_code, again.headers) == (401, first.headers)
    assert served.ask("GET", "/metrics", "0123.4567").status_code == 401
    assert served.ask("GET", "/health/live", "0123.4567").status_code == 200
    assert served.ask("GET", "/openapi.json", "0123.4567").status_code == 200


def test_a_token_that_does_not_wait_costs_no_look_until_it_may_ask_again(served: Served) -> None:
    worker, keep_tokens = served.registered(), served.house.services.keep_tokens
    path = f"{REGISTER}/{worker.optimizer_id}/touch"
    with mock.patch("compaction_pipeline.api.rate_limit.after_request", lambda before, now, requests: (before, 0.01)):
        first = served.ask("POST", path, worker.token, json={"running": []})
    with mock.patch.object(keep_tokens, "check", wraps=keep_tokens.check) as check:
        again = served.ask("POST", path, worker.token, json={"running": []})
        assert (first.status_code, again.status_code, again.json(), again.headers["retry-after"]) == (429, 429, first.json(), "1")
        assert check.call_count == 0
        served.house.pass_time(1)
        worker.touch()


def in_parts(content: bytes) -> Iterator[bytes]:
    """A body of which the headers do not say how long it is."""
    for position in range(0, len(content), 100):
        yield content[position : position + 100]


def sent(served: Served, path: str, token: str, content: bytes | Iterator[bytes], method: str = "POST") -> Any:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    return served.client.request(method, path, headers=headers, content=content)


@pytest.mark.parametrize("content", [b'{"type": "FULL"}', b"[]", b"null", b"{", b'{"a": 1}' + b" " * 5_000, b"x" * 1_000_000])
def test_a_body_of_a_route_that_takes_none_is_refused_and_nothing_is_done(served: Served, content: bytes) -> None:
    table, admin = served.house.fragmented().identifier, served.token(Role.ADMIN)
    refused = "body: this route takes no body, but the request has one; nothing was done, so send it without"
    for verb in ("pause", "compact"):
        for body in (content, in_parts(content)):
            served.house.pass_time(60)
            answer = sent(served, f"/api/v1/tables/{table}/{verb}", admin, body)
            assert (answer.status_code, answer.json().get("key"), answer.json()["detail"]) == (422, "body", refused)
    assert not served.house.services.stores.tables.state(table).paused
    assert served.house.services.read_tasks.queue_counts().pending == 0
    worker = served.registered()
    assert sent(served, f"{REGISTER}/{worker.optimizer_id}", worker.token, content, "DELETE").status_code == 422
    worker.touch()


@pytest.mark.parametrize("content", [b"", b"{}", b" \r\n{\t} "])
def test_an_empty_body_and_an_empty_object_are_no_body(served: Served, content: bytes) -> None:
    table, admin = served.house.fragmented().identifier, served.token(Role.ADMIN)
    for body in (content, in_parts(content)):
        assert sent(served, f"/api/v1/tables/{table}/pause", admin, body).status_code == 200
    assert served.house.services.stores.tables.state(table).paused


def test_whoever_may_not_use_a_route_is_not_told_whether_it_takes_a_body(served: Served) -> None:
    path = "/api/v1/tables/lake.db.t/pause"
    assert sent(served, path, "wrong.token", b"[]").status_code == 401
    assert sent(served, path, served.token(Role.READER), b"[]").status_code == 403


GROUP = {"group": "g"}
POLL = {"poll_id": "p"}
COMMIT = {"snapshot_id": 1}


@pytest.mark.parametrize(
    ("kind", "body", "key"),
    [
        ("register", {**REGISTRATION, "parallelism": "2"}, "parallelism"),
        ("register", {**REGISTRATION, "parallelism": True}, "parallelism"),
        ("register", {**REGISTRATION, "merge_version": "1"}, "merge_version"),
        ("register", {**REGISTRATION, "memory_bytes": False}, "memory_bytes"),
        ("register", {**REGISTRATION, "host": 7}, "host"),
        ("poll", {**POLL, "free_slots": "1"}, "free_slots"),
        ("poll", {**POLL, "wait_seconds": "0"}, "wait_seconds"),
        ("poll", {**POLL, "wait_seconds": False}, "wait_seconds"),
        ("commit", {"snapshot_id": "7"}, "snapshot_id"),
        # This is how a library writes a number that has lost its last digits.
        ("commit", {"snapshot_id": 4.358109269898342e18}, "snapshot_id"),
        ("commit", {**COMMIT, "sequence_number": True}, "sequence_number"),
        ("commit", {**COMMIT, "added": [{"files": "1"}]}, "added.0.files"),
        ("group", {**GROUP, "capacity": "5"}, "capacity"),
    ],
)
def test_a_value_of_another_type_is_refused(served: Served, kind: str, body: dict[str, Any], key: str) -> None:
    worker = served.registered()
    path, token = {
        "register": (REGISTER, served.token(Role.OPTIMIZER)),
        "poll": (f"{REGISTER}/{worker.optimizer_id}/poll", worker.token),
        "commit": ("/api/v1/tables/lake.db.t/commits", served.token(Role.WRITER)),
        "group": ("/api/v1/groups", served.token(Role.ADMIN)),
    }[kind]
    answer = served.ask("POST", path, token, json=body)
    assert (answer.status_code, answer.json()["key"]) == (422, f"body.{key}"), answer.text


def test_whole_seconds_and_the_names_of_orders_are_values_of_their_types(served: Served) -> None:
    worker = served.registered()
    assert served.ask("POST", f"{REGISTER}/{worker.optimizer_id}/poll", worker.token, json={**POLL, "wait_seconds": 0}).status_code == 200
    group = {**GROUP, "order": "fifo", "capacity": 5}
    assert served.ask("POST", "/api/v1/groups", served.token(Role.ADMIN), json=group).json()["order"] == "fifo"


@pytest.mark.parametrize(
    ("content", "key"),
    [
        (b'{"snapshot_id": 1, "snapshot_id": 2}', "snapshot_id"),
        (b'{"snapshot_id": 1, "snapshot\\u005fid": 1}', "snapshot_id"),
        (b'{"snapshot_id": 1, "added": [{"files": 1}, {"files": 1, "partition": "a", "files": 2}]}', "files"),
    ],
)
def test_an_object_with_one_key_twice_is_refused_because_only_one_of_the_values_would_count(
    served: Served, content: bytes, key: str
) -> None:
    answer = sent(served, "/api/v1/tables/lake.db.t/commits", served.token(Role.WRITER), content)
    assert (answer.status_code, answer.json()["key"]) == (422, f"body.{key}")
    assert f"an object has the key '{key}' twice" in answer.json()["detail"]
