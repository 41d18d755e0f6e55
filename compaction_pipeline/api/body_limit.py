"""Refuses bodies that are too large, too slow or no JSON, before a route sees them."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from compaction_pipeline.api.problems import problem
from compaction_pipeline.core.errors import ErrorCode

MOST_BYTES = 8 * 1024 * 1024
_JSON = "application/json"
_WITH_BODY = ("POST", "PUT", "PATCH")
SLOWEST_SECONDS = 30.0
"""A body must have arrived after this many seconds."""


class BodyLimit:
    """An ASGI middleware. It reads the whole body first, so a slow client holds no thread and no connection to the state database."""

    def __init__(self, app: ASGIApp, most_bytes: int = MOST_BYTES, slowest_seconds: float = SLOWEST_SECONDS) -> None:
        self._app = app
        self._most_bytes = most_bytes
        self._slowest_seconds = slowest_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            body = await asyncio.wait_for(self._read(receive), self._slowest_seconds)
        except asyncio.TimeoutError:
            detail = f"the body must arrive within {self._slowest_seconds:g} s"
            await problem(408, "The body is too slow", detail, ErrorCode.INVALID_INPUT.value)(scope, receive, send)
            return
        if body is None:
            detail = f"a body may have at most {self._most_bytes / 2**20:g} MiB"
            await problem(413, "The body is too large", detail, ErrorCode.INVALID_INPUT.value)(scope, receive, send)
            return
        sent_as = _content_type(scope)
        if body and scope["method"] in _WITH_BODY and sent_as != _JSON:
            has = f"the content type {sent_as!r}" if sent_as else "no content type"
            detail = f"the body has {has}, but this service reads JSON alone: send the header 'Content-Type: {_JSON}' with it"
            await problem(415, "The body is not JSON", detail, ErrorCode.INVALID_INPUT.value, "Content-Type")(scope, receive, send)
            return
        given = False

        async def whole() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, whole, send)

    async def _read(self, receive: Receive) -> bytes | None:
        parts: list[bytes] = []
        length = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return b"".join(parts)
            part = message.get("body", b"")
            length += len(part)
            if length > self._most_bytes:
                return None
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)


def _content_type(scope: Scope) -> str:
    """The media type of a request's body, without its parameters; "" when the request names none."""
    headers = dict(scope["headers"])
    return str(headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()[:100])
