"""Connections without a valid token take no room from others, and headers are bounded."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from ipaddress import ip_network

import pytest

from compaction_pipeline.api.connections import MOST_UNFINISHED, MOST_UNFINISHED_OF_ONE, MOST_UNKNOWN, Connections
from compaction_pipeline.api.patient_protocol import FREE_CHUNKS, MOST_HEADERS
from compaction_pipeline.api.problems import Problem
from compaction_pipeline.api.serve import Listening, check_listening
from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline_tests.api.served import Served
from compaction_pipeline_tests.api.sockets import READY, answer_on, connected, listening, rest_on


@dataclass(eq=False)
class Noted:
    """A connection that notes in which order the connections are closed."""

    name: int
    closed: list[int] = field(default_factory=list)

    def close_for_others(self) -> None:
        self.closed.append(self.name)


def many(count: int) -> tuple[list[Noted], list[int]]:
    closed: list[int] = []
    return [Noted(number, closed) for number in range(count)], closed


def test_the_oldest_connection_with_incomplete_headers_is_closed() -> None:
    each, closed = many(MOST_UNFINISHED + 2)
    all_of_them = Connections()
    for one in each:
        all_of_them.unfinished(one, f"10.0.{one.name // 250}.{one.name % 250}")
    assert closed == [0, 1]


@pytest.mark.parametrize("host", ["10.0.0.1", "2001:db8::{:x}", "::ffff:10.0.0.1", "fe80::{:x}%eth0", "", "no address"])
def test_the_oldest_one_of_the_same_address_is_closed(host: str) -> None:
    each, closed = many(MOST_UNFINISHED_OF_ONE + 2)
    all_of_them = Connections()
    all_of_them.unfinished(Noted(-1, closed), "10.9.9.9")
    for one in each:
        all_of_them.unfinished(one, host.format(one.name))
    assert closed == [0, 1]


def test_a_proxy_may_have_more_connections_than_others() -> None:
    each, closed = many(MOST_UNFINISHED + 1)
    all_of_them = Connections(ip_network("10.0.0.0/24"))
    for one in each:
        all_of_them.unfinished(one, "10.0.0.7")
    assert closed == [0]


def test_connections_without_a_valid_token_are_bounded_apart_and_known_ones_are_not_counted() -> None:
    each, closed = many(MOST_UNKNOWN + 3)
    all_of_them = Connections()
    for one in each:
        all_of_them.unfinished(one, "10.0.0.1")
        all_of_them.unknown(one, "10.0.0.1")
        if one.name == 0:
            all_of_them.gone(one)
    assert closed == [1, 2]


def test_a_proxy_must_have_an_address() -> None:
    assert Listening("0.0.0.0", 1, behind_proxy="10.0.0.7").proxy == ip_network("10.0.0.7/32")
    assert Listening("0.0.0.0", 1, behind_proxy="10.0.0.7/24").proxy == ip_network("10.0.0.0/24")
    for wrong in ("", "--port", "proxy.example.com", "10.0.0"):
        with pytest.raises(ConfigError, match=r"--behind-proxy is '.*' but must be the address from which your proxy connects"):
            check_listening(Listening("127.0.0.1", 1, behind_proxy=wrong))


def test_half_open_connections_give_way_and_health_is_answered(served: Served) -> None:
    worker = served.registered()
    with listening(served, connections=Connections(most_unfinished_of_one=4, most_unknown=4)) as port:
        idle = [connected(port, READY) for _ in range(4)]
        assert all(b"200 OK" in answer_on(each) for each in idle)
        body = b'{"poll_id": "p", "wait_seconds": 1}'
        head = f"POST /api/v1/optimizers/{worker.optimizer_id}/poll HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        polls = connected(port, f"{head}Authorization: Bearer {worker.token}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        half_open = [connected(port, READY[:20]) for _ in range(8)]
        for _ in range(5):
            with connected(port, READY) as other:
                assert b"200 OK" in answer_on(other)
        # All of these were older than the connections that got their places.
        assert [answer_on(each) for each in half_open[:4]] == [b""] * 4
        # The body of an answer may come after its head.
        assert {rest_on(each) for each in idle} <= {b"", b'{"ok":true}'}
        # A request with a valid token is not closed for others.
        assert b"200 OK" in answer_on(polls)
        for each in (*idle, *half_open, polls):
            each.close()


def problem_on(port: int, sent: bytes) -> Problem:
    with connected(port, sent) as connection:
        answer = b""
        while part := answer_on(connection):
            answer += part
    return Problem(**json.loads(answer.partition(b"\r\n\r\n")[2]))


def test_headers_are_bounded_in_size_and_number(served: Served) -> None:
    with listening(served) as port:
        for headers in (b"X: " + b"a" * 20_000 + b"\r\n", b"X: a\r\n" * MOST_HEADERS, b"X: " + b"a" * 60_000 + b"\r\n"):
            told = problem_on(port, READY[:-2] + headers + b"\r\n")
            assert (told.status, told.detail[:50]) == (431, "a request may have 16 KiB in at most 100 headers, ")
        assert problem_on(port, b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n").status == 431
        with connected(port, READY[:-2] + b"X: a\r\n" * (MOST_HEADERS - 1) + b"\r\n") as other:
            assert b"200 OK" in answer_on(other)


def test_a_body_of_many_small_chunks_is_refused(served: Served) -> None:
    start = f"POST /api/v1/optimizers HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {served.token(Role.OPTIMIZER)}\r\n"
    head = f"{start}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    with listening(served) as port:
        told = problem_on(port, head.encode() + b"1\r\n \r\n" * (FREE_CHUNKS + 1))
        assert (told.status, "chunks of a body have 1024 bytes or more" in told.detail) == (400, True)
        large = b"".join(b"400\r\n" + b" " * 0x400 + b"\r\n" for _ in range(FREE_CHUNKS - 1))
        assert problem_on(port, head.replace("Host", "Connection: close\r\nHost").encode() + large + b"0\r\n\r\n").status == 422
        # Chunks that come after the answer to a request without a token are not handled without end either.
        with connected(port, b"POST /api/v1/optimizers HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n") as nobody:
            assert answer_on(nobody).startswith(b"HTTP/1.1 401")
            nobody.sendall(b"1\r\n \r\n" * (FREE_CHUNKS + 1))
            while answer_on(nobody):
                pass
