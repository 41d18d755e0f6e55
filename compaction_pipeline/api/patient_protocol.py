"""Ends connections that send the headers of a request too slowly. uvicorn itself waits for them without end."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

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
