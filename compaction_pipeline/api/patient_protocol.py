"""How the server speaks HTTP. It ends connections that send the headers of a request too slowly; uvicorn itself waits without end.

It also answers what is no HTTP request with a problem, as every other mistake. uvicorn itself answers with plain text.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from compaction_pipeline.api.problems import problem
from compaction_pipeline.core.errors import ErrorCode

HEADER_SECONDS = 10.0
"""The headers of a request must have arrived so many seconds after the connection was made, or after the request began.

A client that sends them byte by byte gets no more time. h11 takes at most 16 KiB of headers.
"""


class HeaderDeadline(H11Protocol):
    """uvicorn's protocol, with a deadline for headers. `BodyLimit` has the deadline for bodies."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            # The headers are here, and the request has begun.
            self._end()
        elif self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            # The next request on this connection begins, or a body goes on after its answer.
            self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        detail = (
            f"{msg.rstrip('. ')}: the bytes break a rule of HTTP/1.1; see that a header is not sent twice and has a value that it may have"
        )
        answer = problem(400, "The request breaks a rule", detail, ErrorCode.INVALID_INPUT.value)
        headers = [*answer.raw_headers, (b"connection", b"close")]
        begin = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
        for event in (begin, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _begin(self) -> None:
        self._deadline = self.loop.call_later(HEADER_SECONDS, self._too_late)

    def _end(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()
