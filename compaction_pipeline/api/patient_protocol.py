"""How the server speaks HTTP: what uvicorn does, with bounds.

It ends connections that send the headers of a request too slowly; uvicorn itself waits without end. It bounds the size and number of
headers, the chunks of a body and the bytes that come after an answer, and it tells `Connections` what each connection does. It also answers
what is no HTTP request with a problem, as every other mistake. uvicorn itself answers with plain text.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from compaction_pipeline.api.connections import Connections
from compaction_pipeline.api.problems import problem
from compaction_pipeline.api.slow_refusals import Refusals
from compaction_pipeline.core.errors import ErrorCode

MOST_HEADER_BYTES = 16 * 1024
"""The request line and all headers may have this size."""
MOST_HEADERS = 100
FREE_CHUNKS, CHUNK_BYTES = 64, 1024
"""Each chunk of a body is handled in the event loop, however small it is. So after the first ones, chunks have this size on average."""
MOST_UNREAD_BYTES, MOST_UNREAD_BYTES_OF_UNKNOWN = 8 * 1024 * 1024, 256 * 1024
"""So many bytes of a body may come after its answer. They are thrown away, so that the client can read why its body was not wanted. Fewer
may come from whoever has shown no valid token."""
KNOWN = "compaction_known"
"""The key of the scope's state under which the application finds what it calls when the request has a valid token."""


class _BoundedConnection(h11.Connection):
    """h11's connection. h11 itself bounds only headers that have not arrived as a whole."""

    hint = 400
    """The status that fits the last error."""
    _chunks = 0
    _body_bytes = 0

    def next_event(self) -> Any:
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            self.hint = error.error_status_hint
            raise
        if isinstance(event, h11.Request):
            self._chunks = self._body_bytes = 0
            size = len(event.method) + len(event.target) + sum(len(name) + len(value) + 4 for name, value in event.headers)
            if size > MOST_HEADER_BYTES or len(event.headers) > MOST_HEADERS:
                self.hint = 431
                raise h11.RemoteProtocolError("too many headers")
            if {b"content-length", b"transfer-encoding"} <= {name for name, _ in event.headers}:
                # A proxy may go by the other one of the two, and take what is a request here for a part of this body (RFC 9112 §6.1).
                self.hint = 400
                raise h11.RemoteProtocolError("Content-Length and Transfer-Encoding are both given")
        elif isinstance(event, h11.Data):
            self._chunks += event.chunk_start
            self._body_bytes += len(event.data)
            if self._chunks > FREE_CHUNKS + self._body_bytes // CHUNK_BYTES:
                self.hint = 400
                raise h11.RemoteProtocolError("too many chunks")
        return event


class HeaderDeadline(H11Protocol):
    """uvicorn's protocol, with bounds. `Bodies` has those of bodies."""

    conn: _BoundedConnection
    _deadline: asyncio.TimerHandle | None = None
    _unread_bytes = 0
    _is_known = False

    def __init__(self, *given: Any, connections: Connections, refusals: Refusals, header_seconds: float, **named: Any) -> None:
        super().__init__(*given, **named)
        self._refusals = refusals
        self._header_seconds = header_seconds
        self._is_refused = False
        self.conn = _BoundedConnection(h11.SERVER, MOST_HEADER_BYTES)
        self._connections = connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin()
        self._connections.unfinished(self, self._host)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if len(data) > MOST_HEADER_BYTES and self._begins_with_too_many_headers(data):
            self.conn.hint = 431
            self.send_400_response("too many headers")
            return
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before or self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            # The next request on this connection begins, or a body goes on after its answer.
            self._unread_bytes += len(data)
            if self._unread_bytes > (MOST_UNREAD_BYTES if self._is_known else MOST_UNREAD_BYTES_OF_UNKNOWN):
                self.transport.abort()
            elif self._deadline is None:
                self._begin()
                self._connections.unfinished(self, self._host)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            # The headers are here, and the request has begun.
            self._end()
            self._unread_bytes, self._is_known = 0, False
            self._connections.unknown(self, self._host)
            # The task of the request has not begun to run.
            self.scope["state"][KNOWN] = self._known

    def on_response_complete(self) -> None:
        if not self.transport.is_closing():
            self._connections.unknown(self, self._host)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        self._connections.gone(self)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        # Nothing more is read of what breaks a rule.
        self._is_refused = True
        self.transport.pause_reading()
        self._end()
        self._connections.unknown(self, self._host)
        wait = self._refusals.wait_seconds()
        if wait:
            self.loop.call_later(wait, self._refuse, msg)
        else:
            self._refuse(msg)

    def _begins_with_too_many_headers(self, data: bytes) -> bool:
        """Return whether a request begins here whose headers are too large. To parse them would cost much more."""
        if self.conn.their_state is not h11.IDLE or self.conn.trailing_data[0]:
            return False
        return all(data.find(end, 0, MOST_HEADER_BYTES + len(end)) < 0 for end in (b"\n\r\n", b"\n\n"))

    def _refuse(self, msg: str) -> None:
        if self.transport.is_closing():
            return
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            # The answer has begun. Nothing can be said any more.
            self.transport.abort()
            return
        status, title, detail = self._broken_rule(msg)
        answer = problem(status, title, detail, ErrorCode.INVALID_INPUT.value)
        headers = [*answer.raw_headers, (b"connection", b"close")]
        begin = h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase.encode())
        for event in (begin, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def close_for_others(self) -> None:
        """Close the connection now, because another one needs its place."""
        if self.transport.get_write_buffer_size():
            # The client does not read its answer.
            self.transport.abort()
        else:
            self.transport.close()

    def _broken_rule(self, msg: str) -> tuple[int, str, str]:
        if self.conn.hint == 431:
            most = f"{MOST_HEADER_BYTES // 1024} KiB in at most {MOST_HEADERS} headers"
            return 431, "The headers are too large", f"a request may have {most}, its first line included; send fewer or shorter ones"
        rule = (
            "the bytes break a rule of HTTP/1.1; see that a header is not sent twice and has a value that it may have, "
            "that Content-Length and Transfer-Encoding do not come together"
        )
        return (
            400,
            "The request breaks a rule",
            f"{msg.rstrip('. ')}: {rule}, and that the chunks of a body have {CHUNK_BYTES} bytes or more",
        )

    def _known(self) -> None:
        """Learn that the request has a valid token."""
        self._is_known = True
        if not self.transport.is_closing():
            self._connections.gone(self)

    @property
    def _host(self) -> str:
        return self.client[0] if self.client else ""

    def _begin(self) -> None:
        self._deadline = self.loop.call_later(self._header_seconds, self._too_late)

    def _end(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()
