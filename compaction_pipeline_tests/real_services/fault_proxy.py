"""An HTTP proxy on a loopback port that counts requests and injects faults, for tests and benchmarks in the same process.

`FaultProxy.gate` may demand a login, and `FaultProxy.rewrite` may change answers. `FaultProxy.rules` gives requests one of the faults
below. The first rule that applies decides, and a request without a rule is forwarded. The proxy does not change the `Host` header, so that
signatures of S3 stay valid.
"""

from __future__ import annotations

import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random

_PATIENCE_SECONDS = 120
"""The proxy waits this long for the server behind it."""

_OF_THE_CONNECTION = frozenset({"connection", "content-length", "expect", "transfer-encoding"})
"""Headers that belong to one connection, or that the proxy sets itself. They are not forwarded."""


@dataclass(frozen=True)
class Status:
    """The client gets this answer, and the server never sees the request."""

    code: int
    body: str = ""
    content_type: str = "application/xml"
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Hang:
    """The client gets no answer until the rule is taken away. With `lands_late` the server then gets the request, otherwise never."""

    lands_late: bool = False


@dataclass(frozen=True)
class Delay:
    """The request is forwarded after this many seconds."""

    seconds: float


@dataclass(frozen=True)
class Drop:
    """The connection ends without an answer, and the server never sees the request. With `reset` it ends with a TCP reset."""

    reset: bool = False


@dataclass(frozen=True)
class Truncate:
    """The answer ends in the middle of its body."""


@dataclass(frozen=True)
class Lost:
    """The server carries the request out, but its answer is lost. The client gets the answer `instead`, or its connection ends."""

    instead: Status | None = None


Fault = Status | Hang | Delay | Drop | Truncate | Lost

Gate = Callable[[str, str, Mapping[str, str], bytes], Status | None]
"""Gets the method, the path with its query, the headers and the body of a request. Returns the answer to one that it does not let in."""

Rewrite = Callable[[str, str, bytes], bytes]
"""Gets the method, the path with its query, and the body of a successful answer. Returns the body that the client gets."""


@dataclass
class Rule:
    """A fault for requests whose `METHOD /path?query` matches the pattern, and whose body contains `body`.

    It applies to the first `times` of them (None means all), each with the given probability, drawn from a fixed seed. `seen`
    counts the requests that it was applied to, and `met` is set at the first of them.
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
    """One request as the proxy saw it. `status` is the server's answer (None when it was not asked), and `fault` the applied fault."""

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
    """A running proxy, made by `fault_proxy`. It delays every request by `latency_seconds`."""

    def __init__(self, server_port: int, context: ssl.SSLContext | None = None) -> None:
        self.latency_seconds = 0.0
        self.gate: Gate | None = None
        self.rewrite: Rewrite | None = None
        self._server_port = server_port
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._requests: list[Request] = []
        self._random = Random(0)
        self._listener = _Listener(("127.0.0.1", 0), self)
        if context is not None:
            # The handshake is made by the thread of the connection, so a client that breaks it off stops nobody else.
            self._listener.socket = context.wrap_socket(self._listener.socket, server_side=True, do_handshake_on_connect=False)
        self.port: int = self._listener.server_address[1]
        self.url = f"{'http' if context is None else 'https'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def add(self, pattern: str, fault: Fault, *, body: str = "", times: int | None = None, probability: float = 1.0) -> Rule:
        """Add a rule behind the present ones."""
        rule = Rule(pattern, fault, body, times, probability)
        with self._lock:
            self._rules.append(rule)
        return rule

    @contextmanager
    def fault(self, pattern: str, fault: Fault, *, body: str = "", times: int | None = None, probability: float = 1.0) -> Iterator[Rule]:
        """Add a rule until the block ends."""
        rule = self.add(pattern, fault, body=body, times=times, probability=probability)
        try:
            yield rule
        finally:
            self.take_away(rule)

    def take_away(self, *rules: Rule) -> None:
        """Remove these rules, or all rules when none is given. Requests that hang because of them end."""
        with self._lock:
            gone = list(rules or self._rules)
            self._rules = [rule for rule in self._rules if not any(rule is one for one in gone)]
        for rule in gone:
            rule.taken_away.set()

    def requests(self, pattern: str = "") -> Sequence[Request]:
        """The answered requests since `forget` whose `METHOD /path?query` matches the pattern, in the order of their answers."""
        with self._lock:
            return [request for request in self._requests if re.search(pattern, str(request))]

    def forget(self) -> None:
        """Forget all requests so far."""
        with self._lock:
            self._requests.clear()

    def close(self) -> None:
        self.take_away()
        self._listener.shutdown()
        self._thread.join()
        self._listener.server_close()
        self._listener.close_connections()

    def rule_for(self, what: str, body: bytes) -> Rule | None:
        """The rule that applies to this request, or None. The rule counts it."""
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
def fault_proxy(server_port: int, context: ssl.SSLContext | None = None) -> Iterator[FaultProxy]:
    """A proxy in front of the server on this loopback port, until the block ends. With a context its clients speak TLS."""
    proxy = FaultProxy(server_port, context)
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
        """End the connections that clients keep open."""
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
        """Log nothing, because `FaultProxy.requests` is the log."""

    def _handle(self) -> None:
        began = time.monotonic()
        proxy = self.server.proxy
        body = self._body()
        refusal = proxy.gate and proxy.gate(self.command, self.path, self.headers, body)
        rule = Rule("", refusal) if refusal else proxy.rule_for(f"{self.command} {self.path}", body)
        if proxy.latency_seconds:
            time.sleep(proxy.latency_seconds)
        status, reply = self._carried_out(rule, body)
        # The request is logged before the reply, so a client that has its answer finds the request in the log.
        fault, seconds = rule.fault if rule else None, time.monotonic() - began
        proxy.log(Request(self.command, self.path, self.headers.get("Range"), len(body), status, fault, seconds))
        try:
            reply()
        except (BrokenPipeError, ConnectionResetError):
            # The client closed the connection, for example after its timeout.
            self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    def _carried_out(self, rule: Rule | None, body: bytes) -> tuple[int | None, Callable[[], None]]:
        """Apply the rule. Returns the server's status (None when it was not asked), and a function that replies to the client."""
        fault, proxy = rule.fault if rule else None, self.server.proxy
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
        if proxy.rewrite and answer.status == 200:
            content = proxy.rewrite(self.command, self.path, content)
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
            # What is rewritten must not be compressed.
            hidden = _OF_THE_CONNECTION | ({"accept-encoding"} if self.server.proxy.rewrite else set())
            for key, value in self.headers.items():
                if key.lower() not in hidden:
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
            # With a linger time of 0, closing the socket sends a reset.
            self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.server.closed(self.request)
            # Otherwise the streams of this handler keep the socket open.
            socket.close(self.request.detach())
