"""The proxy forwards requests, counts them and applies its rules to them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException, IncompleteRead
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from compaction_pipeline_tests.real_services.fault_proxy import Delay, Drop, FaultProxy, Hang, Lost, Status, Truncate, fault_proxy


class Echo(BaseHTTPRequestHandler):
    """Answers with the request that it got, and remembers the request."""

    protocol_version = "HTTP/1.1"
    received: list[str]

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.received.append(f"{self.command} {self.path} {body.decode()}")
        answer = f"{self.headers['Host']} {body.decode()}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    do_GET = do_PUT = do_HEAD = answer

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def received() -> list[str]:
    """The requests that reached the server."""
    return []


@pytest.fixture
def proxy(received: list[str]) -> Iterator[FaultProxy]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Here", (Echo,), {"received": received}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    with fault_proxy(server.server_address[1]) as made:
        yield made
    server.shutdown()
    server.server_close()


def asked(proxy: FaultProxy, method: str = "GET", path: str = "/a", body: str | None = None) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", proxy.port, timeout=60)
    try:
        connection.request(method, path, body=body, headers={"Host": "signed.example"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_it_forwards_and_counts(proxy: FaultProxy, received: list[str]) -> None:
    assert asked(proxy, "PUT", "/a?b=1", "body") == (200, "signed.example body")
    assert asked(proxy, "HEAD", "/c") == (200, "")
    assert received == ["PUT /a?b=1 body", "HEAD /c "]
    put, head = proxy.requests()
    assert (str(put), put.sent_bytes, put.status, put.fault) == ("PUT /a?b=1", 4, 200, None)
    assert proxy.requests("^HEAD") == [head]
    proxy.forget()
    assert proxy.requests() == []


def test_a_chunked_body_arrives_whole(proxy: FaultProxy, received: list[str]) -> None:
    connection = HTTPConnection("127.0.0.1", proxy.port, timeout=60)
    connection.request("PUT", "/a", body=iter([b"one ", b"two"]), encode_chunked=True)
    assert connection.getresponse().status == 200
    connection.close()
    assert received == ["PUT /a one two"]


def test_a_status_never_reaches_the_server(proxy: FaultProxy, received: list[str]) -> None:
    with proxy.fault("^GET /a", Status(503, "SlowDown"), times=2) as rule:
        assert [asked(proxy)[0] for _ in range(3)] == [503, 503, 200]
        assert rule.seen == 2
    assert len(received) == 1


def test_a_rule_looks_at_the_body(proxy: FaultProxy) -> None:
    with proxy.fault("^PUT", Status(409), body="add-snapshot"):
        assert asked(proxy, "PUT", body="set-properties")[0] == 200
        assert asked(proxy, "PUT", body="add-snapshot")[0] == 409


def test_a_part_of_the_requests_meets_a_rule(proxy: FaultProxy) -> None:
    with proxy.fault("", Status(503), probability=0.4) as rule:
        answers = [asked(proxy)[0] for _ in range(100)]
    assert 0 < rule.seen < 100
    assert answers.count(503) == rule.seen


@pytest.mark.parametrize("reset", [False, True])
def test_a_connection_ends_without_an_answer(proxy: FaultProxy, received: list[str], reset: bool) -> None:
    with proxy.fault("", Drop(reset)), pytest.raises(ConnectionResetError if reset else HTTPException):
        asked(proxy)
    assert received == []


def test_an_answer_is_lost_after_the_request_was_carried_out(proxy: FaultProxy, received: list[str]) -> None:
    with proxy.fault("", Lost()), pytest.raises(HTTPException):
        asked(proxy)
    with proxy.fault("", Lost(Status(504))):
        assert asked(proxy)[0] == 504
    assert len(received) == 2


def test_an_answer_is_cut_off(proxy: FaultProxy) -> None:
    with proxy.fault("", Truncate()), pytest.raises(IncompleteRead):
        asked(proxy, "PUT", body="x" * 1000)


@pytest.mark.parametrize("lands_late", [False, True])
def test_a_request_hangs_until_its_rule_is_taken_away(proxy: FaultProxy, received: list[str], lands_late: bool) -> None:
    rule = proxy.add("/hung", Hang(lands_late))
    met: list[BaseException] = []

    def ask() -> None:
        try:
            asked(proxy, path="/hung")
        except HTTPException as error:
            met.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    assert rule.met.wait(60)
    assert asked(proxy)[0] == 200
    assert received == ["GET /a "]
    proxy.take_away(rule)
    asking.join()
    assert len(met) == 1
    assert received == ["GET /a ", *(["GET /hung "] if lands_late else [])]


def test_latency_and_a_delay_are_added(proxy: FaultProxy) -> None:
    proxy.latency_seconds = 0.01
    with proxy.fault("", Delay(0.02)):
        asked(proxy)
    assert proxy.requests()[0].seconds >= 0.03
