"""An HTTP proxy on a loopback port that counts requests and injects faults, for tests and benchmarks in the same process.

`FaultProxy.rules` says what happens to which request; the first rule that applies decides, and without one the request is forwarded.
What happens is one of the faults below. The proxy forwards the `Host` header as it came, so that signatures of S3 hold.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random

_PATIENCE_SECONDS = 120
"""How long the proxy waits for the server behind it."""

_OF_THE_CONNECTION = frozenset({"connection", "content-length", "expect", "transfer-encoding"})
"""Headers that speak of one connection, or that the proxy gives anew."""


@dataclass(frozen=True)
class Status:
    """The client gets this answer, and the server never sees the request."""

    code: int
    body: str = ""
    content_type: str = "application/xml"
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Hang:
    """The client gets no answer while the rule stands. The server sees the request never, or (`lands_late`) when the rule is taken away."""

    lands_late: bool = False


@dataclass(frozen=True)
class Delay:
    """The request is forwarded after so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Drop:
    """The connection ends without an answer, and the server never sees the request. `reset`: it ends with a TCP reset."""

    reset: bool = False


@dataclass(frozen=True)
class Truncate:
    """The answer ends in the middle of its body."""


@dataclass(frozen=True)
class Lost:
    """The server carries the request out, but its answer is lost: the client gets `instead`, or the end of its connection."""

    instead: Status | None = None


Fault = Status | Hang | Delay | Drop | Truncate | Lost


@dataclass
class Rule:
    """A fault for requests whose `METHOD /path?query` holds the pattern, and whose body holds `body` where it is given.

    It applies to the first `times` of them (None: to all), each with the given probability (by chance, from a fixed seed).
    `seen` counts the requests that it was applied to; `met` is set at the first.
    """

    pattern: str
    fault: Fault
    body: str = ""
    times: int | None = None
    probability: float = 1.0
    seen: int = 0
    met: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)
    taken_away: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)


@dataclass(frozen=True)
class Request:
    """One request as the proxy saw it: `status` is what the server answered (None: it was not asked), `fault` what befell the request."""

    method: str
    path: str
    range: str | None
    sent_bytes: int
    status: int | None
    fault: Fault | None
    seconds: float

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class FaultProxy:
    """A running proxy; made by `fault_proxy`. `latency_seconds` is added to every request."""

    def __init__(self, server_port: int) -> None:
        self.latency_seconds = 0.0
        self._server_port = server_port
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._requests: list[Request] = []
        self._random = Random(0)
        self._listener = _Listener(("127.0.0.1", 0), self)
        self.port: int = self._listener.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def add(self, pattern: str, fault: Fault, *, body: str = "", times: int | None = None, probability: float = 1.0) -> Rule:
        """A rule behind those that there are."""
        rule = Rule(pattern, fault, body, times, probability)
        with self._lock:
            self._rules.append(rule)
        return rule

    @contextmanager
    def fault(self, pattern: str, fault: Fault, *, body: str = "", times: int | None = None, probability: float = 1.0) -> Iterator[Rule]:
        """A rule that stands as long as the block."""
        rule = self.add(pattern, fault, body=body, times=times, probability=probability)
        try:
            yield rule
        finally:
            self.take_away(rule)

    def take_away(self, *rules: Rule) -> None:
        """Take these rules away, or all where none is named; requests that hang by them end."""
        with self._lock:
            gone = list(rules or self._rules)
            self._rules = [rule for rule in self._rules if not any(rule is one for one in gone)]
        for rule in gone:
            rule.taken_away.set()

    def requests(self, pattern: str = "") -> Sequence[Request]:
        """The answered requests since `forget` whose `METHOD /path?query` holds the pattern, in the order of their answers."""
        with self._lock:
            return [request for request in self._requests if re.search(pattern, str(request))]

    def forget(self) -> None:
        """Count from here."""
        with self._lock:
            self._requests.clear()

    def close(self) -> None:
        self.take_away()
        self._listener.shutdown()
        self._thread.join()
        self._listener.server_close()
        self._listener.close_connections()

    def rule_for(self, what: str, body: bytes) -> Rule | None:
        """The rule that this request meets; it counts as applied."""
        with self._lock:
            for rule in self._rules:
                if rule.times is not None and rule.seen >= rule.times:
                    continue
                if not re.search(rule.pattern, what) or (rule.body and not re.search(rule.body, body.decode("utf-8", "replace"))):
                    continue
                if rule.probability < 1 and self._random.random() >= rule.probability:
                    continue
                rule.seen += 1
                rule.met.set()
                return rule
        return None

    def log(self, request: Request) -> None:
        with self._lock:
            self._requests.append(request)

    def connect(self) -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self._server_port, timeout=_PATIENCE_SECONDS)


@contextmanager
def fault_proxy(server_port: int) -> Iterator[FaultProxy]:
    """A proxy in front of the server on this loopback port, for as long as the block."""
    proxy = FaultProxy(server_port)
    try:
        yield proxy
    finally:
        proxy.close()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], proxy: FaultProxy) -> None:
        super().__init__(address, _Handler)
        self.proxy = proxy
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def opened(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.add(connection)

    def closed(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)

    def close_connections(self) -> None:
        """End those that clients keep for later."""
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Listener

    def setup(self) -> None:
        super().setup()
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server.opened(self.request)

    def finish(self) -> None:
        self.server.closed(self.request)
        super().finish()

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing: the log is `FaultProxy.requests`."""

    def _handle(self) -> None:
        began = time.monotonic()
        proxy = self.server.proxy
        body = self._body()
        rule = proxy.rule_for(f"{self.command} {self.path}", body)
        if proxy.latency_seconds:
            time.sleep(proxy.latency_seconds)
        status, reply = self._carried_out(rule, body)
        # Before the reply: who has an answer finds its request counted.
        fault, seconds = rule.fault if rule else None, time.monotonic() - began
        proxy.log(Request(self.command, self.path, self.headers.get("Range"), len(body), status, fault, seconds))
        try:
            reply()
        except (BrokenPipeError, ConnectionResetError):
            # The client has gone, for example because it waited long enough.
            self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    def _carried_out(self, rule: Rule | None, body: bytes) -> tuple[int | None, Callable[[], None]]:
        """Do what the rule says: the status of the server, None where it was not asked, and what the client gets to see."""
        fault = rule.fault if rule else None
        if isinstance(fault, Status):
            return None, lambda: self._send_status(fault)
        if isinstance(fault, Drop):
            return None, lambda: self._end(fault.reset)
        if isinstance(fault, Hang) and rule:
            rule.taken_away.wait()
            if not fault.lands_late:
                return None, self._end
        if isinstance(fault, Delay):
            time.sleep(fault.seconds)
        try:
            answer, content = self._forwarded(body)
        except (OSError, HTTPException) as error:
            text = f"{type(error).__name__}: {error}"
            return None, lambda: self._send_status(Status(502, text, "text/plain"))
        if isinstance(fault, Hang) or fault == Lost():
            return answer.status, self._end
        if isinstance(fault, Lost) and (instead := fault.instead):
            return answer.status, lambda: self._send_status(instead)
        cut = isinstance(fault, Truncate) and answer.status < 300
        return answer.status, lambda: self._send(answer.status, answer.getheaders(), content, cut)

    def _body(self) -> bytes:
        if (self.headers.get("Transfer-Encoding") or "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _forwarded(self, body: bytes) -> tuple[HTTPResponse, bytes]:
        connection = self.server.proxy.connect()
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for key, value in self.headers.items():
                if key.lower() not in _OF_THE_CONNECTION:
                    connection.putheader(key, value)
            if body or self.command in ("PUT", "POST"):
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body or None)
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def _send_status(self, answer: Status) -> None:
        self._send(answer.code, [("Content-Type", answer.content_type), *answer.headers], answer.body.encode())

    def _send(self, status: int, headers: Sequence[tuple[str, str]], content: bytes, cut: bool = False) -> None:
        self.send_response_only(status)
        length = str(len(content))
        for key, value in headers:
            if key.lower() not in _OF_THE_CONNECTION:
                self.send_header(key, value)
            elif key.lower() == "content-length" and self.command == "HEAD":
                length = value
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if cut else content)
        if cut:
            self.close_connection = True

    def _end(self, reset: bool = False) -> None:
        self.close_connection = True
        if reset:
            # Closing without lingering answers what comes next with a reset.
            self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.server.closed(self.request)
            # The streams of this handler keep the socket open otherwise.
            socket.close(self.request.detach())
