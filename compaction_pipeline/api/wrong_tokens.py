"""Remembers wrong tokens for a while, so that whoever sends one again and again costs no look into the state database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from hashlib import blake2b

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

REMEMBERED = timedelta(seconds=10)
MOST = 10_000
"""So many are remembered. Then each new one takes the place of the oldest."""


class WrongTokens:
    """The texts that were no valid token lately. Only the event loop uses it.

    A token that is wrong does not become right: its secret is random, and it is stored before anybody gets it.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._until: dict[bytes, datetime] = {}

    def has(self, text: str) -> bool:
        """Return whether this text was no valid token just now."""
        until = self._until.get(_key(text))
        return until is not None and self._clock() < until

    def add(self, text: str) -> None:
        """Remember that this text is no valid token."""
        key = _key(text)
        self._until.pop(key, None)
        self._until[key] = self._clock() + REMEMBERED
        if len(self._until) > MOST:
            del self._until[next(iter(self._until))]


class AnswerWrongTokens:
    """An ASGI middleware. It answers a remembered wrong token at once, before the rest of the application does anything."""

    def __init__(self, app: ASGIApp, wrong: WrongTokens, answer: Response, paths: tuple[str, ...]) -> None:
        """`paths` are the beginnings of the paths that need a token."""
        self._app = app
        self._wrong = wrong
        self._answer = answer
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(self._paths):
            given = next((value for name, value in scope["headers"] if name == b"authorization"), b"").decode("latin-1")
            scheme, _, text = given.partition(" ")
            if scheme.lower() == "bearer" and self._wrong.has(text.strip()):
                await self._answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _key(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
