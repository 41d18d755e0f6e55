"""Bounds the TLS handshakes that are not complete, together with the requests whose headers are not (`connections.py`).

asyncio's own TLS server tells nobody of a connection before its handshake has ended, and waits for it for a minute. So the server takes
plain connections, and does the handshake itself before HTTP begins. This needs asyncio's own event loop, which reads nothing from a new
connection before the task that does the handshake has begun.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from compaction_pipeline.api.connections import Connections

_SHUTDOWN: dict[str, Any] = {"ssl_shutdown_timeout": 2.0} if sys.version_info >= (3, 11) else {}
"""Whoever does not answer the end of a TLS connection keeps it open for so long."""


class Handshake(asyncio.Protocol):
    """A connection before TLS. After the handshake, the protocol of HTTP takes its place."""

    def __init__(
        self,
        *,
        http: Callable[..., asyncio.Protocol],
        context: ssl.SSLContext,
        connections: Connections,
        seconds: float,
        _loop: asyncio.AbstractEventLoop | None = None,
        **named: Any,
    ) -> None:
        """`http` makes the protocol of HTTP from what uvicorn gives, which is `named`. A handshake must have ended after `seconds`."""
        self._make_http = partial(http, _loop=_loop, **named)
        self._context = context
        self._connections = connections
        self._seconds = seconds
        self._loop = _loop or asyncio.get_event_loop()
        self._http: asyncio.Protocol | None = None
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._connections.unfinished(self, peer[0] if isinstance(peer, tuple) else "")
        # The event loop itself keeps no task alive.
        self._task = self._loop.create_task(self._secure())

    def data_received(self, data: bytes) -> None:
        # The first bytes of HTTP may come together with the last ones of the handshake.
        self._early.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.gone(self)
        if self._http is not None:
            self._http.connection_lost(exc)

    def close_for_others(self) -> None:
        """Close the connection now, because another one needs its place."""
        self._transport.abort()

    async def _secure(self) -> None:
        try:
            secured = await self._loop.start_tls(
                self._transport, self, self._context, server_side=True, ssl_handshake_timeout=self._seconds, **_SHUTDOWN
            )
        except OSError:
            # It is no TLS, it took too long, the client went away, or another connection needed the place.
            return
        finally:
            self._connections.gone(self)
        if secured is None or secured.is_closing():
            return
        self._http = self._make_http()
        secured.set_protocol(self._http)
        self._http.connection_made(secured)
        if self._early:
            self._http.data_received(b"".join(self._early))
            self._early.clear()
