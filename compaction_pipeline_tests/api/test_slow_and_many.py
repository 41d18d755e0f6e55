"""Slow clients, too many requests, and requests that are no HTTP: each is ended or refused, and others are served meanwhile."""

from __future__ import annotations

import json
import time

import pytest

from compaction_pipeline.api.patience import Patience
from compaction_pipeline.api.problems import Problem
from compaction_pipeline.api.rate_limit import RateLimit
from compaction_pipeline.core.access.rate import BURST, COST_OF_OWN
from compaction_pipeline.core.access.token import Role
from compaction_pipeline_tests.api.served import REGISTRATION, Served, Worker
from compaction_pipeline_tests.api.sockets import PATIENCE_SECONDS, READY, answer_on, connected, listening, rest_on
from compaction_pipeline_tests.builders import NOW

IMPATIENT = Patience(header_seconds=0.3)


@pytest.mark.parametrize("sent", [b"", b"GET /hea", b"GET /health/live HTTP/1.1\r\nHost: x\r\nX-Slow: "])
def test_headers_that_do_not_come_end_the_connection(served: Served, sent: bytes) -> None:
    with listening(served, patience=IMPATIENT) as port, connected(port, sent) as slow:
        assert answer_on(slow) == b""


def test_headers_byte_by_byte_get_no_more_time_and_others_are_served(served: Served) -> None:
    with listening(served, patience=IMPATIENT) as port, connected(port, READY[:20]) as slow:
        slow.settimeout(0.02)
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            assert time.monotonic() < until, "the connection was not ended"
            try:
                slow.sendall(b"x")
                with connected(port, READY) as other:
                    assert b"200 OK" in answer_on(other)
                if slow.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                break


def test_the_second_request_of_a_connection_has_the_same_deadline(served: Served) -> None:
    with listening(served, patience=IMPATIENT) as port, connected(port, READY) as slow:
        first = answer_on(slow)
        slow.sendall(READY[:10])
        # The body of the first answer may come later than its head. Nothing follows it.
        answers = first + rest_on(slow)
    assert b"200 OK" in answers
    assert answers.endswith(b'{"ok":true}')


@pytest.mark.parametrize("sent", [b"no HTTP\r\n\r\n", b'GET /health/live HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "x|y\r\n\r\n'])
def test_bytes_that_are_no_request_are_answered_with_a_problem(served: Served, sent: bytes) -> None:
    with listening(served) as port, connected(port, sent) as broken:
        answer = b""
        while part := answer_on(broken):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in head
    assert "Invalid HTTP request received: " in Problem(**json.loads(body)).detail


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_request_with_two_lengths_is_refused_and_what_follows_is_no_request(served: Served, version: str) -> None:
    head = f"POST /health/live HTTP/{version}\r\nHost: x\r\nConnection: keep-alive\r\n"
    both = b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    with listening(served) as port, connected(port, head.encode() + both + READY) as smuggler:
        answer = b""
        while part := answer_on(smuggler):
            answer += part
    head_of_answer, _, body = answer.partition(b"\r\n\r\n")
    assert head_of_answer.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in head_of_answer.lower()
    assert "Content-Length and Transfer-Encoding do not come together" in Problem(**json.loads(body)).detail


def test_a_request_that_is_worked_on_is_not_ended(served: Served) -> None:
    worker = served.registered()
    body = b'{"poll_id": "p", "wait_seconds": 1}'
    path = f"/api/v1/optimizers/{worker.optimizer_id}/poll"
    start = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head = f"{start}Authorization: Bearer {worker.token}\r\nContent-Length: {len(body)}\r\n\r\n"
    with listening(served, patience=IMPATIENT) as port, connected(port, head.encode() + body) as waiting:
        # The server answers after a second. The deadline of the headers would have passed long before.
        assert b"200 OK" in answer_on(waiting)


def test_what_is_no_http_is_refused(served: Served) -> None:
    refused = {
        b"\x00\x01\x02\r\n\r\n": 400,
        b"GET /health/live HTTP/1.1\r\n\r\n": 400,
        b"GET /health/live HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100_000 + b"\r\n\r\n": 431,
        b"POST /api/v1/optimizers HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n": 400,
        b"POST /api/v1/optimizers HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n": 400,
        b"GET /a\x00b HTTP/1.1\r\nHost: x\r\n\r\n": 400,
        # A version that does not exist is served as HTTP/1.1 is, and there is no such page.
        b"GET / HTTP/9.9\r\n\r\n": 404,
    }
    with listening(served) as port:
        for sent, status in refused.items():
            with connected(port, sent) as odd:
                assert answer_on(odd).startswith(f"HTTP/1.1 {status} ".encode()), sent[:80]
            with connected(port, READY) as other:
                assert b"200 OK" in answer_on(other)


def test_a_body_that_does_not_come_is_answered_with_408(served: Served) -> None:
    head = f"POST /api/v1/optimizers HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {served.token(Role.OPTIMIZER)}\r\n"
    with listening(served, patience=Patience(body_seconds=0.05)) as port:
        sent = head + "Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{"
        with connected(port, sent.encode()) as slow:
            assert answer_on(slow).startswith(b"HTTP/1.1 408")


def test_a_body_that_a_route_does_not_take_is_not_waited_for_without_end(served: Served) -> None:
    head = f"POST /api/v1/tables/lake.db.t/pause HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {served.token(Role.ADMIN)}\r\n"
    with listening(served, patience=Patience(body_seconds=0.05)) as port:
        for length, status in ((10, 408), (5_000, 422)):
            with connected(port, f"{head}Content-Length: {length}\r\n\r\n".encode()) as slow:
                assert answer_on(slow).startswith(f"HTTP/1.1 {status}".encode())


def test_a_token_that_asks_too_often_waits_and_others_do_not(served: Served) -> None:
    worker, other = served.registered(), served.registered()
    path = f"/api/v1/optimizers/{worker.optimizer_id}/touch"
    # The registration was counted, and an optimizer has requests of its own.
    asked = [served.ask("POST", path, worker.token, json={"running": []}) for _ in range(int(BURST) + int(BURST) // COST_OF_OWN)]
    assert {answer.status_code for answer in asked[:-1]} == {200}
    refused = asked[-1]
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["reason_code"] == "UNAVAILABLE"
    other.touch()
    served.house.pass_time(1)
    worker.touch()


def test_optimizers_of_one_issued_token_share_its_limit_and_each_heartbeat_gets_through(served: Served) -> None:
    token = served.token(Role.OPTIMIZER)
    greedy, other, stranger = served.registered(token), served.registered(token), served.registered()

    def touch(worker: Worker) -> int:
        return served.ask("POST", f"/api/v1/optimizers/{worker.optimizer_id}/touch", worker.token, json={"running": []}).status_code

    # Two registrations were counted already.
    own = int(BURST) // COST_OF_OWN
    assert {touch(greedy) for _ in range(int(BURST) - 2 + own)} == {200}
    assert touch(greedy) == 429
    assert served.ask("POST", "/api/v1/optimizers", token, json=REGISTRATION).status_code == 429
    # The other one has its own requests, and no more.
    assert [touch(other) for _ in range(own + 1)] == [200] * own + [429]
    assert touch(stranger) == 200
    served.house.pass_time(1)
    assert (touch(other), touch(greedy)) == (200, 200)


def test_so_many_optimizers_of_one_issued_token_are_live(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compaction_pipeline.services.queue.serve_optimizers.MOST_OF_ONE_TOKEN", 2)
    token = served.token(Role.OPTIMIZER)
    first, _ = served.registered(token), served.registered(token)
    refused = served.ask("POST", "/api/v1/optimizers", token, json=REGISTRATION)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "60")
    assert "are live, and more may not be: end some, or issue another token" in refused.json()["detail"]
    served.registered()
    assert served.ask("DELETE", f"/api/v1/optimizers/{first.optimizer_id}", first.token).status_code == 204
    served.registered(token)


def test_reading_is_not_limited(served: Served) -> None:
    token = served.token(Role.READER)
    assert {served.ask("GET", "/api/v1/optimizers", token).status_code for _ in range(int(BURST) + 5)} == {200}


def test_tokens_that_may_make_a_whole_burst_are_forgotten() -> None:
    now = [NOW]
    limit = RateLimit(lambda: now[0], most_remembered=3)
    for token in ("a", "b"):
        assert limit.take(token) == 0
    now[0] = NOW.replace(year=NOW.year + 1)
    assert limit.take("c") == 0
    assert list(limit._left) == ["c"]
