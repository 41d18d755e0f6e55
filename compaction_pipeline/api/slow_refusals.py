"""Lets those who are refused again and again wait for their answers, so that refusing them leaves the server time for everybody else.

A client that asks anew as soon as it was refused can keep one process busy with nothing but refusals. Addresses cannot tell such a client
from others, because many optimizers may come from one. So all refusals of the server share one level. It rises with each of them and
falls steadily, and the higher it is, the later they are sent. Answers that are no refusals never wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

REFUSED = frozenset({400, 401, 403, 408, 413, 415, 422, 429, 431})
"""Answers to requests that nobody should send again as they are. 404 and 409 are a part of honest work."""
A_SECOND = 20.0
"""So many refusals a second make nobody wait."""
LONGEST_SECONDS = 1.0
_HIGHEST = 200.0
"""At this level they wait longest. It takes 10 s to fall from there."""


_LARGE_BYTES = 64 * 1024


class Refusals:
    """The level of one server. Only its event loop uses it."""

    def __init__(self, clock: Callable[[], float], spread: Callable[[], float] = lambda: 1.0) -> None:
        """`clock` tells the seconds since any moment. `spread` returns numbers from 0 to 1, which keep clients that were refused together
        from coming back together."""
        self._clock = clock
        self._spread = spread
        self._level = 0.0
        self._at = clock()

    def wait_seconds(self) -> float:
        """Count a refusal, and return how long its answer must wait."""
        now = self._clock()
        self._level = max(0.0, self._level - (now - self._at) * A_SECOND)
        self._at = now
        # The first ones in a second are free.
        waits = max(0.0, self._level - A_SECOND) / (_HIGHEST - A_SECOND) * LONGEST_SECONDS
        self._level = min(_HIGHEST, self._level + 1)
        return waits * (1 + self._spread()) / 2


class SlowRefusals:
    """An ASGI middleware that holds back refusals."""

    def __init__(self, app: ASGIApp, refusals: Refusals, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._app = app
        self._refusals = refusals
        self._sleep = sleep

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def later(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in REFUSED:
                await self._sleep(self._refusals.wait_seconds())
            await send(message)

        await self._app(scope, receive, later if scope["type"] == "http" and not _has_large_body(scope) else send)


def _has_large_body(scope: Scope) -> bool:
    """Return whether a request announces a large body. A client that still sends one costs more while it is held than a new one does."""
    announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    return announced.isdigit() and int(announced) > _LARGE_BYTES
