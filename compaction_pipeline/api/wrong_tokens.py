"""Remembers tokens that are refused, so that whoever sends one again and again costs next to nothing: no look into the state database.
Whoever sends none costs as little.

These are tokens that are wrong, and tokens that have made too many requests.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from hashlib import blake2b

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

REMEMBERED = timedelta(seconds=10)
READING = ("GET", "HEAD")
"""Requests with these methods change nothing, and are not limited."""
MOST = 10_000
"""So many are remembered. Then each new one takes the place of the oldest."""


class WrongTokens:
    """The texts that were no valid token lately, and those that have to wait. Only the event loop uses it.

    A token that is wrong does not become right: its secret is random, and it is stored before anybody gets it.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._until: dict[bytes, datetime] = {}
        self._tired: dict[bytes, tuple[datetime, Response]] = {}

    def tire(self, text: str, seconds: int, answer: Response) -> None:
        """Remember the answer to a token that has made too many requests, for as long as the answer asks its holder to wait."""
        now = self._clock()
        if len(self._tired) >= MOST:
            self._tired = {key: kept for key, kept in self._tired.items() if now < kept[0]}
        self._tired[_key(text)] = (now + timedelta(seconds=seconds), answer)

    def answer_to(self, text: str) -> Response | None:
        """Return the remembered answer to a token that has made too many requests just now. Return None when there is none."""
        until, answer = self._tired.get(_key(text), (None, None))
        return answer if until is not None and self._clock() < until else None

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
    """An ASGI middleware. It answers a remembered token, and a request without one, before the rest of the application does anything."""

    def __init__(self, app: ASGIApp, wrong: WrongTokens, answer: Response, without: Response, paths: tuple[str, ...]) -> None:
        """`paths` are the beginnings of the paths that need a token. `without` is the answer to a request that has none."""
        self._app = app
        self._wrong = wrong
        self._answer = answer
        self._without = without
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(self._paths):
            given = next((value for name, value in scope["headers"] if name == b"authorization"), b"").decode("latin-1")
            scheme, _, text = given.partition(" ")
            text = text.strip() if scheme.lower() == "bearer" else ""
            answer = self._without if not given else self._answer if text and self._wrong.has(text) else None
            if answer is None and text and scope["method"] not in READING:
                answer = self._wrong.answer_to(text)
            if answer is not None:
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _key(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
